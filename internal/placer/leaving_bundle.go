package placer

import (
	"context"
	"slices"
	"strings"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/reconcile"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

// placeOrRemoveAfterPanic makes one decision about a Bundle and one write. When that panics for a Bundle that
// is being deleted, its rows leave by a step that needs neither its content nor its placement: a
// defect in what the Bundle states must not keep it from leaving. The panic is returned all the
// same, so that the Bundle is set aside between these steps.
func (r *PlacementReconciler) placeOrRemoveAfterPanic(ctx context.Context, b state.Bundle) error {
	if !r.isBundleOrNamespaceDeleting(b) {
		return r.placeBundle(ctx, b)
	}
	err := reconcile.ContainPanic(func() error { return r.placeBundle(ctx, b) })
	if reconcile.AsPanic(err) == nil {
		return err
	}
	if failed := reconcile.ContainPanic(func() error { return r.removeRows(ctx, b) }); failed != nil {
		r.Log.Warn("rows of a deleted bundle that cannot be placed do not leave yet", "bundle", b.Ref.Name, "namespace", b.Ref.Namespace, "err", failed)
	}
	return err
}

// removeRows makes a step of a deleted Bundle over all its rows. The bounds of removals hold.
func (r *PlacementReconciler) removeRows(ctx context.Context, b state.Bundle) error {
	mustConfirm, err := r.mustConfirmLeavingRows(ctx, b)
	if err != nil {
		return err
	}
	a, err := r.attemptStepWithRetries(func() (stepInput, func(), error) { return r.leavingStepInput(b, mustConfirm), func() {}, nil })
	if err != nil {
		return err
	}
	defer a.endStep()
	if err := r.writeRowChanges(ctx, a); err != nil {
		return err
	}
	r.recordStepWarnings(b, &rollout.Input{}, a.output)
	return nil
}

// leavingStepInput returns the input of removeRows.
func (r *PlacementReconciler) leavingStepInput(b state.Bundle, mustConfirm bool) stepInput {
	s := stepInput{bundle: b, baseRows: r.Rows.ListOfBundle(b.Ref.UID)}
	rows, _ := r.rolloutRows(s.baseRows)
	_, holding := r.Hub.HoldReason()
	s.rollout = rollout.Input{
		BundleUID: b.Ref.UID, Rows: rows, Decision: schedule.Decision{Verdicts: r.leavingVerdicts(s.baseRows)},
		RemovalMode: b.Spec.Removal.Mode, RemovalHooks: removalHooksOf(b), RemovalBudget: b.Spec.Removal.Budget,
		ConfirmedPlan: b.Meta.Annotations[atoll.AnnotationConfirm], KeptPlan: b.Meta.Annotations[atoll.AnnotationKeep],
		MustConfirmRemovals: mustConfirm,
		Deleting:            true, PausedByRestore: holding, GenerationFloor: r.Hub.GenerationFloor(), Now: time.Now(),
	}
	return s
}

// mustConfirmLeavingRows reports whether an item of the content states that a person confirms its removal. A
// content that the store does not give may have one, so that the step is tried again. A content that panics has
// none: the Bundle must be able to leave.
func (r *PlacementReconciler) mustConfirmLeavingRows(ctx context.Context, b state.Bundle) (must bool, err error) {
	err = reconcile.ContainPanic(func() error {
		_, content, err := r.latestContent(ctx, b)
		must = content.MustConfirmRemovals()
		return err
	})
	if reconcile.AsPanic(err) == nil {
		return must, err
	}
	r.Log.Warn("the content of a deleted bundle cannot be read: removal modes of its items do not hold", "bundle", b.Ref.Name, "namespace", b.Ref.Namespace, "err", err)
	return false, nil
}

// leavingVerdicts returns a verdict for each row: no cluster is chosen, and the row of a deleted
// Cluster has no agent.
func (r *PlacementReconciler) leavingVerdicts(rows []state.Row) []schedule.Verdict {
	out := make([]schedule.Verdict, 0, len(rows))
	for _, row := range rows {
		v := schedule.Verdict{Cluster: row.Cluster, Outcome: schedule.OutcomeGone, Filter: schedule.FilterDeleting}
		if c, ok := r.Clusters.Get(row.Cluster); ok && c.DeletionTimestamp == nil {
			v.UID, v.Outcome, v.Filter = string(c.UID), schedule.OutcomeOut, ""
			v.Orphan = c.Spec.Removal != nil && c.Spec.Removal.Mode == v1alpha1.ClusterOrphan
		}
		out = append(out, v)
	}
	slices.SortFunc(out, func(a, b schedule.Verdict) int { return strings.Compare(a.Cluster, b.Cluster) })
	return out
}
