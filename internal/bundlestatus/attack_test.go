package bundlestatus

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

func recreateBundle() state.Bundle {
	b := state.Bundle{}
	b.Spec.MoveOrder = v1alpha1.MoveRecreate
	return b
}

// Nothing waits: the placement shrank from a and b to b, b is ready, and a is disconnected. Law 6: it blocks nothing.
func TestAttackCompleteBundleWaitsForADisconnectedCopy(t *testing.T) {
	got := ComputeStatus(StatusInput{Bundle: recreateBundle(), Latest: latest, Now: time.Unix(1000, 0), Rows: []Row{
		newRow("a", readyStatus(), withPhase(atoll.RowRemoving, ""), makeUnreachable, withSince(900)), newRow("b", readyStatus()),
	}})
	if got.Wait != nil {
		t.Errorf("b is all that is wanted and it is ready, and the Bundle waits: %+v, %q", got.Wait, got.WaitsFor)
	}
}

// The cluster fits; it waits for the old copy.
func TestAttackWithheldIsNotNoClusterFits(t *testing.T) {
	for name, change := range map[string]func(*Row){"disconnected": makeUnreachable, "connected": func(*Row) {}} {
		got := ComputeStatus(StatusInput{Bundle: recreateBundle(), Latest: latest, Now: time.Unix(1000, 0), Rows: []Row{
			newRow("a", readyStatus(), withPhase(atoll.RowRemoving, ""), change, withSince(900)),
		}})
		c := meta.FindStatusCondition(got.Conditions, v1alpha1.BundleScheduled)
		if c.Reason == string(ReasonNoClusterFits) {
			t.Errorf("%s: Scheduled is %s %s: %s; status.wait %+v", name, c.Status, c.Reason, c.Message, got.Wait)
		}
	}
}

// Another wait hides the one that only a person ends.
func TestAttackDisconnectedCopyIsHiddenByOtherRemovals(t *testing.T) {
	got := ComputeStatus(StatusInput{Bundle: recreateBundle(), Latest: latest, Now: time.Unix(1000, 0), Rows: []Row{
		newRow("a", readyStatus(), withPhase(atoll.RowRemoving, ""), makeUnreachable, withSince(900)),
		newRow("b", nil, withPhase(atoll.RowRemoving, ""), withSince(900)),
	}})
	if got.Wait == nil || got.Wait.Reason != string(atoll.ReasonWaitsForDisconnectedCopy) {
		t.Errorf("the hub's administrator must act; the Bundle says %+v, %q", got.Wait, got.WaitsFor)
	}
}
