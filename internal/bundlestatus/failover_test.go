package bundlestatus

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/state"
)

// The status keeps what the hub stored about a failover, which another writer writes.
func TestAStatusKeepsTheFailover(t *testing.T) {
	is := &v1alpha1.ApplicationFailoverStatus{HealthyRevision: "web-1-x", ClustersBeforeFailover: []string{"a"}, Clusters: []v1alpha1.FailoverCluster{{Cluster: "a", ClusterUID: "uid-a", Failovers: 1}}}
	in := StatusInput{Bundle: state.Bundle{Status: v1alpha1.BundleStatus{Failover: is}}, Rows: []Row{newRow("a", readyStatus())}, Latest: latest, Now: time.Unix(1000, 0)}
	if got := ComputeStatus(in).Failover; !equality.Semantic.DeepEqual(got, is) {
		t.Errorf("%+v", got)
	}
	in.Bundle.Status.Failover = nil
	if got := ComputeStatus(in).Failover; got != nil {
		t.Errorf("%+v", got)
	}
}
