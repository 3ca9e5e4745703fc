package rollout

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
)

// gateStore is what the hub stores of gates, and a clock that nothing sets.
type gateStore struct {
	stored    []v1alpha1.GateStatus
	approvals []v1alpha1.RolloutApproval
	trueTime  time.Duration
	seen      map[string]gateSeen
	writes    int
	// tallies are in memory: a restart loses them.
	tallies map[string]Tally
}

type gateSeen struct {
	wall     time.Time
	trueTime time.Duration
}

// storeVerdicts stores the verdicts of a step. Its hub watches them from then on.
func (g *gateStore) storeVerdicts(out Output, now time.Time) {
	if out.GatesChanged {
		g.stored = out.Gates
		g.writes++
		g.readVerdicts(now)
	}
}

func (g *gateStore) readVerdicts(now time.Time) (out []GateRecord) {
	seen := map[string]gateSeen{}
	for _, v := range g.stored {
		key := gateKeyOf(&v)
		first, known := g.seen[key]
		if !known {
			first = gateSeen{now, g.trueTime}
		}
		seen[key] = first
		out = append(out, GateRecord{GateStatus: v, FirstSeen: first.wall, Watched: g.trueTime - first.trueTime, Tally: g.tallies[key]})
	}
	g.seen = seen
	return out
}

func gateKeyOf(v *v1alpha1.GateStatus) string {
	return fmt.Sprint(v.Stage, v.Name, v.Revision, v.Hash, v.Since.Unix())
}

// addMeasurement adds a measurement of a gate, as the hub does for a verdict that waits for it.
func (s *scriptStage) addMeasurement(args []string) {
	kind, isKnown := map[string]OutcomeKind{"success": OutcomeSuccess, "failure": OutcomeFailure, "nodata": OutcomeNoData, "wait": OutcomeUndecided}[args[1]]
	if !isKnown {
		s.t.Fatalf("unknown outcome %s", args[1])
	}
	for _, m := range ListMeasuredGates(s.rollout, s.gates.stored, s.baseInput.Revision) {
		if m.Gate.Name != args[0] {
			continue
		}
		if s.gates.tallies == nil {
			s.gates.tallies = map[string]Tally{}
		}
		key := gateKeyOf(&m.Status)
		s.gates.tallies[key] = s.gates.tallies[key].AddOutcome(&m.Gate, Outcome{kind, strings.Join(args[2:], " ")}, s.now)
		return
	}
	s.t.Fatalf("gate %s is not measured:\n%s", args[0], s.formatGates())
}

func (g *gateStore) addApproval(s *scriptStage, args []string) {
	revision := s.baseInput.Revision
	if len(args) > 2 {
		revision = args[2]
	}
	g.approvals = append(g.approvals, v1alpha1.RolloutApproval{Stage: strings.ReplaceAll(args[0], "_", " "), Revision: revision, By: args[1], At: metav1.NewTime(s.now)})
}

func (s *scriptStage) formatGates() (out string) {
	for _, v := range s.gates.stored {
		out += fmt.Sprintf("  %s/%s of %s: %s, %s", v.Stage, v.Name, v.Revision, v.State, s.now.Sub(v.Since.Time).Round(time.Second))
		if v.Value != "" {
			out += " (" + v.Value + ")"
		}
		out += "\n"
	}
	return out
}
