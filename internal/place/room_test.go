package place

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

// byRoom divides by the room that clusters report.
var byRoom = v1alpha1.PlacementSpec{ReplicaScheduling: v1alpha1.ReplicaScheduling{
	ReplicaSchedulingType: v1alpha1.Divided,
	WeightPreference:      &v1alpha1.ClusterPreferences{DynamicWeight: v1alpha1.WeighAvailableReplicas},
}}

// asking content: a Deployment of so many pods of one CPU.
func asking(name string, replicas int) *atoll.Content {
	return &atoll.Content{Items: []atoll.Item{{
		Key: atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: name}, APIVersion: "apps/v1", UID: name, Divided: true,
		Object: fmt.Appendf(nil, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":%q},"spec":{"replicas":%d,"template":{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"1"}}}]}}}}`, name, replicas),
	}}}
}

// left is what a cluster's nodes have left: one of so many CPUs.
func left(cpus int) func(*v1alpha1.Cluster) {
	return func(c *v1alpha1.Cluster) {
		node := atoll.NodeClass{Nodes: 1, CPU: int64(cpus) * 1000, Pods: 500}
		c.Status.Resources.Room = &v1alpha1.NodeRoom{Classes: []string{node.String()}}
	}
}

func (m *memory) place(uid string, p v1alpha1.PlacementSpec, content *atoll.Content) {
	m.bundle(uid, func(b *state.Bundle) { b.Spec.Placement = p })
	m.cut(uid, content)
}

// New replicas go where agents report room; what runs stays whatever they report.
func TestRoomSteersWhatIsNew(t *testing.T) {
	m := newMemory()
	m.cluster("a", left(9))
	m.cluster("b", left(3))
	run(t, m, func(t *testing.T, _ *Reconciler) {
		m.place("web", byRoom, asking("web", 4))
		m.settle("web")
		want(t, m, "web", "a Active r1 3, b Active r1 1")
		_, looks := m.counts()
		m.cluster("a", left(2))
		m.cluster("b", left(90))
		time.Sleep(time.Minute)
		synctest.Wait()
		if _, now := m.counts(); now != looks {
			t.Errorf("reports of room cost %d steps", now-looks)
		}
		want(t, m, "web", "a Active r1 3, b Active r1 1")
		m.cut("web", asking("web", 50))
		m.settle("web")
		want(t, m, "web", "a Active r2 4, b Active r2 46")
	})
}

// What is short waits for room, and gets it when some is reported.
func TestShortOfRoom(t *testing.T) {
	m := newMemory()
	m.cluster("a", left(3))
	m.cluster("b", left(2))
	run(t, m, func(t *testing.T, r *Reconciler) {
		m.place("web", byRoom, asking("web", 9))
		m.settle("web")
		want(t, m, "web", "a Active r1 3, b Active r1 2")
		b, _ := r.Bundles.Get("web")
		p, err := r.Preview(t.Context(), b)
		if err != nil || len(p.Output.Short) != 1 || p.Output.Short[0].Unplaced != 4 || p.Output.Short[0].Replicas != 9 {
			t.Errorf("short of %+v, %v", p.Output.Short, err)
		}
		time.Sleep(promiseSettles / 2)
		m.cluster("a", left(0))
		m.cluster("b", left(0))
		time.Sleep(time.Minute)
		want(t, m, "web", "a Active r1 3, b Active r1 2")
		_, looks := m.counts()
		m.cluster("b", left(3))
		time.Sleep(2 * moreRoom)
		m.settle("web")
		want(t, m, "web", "a Active r1 3, b Active r1 5")
		time.Sleep(time.Hour)
		if _, now := m.counts(); now-looks > 20 {
			t.Errorf("waiting for room costs %d steps an hour", now-looks)
		}
	})
}

