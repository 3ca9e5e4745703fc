package rollout

import (
	"strings"
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

func attackStage(t *testing.T, lines ...string) *scriptStage {
	s := newStage(t)
	attackPlay(s, lines...)
	return s
}

func attackPlay(s *scriptStage, lines ...string) (seen string) {
	for _, l := range lines {
		w := strings.Fields(l)
		seen += s.runCommand(w[0], w[1:])
	}
	return seen
}

// A share must not shrink for a replacement that is withheld: docs say that replicas grow before they shrink.
func TestAttackShareShrinksForWithheldReplacement(t *testing.T) {
	s := attackStage(t, "clusters a b c", "order recreate", "divide Deployment/web=10", "weights a=5 b=5 c=45", "place names a b", "settle")
	t.Logf("before:\n%s", s.formatRows())
	attackPlay(s, "away a", "place names b c", "step", "step")
	t.Logf("after:\n%s%s", s.formatRows(), s.formatWaits())
	key := "apps/Deployment/ns/web"
	for k := range s.rows["b"].Spec.Assigned {
		key = k
	}
	if n := s.rows["b"].Spec.Assigned[key]; n < 5 {
		t.Errorf("b shrank from 5 to %d while c has no row and may never get one", n)
	}
}

// The same with all clusters connected: the dip lasts for the whole move.
func TestAttackShareShrinksForWithheldReplacementConnected(t *testing.T) {
	s := attackStage(t, "clusters a b c", "order connected", "divide Deployment/web=10", "weights a=5 b=5 c=45", "place names a b", "settle")
	attackPlay(s, "place names b c", "step")
	for k, n := range s.rows["b"].Spec.Assigned {
		if n < 5 {
			t.Errorf("b shrank at once to %s=%d although c is withheld:\n%s", k, n, s.formatRows())
		}
	}
}

func attackRunning(s *scriptStage) (out []string) {
	for c, r := range s.rows {
		if r.Spec.Phase != atoll.RowRemoving {
			out = append(out, c)
		}
	}
	return out
}

// The row of a is being removed; its member may have removed all and not said so. It is wanted again in place of b.
func TestAttackRowThatComesBackRunsBesideTheOldCopy(t *testing.T) {
	s := attackStage(t, "clusters a b", "order recreate", "place names a b", "settle", "place names b", "step", "place names a", "step")
	if got := attackRunning(s); len(got) > 1 {
		t.Errorf("a is ordered anew while b may run:\n%s", s.formatRows())
	}
}

// The member of a remembers that it removed the row, so that there is no copy there. A move from b to a starts it at once.
func TestAttackRecalledRowComesBackBesideTheOldCopy(t *testing.T) {
	s := attackStage(t, "clusters a b", "order recreate", "place names a b", "settle")
	r := s.rows["a"]
	r.Spec.Phase, r.Spec.Generation = atoll.RowRemoving, r.Spec.Generation+5
	r.Spec.Recall, r.Status = &atoll.RememberedRemoval{RemovedAt: 5, Placement: "old"}, nil
	s.rows["a"] = r
	s.baseInput.PlacementHash = "new"
	attackPlay(s, "place names a", "step")
	if got := attackRunning(s); len(got) > 1 {
		t.Errorf("a had no copy, and is ordered while b runs:\n%s", s.formatRows())
	}
}

// An orphaned copy never ends: the cluster confirms that it let go of it.
func TestAttackOrphanedOldCopyRunsOn(t *testing.T) {
	s := attackStage(t, "clusters a b", "order recreate", "removal Orphan", "place names a", "settle", "place names b", "step", "report Ready a", "step")
	if s.rows["a"].Spec.Orphan && s.rows["b"].Spec.Phase == atoll.RowActive {
		t.Errorf("the copy of a is orphaned, so it runs on, and b runs too:\n%s", s.formatRows())
	}
}

// A replacement that waits for a removal over the budget needs a person.
func TestAttackHeldOldCopyNamesItsActor(t *testing.T) {
	s := attackStage(t, "clusters a b", "order connected", "budget 0", "place names a", "settle", "place names b", "step")
	for _, w := range AdvanceRows(s.buildInput()).Waits {
		if w.Cluster == "b" && (w.Actor == atoll.ActorAtoll || w.Reason == atoll.ReasonWaitsForOldCopy) {
			t.Errorf("b waits for a confirmation by a person, and says %s, actor %q: %s\n%s", w.Reason, w.Actor, w.For, s.formatWaits())
		}
	}
}

// A newcomer that replaces nothing is kept back by a removal that nobody confirms, by default.
func TestAttackNewcomerWaitsForHeldRemovals(t *testing.T) {
	s := attackStage(t, "fleet 8", "order connected", "budget 0", "place except c08", "settle", "place except c08 c01", "step", "cluster c09", "step", "after 240h", "step")
	if s.rows["c09"].Spec.Phase != atoll.RowActive {
		t.Errorf("c09 joined an all-clusters placement and waits for the confirmation about c01:\n%s", s.formatWaits())
	}
}

// A removal that fails in the member blocks the replacement for ever; the wait of the replacement names nobody.
func TestAttackFailedRemovalNamesItsActor(t *testing.T) {
	s := attackStage(t, "clusters a b", "order connected", "place names a", "settle", "place names b", "step", "report Failed a", "after 1h", "step")
	for _, w := range AdvanceRows(s.buildInput()).Waits {
		if w.Cluster == "b" && w.Actor == atoll.ActorAtoll {
			t.Errorf("the removal in a failed; b says %s, actor %q: %s\n%s", w.Reason, w.Actor, w.For, s.formatWaits())
		}
	}
}
