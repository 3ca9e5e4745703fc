package rollout

import (
	"strings"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// The wait of an unhealthy copy has why it stays there. A healthy one, and one that stays for another reason, have no such words.
func TestWaitsOfUnhealthyCopies(t *testing.T) {
	for reason, want := range map[string]string{
		"FailoverUnreplaced: no other cluster can take its place; kept apart from Deployment shop/other, which runs in b": "; no other cluster can take its place",
		"FailoverLimitReached: unhealthy since then": "; as many clusters are avoided as maxAvoidedClusters allows",
		"FailoverHeld: unhealthy since then":         "; its failover is held",
		"Unfit: labels do not match":                 "",
		"":                                           "",
	} {
		row := Row{Spec: atoll.RowSpec{Generation: 1, Phase: atoll.RowActive, Reason: reason}, Status: &atoll.RowStatus{Generation: 1, State: atoll.RowDegraded, Applied: true}, Online: true}
		if got := WaitOfActiveRow(row).For; got != "items that are not healthy"+want {
			t.Errorf("%s: %q", reason, got)
		}
		if row.Status.State = atoll.RowReady; strings.Contains(WaitOfActiveRow(row).For, "failover") {
			t.Errorf("%s: a healthy copy waits for %q", reason, WaitOfActiveRow(row).For)
		}
	}
}

// The grace period is shown where it counts: for an unhealthy copy that goes gracefully.
func TestGraceIsShownWhereItCounts(t *testing.T) {
	for name, tc := range map[string]struct {
		purge v1alpha1.PurgeMode
		state atoll.RowState
		want  bool
	}{
		"unhealthy": {"", atoll.RowDegraded, true}, "healthy again": {"", atoll.RowReady, false}, "at once": {v1alpha1.PurgeDirectly, atoll.RowDegraded, false}, "never": {v1alpha1.PurgeNever, atoll.RowDegraded, false},
	} {
		s := newStage(t)
		s.runLines("clusters a b", "most 1", "place names a", "settle", "place names a b", "report Degraded a", "fail a")
		s.baseInput.ApplicationFailover = &v1alpha1.ApplicationFailover{PurgeMode: tc.purge}
		s.runLines("step", "report "+string(tc.state)+" a")
		if got := s.formatWaits(); strings.Contains(got, ", at most until ") != tc.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// runLines runs commands of scripts.
func (s *scriptStage) runLines(lines ...string) {
	for _, line := range lines {
		words := strings.Fields(line)
		s.runCommand(words[0], words[1:])
	}
}
