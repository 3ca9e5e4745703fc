package bundlestatus

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/kinds"
)

// writeNowhereStatus writes the status of a template that no cluster is to hold, once that is so for unplacedAfter: its
// clusters no longer report, and the last report would stay. It reports whether the template is such a one.
func (r *BundleReconciler) writeNowhereStatus(ctx context.Context, s *bundleSnapshot, m *bundleMemo, l templateState) (isNowhere bool, err error) {
	c := nowhereCondition(s, l)
	if c == nil || l.joins || !r.isItemStated(l) {
		return false, nil
	}
	next, ok := kinds.NowhereStatus(l.template, c.Reason, c.Message)
	if !ok {
		return false, nil
	}
	if left := time.Until(c.LastTransitionTime.Add(unplacedAfter)); left > 0 {
		m.wakeAfter(left)
		return false, nil
	}
	old, _ := l.template.Object["status"].(map[string]any)
	if kinds.EqualStatusesIgnoringEmpty(old, next) || l.memo.wasSentInVain(l.template, next) {
		return true, nil
	}
	return true, r.sendTemplateStatus(ctx, s, m, l, change{itemReport{observed: l.template.GetGeneration()}, old, next, false})
}

// nowhereCondition returns the condition that states why no cluster is to hold the Bundle; nil: some is, or the hub has not
// decided yet. A copy that a disconnected cluster is to remove may still run there.
func nowhereCondition(s *bundleSnapshot, l templateState) *metav1.Condition {
	if slices.ContainsFunc(l.rows, func(row Row) bool { return row.Spec.Phase != atoll.RowRemoving || !row.Reachable }) {
		return nil
	}
	c := meta.FindStatusCondition(s.bundle.Status.Conditions, v1alpha1.BundleScheduled)
	if c == nil || c.Status != metav1.ConditionFalse || c.ObservedGeneration != s.bundle.Meta.Generation {
		return nil
	}
	if reason := atoll.Reason(c.Reason); reason != ReasonNowhere && !isNoFit(reason) {
		return nil
	}
	return c
}
