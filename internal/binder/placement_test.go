package binder

import (
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/crds"
	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/binder/defaulting"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/state"
)

// placementTable is a table of them.
type placementTable map[types.NamespacedName]v1alpha1.PlacementSpec

func (x placementTable) Get(key types.NamespacedName) (state.Placement, bool) {
	spec, ok := x[key]
	return state.Placement{Spec: spec}, ok
}
func (placementTable) Subscribe(func(types.NamespacedName)) {}

// bundleTable is as much of the table of Bundles as reading one needs.
type bundleTable struct {
	Bundles
	byID map[policymatch.BundleID]state.Bundle
}

func (x bundleTable) GetByName(ns, name string) (state.Bundle, bool) {
	b, ok := x.byID[policymatch.BundleID{Namespace: ns, Name: name}]
	return b, ok
}
func (bundleTable) Put(client.Object) {}

// twoPolicyTables kinds of policies.
type twoPolicyTables struct {
	Policies
	namespaced map[string]*v1alpha1.PropagationPolicy
	cluster    map[string]*v1alpha1.ClusterPropagationPolicy
}

func (x twoPolicyTables) GetPropagationPolicy(_, name string) (*v1alpha1.PropagationPolicy, bool) {
	p, ok := x.namespaced[name]
	return p, ok
}

func (x twoPolicyTables) GetClusterPropagationPolicy(name string) (*v1alpha1.ClusterPropagationPolicy, bool) {
	p, ok := x.cluster[name]
	return p, ok
}

func (x twoPolicyTables) PropagationPolicies(ns string) (out []*v1alpha1.PropagationPolicy) {
	for _, p := range x.namespaced {
		if p.Namespace == ns {
			out = append(out, p)
		}
	}
	return out
}

func (x twoPolicyTables) ClusterPropagationPolicies() (out []*v1alpha1.ClusterPropagationPolicy) {
	for _, p := range x.cluster {
		out = append(out, p)
	}
	return out
}

func placementInClusters(names ...string) v1alpha1.PlacementSpec {
	return v1alpha1.PlacementSpec{ClusterAffinity: &v1alpha1.ClusterAffinity{ClusterNames: names}}
}

func placementText(p v1alpha1.PlacementSpec) string {
	if p.ClusterAffinity == nil {
		return "*"
	}
	return strings.Join(p.ClusterAffinity.ClusterNames, ",")
}

// A policy that refers to a Placement wants what that says: one of its own namespace, or
// a ClusterPlacement for a cluster policy. One that is gone leaves a Bundle where it is,
// and makes none.
func TestPlacementRef(t *testing.T) {
	ref := v1alpha1.PropagationSpec{PlacementRef: &v1alpha1.PlacementRef{Name: "edge"}}
	b, _, _ := newTestBinder(t)
	id := policymatch.BundleID{Namespace: "shop", Name: "web"}
	is := state.Bundle{Ref: enginev1.BundleRef{UID: "u", Namespace: "shop", Name: "web"}, Spec: v1alpha1.BundleSpec{Placement: placementInClusters("was")}}
	for name, tc := range map[string]struct {
		kind  string
		spec  v1alpha1.PropagationSpec
		known placementTable
		had   bool
		want  string // the clusters, or "" for no intent
		says  string
	}{
		"of its namespace":        {policyKind, ref, placementTable{{Namespace: "shop", Name: "edge"}: placementInClusters("a")}, true, "a", ""},
		"of another namespace":    {policyKind, ref, placementTable{{Namespace: "else", Name: "edge"}: placementInClusters("a")}, true, "was", "Placement shop/edge"},
		"without a namespace":     {policyKind, ref, placementTable{{Name: "edge"}: placementInClusters("a")}, true, "was", "Placement shop/edge"},
		"of a cluster policy":     {v1alpha1.SourceClusterPropagationPolicy, ref, placementTable{{Name: "edge"}: placementInClusters("b")}, true, "b", ""},
		"a cluster policy's, own": {v1alpha1.SourceClusterPropagationPolicy, ref, placementTable{{Namespace: "shop", Name: "edge"}: placementInClusters("a")}, true, "was", "ClusterPlacement edge"},
		"gone, nothing placed":    {policyKind, ref, nil, false, "", "Placement shop/edge"},
		"gone, something placed":  {policyKind, ref, nil, true, "was", "Placement shop/edge"},
		"none":                    {policyKind, v1alpha1.PropagationSpec{}, nil, true, "*", ""},
		"a placement":             {policyKind, v1alpha1.PropagationSpec{Placement: placementInClusters("c")}, nil, true, "c", ""},
	} {
		table := bundleTable{byID: map[policymatch.BundleID]state.Bundle{}}
		if tc.had {
			table.byID[id] = is
		}
		b.Bundles, b.Placements = table, tc.known
		got := ""
		if intent := b.intentWithPlacement(id, tc.kind, tc.spec); intent != nil {
			got = placementText(intent.Spec.Placement)
		}
		if got != tc.want {
			t.Errorf("%s: placed in %q, want %q", name, got, tc.want)
		}
		if says := b.missingPlacementReason(tc.kind, "shop", &tc.spec); (tc.says == "") != (says == "") || !strings.HasPrefix(says, tc.says) {
			t.Errorf("%s: says %q, want %q", name, says, tc.says)
		}
	}
}

