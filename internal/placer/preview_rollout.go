package placer

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/state"
)

// previewFirstTurns records the first turns of Bundles whose rows do not all change at once.
func (r *PlacementReconciler) previewFirstTurns(ctx context.Context, list []PreviewedBundle) error {
	for i := range list {
		b := &list[i]
		if turns := r.turnTermsOf(b.Bundle); !turns.isBounded(len(b.Before)) || !turns.countsFirstCopies() && b.isAtRevision() {
			continue
		}
		p, snap, err := r.previewWithInput(ctx, b.Bundle)
		if err == nil && p.Output.StageCut != nil { // rows change in the step that reads it
			cut := b.Bundle
			is := decideRollout(cut.Status.Rollout, p.Output)
			cut.Status.Rollout = &is
			p, snap, err = r.previewWithInput(ctx, cut)
		}
		if err != nil {
			return err
		}
		if len(p.Output.Progress.Stages) > 0 {
			b.Rollout = &rollout.FirstTurn{Terms: snap.rollout.Terms, Halt: snap.rollout.Halt, Progress: p.Output.Progress, Wait: p.Output.StageWait}
		}
	}
	return nil
}

// isAtRevision reports whether all rows hold the revision, so that none waits.
func (b *PreviewedBundle) isAtRevision() bool {
	for _, row := range b.Before {
		if row.Revision != b.Revision {
			return false
		}
	}
	return true
}

// withoutTurns returns the Bundle with all rows changing at once, in every freeze and suspension of dispatching, before those on which it depends and
// without a disruption budget.
func withoutTurns(b state.Bundle) state.Bundle {
	b.Spec.Rollout, b.Spec.Pause, b.Spec.DependsOn, b.Spec.DisruptionBudget = &v1alpha1.Rollout{Type: v1alpha1.RolloutAll}, nil, nil, nil
	if b.Spec.Suspension != nil {
		b.Spec.Suspension = &v1alpha1.Suspension{Scheduling: b.Spec.Suspension.Scheduling}
	}
	b.Spec.FreezeExemption = &v1alpha1.FreezeExemption{At: metav1.NewTime(time.Date(9000, 1, 1, 0, 0, 0, 0, time.UTC))}
	return b
}
