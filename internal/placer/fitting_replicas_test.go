package placer

import (
	"fmt"
	"strings"
	"testing"
)

// Among fitting clusters those with free capacity, beside reservations of others, are chosen.
func TestChosenClustersHaveRoom(t *testing.T) {
	m := newFakeHub()
	m.changeCluster("big", withFreeCPUs(13))
	m.changeCluster("large", withFreeCPUs(5))
	for i := range 6 {
		m.changeCluster(fmt.Sprint("small", i), withFreeCPUs(1))
	}
	m.changeCluster("unknown", nil)
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		p := byFreeCapacity
		p.MaxClusters = 1
		var went []string
		for i := range 4 { // of 4 replicas each: three fit into the big one, one into the large one
			uid := fmt.Sprint("web", i)
			m.placeBundle(uid, p, contentAsking(uid, 4))
			m.settleRows(uid)
			went = append(went, clustersHolding(m, uid)...)
		}
		if n := strings.Count(strings.Join(went, " "), "big"); n < 2 || n > 3 || strings.Contains(strings.Join(went, " "), "small") || strings.Contains(strings.Join(went, " "), "unknown") {
			t.Errorf("went to %s", went)
		}
	})
}
