package placer

import (
	"testing"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
)

// Replicas beyond the places of the first group go to the next one, and return, after their
// replacements are healthy, when the first one reports places for all of them. A cluster that
// connects, or reports more, is looked at; time alone is not.
func TestOverflowAndReturn(t *testing.T) {
	m := newFakeHub()
	m.changeCluster("a", withFreeCPUs(4))
	m.changeCluster("b", withFreeCPUs(2))
	m.changeCluster("c", withFreeCPUs(50))
	p := byFreeCapacity
	p.ReplicaScheduling.Overflow = v1alpha1.OverflowAllow
	for _, name := range []string{"a", "b", "c"} {
		p.ClusterAffinities = append(p.ClusterAffinities, v1alpha1.ClusterAffinityTerm{AffinityName: "on-" + name, ClusterAffinity: v1alpha1.ClusterAffinity{ClusterNames: []string{name}}})
	}
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		// report lets a cluster report what it has left beside what runs there.
		report := func(cluster string, left int) {
			m.changeCluster(cluster, withFreeCPUs(left))
			time.Sleep(2 * freeCapacityDebounce)
			m.settleRows("web")
		}
		m.placeBundle("web", p, contentAsking("web", 4))
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r1 4")
		time.Sleep(time.Minute)
		report("a", 0)
		m.cutRevision("web", contentAsking("web", 9))
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r2 4, b Active r2 2, c Active r2 3")
		time.Sleep(time.Minute)
		report("b", 0)
		report("c", 47)
		_, looks := m.countsAfterWait()
		time.Sleep(time.Hour)
		if _, now := m.countsAfterWait(); now-looks > 20 {
			t.Errorf("overflow costs %d steps an hour", now-looks)
		}
		report("a", 2) // not enough for the three of the last group
		expectRows(t, m, "web", "a Active r2 4, b Active r2 2, c Active r2 3")
		m.changeCluster("a", withFreeCPUs(3))
		time.Sleep(2 * freeCapacityDebounce)
		expectRows(t, m, "web", "a Active r2 7, b Active r2 2, c Leaving r2 3")
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r2 7, b Active r2 2")
	})
}

// A cluster that joins, or reports more, takes what has no place in the chosen one.
func TestOverflowToANewCluster(t *testing.T) {
	m := newFakeHub()
	m.changeCluster("a", withFreeCPUs(4))
	p := byFreeCapacity
	p.MaxClusters, p.ReplicaScheduling.Overflow = 1, v1alpha1.OverflowAllow
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		m.placeBundle("web", p, contentAsking("web", 6))
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r1 4")
		m.changeCluster("a", withFreeCPUs(0)) // as agents do, before the promise of the replicas expires
		time.Sleep(time.Minute)
		m.changeCluster("b", withFreeCPUs(1))
		time.Sleep(2 * freeCapacityDebounce)
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r1 4, b Active r1 1")
		m.changeCluster("b", withFreeCPUs(0))
		m.changeCluster("c", withFreeCPUs(0))
		time.Sleep(time.Minute)
		m.changeCluster("c", withFreeCPUs(9))
		time.Sleep(2 * freeCapacityDebounce)
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r1 4, b Active r1 1, c Active r1 1")
		time.Sleep(time.Minute)
		m.changeCluster("a", withFreeCPUs(2))
		time.Sleep(2 * freeCapacityDebounce)
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r1 6")
	})
}
