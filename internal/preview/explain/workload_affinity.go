package explain

import (
	"fmt"
	"strings"

	"atoll.dev/atoll/internal/schedule"
)

// WorkloadAffinity explains the workloadAffinity of a placement.
type WorkloadAffinity struct {
	Terms []schedule.WorkloadTerm `json:"terms"`
	// Refusal names another member of a group because of which clusters that fit otherwise are refused; empty: none are.
	Refusal string `json:"refusal,omitempty"`
}

func (in ExplanationInput) explainWorkloadAffinity(d *schedule.Decision) *WorkloadAffinity {
	if len(d.WorkloadTerms) == 0 {
		return nil
	}
	out := &WorkloadAffinity{Terms: d.WorkloadTerms}
	if d.GroupRefusal != nil {
		out.Refusal = d.HideMembers(d.GroupRefusal.String(), in.MayRead)
	}
	return out
}

// writeText writes what the terms do, and what they refuse.
func (a *WorkloadAffinity) writeText(b *strings.Builder) {
	if a == nil {
		return
	}
	for _, t := range a.Terms {
		fmt.Fprintf(b, "  %s.\n", t.Sentence())
	}
	if a.Refusal != "" {
		fmt.Fprintf(b, "  Clusters that fit otherwise are refused: it is %s.\n", a.Refusal)
	}
}
