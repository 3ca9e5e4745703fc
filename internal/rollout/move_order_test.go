package rollout

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

func TestOrderOfMove(t *testing.T) {
	for _, c := range []struct {
		stated    v1alpha1.MoveOrder
		exclusive bool
		want      MoveOrder
	}{
		{"", false, ReplacementFirst},
		{"", true, OldFirstWhereConnected},
		{v1alpha1.MoveSurge, true, ReplacementFirst},
		{v1alpha1.MoveSurge, false, ReplacementFirst},
		{v1alpha1.MoveRecreate, false, OldFirst},
		{v1alpha1.MoveRecreate, true, OldFirst},
	} {
		if got := OrderOfMove(c.stated, c.exclusive); got != c.want {
			t.Errorf("%q, exclusive %t: %d, want %d", c.stated, c.exclusive, got, c.want)
		}
	}
}

// countCopies counts the clusters in which a copy may run.
func countCopies(rows map[string]Row) (n int) {
	for _, r := range rows {
		if !r.Spec.Phase.OrdersNothing() && r.Spec.Recall == nil && (r.Spec.Phase != atoll.RowRemoving || !r.isRemoved()) {
			n++
		}
	}
	return n
}

// checkCopies checks that a step that starts copies, where old ones go first, lets no more clusters have one
// than the placement selects. A copy that is being removed counts as long as it may run, and as started when it
// is wanted again.
func checkCopies(t testing.TB, in Input, out Output) {
	t.Helper()
	if in.MoveOrder != OldFirst || in.Deleting {
		return
	}
	after, starts := map[string]Row{}, 0
	for c, r := range in.Rows {
		after[c] = r
	}
	for c, spec := range out.Changes {
		if delete(after, c); spec == nil {
			continue
		}
		was, had := in.Rows[c]
		runs := had && was.Spec.UID == spec.UID && was.Spec.Phase != atoll.RowRemoving && was.Spec.Phase != atoll.RowPending
		if after[c] = (Row{Spec: *spec, Status: was.Status}); !runs && spec.Phase == atoll.RowActive {
			starts++
		}
	}
	wanted := 0
	for _, v := range in.Decision.Verdicts {
		if v.IsHolder() {
			wanted++
		}
	}
	if now := countCopies(after); starts > 0 && now > wanted {
		t.Fatalf("%d copies start and %d may run; %d clusters are wanted", starts, now, wanted)
	}
}

// A move that removes the old copy first never runs more copies than before or than are wanted, after any
// acts of users, agents and links, and ends as the placement states once all clusters are connected.
func TestOldCopiesEndFirst(t *testing.T) {
	for seed := range uint64(100) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := &randomWalk{scriptStage: newStage(t), rand: rand.New(rand.NewPCG(seed, 7))}
			w.playCommand("fleet", "8")
			w.playCommand("order", "recreate")
			for range 60 {
				w.actRandomly()
				w.playCommand("step")
			}
			for i := range 8 {
				if name := fmt.Sprintf("c%02d", i+1); w.clusters[name] != nil {
					w.playCommand("back", name)
				}
			}
			w.playCommand("place", "names", "c02", "c05", "c07")
			for range 6 {
				if w.playCommand("settle"); w.plan != nil {
					w.playCommand("confirm")
				}
			}
			for _, name := range []string{"c02", "c05", "c07"} {
				if c := w.clusters[name]; c != nil && c.Accepted && len(c.Taints) == 0 && w.rows[name].Spec.Phase != atoll.RowActive {
					t.Errorf("%s is %q at the end; the waits are\n%safter\n%q", name, w.rows[name].Spec.Phase, w.formatWaits(), w.log)
				}
			}
		})
	}
}

// Replicas grow before they shrink: no share shrinks for a copy that waits, however long it does.
func TestNoShareShrinksForACopyThatWaits(t *testing.T) {
	for _, order := range []string{"recreate", "connected"} {
		t.Run(order, func(t *testing.T) {
			s := newStage(t)
			playLines(s, "clusters a b c", "order "+order, "divide Deployment/web=10", "weights a=5 b=5 c=45", "place names a b", "settle")
			s.baseInput.MoveOrder = OldFirst
			playLines(s, "place names b c", "step", "after 1h", "step")
			if n := s.rows["b"].Spec.Assigned["apps/Deployment/ns/web"]; s.rows["c"].Spec.Phase != atoll.RowPending || n != 5 {
				t.Errorf("c is %s, and b has %d of its 5 replicas", s.rows["c"].Spec.Phase, n)
			}
			playLines(s, "report Ready *", "collect", "step", "settle")
			if n := s.rows["b"].Spec.Assigned["apps/Deployment/ns/web"]; n != 1 {
				t.Errorf("c has started, and b has %d replicas, want 1 of 10 by its weight", n)
			}
		})
	}
}

// A member that stores a removal has no copy: what the placement selects there starts as elsewhere.
func TestARememberedRemovalIsNoCopy(t *testing.T) {
	s := newStage(t)
	playLines(s, "clusters a b", "order recreate", "place names a b", "settle")
	row := s.rows["a"]
	row.Spec.Phase, row.Spec.Generation, row.Status = atoll.RowRemoving, row.Spec.Generation+5, nil
	row.Spec.Recall = &atoll.RememberedRemoval{RemovedAt: 5, Placement: "old"}
	s.rows["a"], s.baseInput.PlacementHash = row, "new"
	if playLines(s, "place names a", "step"); s.rows["a"].Spec.Phase != atoll.RowPending || s.rows["b"].Spec.Phase != atoll.RowRemoving {
		t.Errorf("b has not ended, and the rows are\n%s", s.formatRows())
	}
	if playLines(s, "report Ready b", "step"); s.rows["a"].Spec.Phase != atoll.RowActive {
		t.Errorf("b has ended, and the rows are\n%s", s.formatRows())
	}
}

// A cluster that loses its place before its copy starts is no loss: nothing is given up.
func TestAPendingRowOfADeletedClusterIsNotGivenUp(t *testing.T) {
	s := newStage(t)
	playLines(s, "clusters a b", "order recreate", "place names a", "settle", "place names b", "step", "gone b")
	if out := AdvanceRows(s.buildInput()); len(out.AbandonedRows) > 0 || out.Changes["b"] != nil {
		t.Errorf("given up %+v, changes %+v", out.AbandonedRows, out.Changes)
	}
	if playLines(s, "step"); len(s.rows) != 1 {
		t.Errorf("the rows are\n%s", s.formatRows())
	}
}

func playLines(s *scriptStage, lines ...string) {
	for _, line := range lines {
		words := strings.Fields(line)
		s.runCommand(words[0], words[1:])
	}
}
