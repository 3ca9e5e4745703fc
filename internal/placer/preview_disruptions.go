package placer

import (
	"context"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/state"
)

// previewDisruptions makes the steps that the disruption budget of a Bundle allows while copies that are unhealthy now, and get nothing new, stay so. It
// records which copies could not leave.
func (r *PlacementReconciler) previewDisruptions(ctx context.Context, s *supposedState, b *PreviewedBundle) error {
	uid, bundle := b.Bundle.Ref.UID, withoutTurns(b.Bundle)
	if bundle.Spec.DisruptionBudget = b.Bundle.Spec.DisruptionBudget; bundle.Spec.DisruptionBudget == nil {
		return nil
	}
	defer delete(s.reported, uid)
	for changed, n := true, 0; changed && n < maxPreviewSteps; n++ {
		p, snap, err := r.previewWithInput(ctx, bundle)
		if err != nil {
			return err
		}
		b.Waits = p.Output.Waits
		b.recordOldCopyWaits(p.Output.Changes)
		r.capacity.promiseCapacity(&snap.rollout, p.Output.Changes)
		changed = s.applyStep(uid, p, r.Clusters)
		r.groups.readRows(uid, r.Rows)
	}
	for _, w := range b.Waits {
		if row := s.rows[uid][w.Cluster].Spec; row.Phase == atoll.RowLeaving && atoll.IsBudgetReason(w.Reason) {
			if b.DisruptionWaits == nil {
				b.DisruptionWaits = map[string]rollout.RowWait{}
			}
			b.DisruptionWaits[w.Cluster] = w
		}
	}
	return nil
}

// reportOf returns what a connected cluster reports of a row. While a budget is previewed, a copy that keeps its revision keeps its health.
func (s *supposedState) reportOf(uid, cluster string, row *state.Row) *atoll.RowStatus {
	out := &atoll.RowStatus{UID: row.Spec.UID, Generation: row.Spec.Generation, State: atoll.RowReady, Applied: true, AllTombstonesDone: true, Since: row.Spec.Since}
	was := s.reported[uid][cluster]
	if was.Status == nil || was.Spec.UID != row.Spec.UID || was.Spec.Revision != row.Spec.Revision || was.Status.Generation != was.Spec.Generation {
		return out
	}
	out.State, out.Items = was.Status.State, was.Status.Items
	return out
}
