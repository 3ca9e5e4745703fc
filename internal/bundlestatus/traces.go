package bundlestatus

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/tracing"
)

// traceStatus records a status that was written.
func (r *BundleReconciler) traceStatus(ref enginev1.BundleRef, st v1alpha1.BundleStatus, started time.Time) {
	ready := meta.FindStatusCondition(st.Conditions, v1alpha1.BundleReady)
	if r.Traces == nil || ready == nil {
		return
	}
	r.Traces.RecordStatus(tracing.Status{
		Bundle: ref, Revision: st.Revision, Started: started, Reason: ready.Reason,
		IsReady: ready.Reason == string(ReasonReady) && st.Clusters.Updated == st.Clusters.Desired, IsFailed: ready.Reason == string(ReasonFailed) || ready.Reason == string(ReasonDegraded),
		Ready: st.Clusters.Ready, Desired: st.Clusters.Desired,
	})
}
