package rollout

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"

	"atoll.dev/atoll/internal/atoll"
)

// A row loses an item that moves to another Bundle when it stays Active and goes on to a revision without the item. A
// row that leaves, or that returns, is counted by the removals of rows.
func TestRowsThatLoseAMovedItem(t *testing.T) {
	const item = "apps/Deployment/ns/web"
	none := intstr.FromInt32(0)
	for what, c := range map[string]struct {
		old, next atoll.RowSpec
		moved     string // cluster in which the item moves
		held      bool
	}{
		"goes on":                     {atoll.RowSpec{Revision: "r1", Phase: atoll.RowActive}, atoll.RowSpec{Revision: "r2", Phase: atoll.RowActive}, "a", true},
		"the item moves elsewhere":    {atoll.RowSpec{Revision: "r1", Phase: atoll.RowActive}, atoll.RowSpec{Revision: "r2", Phase: atoll.RowActive}, "b", false},
		"stays at its revision":       {atoll.RowSpec{Revision: "r1", Phase: atoll.RowActive}, atoll.RowSpec{Revision: "r1", Phase: atoll.RowActive}, "a", false},
		"leaves":                      {atoll.RowSpec{Revision: "r1", Phase: atoll.RowActive}, atoll.RowSpec{Revision: "r2", Phase: atoll.RowLeaving}, "a", false},
		"waits for a confirmation":    {atoll.RowSpec{Revision: "r1", Phase: atoll.RowActive}, atoll.RowSpec{Revision: "r2", Phase: atoll.RowHeld}, "a", false},
		"is removed":                  {atoll.RowSpec{Revision: "r1", Phase: atoll.RowActive}, atoll.RowSpec{Revision: "r2", Phase: atoll.RowRemoving}, "a", false},
		"returns":                     {atoll.RowSpec{Revision: "r1", Phase: atoll.RowLeaving}, atoll.RowSpec{Revision: "r2", Phase: atoll.RowActive}, "a", false},
		"starts after it has waited":  {atoll.RowSpec{Revision: "r1", Phase: atoll.RowPending}, atoll.RowSpec{Revision: "r2", Phase: atoll.RowActive}, "a", false},
		"starts again in the cluster": {atoll.RowSpec{Revision: "r1", Phase: atoll.RowRemoving}, atoll.RowSpec{Revision: "r2", Phase: atoll.RowActive}, "a", false},
	} {
		s := newRolloutStep(Input{
			RemovalBudget: &none, MovedItems: map[string][]string{c.moved: {item}}, Rows: map[string]Row{"a": {Spec: c.old}},
		}, false)
		revision := c.next.Revision
		s.nextSpecs["a"] = &c.next
		s.holdRowsLosingMovedItems()
		if c.held {
			revision = c.old.Revision
		}
		waits := len(s.pendingRemoval.entries) > 0
		if got := s.nextSpecs["a"].Revision; got != revision || waits != c.held || len(s.removedByEdit) > 0 {
			t.Errorf("%s: the row goes to revision %s, want %s; a confirmation is awaited: %t; counted: %v", what, got, revision, waits, s.removedByEdit)
		}
	}
}
