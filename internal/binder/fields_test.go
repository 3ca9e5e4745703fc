package binder

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/bundlecontent"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/state"
)

// putBundles is as much of the table as writing a Bundle needs.
type putBundles struct {
	Bundles
	written []client.Object
}

func (x *putBundles) Put(o client.Object) { x.written = append(x.written, o) }

// ownPolicyTable is as much of the table as writing a policy's status needs.
type ownPolicyTable struct {
	Policies
	Overrides
	policies []*v1alpha1.PropagationPolicy
}

func (x *ownPolicyTable) GetPropagationPolicy(string, string) (*v1alpha1.PropagationPolicy, bool) {
	if len(x.policies) == 0 {
		return nil, false
	}
	return x.policies[0], true
}

// syncedTemplates is a table of templates whose kinds are all read.
type syncedTemplates struct {
	Templates
	Kinds
}

func (syncedTemplates) IsSynced(string, string) bool                         { return true }
func (syncedTemplates) IsNamespaced(string, string) (namespaced, known bool) { return true, true }

func newTestBinder(t *testing.T, objects ...client.Object) (*Binder, *putBundles, *ownPolicyTable) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	x, y := &putBundles{}, &ownPolicyTable{}
	b := &Binder{ownership: newOwnershipIndex(), Options: Options{
		Templates: syncedTemplates{}, Kinds: syncedTemplates{}, Bundles: x, Policies: y, Overrides: y, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&v1alpha1.PropagationPolicy{}, &v1alpha1.Bundle{}).Build(),
	}}
	b.policyStatus = newPolicyStatusWriter(b)
	return b, x, y
}

// A policy's settings for its Bundles stand in the Bundle, which lives on when the policy goes.
func TestBundleSpecIsWhatTheSourceWants(t *testing.T) {
	budget := intstr.FromInt32(3)
	from := bundleOrigin{source: v1alpha1.BundleSource{Kind: policyKind, Name: "web", UID: "policy-uid"}, group: "x"}
	spec := v1alpha1.PropagationSpec{
		Placement:          v1alpha1.PlacementSpec{ClusterAffinity: &v1alpha1.ClusterAffinity{ClusterNames: []string{"a"}}},
		ConflictResolution: v1alpha1.ConflictOverwrite, WhenUnfit: v1alpha1.UnfitRemove, MoveOrder: v1alpha1.MoveRecreate,
		Removal: v1alpha1.Removal{Mode: v1alpha1.RemoveOrphan, Budget: &budget}, Rollout: &v1alpha1.Rollout{MaxUnavailable: &budget}, Suspension: &v1alpha1.Suspension{Dispatching: true},
		DependsOn: []v1alpha1.PolicyDependency{{Name: "db", Scope: v1alpha1.DependencyAll}}, DisruptionBudget: &v1alpha1.DisruptionBudget{MinAvailable: &budget},
		Failover: &v1alpha1.Failover{Application: &v1alpha1.ApplicationFailover{PurgeMode: v1alpha1.PurgeNever}},
	}
	b, x, _ := newTestBinder(t)
	id := policymatch.BundleID{Namespace: "shop", Name: "web"}
	check := func(what string, want v1alpha1.PropagationSpec) state.Bundle {
		t.Helper()
		var stored v1alpha1.Bundle
		if err := b.Client.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "web"}, &stored); err != nil {
			t.Fatal(err)
		}
		s := stored.Spec
		if s.Source != from.source || s.Group != "x" {
			t.Errorf("%s: source %+v, group %q", what, s.Source, s.Group)
		}
		if !equality.Semantic.DeepEqual(s.Rollout, want.Rollout) {
			t.Errorf("%s: rollout %+v", what, s.Rollout)
		}
		if !equality.Semantic.DeepEqual(s.Suspension, want.Suspension) {
			t.Errorf("%s: suspension %+v", what, s.Suspension)
		}
		if !equality.Semantic.DeepEqual(s.DependsOn, want.DependsOn) {
			t.Errorf("%s: dependsOn %+v", what, s.DependsOn)
		}
		if !equality.Semantic.DeepEqual(s.DisruptionBudget, want.DisruptionBudget) {
			t.Errorf("%s: disruptionBudget %+v", what, s.DisruptionBudget)
		}
		if !equality.Semantic.DeepEqual(s.Failover, want.Failover) {
			t.Errorf("%s: failover %+v", what, s.Failover)
		}
		if s.MoveOrder != want.MoveOrder {
			t.Errorf("%s: moveOrder %q", what, s.MoveOrder)
		}
		if s.ConflictResolution != want.ConflictResolution || s.WhenUnfit != want.WhenUnfit || s.Removal.Mode != want.Removal.Mode || s.Removal.Budget.String() != want.Removal.Budget.String() {
			t.Errorf("%s: conflictResolution %s, whenUnfit %s, removal %+v", what, s.ConflictResolution, s.WhenUnfit, s.Removal)
		}
		if fmt.Sprint(s.Placement.ClusterAffinity.ClusterNames) != fmt.Sprint(want.Placement.ClusterAffinity.ClusterNames) {
			t.Errorf("%s: placement %+v", what, s.Placement.ClusterAffinity)
		}
		bundle, _ := state.BundleOf(&stored)
		return bundle
	}
	if _, err := b.writeBundle(t.Context(), id, state.Bundle{}, bundlePlan{origin: from, intent: &policymatch.Intent{Spec: spec}}); err != nil {
		t.Fatal(err)
	}
	made := check("made", spec)
	made.Ref.UID = "bundle-uid"
	edited := *spec.DeepCopy()
	more := intstr.FromString("50%")
	edited.ConflictResolution, edited.WhenUnfit, edited.MoveOrder = v1alpha1.ConflictAbort, v1alpha1.UnfitKeep, ""
	edited.Removal, edited.Rollout, edited.Suspension, edited.DependsOn = v1alpha1.Removal{Mode: v1alpha1.RemoveDelete, Budget: &more}, nil, nil, nil
	edited.DisruptionBudget = &v1alpha1.DisruptionBudget{MaxUnavailable: &more, PodDisruptionBudgets: v1alpha1.PodDisruptionBudgetsIgnore}
	edited.Failover = nil
	made.Spec.Pause, made.Spec.Resume = &v1alpha1.RolloutPause{By: "alice"}, &v1alpha1.RolloutResume{By: "bob"}
	made.Spec.Approvals = []v1alpha1.RolloutApproval{{Stage: "a", Revision: "r", By: "carol"}}
	made.Spec.FreezeExemption = &v1alpha1.FreezeExemption{Message: "outage", By: "dave"}
	edited.Placement.ClusterAffinity.ClusterNames = []string{"b", "c"}
	if _, err := b.writeBundle(t.Context(), id, made, bundlePlan{origin: from, intent: &policymatch.Intent{Spec: edited}}); err != nil {
		t.Fatal(err)
	}
	made = check("edited", edited)
	if made.Spec.Pause == nil || made.Spec.Pause.By != "alice" || made.Spec.Resume == nil || made.Spec.Resume.By != "bob" || len(made.Spec.Approvals) != 1 || made.Spec.Approvals[0].By != "carol" || made.Spec.FreezeExemption == nil {
		t.Errorf("the binder takes back what people wrote: %+v, %+v, %+v", made.Spec.Pause, made.Spec.Resume, made.Spec.Approvals)
	}
	made.Ref.UID = "bundle-uid"
	writes := len(x.written)
	if _, err := b.writeBundle(t.Context(), id, made, bundlePlan{origin: from, intent: &policymatch.Intent{Spec: edited}}); err != nil || len(x.written) != writes {
		t.Errorf("the same intent was written again: %v", err)
	}
}

