package clusterstatus

import (
	"testing"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/reconcile"
)

// brokenClusters panics for every cluster.
type brokenClusters struct{ Clusters }

func (brokenClusters) Get(string) (*v1alpha1.Cluster, bool) { panic("defect") }

// A panic under the lock unlocks it: one Cluster must not stop the statuses of the others.
func TestAPanicKeepsNoLock(t *testing.T) {
	for name, act := range map[string]func(r *ClusterStatusReconciler){
		"a change of the table": func(r *ClusterStatusReconciler) { r.recordAndEnqueueCluster("a") },
		"a reconcile":           func(r *ClusterStatusReconciler) { _, _ = r.reconcileCluster(t.Context(), "a") },
		"the wait for a write": func(r *ClusterStatusReconciler) {
			r.statusWriteDelay(nil, v1alpha1.ClusterStatus{}, v1alpha1.ClusterStatus{APIsHash: "h"}, time.Now())
		},
		"reported APIs": func(r *ClusterStatusReconciler) {
			_, _ = r.storeReportedAPIs(t.Context(), nil, "h", []string{"/v1/Pod"})
		},
	} {
		r := &ClusterStatusReconciler{o: Options{Clusters: brokenClusters{}}, members: map[string]*member{}, apiSets: newAPISets()}
		if p := reconcile.ContainPanicCounted("test", func() { act(r) }); p == nil {
			t.Errorf("%s: no panic", name)
		}
		if !r.mu.TryLock() {
			t.Errorf("%s: the lock is held", name)
		}
	}
}
