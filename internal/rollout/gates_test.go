package rollout

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/expr"
)

// A gate that is edited after it passed is judged again, and holds the clusters of its stage that still wait.
func TestAnEditedGateIsJudgedAgain(t *testing.T) {
	s := newStage(t)
	for line := range strings.Lines("fleet 3\nsettle\nstage canary c01\nstage next c02,c03 concurrency=1 wait=5m\nrevision r2\nstep\nreport Ready c01\nstep\nafter 5m\nstep\nstep\nreport Ready c02") {
		words := strings.Fields(line)
		s.runCommand(words[0], words[1:])
	}
	before := s.gates.stored[0]
	if before.State != v1alpha1.GatePassed || s.rows["c02"].Spec.Revision != "r2" {
		t.Fatalf("the gate has not passed:\n%s%s", s.formatGates(), s.formatRows())
	}
	s.rollout.Stages[1].GatesBefore[0].Wait = &metav1.Duration{Duration: time.Hour}
	s.runCommand("step", nil)
	s.runCommand("step", nil)
	after := s.gates.stored[0]
	if after.State != v1alpha1.GateWaiting || after.Hash == before.Hash || s.rows["c03"].Spec.Revision != "r1" {
		t.Errorf("the edited gate opens:\n%s%s", s.formatGates(), s.formatRows())
	}
	if s.stageWait.Reason != atoll.ReasonWaitsForGateTime {
		t.Errorf("the reason is %s", s.stageWait.Reason)
	}
}

// Suspended clusters that wait are in a count of their own. The value of a gate that finds no other cluster names them.
func TestAnExpressionOverSuspendedClusters(t *testing.T) {
	const noFailure, noSuspension = "earlier.failed == 0", "earlier.suspended == 0"
	one := StageTally{Clusters: 1, Updated: 1, Suspended: 1, SuspendedWaiting: 1}
	for name, c := range map[string]struct {
		text    string
		earlier StageTally
		holds   bool
		value   string
	}{
		"all are suspended":    {noFailure, StageTally{Suspended: 2, SuspendedWaiting: 2}, false, "earlier has no connected cluster that is not suspended"},
		"all are disconnected": {noFailure, StageTally{Disconnected: 2, DisconnectedWaiting: 2}, false, "earlier has no connected cluster"},
		"one is":               {noFailure, one, true, "true"},
		"none may be":          {noSuspension, one, false, "false"},
		"none is":              {noSuspension, StageTally{Clusters: 1, Updated: 1}, true, "true"},
		"one has the revision": {noSuspension, StageTally{Clusters: 2, Updated: 2, Suspended: 1}, true, "true"},
	} {
		counts, err := expr.CompileCountExpression(c.text)
		if err != nil {
			t.Fatal(err)
		}
		g := &gate{RolloutGate: v1alpha1.RolloutGate{Name: "counts", CEL: c.text}, of: 1, counts: counts}
		p := Progress{Stages: []StageTally{c.earlier, {Clusters: 1, Waiting: 1}}}
		if v := (celGate{}).judgeFacts(g, &gateFacts{progress: &p}); v.holds != c.holds || v.value != c.value {
			t.Errorf("%s: holds %t, %q", name, v.holds, v.value)
		}
	}
}
