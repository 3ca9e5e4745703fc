package rollout

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"atoll.dev/atoll/internal/atoll"
)

// newLostStage is a Bundle in one of two clusters, which is a, and is replaced by b once the cluster is lost.
func newLostStage(t *testing.T) *scriptStage {
	s := newStage(t)
	s.joinCluster("a", nil)
	s.placement.MaxClusters = 1
	s.runCommand("settle", nil)
	s.joinCluster("b", nil)
	s.loseCluster("a")
	return s
}

// loseCluster disconnects a cluster, and taints it as the hub does.
func (s *scriptStage) loseCluster(name string) {
	s.runCommand("away", []string{name})
	s.runCommand("taint", []string{name, "atoll.dev/unreachable", "NoExecute"})
}

func (s *scriptStage) expectPhases(want map[string]atoll.RowPhase) {
	s.t.Helper()
	for c, phase := range want {
		if got := s.rows[c].Spec.Phase; got != phase {
			s.t.Fatalf("%s is %s, want %s:\n%s", c, got, phase, s.formatRows())
		}
	}
}

// The old copy of a lost cluster is ordered away only once the cluster is connected, and the replacement is healthy then.
func TestALostCopyStaysUntilItsClusterIsBack(t *testing.T) {
	s := newLostStage(t)
	s.runCommand("settle", nil)
	s.expectPhases(map[string]atoll.RowPhase{"a": atoll.RowLeaving, "b": atoll.RowActive})
	if got, want := s.formatWaits(), "  a waits for the cluster to come back: its copy is removed then, if the replacements are healthy (the member's administrator), 0s\n"; got != want {
		t.Errorf("waits:\n%swant\n%s", got, want)
	}
	if got := AdvanceRows(s.buildInput()).BlockingClusters; len(got) != 1 || got[0] != "a" {
		t.Errorf("waits for the connections of %v", got)
	}
	s.runCommand("away", []string{"b"})
	s.runCommand("back", []string{"a"})
	s.advanceOnce()
	s.expectPhases(map[string]atoll.RowPhase{"a": atoll.RowLeaving, "b": atoll.RowActive})
	s.runCommand("back", []string{"b"})
	s.advanceOnce()
	s.expectPhases(map[string]atoll.RowPhase{"a": atoll.RowRemoving, "b": atoll.RowActive})
}

// A copy in a lost cluster is still removed with its Bundle.
func TestALostCopyGoesWithItsBundle(t *testing.T) {
	s := newLostStage(t)
	s.runCommand("settle", nil)
	s.runCommand("delete", nil)
	s.advanceOnce()
	s.expectPhases(map[string]atoll.RowPhase{"a": atoll.RowRemoving})
}

// countConnectedReplicas counts the replicas that rows in connected clusters are assigned.
func (s *scriptStage) countConnectedReplicas() (n int64) {
	for c, r := range s.rows {
		if s.online[c] && r.Spec.Phase == atoll.RowActive {
			n += r.Spec.Assigned["apps/Deployment/ns/web"]
		}
	}
	return n
}

// Replicas of lost clusters run elsewhere, however many clusters are lost. Above the budget, the removal of the old copies
// waits for a confirmation, and then for their replacements.
func TestTheRemovalBudgetDelaysNoFailover(t *testing.T) {
	s := newStage(t)
	s.runCommand("fleet", []string{"20"})
	s.runCommand("divide", []string{"Deployment/web=40"})
	s.runCommand("settle", nil)
	var want []atoll.RowPhase
	for i := range 6 {
		s.now = s.now.Add(10 * time.Second)
		s.loseCluster(fmt.Sprintf("c%02d", i+1))
		s.runCommand("settle", nil)
		if n := s.countConnectedReplicas(); n != 40 {
			t.Fatalf("%d replicas are connected after %d losses:\n%s", n, i+1, s.formatRows())
		}
		if want = append(want, atoll.RowLeaving); i >= 2 {
			want[i] = atoll.RowHeld
		}
		for at, phase := range want {
			s.expectPhases(map[string]atoll.RowPhase{fmt.Sprintf("c%02d", at+1): phase})
		}
	}
	s.runCommand("away", []string{"c20"})
	s.runCommand("revision", []string{"r2"}) // no replacement is healthy
	for i := range 6 {
		s.runCommand("back", []string{fmt.Sprintf("c%02d", i+1)})
	}
	s.advanceOnce()
	s.expectPhases(map[string]atoll.RowPhase{"c01": atoll.RowLeaving, "c06": atoll.RowHeld})
	s.runCommand("confirm", nil)
	s.advanceOnce()
	s.expectPhases(map[string]atoll.RowPhase{"c01": atoll.RowLeaving, "c03": atoll.RowLeaving, "c06": atoll.RowLeaving})
	s.runCommand("back", []string{"c20"})
	s.runCommand("settle", nil)
	s.expectPhases(map[string]atoll.RowPhase{"c01": "", "c03": "", "c06": "", "c20": atoll.RowActive})
}

// recoverCluster connects a cluster again, and removes its taints.
func (s *scriptStage) recoverCluster(name string) {
	s.runCommand("back", []string{name})
	s.clusters[name].Taints = nil
}

// A removal that waits for its confirmation waits with the same words and the same plan after its cluster has recovered.
func TestAHeldRemovalOutlivesTheLoss(t *testing.T) {
	s := newStage(t)
	s.runCommand("fleet", []string{"20"})
	s.placement.MaxClusters = 12
	s.runCommand("settle", nil)
	chosen := slices.Sorted(maps.Keys(s.rows))
	for _, name := range chosen[:4] {
		s.loseCluster(name)
	}
	s.runCommand("settle", nil)
	held := s.rows[chosen[0]].Spec
	if held.Phase != atoll.RowHeld {
		t.Fatalf("nothing is held:\n%s", s.formatRows())
	}
	for _, name := range chosen[:4] {
		s.recoverCluster(name)
	}
	s.runCommand("settle", nil)
	if got := s.rows[chosen[0]].Spec; got.Reason != held.Reason || got.Phase != held.Phase {
		t.Errorf("%s [%s], was %s [%s]", got.Phase, got.Reason, held.Phase, held.Reason)
	}
}

// A cluster that is untainted and lost again at once keeps its old copy, too.
func TestALostCopyStaysWhenItsClusterFlaps(t *testing.T) {
	s := newLostStage(t)
	s.runCommand("settle", nil)
	s.clusters["a"].Taints = nil
	s.runCommand("settle", nil)
	s.expectPhases(map[string]atoll.RowPhase{"a": atoll.RowLeaving, "b": atoll.RowActive})
	s.runCommand("back", []string{"a"})
	s.advanceOnce()
	s.expectPhases(map[string]atoll.RowPhase{"a": atoll.RowRemoving, "b": atoll.RowActive})
}
