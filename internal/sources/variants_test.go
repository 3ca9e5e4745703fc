package sources

import (
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/sources/fetch"
	"atoll.dev/atoll/internal/sources/render"
)

const withVariant = "{repository: repo, ref: {branch: main}, variants: [{name: one, targetCluster: {clusterNames: [oslo]}}]}"

// setVariants brings a commit with a ConfigMap a, and a value of it in the variant one. An empty value of the variant is the same
// object, and - none. Objects of the variant alone follow.
func (h *hub) setVariants(hash, value, variant string, only ...string) {
	h.setCommit(hash, "a="+value)
	h.commit.Digest += variant + strings.Join(only, ",")
	v := render.VariantResult{Name: "one"}
	add := func(name, value string) {
		v.Objects = append(v.Objects, render.Object{File: "one.yaml", Line: 1, Fields: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}, "data": map[string]any{"v": value},
		}})
	}
	if variant != "" {
		v.Absent = []int{0}
	}
	if variant != "" && variant != "-" {
		add("a", variant)
	}
	for _, name := range only {
		add(name, "1")
	}
	h.commit.Variants = []render.VariantResult{v}
}

// runInOrder checks the Repository, and returns the writes in their order. A policy is named P, and T as a transition.
func (h *hub) runInOrder() string {
	h.t.Helper()
	h.writes = nil
	if err := h.r.checkRepository(h.t.Context(), repoKey); err != nil {
		h.t.Fatal(err)
	}
	var out []string
	for _, w := range h.writes {
		verb, name, _ := strings.Cut(w, " ")
		if strings.HasPrefix(name, "source-web-") {
			name = "P"
		}
		out = append(out, verb+" "+name)
	}
	return strings.Join(out, ", ")
}

// listPolicies returns the rules of the policies on the hub.
func (h *hub) listPolicies() (out []string) {
	for key, o := range h.objects {
		if strings.HasPrefix(key, "overridepolicies/") {
			for _, r := range o.Object["spec"].(map[string]any)["overrideRules"].([]any) {
				out = append(out, fmt.Sprint(r.(map[string]any)["overriders"]))
			}
		}
	}
	return out
}

// A policy comes before its object. One that changes together with its object is replaced by a transition first, and by its last
// form afterwards. A commit that changes the variant alone writes the policy alone.
func TestPoliciesOfVariantsAreAppliedInOrder(t *testing.T) {
	h := newHub(t, withVariant)
	for n, step := range []struct {
		value, variant, want, policy string
		only                         []string
	}{
		{"1", "2", "apply P, apply a", "map[mergePatch:map[data:map[v:2]]]", nil},
		{"1", "3", "apply P", "map[mergePatch:map[data:map[v:3]]]", nil},
		{"2", "3", "apply a", "map[mergePatch:map[data:map[v:3]]]", nil},
		{"4", "5", "apply P, apply a, apply P", "map[mergePatch:map[data:map[v:5]]]", nil},
		{"5", "", "apply P, apply a, delete P", "", nil},
		{"6", "-", "apply P, apply a, apply P", "map[notHere:true]", nil},
		{"6", "", "delete P", "", nil},
		{"6", "", "apply P, apply b", "map[] map[notHere:true]", []string{"b"}},
		{"6", "", "delete b, delete P", "", nil},
	} {
		h.setVariants(fmt.Sprint("c", n), step.value, step.variant, step.only...)
		if got := h.runInOrder(); got != step.want || strings.Join(h.listPolicies(), " ") != step.policy {
			t.Errorf("%+v: %s; %v", step, got, h.listPolicies())
		}
		if s := h.readSource(); s.Status.Objects.Applied != int32(1+len(step.only)) || s.Status.WaitsFor != "" && !strings.Contains(s.Status.WaitsFor, "no policy") {
			t.Errorf("%+v: %+v", step, s.Status)
		}
	}
}