func TestPolicyStatus(t *testing.T) {
	p := newPolicy("web", "")
	p.Generation = 4
	b, _, x := newTestBinder(t, p)
	key, id := PolicyKey{policyKind, "shop", "web"}, policymatch.BundleID{Namespace: "shop", Name: "web"}
	from := bundleOrigin{source: v1alpha1.BundleSource{Kind: policyKind, Name: "web"}}
	report := func() (v1alpha1.PropagationStatus, metav1.Condition) {
		t.Helper()
		x.policies = []*v1alpha1.PropagationPolicy{p}
		if err := b.policyStatus.writeStatus(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		p = &v1alpha1.PropagationPolicy{}
		if err := b.Client.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "web"}, p); err != nil {
			t.Fatal(err)
		}
		c := meta.FindStatusCondition(p.Status.Conditions, "Applied")
		if c == nil || len(p.Status.Conditions) != 1 || c.LastTransitionTime.IsZero() || c.ObservedGeneration != 4 {
			t.Fatalf("conditions %+v", p.Status.Conditions)
		}
		for _, is := range atoll.ConditionTypes[policyKind] {
			if meta.FindStatusCondition(p.Status.Conditions, is.Type) == nil {
				t.Fatalf("conditions %+v", p.Status.Conditions)
			}
		}
		if p.Status.ObservedGeneration != 4 {
			t.Fatalf("observedGeneration %d", p.Status.ObservedGeneration)
		}
		return p.Status, *c
	}
	if st, c := report(); st.Objects != 0 || c.Status != metav1.ConditionFalse || c.Reason != "SelectsNothing" || !strings.Contains(c.Message, "resourceSelectors") {
		t.Errorf("of a policy that selects nothing: %+v", st)
	}
	b.ownership.assignTemplate(newKey("Deployment", "web"), id, from)
	b.ownership.assignTemplate(newKey("Deployment", "api"), id, from)
	if st, c := report(); st.Objects != 2 || c.Status != metav1.ConditionTrue || c.Reason != "Placed" {
		t.Errorf("of a policy that holds two: %+v", st)
	}
	b.policyStatus.setProblems(id, atoll.ReasonCannotSend, []bundlecontent.TemplateProblem{{Key: newKey("Deployment", "api"), Err: fmt.Errorf("it cannot be read")}})
	if st, c := report(); st.Objects != 2 || c.Status != metav1.ConditionFalse || c.Reason != "CannotSend" || !strings.Contains(c.Message, "Deployment api: it cannot be read") {
		t.Errorf("with something that cannot be sent: %+v", st)
	}
}