// Objects whose policy refers to a Placement that is not there say so after a while, and
// once; one that comes soon is no reason for words.
func TestWaitingForAPlacementIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _, _ := newTestBinder(t)
		refusals := recordedRefusals{}
		b.Events = refusals
		id, web := policymatch.BundleID{Namespace: "shop", Name: "web"}, newKey("Deployment", "web")
		var again time.Duration
		await := func(claimed ...atoll.ItemKey) []string {
			again = b.awaitPlacement(id, "Placement shop/egde does not exist", claimed)
			return refusals[web]
		}
		if got := await(web); len(got) != 0 || again != reportWaitAfter {
			t.Errorf("at once it says %q, and is reconciled again after %v", got, again)
		}
		time.Sleep(reportWaitAfter + time.Second)
		want := []string{"PlacementMissing: Placement shop/egde does not exist; members keep what they have of it"}
		for range 2 {
			if got := await(web); !reflect.DeepEqual(got, want) {
				t.Errorf("later it says %q, want %q", got, want)
			}
		}
		await()
		if got := await(web); !reflect.DeepEqual(got, want) || b.policyStatus.reportedProblems[id] != nil {
			t.Errorf("a new wait says %q", got)
		}
	})
}

// A policy without a placement is what the schema makes of one that says {}: every cluster,
// duplicated, and not a difference that would write Bundles again and again.
func TestNoPlacementIsEveryCluster(t *testing.T) {
	b, _, _ := newTestBinder(t)
	intent := b.intentWithPlacement(policymatch.BundleID{Namespace: "shop", Name: "web"}, policyKind, v1alpha1.PropagationSpec{})
	if got := intent.Spec.Placement.ReplicaScheduling.ReplicaSchedulingType; got != v1alpha1.Duplicated || intent.Spec.Placement.ClusterAffinity != nil {
		t.Errorf("the placement is %+v", intent.Spec.Placement)
	}
	given := v1alpha1.PlacementSpec{ReplicaScheduling: v1alpha1.ReplicaScheduling{ReplicaSchedulingType: v1alpha1.Divided}}
	if got := atoll.WithPlacementDefaults(given).ReplicaScheduling.ReplicaSchedulingType; got != v1alpha1.Divided {
		t.Errorf("what is said is taken back: %s", got)
	}
}

// Without a type, replicas are divided where another field says how, in policies and in Placements.
func TestReplicasAreDividedWhereAFieldSaysHow(t *testing.T) {
	for text, want := range map[string]v1alpha1.ReplicaSchedulingType{
		"{}": v1alpha1.Duplicated,
		"{replicaDivisionPreference: Aggregated}":                v1alpha1.Divided,
		"{weightPreference: {dynamicWeight: AvailableReplicas}}": v1alpha1.Divided,
		"{onShortage: PlaceNothing}":                             v1alpha1.Divided,
		"{ordinals: {size: 10}}":                                 v1alpha1.Divided,
		"{replicaOverrides: Allow}":                              v1alpha1.Divided,
		"{replicaSchedulingType: Duplicated}":                    v1alpha1.Duplicated,
	} {
		var p v1alpha1.PlacementSpec
		if err := yaml.UnmarshalStrict([]byte("{replicaScheduling: "+text+"}"), &p); err != nil {
			t.Fatal(err)
		}
		b, _, _ := newTestBinder(t)
		b.Placements = placementTable{{Namespace: "shop", Name: "edge"}: p}
		for _, spec := range []v1alpha1.PropagationSpec{{Placement: p}, {PlacementRef: &v1alpha1.PlacementRef{Name: "edge"}}} {
			intent := b.intentWithPlacement(policymatch.BundleID{Namespace: "shop", Name: "web"}, policyKind, spec)
			if got := intent.Spec.Placement.ReplicaScheduling.ReplicaSchedulingType; got != want {
				t.Errorf("%s: %s, want %s", text, got, want)
			}
		}
	}
}

// The schema may come to have more defaults: a policy without a placement gets all of them.
func TestNoPlacementIsWhatTheSchemaMakesOfOne(t *testing.T) {
	manifest, err := crds.Files.ReadFile("atoll.dev_placements.yaml")
	if err != nil {
		t.Fatal(err)
	}
	crd := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(manifest, &crd.Object); err != nil {
		t.Fatal(err)
	}
	empty := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "atoll.dev/v1alpha1", "kind": "Placement", "spec": map[string]any{}}}
	filled, err := defaulting.New(func(schema.GroupKind) *unstructured.Unstructured { return crd }).Default(empty)
	if err != nil {
		t.Fatal(err)
	}
	var typed v1alpha1.Placement
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(filled.Object, &typed); err != nil {
		t.Fatal(err)
	}
	if got := atoll.WithPlacementDefaults(v1alpha1.PlacementSpec{}); !reflect.DeepEqual(got, atoll.WithPlacementDefaults(typed.Spec)) {
		t.Errorf("without a placement it is %+v, and the schema makes %+v of an empty one: let atoll.Placement give the difference", got, typed.Spec)
	}
}