// While the policy of a variant is refused, its object stays as it was, and so does what comes after it.
func TestAnObjectWaitsForThePolicyOfItsVariant(t *testing.T) {
	h := newHub(t, withVariant)
	h.setVariants("c1", "1", "2")
	h.runCheck()
	var policy string
	for key := range h.objects {
		if name, ok := strings.CutPrefix(key, "overridepolicies/"); ok {
			policy = name
		}
	}
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "overridepolicies"}, policy, fmt.Errorf(`"system:serviceaccount:shop:atoll-sources" lacks the right`))
	h.refuse[policy] = forbidden
	h.setVariants("c2", "3", "4")
	if got := h.runInOrder(); got != "" {
		t.Errorf("a transition that is refused: %s", got)
	}
	s := h.readSource()
	if s.Status.Commit != "c1" || !strings.Contains(h.listConditions(), "Applied=False/PermissionMissing") {
		t.Errorf("%+v", s.Status)
	}
	h.setVariants("c3", "1", "5")
	if got := h.runInOrder(); got != "" {
		t.Errorf("a policy that is refused: %s", got)
	}
	h.refuse = map[string]error{"a": apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "a", fmt.Errorf("no"))}
	h.setVariants("c4", "6", "7")
	if got := h.runInOrder(); got != "" {
		t.Errorf("an object that is refused: %s", got)
	}
	// Its dry run succeeds, and its apply fails.
	h.refuse = nil
	h.during = func() { h.refuse = map[string]error{"a": errRefused} }
	h.setVariants("c5", "6", "8")
	if got := h.runInOrder(); got != "apply P" {
		t.Errorf("an object that is refused after its transition: %s", got)
	}
	h.refuse = nil
	h.setVariants("c6", "1", "2") // as the first commit: the transition is no more what the hub had
	if got := h.runInOrder(); got != "apply P" || strings.Join(h.listPolicies(), " ") != "map[mergePatch:map[data:map[v:2]]]" {
		t.Errorf("back again: %s; %v", got, h.listPolicies())
	}
}

// An edit of the variants keeps objects of a variant that is gone, with their policies, and lets no other policy stay.
func TestEditsOfVariants(t *testing.T) {
	h := newHub(t, withVariant)
	h.setVariants("c1", "1", "2", "b")
	h.runCheck()
	h.editSource(func(s *v1alpha1.SourceSpec) { s.Variants[0].TargetCluster.ClusterNames = []string{"bergen"} })
	if got := h.runInOrder(); got != "apply P, apply P" {
		t.Errorf("another target: %s", got)
	}
	h.editSource(func(s *v1alpha1.SourceSpec) { s.Variants = nil })
	h.setCommit("c2", "a=1")
	if got := h.runInOrder(); got != "delete P" || strings.Join(h.listPolicies(), " ") != "map[] map[notHere:true]" {
		t.Errorf("no variants: %s; %v", got, h.listPolicies())
	}
	for _, o := range h.readSource().Status.Inventory {
		if wants := o.Name != "a"; wants != (o.Kept == string(atoll.ReasonSettingsChanged)) {
			t.Errorf("%+v", o)
		}
	}
}

// A variant that cannot be had holds the whole commit.
func TestAVariantThatCannotBeHadHoldsTheCommit(t *testing.T) {
	h := newHub(t, withVariant)
	h.setVariants("c1", "1", "2")
	h.runCheck()
	h.setVariants("c2", "3", "4")
	h.commit.Variants[0].Objects[0].Fields["metadata"].(map[string]any)["finalizers"] = []any{"a/b"}
	if got := h.runInOrder(); got != "" {
		t.Errorf("%s", got)
	}
	if e := h.readSource().Status.Errors; len(e) != 1 || e[0].File != "one.yaml" || e[0].Line != 1 || !strings.HasPrefix(e[0].Message, "variant one: ConfigMap a: metadata.finalizers differs") {
		t.Errorf("%+v", e)
	}
	h.commit = fetch.Content{Commit: "c3", Digest: "d", Result: render.Result{Problems: []render.Problem{{File: "one.yaml", Line: 2, Message: "variant one: no"}}}}
	if got := h.runInOrder(); got != "" || !strings.Contains(h.readRendered().Message, "one.yaml:2: variant one: no") {
		t.Errorf("%s %+v", got, h.readRendered())
	}
}

