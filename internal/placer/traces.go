package placer

import (
	"slices"

	"atoll.dev/atoll/internal/state"
	"atoll.dev/atoll/internal/tracing"
)

// traceStep records a step that was written. isFirst: no row had its Revision before.
func (r *PlacementReconciler) traceStep(a stepAttempt, isFirst bool) {
	if r.Traces == nil {
		return
	}
	p := tracing.PlacementStep{Bundle: a.input.bundle.Ref, Revision: a.input.rollout.Revision, Started: a.input.rollout.Now, IsFirst: isFirst}
	for _, spec := range a.output.Changes {
		if spec != nil && spec.Revision == p.Revision {
			p.Clusters++
		}
	}
	if p.Clusters > 0 {
		r.Traces.RecordPlace(p)
	}
}

func hasRevision(rows []state.Row, revision string) bool {
	return slices.ContainsFunc(rows, func(row state.Row) bool { return row.Spec.Revision == revision })
}
