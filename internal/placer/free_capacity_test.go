package placer

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/freecapacity"
	"atoll.dev/atoll/internal/state"
)

// byFreeCapacity divides by the room that clusters report.
var byFreeCapacity = v1alpha1.PlacementSpec{ReplicaScheduling: v1alpha1.ReplicaScheduling{
	ReplicaSchedulingType: v1alpha1.Divided,
	WeightPreference:      &v1alpha1.ClusterPreferences{DynamicWeight: v1alpha1.WeighAvailableReplicas},
}}

// contentAsking content: a Deployment of so many pods of one CPU.
func contentAsking(name string, replicas int) *atoll.Content {
	return &atoll.Content{Items: []atoll.Item{{
		Key: atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: name}, APIVersion: "apps/v1", UID: name, Divided: true,
		Object: fmt.Appendf(nil, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":%q},"spec":{"replicas":%d,"template":{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"1"}}}]}}}}`, name, replicas),
	}}}
}

// withFreeCPUs is what a cluster's nodes have left: one of so many CPUs.
func withFreeCPUs(cpus int) func(*v1alpha1.Cluster) {
	return func(c *v1alpha1.Cluster) {
		node := freecapacity.NodeClass{Nodes: 1, CPU: int64(cpus) * 1000, Pods: 500}
		c.Status.Resources.FreeCapacity = freecapacity.NodeClasses{node}.ToStatus()
	}
}

func (m *fakeHub) placeBundle(uid string, p v1alpha1.PlacementSpec, content *atoll.Content) {
	m.changeBundle(uid, func(b *state.Bundle) { b.Spec.Placement = p })
	m.cutRevision(uid, content)
}

// New replicas go where agents report room; what runs stays whatever they report.
func TestRoomSteersWhatIsNew(t *testing.T) {
	m := newFakeHub()
	m.changeCluster("a", withFreeCPUs(9))
	m.changeCluster("b", withFreeCPUs(3))
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		m.placeBundle("web", byFreeCapacity, contentAsking("web", 4))
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r1 3, b Active r1 1")
		_, looks := m.countsAfterWait()
		m.changeCluster("a", withFreeCPUs(2))
		m.changeCluster("b", withFreeCPUs(90))
		time.Sleep(time.Minute)
		synctest.Wait()
		if _, now := m.countsAfterWait(); now != looks {
			t.Errorf("reports of room cost %d steps", now-looks)
		}
		expectRows(t, m, "web", "a Active r1 3, b Active r1 1")
		m.cutRevision("web", contentAsking("web", 50))
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r2 4, b Active r2 46")
	})
}

// Replicas without a place wait for capacity, and get it when some is reported.
func TestShortOfRoom(t *testing.T) {
	m := newFakeHub()
	m.changeCluster("a", withFreeCPUs(3))
	m.changeCluster("b", withFreeCPUs(2))
	runReconciler(t, m, func(t *testing.T, r *PlacementReconciler) {
		m.placeBundle("web", byFreeCapacity, contentAsking("web", 9))
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r1 3, b Active r1 2")
		b, _ := r.Bundles.Get("web")
		p, err := r.PreviewBundle(t.Context(), b)
		if err != nil || len(p.Output.Shortages) != 1 || p.Output.Shortages[0].Unplaced != 4 || p.Output.Shortages[0].Replicas != 9 {
			t.Errorf("short of %+v, %v", p.Output.Shortages, err)
		}
		time.Sleep(promiseSettleTime / 2)
		m.changeCluster("a", withFreeCPUs(0))
		m.changeCluster("b", withFreeCPUs(0))
		time.Sleep(time.Minute)
		expectRows(t, m, "web", "a Active r1 3, b Active r1 2")
		_, looks := m.countsAfterWait()
		m.changeCluster("b", withFreeCPUs(3))
		time.Sleep(2 * freeCapacityDebounce)
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r1 3, b Active r1 5")
		time.Sleep(time.Hour)
		if _, now := m.countsAfterWait(); now-looks > 20 {
			t.Errorf("waiting for room costs %d steps an hour", now-looks)
		}
	})
}

