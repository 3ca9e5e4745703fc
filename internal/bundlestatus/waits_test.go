package bundlestatus

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

func withSince(at int64) func(*Row) { return func(r *Row) { r.Spec.Since = at } }

// The wait is there as values, with a reason of the table, the actor of that reason, and a time
// that stays while the same wait goes on.
func TestWaitAsValues(t *testing.T) {
	failed := func(since int64) *atoll.RowStatus {
		return &atoll.RowStatus{Generation: 5, State: atoll.RowFailed, Since: since, Items: []atoll.ItemStatus{{Key: atoll.ItemKey{Kind: "Service", Name: "web"}, Health: atoll.Unknown, Reason: atoll.ReasonConflict}}}
	}
	web := schedule.Workload{Key: atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}, Replicas: 10}
	assigned := func(r *Row) { r.Spec.Assigned = map[string]int64{web.Key.String(): 4} }
	unbound := state.Bundle{Status: v1alpha1.BundleStatus{Conditions: []metav1.Condition{
		{Type: v1alpha1.BundleBound, Status: metav1.ConditionFalse, Reason: "CannotSend", Message: "Service web: no port", LastTransitionTime: metav1.Unix(700, 0)},
	}}}
	frozen := &atoll.Content{Items: []atoll.Item{{Key: web.Key, State: atoll.ItemUnclaimed}}}
	for name, c := range map[string]struct {
		in                     StatusInput
		reason, actor, cluster string
		since                  int64
	}{
		"a failed row":            {StatusInput{Rows: []Row{newRow("a", failed(800)), newRow("b", nil)}, Latest: latest}, "Failed", "the application's owner", "a", 800},
		"a row that is behind":    {StatusInput{Rows: []Row{newRow("a", nil, withSince(900))}, Latest: latest}, "WaitsForApply", "the agent", "a", 900},
		"a removal":               {StatusInput{Rows: []Row{newRow("a", readyStatus()), newRow("b", nil, withPhase(atoll.RowRemoving, ""), withSince(901))}, Latest: latest}, "WaitsForRemoval", "the agent", "b", 901},
		"a plan":                  {StatusInput{Rows: []Row{newRow("a", readyStatus(), withPhase(atoll.RowHeld, "RemovalHeld plan=p1: PlacementEdited"), withSince(902))}, Latest: latest}, "WaitsForConfirmation", "a person that may confirm removals", "a", 902},
		"no revision":             {StatusInput{}, "NotScheduled", "Atoll", "", 1000},
		"no cluster":              {StatusInput{Latest: latest}, "NoClusterFits", "the application's owner", "", 1000},
		"all away":                {StatusInput{Rows: []Row{newRow("a", readyStatus(), makeUnreachable)}, Latest: latest}, "ClustersAway", "the member's administrator", "", 1000},
		"replicas without place":  {StatusInput{Rows: []Row{newRow("a", readyStatus(), assigned)}, Latest: latest, Workloads: []schedule.Workload{web}, Content: &atoll.Content{}}, "NoPlace", "the application's owner", "", 1000},
		"an object is refused":    {StatusInput{Bundle: unbound, Rows: []Row{newRow("a", readyStatus())}, Latest: latest}, "CannotSend", "the application's owner", "", 700},
		"an object is not placed": {StatusInput{Rows: []Row{newRow("a", readyStatus())}, Latest: latest, Content: frozen}, "Unclaimed", "the application's owner", "", 1000},
		"nothing":                 {StatusInput{Rows: []Row{newRow("a", readyStatus())}, Latest: latest}, "", "", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			c.in.Now = time.Unix(1000, 5e8)
			got := ComputeStatus(c.in)
			if (got.Wait == nil) != (c.reason == "") || (got.Wait == nil) != (got.WaitsFor == "") {
				t.Fatalf("%+v, in words %q", got.Wait, got.WaitsFor)
			}
			if got.Wait == nil {
				return
			}
			if got.Wait.Reason != c.reason || got.Wait.Actor != c.actor || got.Wait.Cluster != c.cluster || got.Wait.Since.Unix() != c.since || got.Wait.Since.Nanosecond() != 0 {
				t.Errorf("%+v, want %s %s %s since %d", got.Wait, c.reason, c.actor, c.cluster, c.since)
			}
			c.in.Bundle.Status, c.in.Now = got, time.Unix(2000, 0)
			if again := ComputeStatus(c.in); !again.Wait.Since.Equal(&got.Wait.Since) {
				t.Errorf("the same wait is since %v and then %v", got.Wait.Since, again.Wait.Since)
			}
		})
	}
}