// Bundles that land at the same time share one room: it is promised once.
func TestRoomIsPromisedOnce(t *testing.T) {
	m := newMemory()
	m.cluster("a", left(10))
	m.cluster("b", left(10))
	for i := range 10 {
		m.place(fmt.Sprint("app", i), byRoom, asking(fmt.Sprint("app", i), 3))
	}
	given := func() (a, b int64) {
		for i := range 10 {
			for _, row := range (memRows{m}).OfBundle(fmt.Sprint("app", i)) {
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
	run(t, m, func(t *testing.T, _ *Reconciler) {
		synctest.Wait()
		if a, b := given(); a != 10 || b != 10 {
			t.Fatalf("%d and %d replicas are given where 10 and 10 fit", a, b)
		}
		for i := range 10 {
			m.settle(fmt.Sprint("app", i))
		}
		// The agent of a tells what is left; b's has nothing new to tell.
		m.cluster("a", left(0))
		time.Sleep(promiseSettles / 2)
		if a, b := given(); a != 10 || b != 10 {
			t.Fatalf("a while later %d and %d are given", a, b)
		}
		m.cluster("b", left(0))
		time.Sleep(time.Hour)
		if a, b := given(); a != 10 || b != 10 {
			t.Fatalf("an hour later %d and %d are given", a, b)
		}
		m.cluster("a", left(4))
		time.Sleep(time.Minute)
		if a, b := given(); a != 14 || b != 10 {
			t.Fatalf("%d and %d are given where 14 and 10 fit", a, b)
		}
	})
}

// A write that fails promises nothing.
func TestAFailedWritePromisesNothing(t *testing.T) {
	m := newMemory()
	m.cluster("a", left(5))
	run(t, m, func(t *testing.T, _ *Reconciler) {
		m.mu.Lock()
		m.fail = state.ErrRowsMoved
		m.mu.Unlock()
		m.place("web", byRoom, asking("web", 5))
		time.Sleep(time.Second)
		m.settle("web")
		want(t, m, "web", "a Active r1 5")
	})
}

// A hub that starts anew knows what was promised shortly before.
func TestPromisesAreKnownAfterAStart(t *testing.T) {
	m := newMemory()
	m.cluster("a", left(5))
	run(t, m, func(t *testing.T, _ *Reconciler) {
		m.place("web", byRoom, asking("web", 4))
		want(t, m, "web", "a Active r1 4")
	})
	// Nobody has reported on the row.
	m.place("api", byRoom, asking("api", 4))
	synctest.Test(t, func(t *testing.T) {
		now := time.Now().Unix()
		r := m.rows["web"]["a"]
		r.Spec.Since = now
		m.rows["web"]["a"] = r
	})
	run(t, m, func(t *testing.T, _ *Reconciler) {
		want(t, m, "api", "a Active r1 1")
	})
}

// Where the placement hands replicas over, what an override sets is a cluster's share; a
// label that brings the cluster under it changes the shares of all.
func TestOverridesSetShares(t *testing.T) {
	m := newMemory()
	for _, name := range []string{"a", "b", "c"} {
		m.cluster(name, nil)
	}
	run(t, m, func(t *testing.T, _ *Reconciler) {
		content := asking("web", 9)
		content.Items[0].ReplicaOverrides = true
		five := int32(5)
		content.Rules = []atoll.Rule{{
			Policy: "OverridePolicy/shop/big", Items: []atoll.ItemKey{content.Items[0].Key}, Overriders: v1alpha1.Overriders{Replicas: &five},
			Target: &v1alpha1.ClusterTarget{ClusterAffinity: v1alpha1.ClusterAffinity{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"size": "big"}}}},
		}}
		m.place("web", v1alpha1.PlacementSpec{ReplicaScheduling: v1alpha1.ReplicaScheduling{
			ReplicaSchedulingType: v1alpha1.Divided, ReplicaOverrides: v1alpha1.AllowReplicaOverrides,
		}}, content)
		m.settle("web")
		want(t, m, "web", "a Active r1 3, b Active r1 3, c Active r1 3")
		m.cluster("b", func(c *v1alpha1.Cluster) { c.Labels = map[string]string{"size": "big"} })
		m.settle("web")
		want(t, m, "web", "a Active r1 2, b Active r1 5, c Active r1 2")
	})
}

// Where the hub does not trust it, reported room counts as unknown.
func TestReportedRoomIsIgnored(t *testing.T) {
	m := newMemory()
	m.cluster("a", left(2))
	m.cluster("b", func(c *v1alpha1.Cluster) { left(500)(c); c.Spec.ReportedRoom = v1alpha1.RoomIgnore })
	run(t, m, func(t *testing.T, _ *Reconciler) {
		m.place("web", byRoom, asking("web", 2))
		m.settle("web")
		want(t, m, "web", "a Active r1 2, b Active r1 0")
		m.cut("web", asking("web", 6))
		m.settle("web")
		want(t, m, "web", "a Active r2 2, b Active r2 4")
		m.cluster("b", func(c *v1alpha1.Cluster) { c.Spec.ReportedRoom = v1alpha1.RoomUse })
		m.cut("web", asking("web", 20))
		m.settle("web")
		want(t, m, "web", "a Active r3 2, b Active r3 18")
	})
}
