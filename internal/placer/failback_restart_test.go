package placer

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

// conditionWriter a condition as bind does, and count the writes.
func (m *fakeHub) conditionWriter(said *int) func(context.Context, state.Bundle, metav1.Condition) error {
	return func(_ context.Context, b state.Bundle, c metav1.Condition) error {
		c.ObservedGeneration = b.Meta.Generation
		m.changeBundle(b.Ref.UID, func(b *state.Bundle) {
			b.Status.Conditions = append([]metav1.Condition(nil), b.Status.Conditions...)
			if meta.SetStatusCondition(&b.Status.Conditions, c) {
				*said++
			}
		})
		return nil
	}
}

// A status that another writer changed is written a moment later, with the other change.
func TestSaysItAgainAfterAConflict(t *testing.T) {
	m, said, conflicts := newFakeHub(), 0, 0
	m.changeCluster("b", nil)
	say := m.conditionWriter(&said)
	runWith(t, m, func(c *Config) {
		c.SetCondition = func(ctx context.Context, b state.Bundle, c metav1.Condition) error {
			if conflicts++; conflicts == 1 {
				return fmt.Errorf("say: %w", apierrors.NewConflict(schema.GroupResource{Resource: "bundles"}, b.Ref.Name, nil))
			}
			return say(ctx, b, c)
		}
	}, func(t *testing.T, _ *PlacementReconciler) {
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement = ownThenCloudPlacement(time.Minute) })
		m.cutRevision("web", &atoll.Content{})
		m.settleRows("web")
		expectRows(t, m, "web", "b Active r1")
		time.Sleep(5 * time.Second)
		if c := m.conditionOf("web", v1alpha1.BundlePreferredGroup); c.Reason != string(reasonFallenBack) || said != 1 {
			t.Errorf("%d writes, %d conflicts: %+v", said, conflicts, c)
		}
	})
}

func ownThenCloudPlacement(hold time.Duration) v1alpha1.PlacementSpec {
	return v1alpha1.PlacementSpec{
		ClusterAffinities: []v1alpha1.ClusterAffinityTerm{
			{AffinityName: "own", ClusterAffinity: v1alpha1.ClusterAffinity{ClusterNames: []string{"a"}}},
			{AffinityName: "cloud", ClusterAffinity: v1alpha1.ClusterAffinity{ClusterNames: []string{"b"}}},
		},
		Failback: &v1alpha1.Failback{Policy: v1alpha1.FailbackWhenHealthy, HoldTime: &metav1.Duration{Duration: hold}},
	}
}

// conditionOf returns a condition of a Bundle; zero: the Bundle has none of the kind.
func (m *fakeHub) conditionOf(uid, kind string) (c metav1.Condition) {
	b, _ := fakeBundles{m}.Get(uid)
	if found := meta.FindStatusCondition(b.Status.Conditions, kind); found != nil {
		c = *found
	}
	return c
}

// The hold time goes on where the hub starts again, in which agents need a while to be
// back; what was said of it costs one write for each turn, and none before there was one.
func TestHoldTimeOutlivesTheHub(t *testing.T) {
	m, said := newFakeHub(), 0
	addClusters(m, "a", "b")
	for _, name := range []string{"a", "b"} {
		m.changeCluster(name, func(c *v1alpha1.Cluster) {
			c.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ClusterReady, Status: metav1.ConditionTrue}}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		hub := func() (stop func()) {
			ctx, cancel := context.WithCancel(t.Context())
			cfg := m.reconcilerConfig()
			cfg.SetCondition = m.conditionWriter(&said)
			r, done := New(cfg), make(chan error, 1)
			go func() { done <- r.Run(ctx) }()
			synctest.Wait()
			return func() {
				synctest.Wait()
				cancel()
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				m.onBundle, m.onRows, m.onCluster, m.onRevision, m.onNamespace, m.onHub = nil, nil, nil, nil, nil, nil
			}
		}
		stop := hub()
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement = ownThenCloudPlacement(10 * time.Minute) })
		m.cutRevision("web", &atoll.Content{})
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r1")
		if said != 0 {
			t.Errorf("%d writes before anything fell back", said)
		}
		m.changeCluster("a", func(c *v1alpha1.Cluster) {
			c.Spec.Taints = []v1alpha1.Taint{{Key: "down", Effect: corev1.TaintEffectNoExecute}}
		})
		m.settleRows("web")
		expectRows(t, m, "web", "b Active r1")
		if c := m.conditionOf("web", v1alpha1.BundlePreferredGroup); c.Status != metav1.ConditionFalse || c.Reason != string(reasonFallenBack) || said != 1 {
			t.Errorf("fallen back after %d writes: %+v", said, c)
		}
		m.changeCluster("a", func(c *v1alpha1.Cluster) { c.Spec.Taints = nil })
		time.Sleep(4 * time.Minute)
		if c := m.conditionOf("web", v1alpha1.BundlePreferredGroup); c.Status != metav1.ConditionUnknown || c.Reason != string(reasonComesBack) || !strings.HasPrefix(c.Message, "group own could be used since ") || said != 2 {
			t.Errorf("on the way back after %d writes: %+v", said, c)
		}
		stop()
		for _, name := range []string{"a", "b"} {
			m.setOnline(name, false)
		}
		stop = hub()
		time.Sleep(30 * time.Second)
		m.setOnline("a", true)
		m.setOnline("b", true)
		time.Sleep(4 * time.Minute) // 9.5 of 10 minutes, one of them without a hub
		expectRows(t, m, "web", "b Active r1")
		time.Sleep(time.Minute)
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r1")
		if c := m.conditionOf("web", v1alpha1.BundlePreferredGroup); c.Status != metav1.ConditionTrue || c.Reason != string(reasonInUse) || said != 3 {
			t.Errorf("back after %d writes: %+v", said, c)
		}
		stop()
	})
}