// Bundles that land at the same time share one room: it is promised once.
func TestRoomIsPromisedOnce(t *testing.T) {
	m := newFakeHub()
	m.changeCluster("a", withFreeCPUs(10))
	m.changeCluster("b", withFreeCPUs(10))
	for i := range 10 {
		m.placeBundle(fmt.Sprint("app", i), byFreeCapacity, contentAsking(fmt.Sprint("app", i), 3))
	}
	given := func() (a, b int64) {
		for i := range 10 {
			for _, row := range (fakeRows{m}).ListOfBundle(fmt.Sprint("app", i)) {
				for _, n := range row.Spec.Assigned {
					if row.Cluster == "a" {
						a += n
					} else {
						b += n
					}
				}
			}
		}
		return a, b
	}
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		synctest.Wait()
		if a, b := given(); a != 10 || b != 10 {
			t.Fatalf("%d and %d replicas are given where 10 and 10 fit", a, b)
		}
		for i := range 10 {
			m.settleRows(fmt.Sprint("app", i))
		}
		// The agent of a tells what is left; b's has nothing new to tell.
		m.changeCluster("a", withFreeCPUs(0))
		time.Sleep(promiseSettleTime / 2)
		if a, b := given(); a != 10 || b != 10 {
			t.Fatalf("a while later %d and %d are given", a, b)
		}
		m.changeCluster("b", withFreeCPUs(0))
		time.Sleep(time.Hour)
		if a, b := given(); a != 10 || b != 10 {
			t.Fatalf("an hour later %d and %d are given", a, b)
		}
		m.changeCluster("a", withFreeCPUs(4))
		time.Sleep(time.Minute)
		if a, b := given(); a != 14 || b != 10 {
			t.Fatalf("%d and %d are given where 14 and 10 fit", a, b)
		}
	})
}

// A write that fails promises nothing.
func TestAFailedWritePromisesNothing(t *testing.T) {
	m := newFakeHub()
	m.changeCluster("a", withFreeCPUs(5))
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		m.mu.Lock()
		m.writeError = state.ErrRowsMoved
		m.mu.Unlock()
		m.placeBundle("web", byFreeCapacity, contentAsking("web", 5))
		time.Sleep(time.Second)
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r1 5")
	})
}

// A hub that restarts counts recent promises.
func TestPromisesAreKnownAfterAStart(t *testing.T) {
	m := newFakeHub()
	m.changeCluster("a", withFreeCPUs(5))
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		m.placeBundle("web", byFreeCapacity, contentAsking("web", 4))
		expectRows(t, m, "web", "a Active r1 4")
	})
	// No agent has reported on the row.
	m.placeBundle("api", byFreeCapacity, contentAsking("api", 4))
	synctest.Test(t, func(t *testing.T) {
		now := time.Now().Unix()
		r := m.rows["web"]["a"]
		r.Spec.Since = now
		m.rows["web"]["a"] = r
	})
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		expectRows(t, m, "api", "a Active r1 1")
	})
}

// If the placement permits it, an override sets a cluster's assigned replicas; a label that brings
// the cluster under it changes the others.
func TestOverridesSetShares(t *testing.T) {
	m := newFakeHub()
	for _, name := range []string{"a", "b", "c"} {
		m.changeCluster(name, nil)
	}
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		content := contentAsking("web", 9)
		content.Items[0].ReplicaOverrides = true
		five := int32(5)
		content.Rules = []atoll.Rule{{
			Policy: "OverridePolicy/shop/big", Items: []atoll.ItemKey{content.Items[0].Key}, Overriders: v1alpha1.Overriders{Replicas: &five},
			Target: &v1alpha1.ClusterTarget{ClusterAffinity: v1alpha1.ClusterAffinity{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"size": "big"}}}},
		}}
		m.placeBundle("web", v1alpha1.PlacementSpec{ReplicaScheduling: v1alpha1.ReplicaScheduling{
			ReplicaSchedulingType: v1alpha1.Divided, ReplicaOverrides: v1alpha1.AllowReplicaOverrides,
		}}, content)
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r1 3, b Active r1 3, c Active r1 3")
		m.changeCluster("b", func(c *v1alpha1.Cluster) { c.Labels = map[string]string{"size": "big"} })
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r1 2, b Active r1 5, c Active r1 2")
	})
}

// Untrusted reported capacity counts as unknown.
func TestReportedRoomIsIgnored(t *testing.T) {
	m := newFakeHub()
	m.changeCluster("a", withFreeCPUs(2))
	m.changeCluster("b", func(c *v1alpha1.Cluster) { withFreeCPUs(500)(c); c.Spec.ReportedRoom = v1alpha1.RoomIgnore })
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		m.placeBundle("web", byFreeCapacity, contentAsking("web", 2))
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r1 2, b Active r1 0")
		m.cutRevision("web", contentAsking("web", 6))
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r2 2, b Active r2 4")
		m.changeCluster("b", func(c *v1alpha1.Cluster) { c.Spec.ReportedRoom = v1alpha1.RoomUse })
		m.cutRevision("web", contentAsking("web", 20))
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r3 2, b Active r3 18")
	})
}
