package rollout

import (
	"fmt"
	"reflect"
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

const (
	driftID    = "0123456789abcdef"
	newDriftID = "fedcba9876543210"
)

func driftedItem(name, id string) atoll.ItemStatus {
	return atoll.ItemStatus{Key: atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: name}, Health: atoll.Healthy, Drift: &atoll.Drift{Total: 1, ID: id}}
}

// approvalStage returns a stage with row a, whose member reports the items.
func approvalStage(t *testing.T, items ...atoll.ItemStatus) *scriptStage {
	t.Helper()
	s := newStage(t)
	s.runCommand("cluster", []string{"a"})
	s.runCommand("step", nil)
	s.runCommand("settle", nil)
	s.reportItems(items...)
	return s
}

// reportItems lets the member of row a report the items of its latest spec.
func (s *scriptStage) reportItems(items ...atoll.ItemStatus) {
	row := s.rows["a"]
	row.Status = &atoll.RowStatus{UID: row.Spec.UID, Generation: row.Spec.Generation, State: atoll.RowReady, Applied: true, Items: items, Drifted: int32(len(items))}
	s.rows["a"] = row
}

func (s *scriptStage) orderCorrection(ids ...string) {
	s.baseInput.DriftOrders = []atoll.DriftOrder{{IDs: ids, By: "alice"}}
	s.runCommand("step", nil)
}

// An order puts an approval into the rows that report the drift, by one write that the agent gets. The approval
// goes without a new order to the agent.
func TestAnOrderApprovesReportedDrift(t *testing.T) {
	s := approvalStage(t, driftedItem("a", driftID), driftedItem("b", newDriftID), driftedItem("c", ""))
	before := s.rows["a"].Spec
	s.orderCorrection(driftID)
	spec := s.rows["a"].Spec
	want := []atoll.DriftApproval{{Item: "/ConfigMap/shop/a", ID: driftID, By: "alice", At: s.now.Unix()}}
	if !reflect.DeepEqual(spec.Approvals, want) || spec.Generation != before.Generation+1 {
		t.Fatalf("the row is %+v", spec)
	}
	s.runCommand("step", nil)
	s.reportItems(driftedItem("a", driftID))
	s.runCommand("step", nil)
	if got := s.rows["a"].Spec; !got.Equal(spec) {
		t.Errorf("the same order again: %+v", got)
	}
	s.reportItems()
	s.runCommand("step", nil)
	if got := s.rows["a"].Spec; len(got.Approvals) != 0 || got.Generation != spec.Generation {
		t.Errorf("after the correction: %+v", got)
	}
	s.reportItems(driftedItem("a", newDriftID)) // of the same fields: its ID is another
	s.runCommand("step", nil)
	if got := s.rows["a"].Spec; len(got.Approvals) != 0 || got.Generation != spec.Generation {
		t.Errorf("later drift: %+v", got)
	}
}

func TestAnOrderForOtherDrift(t *testing.T) {
	s := approvalStage(t, driftedItem("a", driftID))
	before := s.rows["a"].Spec
	s.orderCorrection(newDriftID)
	if got := s.rows["a"].Spec; !got.Equal(before) {
		t.Errorf("an order for drift that is not reported: %+v", got)
	}
	s.orderCorrection(driftID)
	s.reportItems(driftedItem("a", newDriftID))
	s.orderCorrection(newDriftID)
	if got := s.rows["a"].Spec; len(got.Approvals) != 1 || got.Approvals[0].ID != newDriftID || got.Generation != before.Generation+2 {
		t.Errorf("an order for the later drift: %+v", got)
	}
}

// A disconnected member keeps its approval until it reports.
func TestAnApprovalOfADisconnectedMember(t *testing.T) {
	s := approvalStage(t, driftedItem("a", driftID))
	s.runCommand("away", []string{"a"})
	s.orderCorrection(driftID)
	s.baseInput.DriftOrders = nil
	s.runCommand("revision", []string{"r2"})
	s.runCommand("step", nil)
	if got := s.rows["a"].Spec; len(got.Approvals) != 1 || got.Revision != "r2" {
		t.Errorf("the row is %+v", got)
	}
	s.runCommand("recreate", []string{"a"})
	s.runCommand("step", nil)
	if got := s.rows["a"].Spec; len(got.Approvals) != 0 {
		t.Errorf("another cluster of the name has the approval: %+v", got)
	}
}

func TestARowHasFewApprovals(t *testing.T) {
	var items []atoll.ItemStatus
	var ids []string
	for i := range atoll.MaxRowApprovals + 10 {
		ids = append(ids, fmt.Sprintf("%016x", i+1))
		items = append(items, driftedItem(fmt.Sprint("a", i), ids[i]))
	}
	s := approvalStage(t, items...)
	s.orderCorrection(ids...)
	if got := len(s.rows["a"].Spec.Approvals); got != atoll.MaxRowApprovals {
		t.Errorf("%d approvals", got)
	}
}
