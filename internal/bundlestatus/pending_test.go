package bundlestatus

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// A Bundle whose replacement waits for an old copy says so before other waits. It is placed, and not done.
func TestStatusOfAReplacementThatWaits(t *testing.T) {
	removing := newRow("a", nil, withPhase(atoll.RowRemoving, "PlacementEdited: not named"), makeUnreachable, withSince(900))
	pending := newRow("b", nil, withPhase(atoll.RowPending, string(atoll.ReasonWaitsForDisconnectedCopy)+": the old copy in a to end"), withSince(950))
	going := newRow("c", nil, withPhase(atoll.RowRemoving, "PlacementEdited: not named"), withSince(900))
	got := ComputeStatus(StatusInput{Latest: latest, Now: time.Unix(1000, 0), Rows: []Row{removing, pending, going}})
	if w := got.Wait; w == nil || w.Reason != string(atoll.ReasonWaitsForDisconnectedCopy) || w.Cluster != "b" || w.Actor != string(atoll.ActorHub) || w.Since.Unix() != 950 {
		t.Errorf("the wait is %+v", w)
	}
	if want := "b: the old copy in a to end (and 1 cluster more); the hub's administrator must act"; got.WaitsFor != want {
		t.Errorf("it waits for %q, want %q", got.WaitsFor, want)
	}
	for condition, want := range map[string]bool{v1alpha1.BundleScheduled: true, v1alpha1.BundleApplied: false, v1alpha1.BundleReady: false} {
		if meta.IsStatusConditionTrue(got.Conditions, condition) != want {
			t.Errorf("%s is %+v", condition, meta.FindStatusCondition(got.Conditions, condition))
		}
	}
	if c := got.Clusters; c.Desired != 1 || c.Ready != 0 || c.Updated != 0 {
		t.Errorf("the clusters are %+v", c)
	}
}

// A disconnected cluster that has yet to remove its copy makes no Bundle wait that runs where it is wanted.
func TestAnOldCopyOfADisconnectedClusterIsNoWait(t *testing.T) {
	got := ComputeStatus(StatusInput{Latest: latest, Now: time.Unix(1000, 0), Rows: []Row{
		newRow("a", nil, withPhase(atoll.RowRemoving, "PlacementEdited: not named"), makeUnreachable, withSince(900)), newRow("b", readyStatus()),
	}})
	if got.Wait != nil || got.WaitsFor != "" {
		t.Errorf("it waits: %+v, %q", got.Wait, got.WaitsFor)
	}
}