// An edit of a Placement is one of the policies that refer to it, of their Bundles and of
// what they say; other policies have nothing to do with it.
func TestPlacementTouchesThosePoliciesThatRefer(t *testing.T) {
	policy := func(ns, name, ref string) *v1alpha1.PropagationPolicy {
		p := &v1alpha1.PropagationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
		if ref != "" {
			p.Spec.PlacementRef = &v1alpha1.PlacementRef{Name: ref}
		}
		return p
	}
	b, _, _ := newTestBinder(t)
	b.Policies = twoPolicyTables{
		namespaced: map[string]*v1alpha1.PropagationPolicy{
			"web": policy("shop", "web", "edge"), "api": policy("shop", "api", "core"), "own": policy("shop", "own", ""), "far": policy("else", "far", "edge"),
		},
		cluster: map[string]*v1alpha1.ClusterPropagationPolicy{"all": {ObjectMeta: metav1.ObjectMeta{Name: "all"}, Spec: policy("", "", "edge").Spec}},
	}
	for _, o := range []struct{ kind, ns, name string }{{policyKind, "shop", "web"}, {policyKind, "shop", "api"}, {policyKind, "shop", "own"}, {policyKind, "else", "far"}, {v1alpha1.SourceClusterPropagationPolicy, "shop", "all"}} {
		key := atoll.ItemKey{Kind: "ConfigMap", Namespace: o.ns, Name: o.name}
		b.ownership.assignTemplate(key, policymatch.BundleID{Namespace: o.ns, Name: o.name}, bundleOrigin{source: v1alpha1.BundleSource{Kind: o.kind, Name: o.name}})
	}
	touched := make(chan policymatch.BundleID, 10)
	b.touchBundle = func(id policymatch.BundleID) { touched <- id }
	for key, want := range map[types.NamespacedName]string{{Namespace: "shop", Name: "edge"}: "web", {Name: "edge"}: "all", {Namespace: "shop", Name: "core"}: "api"} {
		b.placementChanged(key)
		select {
		case id := <-touched:
			if id.Name != want {
				t.Errorf("%s touches %s, want %s", key, id, want)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s touches nothing", key)
		}
		select {
		case id := <-touched:
			t.Errorf("%s touches %s too", key, id)
		case <-time.After(2 * debounceDelay):
		}
	}
}

// The policy and its Bundles say that the Placement is missing, and what to do; when it
// comes back, that all is well.
func TestMissingPlacementIsSaid(t *testing.T) {
	bundle := &v1alpha1.Bundle{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u"}}
	policy := &v1alpha1.PropagationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: v1alpha1.PropagationSpec{PlacementRef: &v1alpha1.PlacementRef{Name: "edge"}}}
	b, _, p := newTestBinder(t, bundle, policy)
	p.policies = []*v1alpha1.PropagationPolicy{policy}
	from := bundleOrigin{source: v1alpha1.BundleSource{Kind: policyKind, Name: "web"}}
	id := policymatch.BundleID{Namespace: "shop", Name: "web"}
	b.ownership.assignTemplate(atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "web"}, id, from)
	for _, step := range []struct {
		known  placementTable
		status metav1.ConditionStatus
		reason string
	}{
		{nil, metav1.ConditionFalse, string(atoll.ReasonPlacementMissing)},
		{placementTable{{Namespace: "shop", Name: "edge"}: {}}, metav1.ConditionTrue, ""},
	} {
		b.Placements = step.known
		var now v1alpha1.Bundle
		if err := b.Client.Get(t.Context(), client.ObjectKeyFromObject(bundle), &now); err != nil {
			t.Fatal(err)
		}
		is, _ := state.BundleOf(&now)
		if err := b.reportProblems(t.Context(), is, from, b.missingPlacementReasonForSource(id, from), nil); err != nil {
			t.Fatal(err)
		}
		if err := b.Client.Get(t.Context(), client.ObjectKeyFromObject(bundle), &now); err != nil {
			t.Fatal(err)
		}
		c := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.BundleBound)
		if c == nil || c.Status != step.status || step.reason != "" && (c.Reason != step.reason || !strings.Contains(c.Message, "Create it")) {
			t.Errorf("the Bundle says %+v", c)
		}
		got := meta.FindStatusCondition(b.policyStatus.computeStatus(PolicyKey{policyKind, "shop", "web"}, v1alpha1.PropagationStatus{}, 1, &policy.Spec).Conditions, v1alpha1.PolicyApplied)
		if got.Status != step.status || step.reason != "" && (got.Reason != step.reason || !strings.Contains(got.Message, "Placement shop/edge")) {
			t.Errorf("the policy says %+v", got)
		}
	}
}
