package rollout

import (
	"fmt"
	"math/rand/v2"
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
		if r.Spec.Phase != atoll.RowRemoving || !r.isRemoved() {
			n++
		}
	}
	return n
}

// checkCopies checks that a step that removes old copies first lets no more clusters have one than
// before, or than the placement wants.
func checkCopies(t testing.TB, in Input, out Output) {
	t.Helper()
	if in.MoveOrder != OldFirst || in.Deleting {
		return
	}
	after := map[string]Row{}
	for c, r := range in.Rows {
		after[c] = r
	}
	for c, spec := range out.Changes {
		if spec == nil {
			delete(after, c)
		} else {
			after[c] = Row{Spec: *spec, Status: in.Rows[c].Status}
		}
	}
	wanted := 0
	for _, v := range in.Decision.Verdicts {
		if v.IsHolder() {
			wanted++
		}
	}
	if before, now := countCopies(in.Rows), countCopies(after); now > max(before, wanted) {
		t.Fatalf("%d copies may run, after %d; %d clusters are wanted", now, before, wanted)
	}
}

// A move that removes the old copy first never runs more copies than before or than are wanted, after any
// acts of users, agents and links, and ends as the placement states once all clusters are connected.
func TestOldCopiesEndFirst(t *testing.T) {
	for seed := range uint64(300) {
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
