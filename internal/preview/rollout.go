package preview

import (
	"fmt"
	"strings"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/rollout"
)

// RolloutPlan is in which stages the rows of a Bundle would change.
type RolloutPlan struct {
	Stages []StagePlan `json:"stages"`
	// Waits is what the clusters that do not change at first would wait for.
	Waits       string       `json:"waits,omitempty"`
	WaitsReason atoll.Reason `json:"waitsReason,omitempty"`
}

// StagePlan counts the clusters of a stage that would change.
type StagePlan struct {
	Name string `json:"name"`
	// First clusters would change at first, and Later ones in their turn.
	First int `json:"first"`
	Later int `json:"later"`
	// Disconnected clusters would change after they return.
	Disconnected int `json:"disconnected,omitempty"`
	// Suspended clusters would change after the policy suspends them no more.
	Suspended int `json:"suspended,omitempty"`
	// Gates that would hold the first of them.
	Gates []string `json:"gates,omitempty"`
	// Failures is what fails a cluster, and what follows, where the stage states it.
	Failures string `json:"failures,omitempty"`
}

// newRolloutPlan returns the stages in which clusters would change; nil where none would wait.
func newRolloutPlan(f *rollout.FirstTurn) *RolloutPlan {
	if f == nil || f.Wait.Reason == "" {
		return nil
	}
	out := &RolloutPlan{Waits: f.DescribeWait(), WaitsReason: f.Wait.Reason}
	for i, n := range f.Progress.Stages {
		out.Stages = append(out.Stages, StagePlan{Name: f.Terms.StageName(i), First: n.Changing, Later: n.Waiting, Disconnected: n.DisconnectedWaiting, Suspended: n.SuspendedWaiting, Gates: f.Terms.DescribeGates(i), Failures: f.Terms.DescribeFailures(i)})
	}
	return out
}

func (r *RolloutPlan) writeText(b *strings.Builder) {
	if r == nil {
		return
	}
	for _, s := range r.Stages {
		if s.First+s.Later+s.Disconnected+s.Suspended == 0 {
			continue
		}
		fmt.Fprintf(b, "  Stage %s: %s would change at first, %d later", s.Name, phrase.CountNoun(s.First, "cluster"), s.Later)
		if s.Disconnected > 0 {
			fmt.Fprintf(b, ", %d when connected again", s.Disconnected)
		}
		if s.Suspended > 0 {
			fmt.Fprintf(b, ", %d when not suspended any more", s.Suspended)
		}
		b.WriteString(".\n")
		for _, gate := range s.Gates {
			fmt.Fprintf(b, "    Before it, %s.\n", gate)
		}
		if s.Failures != "" {
			fmt.Fprintf(b, "    In it, %s.\n", s.Failures)
		}
	}
	fmt.Fprintf(b, "  The others would wait for %s.\n", r.Waits)
}
