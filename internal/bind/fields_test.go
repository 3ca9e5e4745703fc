package bind

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/claim"
	"atoll.dev/atoll/internal/state"
)

// bundles is as much of the table as writing a Bundle needs.
type bundles struct {
	Bundles
	put []client.Object
}

func (x *bundles) Put(o client.Object) { x.put = append(x.put, o) }

// policies is as much of the table as writing a policy's status needs.
type policies struct {
	Policies
	own []*v1alpha1.PropagationPolicy
}

func (x *policies) PropagationPolicy(string, string) (*v1alpha1.PropagationPolicy, bool) {
	if len(x.own) == 0 {
		return nil, false
	}
	return x.own[0], true
}

// readInFull is a table of templates whose kinds are all read.
type readInFull struct{ Templates }

func (readInFull) Synced(string, string) bool                         { return true }
func (readInFull) Namespaced(string, string) (namespaced, known bool) { return true, true }

func newShell(t *testing.T, objects ...client.Object) (*Binder, *bundles, *policies) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	x, y := &bundles{}, &policies{}
	b := &Binder{claims: newClaims(), Options: Options{
		Templates: readInFull{}, Bundles: x, Policies: y, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&v1alpha1.PropagationPolicy{}, &v1alpha1.Bundle{}).Build(),
	}}
	b.reports = newReporter(b)
	t.Cleanup(b.reports.queue.ShutDown)
	return b, x, y
}

// What a policy says about its Bundles stands in the Bundle, which lives on when the
// policy goes.
func TestBundleSpecIsWhatTheSourceWants(t *testing.T) {
	budget := intstr.FromInt32(3)
	from := origin{source: v1alpha1.BundleSource{Kind: ppKind, Name: "web", UID: "policy-uid"}, group: "x"}
	spec := v1alpha1.PropagationSpec{
		Placement:          v1alpha1.PlacementSpec{ClusterAffinity: &v1alpha1.ClusterAffinity{ClusterNames: []string{"a"}}},
		ConflictResolution: v1alpha1.ConflictOverwrite, WhenUnfit: v1alpha1.UnfitRemove,
		Removal: v1alpha1.Removal{Mode: v1alpha1.RemoveOrphan, Budget: &budget},
	}
	b, x, _ := newShell(t)
	id := claim.BundleID{Namespace: "shop", Name: "web"}
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
		if s.ConflictResolution != want.ConflictResolution || s.WhenUnfit != want.WhenUnfit || s.Removal.Mode != want.Removal.Mode || s.Removal.Budget.String() != want.Removal.Budget.String() {
			t.Errorf("%s: conflictResolution %s, whenUnfit %s, removal %+v", what, s.ConflictResolution, s.WhenUnfit, s.Removal)
		}
		if fmt.Sprint(s.Placement.ClusterAffinity.ClusterNames) != fmt.Sprint(want.Placement.ClusterAffinity.ClusterNames) {
			t.Errorf("%s: placement %+v", what, s.Placement.ClusterAffinity)
		}
		bundle, _ := state.BundleOf(&stored)
		return bundle
	}
	if _, err := b.writeBundle(t.Context(), id, state.Bundle{}, plan{from: from, intent: &claim.Intent{Spec: spec}}); err != nil {
		t.Fatal(err)
	}
	made := check("made", spec)
	made.Ref.UID = "bundle-uid"
	edited := *spec.DeepCopy()
	more := intstr.FromString("50%")
	edited.ConflictResolution, edited.WhenUnfit = v1alpha1.ConflictAbort, v1alpha1.UnfitKeep
	edited.Removal = v1alpha1.Removal{Mode: v1alpha1.RemoveDelete, Budget: &more}
	edited.Placement.ClusterAffinity.ClusterNames = []string{"b", "c"}
	if _, err := b.writeBundle(t.Context(), id, made, plan{from: from, intent: &claim.Intent{Spec: edited}}); err != nil {
		t.Fatal(err)
	}
	made = check("edited", edited)
	made.Ref.UID = "bundle-uid"
	writes := len(x.put)
	if _, err := b.writeBundle(t.Context(), id, made, plan{from: from, intent: &claim.Intent{Spec: edited}}); err != nil || len(x.put) != writes {
		t.Errorf("the same intent was written again: %v", err)
	}
}

func TestPolicyStatus(t *testing.T) {
	p := pp("web", "")
	p.Generation = 4
	b, _, x := newShell(t, p)
	key, id := policyKey{ppKind, "shop", "web"}, claim.BundleID{Namespace: "shop", Name: "web"}
	from := origin{source: v1alpha1.BundleSource{Kind: ppKind, Name: "web"}}
	report := func() (v1alpha1.PropagationStatus, metav1.Condition) {
		t.Helper()
		x.own = []*v1alpha1.PropagationPolicy{p}
		if err := b.reports.report(t.Context(), key); err != nil {
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
		return p.Status, *c
	}
	if st, c := report(); st.Objects != 0 || c.Status != metav1.ConditionFalse || c.Reason != "SelectsNothing" || !strings.Contains(c.Message, "resourceSelectors") {
		t.Errorf("of a policy that selects nothing: %+v", st)
	}
	b.claims.place(obj("Deployment", "web"), id, from)
	b.claims.place(obj("Deployment", "api"), id, from)
	if st, c := report(); st.Objects != 2 || c.Status != metav1.ConditionTrue || c.Reason != "Placed" {
		t.Errorf("of a policy that holds two: %+v", st)
	}
	b.reports.problems(id, ReasonCannotSend, []claim.Problem{{Key: obj("Deployment", "api"), Err: fmt.Errorf("it cannot be read")}})
	if st, c := report(); st.Objects != 2 || c.Status != metav1.ConditionFalse || c.Reason != "CannotSend" || !strings.Contains(c.Message, "Deployment api: it cannot be read") {
		t.Errorf("with something that cannot be sent: %+v", st)
	}
}