// An earlier condition does not count once the Bundle is edited, and a cluster that does not come
// back with the hub is not returned to.
func TestWhatAnEarlierHubSaid(t *testing.T) {
	m, said := newFakeHub(), 0
	addClusters(m, "a", "b")
	condition := func(generation int64) {
		m.changeBundle("web", func(b *state.Bundle) {
			b.Meta.Generation, b.Spec.Placement = 2, ownThenCloudPlacement(10*time.Minute)
			b.Status.Conditions = []metav1.Condition{{
				Type: v1alpha1.BundlePreferredGroup, Status: metav1.ConditionUnknown, Reason: string(reasonComesBack), ObservedGeneration: generation,
				Message: "group own could be used since 1999-12-31T23:00:00Z; and so on",
			}}
		})
	}
	for generation, want := range map[int64]bool{1: false, 2: true} {
		condition(generation)
		b, _ := fakeBundles{m}.Get("web")
		if got := restoredFailback(b); (got.better.Group == "own") != want || got.isRestored != want {
			t.Errorf("said in generation %d: %+v", generation, got)
		}
	}
	m.changeCluster("a", func(c *v1alpha1.Cluster) {
		c.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ClusterReady, Status: metav1.ConditionTrue}}
	})
	m.online["uid-a"] = false
	m.cutRevision("web", &atoll.Content{})
	m.rows["web"] = map[string]state.Row{"b": {Bundle: m.bundles["web"].Ref, Cluster: "b", Spec: atoll.RowSpec{
		UID: "uid-b", Generation: 9, Revision: "web-1-r1", Phase: atoll.RowActive, Since: 1, PlacementFingerprint: "@cloud",
	}}}
	runWith(t, m, func(c *Config) { c.SetCondition = m.conditionWriter(&said) }, func(t *testing.T, _ *PlacementReconciler) {
		time.Sleep(time.Hour)
		expectRows(t, m, "web", "b Active r1")
		if c := m.conditionOf("web", v1alpha1.BundlePreferredGroup); c.Status != metav1.ConditionFalse {
			t.Errorf("a did not come back: %+v", c)
		}
	})
}

// While scheduling is suspended, no condition states a return to the first group, which is not made. It is made after the suspension.
func TestNoReturnIsReportedInASuspension(t *testing.T) {
	m, said := newFakeHub(), 0
	addClusters(m, "a", "b")
	runWith(t, m, func(c *Config) { c.SetCondition = m.conditionWriter(&said) }, func(t *testing.T, _ *PlacementReconciler) {
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement = ownThenCloudPlacement(10 * time.Minute) })
		m.cutRevision("web", &atoll.Content{})
		m.settleRows("web")
		m.setTaints("a", v1alpha1.Taint{Key: "down", Effect: corev1.TaintEffectNoExecute})
		m.settleRows("web")
		expectRows(t, m, "web", "b Active r1")
		m.suspendBundle("web", &v1alpha1.Suspension{Scheduling: true})
		m.setTaints("a")
		time.Sleep(time.Hour)
		expectRows(t, m, "web", "b Active r1")
		if c := m.conditionOf("web", v1alpha1.BundlePreferredGroup); c.Reason != string(reasonFallenBack) {
			t.Errorf("in the suspension: %+v", c)
		}
		m.suspendBundle("web", nil)
		time.Sleep(time.Hour)
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r1")
		if c := m.conditionOf("web", v1alpha1.BundlePreferredGroup); c.Reason != string(reasonInUse) {
			t.Errorf("after the suspension: %+v", c)
		}
	})
}

// A group that has not the room is used once it has, when a cluster of it reports that;
// reports of others cost nothing.
func TestAnEarlierGroupGetsRoom(t *testing.T) {
	m := newFakeHub()
	m.changeCluster("a", withFreeCPUs(3))
	m.changeCluster("b", withFreeCPUs(90))
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		p := ownThenCloudPlacement(10 * time.Minute)
		p.ReplicaScheduling = byFreeCapacity.ReplicaScheduling
		m.placeBundle("web", p, contentAsking("web", 4))
		m.settleRows("web")
		expectRows(t, m, "web", "b Active r1 4")
		time.Sleep(20 * time.Minute)
		_, looks := m.countsAfterWait()
		m.changeCluster("b", withFreeCPUs(95))
		time.Sleep(time.Minute)
		if _, now := m.countsAfterWait(); now != looks {
			t.Errorf("a report of the group that is in use cost %d steps", now-looks)
		}
		m.changeCluster("a", withFreeCPUs(4))
		time.Sleep(9 * time.Minute)
		expectRows(t, m, "web", "b Active r1 4")
		time.Sleep(2 * time.Minute)
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r1 4")
	})
}