// Missing condition types come with a write that happens anyway. An unknown condition gets its
// value later, and the conditions of other writers stay.
func TestMissingConditionsOfABundle(t *testing.T) {
	grouped := v1alpha1.PlacementSpec{ClusterAffinities: []v1alpha1.ClusterAffinityTerm{{AffinityName: "near"}, {AffinityName: "far"}}}
	says := func(st v1alpha1.BundleStatus, kind string) string {
		c := meta.FindStatusCondition(st.Conditions, kind)
		if c == nil {
			return "missing"
		}
		if c.ObservedGeneration != 3 || c.Message == "" {
			t.Errorf("%s: %+v", kind, c)
		}
		return string(c.Status) + " " + c.Reason
	}
	want := func(when string, st v1alpha1.BundleStatus, bound, placed, group, held string) {
		t.Helper()
		got := []string{says(st, v1alpha1.BundleBound), says(st, v1alpha1.BundleReplicasPlaced), says(st, v1alpha1.BundlePreferredGroup), says(st, v1alpha1.BundleRemovalHeld)}
		if text, want := strings.Join(got, ", "), strings.Join([]string{bound, placed, group, held}, ", "); text != want {
			t.Errorf("%s: %s, want %s", when, text, want)
		}
	}
	b := state.Bundle{Ref: enginev1.BundleRef{UID: "b", Namespace: "shop", Name: "web"}, Spec: v1alpha1.BundleSpec{Placement: grouped}}
	b.Meta.Generation = 3

	in := StatusInput{Bundle: b, Now: time.Unix(1000, 0)}
	first := ComputeStatus(in)
	want("computed", first, "missing", "missing", "missing", "missing")
	addMissingOptionalConditions(in, &first)
	want("before a revision", first, "Unknown NotDetermined", "Unknown NotDetermined", "Unknown NotDetermined", "False Released")

	in.Bundle.Status, in.Latest, in.Content = first, latest, &atoll.Content{}
	want("with a revision", ComputeStatus(in), "True Read", "True AllPlaced", "Unknown NotDetermined", "False Released")

	in.Rows = []Row{newRow("a", readyStatus())}
	placed := ComputeStatus(in)
	want("placed", placed, "True Read", "True AllPlaced", "True InUse", "False Released")

	in.Bundle.Status = placed
	for _, c := range []metav1.Condition{
		{Type: v1alpha1.BundleBound, Status: metav1.ConditionFalse, Reason: "CannotSend", Message: "no port", ObservedGeneration: 3},
		{Type: v1alpha1.BundlePreferredGroup, Status: metav1.ConditionFalse, Reason: "FallenBack", Message: "far", ObservedGeneration: 3},
	} {
		meta.SetStatusCondition(&in.Bundle.Status.Conditions, c)
	}
	want("reported by others", ComputeStatus(in), "False CannotSend", "True AllPlaced", "False FallenBack", "False Released")

	in.Bundle.Spec.Placement = v1alpha1.PlacementSpec{}
	want("without groups", ComputeStatus(in), "False CannotSend", "True AllPlaced", "True NoGroups", "False Released")
	in.Bundle.Status, in.Bundle.Spec.Placement = ComputeStatus(in), grouped
	want("with groups again", ComputeStatus(in), "False CannotSend", "True AllPlaced", "True InUse", "False Released")

	// An upgraded hub writes no Bundle for the missing types alone.
	in = StatusInput{Bundle: b, Rows: []Row{newRow("a", readyStatus())}, Latest: latest, Content: &atoll.Content{}, Now: time.Unix(1000, 0)}
	in.Bundle.Status = ComputeStatus(in)
	want("of a former version", ComputeStatus(in), "missing", "missing", "missing", "missing")
}

// A Bundle that workloadAffinity keeps out of all clusters waits for its group, and so its templates report.
func TestAWaitForAGroup(t *testing.T) {
	refused := metav1.Condition{Type: v1alpha1.BundleAffinityMet, Status: metav1.ConditionFalse, Reason: "KeptApart", Message: "kept apart from Deployment shop/a, which runs in oslo", LastTransitionTime: metav1.Unix(700, 0)}
	in := StatusInput{Latest: latest, Now: time.Unix(1000, 0)}
	in.Bundle.Spec.Placement.WorkloadAffinity = &v1alpha1.WorkloadAffinity{AntiAffinity: &v1alpha1.WorkloadAffinityTerm{GroupByLabelKey: "tier"}}
	in.Bundle.Status.Conditions = []metav1.Condition{refused}
	got := ComputeStatus(in)
	scheduled := meta.FindStatusCondition(got.Conditions, v1alpha1.BundleScheduled)
	if got.Wait == nil || got.Wait.Reason != "KeptApart" || got.Wait.Actor != "the application's owner" || got.Wait.Since.Unix() != 700 || !strings.Contains(got.WaitsFor, "Deployment shop/a, which runs in oslo") {
		t.Errorf("waits for %q: %+v", got.WaitsFor, got.Wait)
	}
	if scheduled.Reason != "KeptApart" || !strings.Contains(scheduled.Message, "Deployment shop/a, which runs in oslo") || !isUnplaced(scheduled) {
		t.Errorf("the condition is %+v", scheduled)
	}
	in.Rows = []Row{newRow("a", readyStatus(), withPhase(atoll.RowActive, "NoClusterFits"))}
	if c := meta.FindStatusCondition(ComputeStatus(in).Conditions, v1alpha1.BundleScheduled); c.Reason != "NoClusterFits" || !strings.Contains(c.Message, "kept where it is: kept apart from Deployment shop/a") {
		t.Errorf("with a row: %+v", c)
	}
	in.Rows, in.Bundle.Spec.Placement.WorkloadAffinity = nil, nil
	if c := meta.FindStatusCondition(ComputeStatus(in).Conditions, v1alpha1.BundleScheduled); c.Reason != "NoClusterFits" {
		t.Errorf("an edit that takes the terms away leaves %+v", c)
	}
}
