package rollout

import (
	"testing"

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