// The policy of an object that a removal leaves on the hub stays with it, so that the object goes to no further cluster.
func TestAPolicyStaysWithAnObjectThatIsNotRemoved(t *testing.T) {
	for name, keep := range map[string]struct {
		change func(*unstructured.Unstructured)
		kept   string
	}{
		"annotated to stay": {func(u *unstructured.Unstructured) {
			u.SetAnnotations(map[string]string{"helm.sh/resource-policy": "keep"})
		}, string(atoll.ReasonPolicyKeeps)},
		"made again by a person": {func(u *unstructured.Unstructured) { u.SetUID("other") }, string(atoll.ReasonOwnedElsewhere)},
	} {
		h := newHub(t, withVariant)
		h.setVariants("c1", "1", "", "b")
		h.runCheck()
		keep.change(h.objects["configmaps/b"])
		h.setVariants("c2", "1", "")
		if got := h.runInOrder(); got != "" || strings.Join(h.listPolicies(), " ") != "map[] map[notHere:true]" {
			t.Errorf("%s: %s; %v", name, got, h.listPolicies())
		}
		for _, o := range h.readSource().Status.Inventory {
			if wants := o.Name != "a"; wants != (o.Kept == keep.kept) {
				t.Errorf("%s: %+v", name, o)
			}
		}
	}
}

// A policy comes to no object that the hub refuses, such as one of another owner: it would change that one in members.
func TestPoliciesChangeNoObjectOfAnotherOwner(t *testing.T) {
	for name, spec := range map[string]string{"a value": "2", "an exclusion": "-"} {
		h := newHub(t, withVariant)
		h.refuse["a"] = apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, "a", fmt.Errorf(`conflict with "kubectl": .data.v`))
		h.setVariants("c1", "1", spec, "b")
		if got := h.runInOrder(); got != "apply P, apply b" {
			t.Errorf("%s: %s", name, got)
		}
		if s := h.readSource(); !strings.Contains(h.listConditions(), "Applied=False/OwnedByOthers") || len(s.Status.Errors) != 2 || !strings.Contains(s.Status.Errors[0].Message, "kubectl") {
			t.Errorf("%s: %+v", name, s.Status)
		}
		h.refuse = nil
		h.setVariants("c2", "1", spec, "b")
		if got := h.runInOrder(); got != "apply P, apply a" {
			t.Errorf("%s: afterwards: %s", name, got)
		}
	}
}

// While an object and its policy change, a variant gets no field of the former object that its policy kept out.
func TestATransitionKeepsFormerFieldsOut(t *testing.T) {
	h := newHub(t, withVariant)
	h.setVariants("c1", "1", "2")
	h.runCheck()
	managers := h.objects["configmaps/a"].GetManagedFields()
	managers[0].FieldsV1 = metav1.NewFieldsV1(`{"f:data":{"f:v":{},"f:base":{}}}`)
	h.objects["configmaps/a"].SetManagedFields(managers)
	h.objects["configmaps/a"].Object["data"].(map[string]any)["base"] = "x"
	var during []string
	h.during = func() { during = h.listPolicies() }
	h.setVariants("c2", "3", "4")
	if got := h.runInOrder(); got != "apply P, apply a, apply P" || strings.Join(during, " ") != "map[mergePatch:map[data:map[base:<nil> v:4]]]" {
		t.Errorf("%s: %v", got, during)
	}
}

// A new version of the hub that renders a variant without an object takes the object out of no cluster, until a person states it.
func TestAnUpgradeExcludesNothing(t *testing.T) {
	for name, value := range map[string]string{"the object is the same": "1", "the object changes, too": "2"} {
		h := newHub(t, withVariant)
		h.setVariants("c1", "1", "3")
		h.commit.Program = "helm 1"
		h.commit.Builds = []render.Build{{Type: render.Helm, Dir: "chart"}}
		h.runCheck()
		h.setVariants("c2", value, "-")
		h.commit.Program, h.commit.Builds = "helm 2", []render.Build{{Type: render.Helm, Dir: "chart"}}
		for range 2 {
			if got := h.runInOrder(); got != "" || !strings.Contains(h.readSource().Status.Errors[0].Message, "would take its object out of clusters") {
				t.Errorf("%s: %s; %+v", name, got, h.readSource().Status.Errors)
			}
		}
		now := metav1.Now().Rfc3339Copy()
		h.editSource(func(s *v1alpha1.SourceSpec) { s.SyncRequest = &now })
		if h.runInOrder(); strings.Join(h.listPolicies(), " ") != "map[notHere:true]" {
			t.Errorf("%s: a sync: %v", name, h.listPolicies())
		}
		if got := h.runInOrder(); got != "" {
			t.Errorf("%s: afterwards: %s", name, got)
		}
	}
}
