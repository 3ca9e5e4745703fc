package placer

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

func attackSet() *atoll.Content {
	return &atoll.Content{Items: []atoll.Item{{Key: atoll.ItemKey{Group: "apps", Kind: "StatefulSet", Namespace: "shop", Name: "db"}, Object: []byte(`{}`)}}}
}

// A hub that starts (an upgrade, a new leader) in the middle of a default move has no streams for a moment. All
// clusters were ready: the replacement must not start beside the old copy.
func TestAttackRestartOfTheHubStartsTheReplacement(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b")
	for _, name := range []string{"a", "b"} {
		m.changeCluster(name, func(c *v1alpha1.Cluster) {
			c.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ClusterReady, Status: metav1.ConditionTrue}}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		hub := func() (stop func()) {
			ctx, cancel := context.WithCancel(t.Context())
			r, done := New(m.reconcilerConfig()), make(chan error, 1)
			go func() { done <- r.Run(ctx) }()
			synctest.Wait()
			return func() {
				synctest.Wait()
				cancel()
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				m.forgetCounts()
			}
		}
		stop := hub()
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement = placementNamed("a") })
		m.cutRevision("web", attackSet())
		m.settleRows("web")
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement = placementNamed("b") })
		expectRows(t, m, "web", "a Removing r1")
		stop()
		for _, name := range []string{"a", "b"} {
			m.setOnline(name, false)
		}
		stop = hub()
		time.Sleep(5 * time.Second)
		got := m.rowsOf("web")
		stop()
		if got != "a Removing r1" {
			t.Errorf("5 s after a start of the hub, before the agents are back: %s", got)
		}
	})
}

// A partial step does not see the old copy of a cluster that has come back.
func TestAttackPartialStepOverlooksTheOldCopy(t *testing.T) {
	m := newFakeHub()
	set := func(v string) func(*v1alpha1.Cluster) {
		return func(c *v1alpha1.Cluster) { c.Labels = map[string]string{"db": v} }
	}
	m.changeCluster("a", set("yes"))
	m.changeCluster("b", set("yes"))
	m.changeCluster("c", set("no"))
	runReconciler(t, m, func(t *testing.T, r *PlacementReconciler) {
		m.changeBundle("web", func(b *state.Bundle) {
			b.Spec.Placement, b.Spec.WhenUnfit = placementLabelled(map[string]string{"db": "yes"}), v1alpha1.UnfitRemove
		})
		m.cutRevision("web", attackSet())
		m.settleRows("web")
		m.setOnline("a", false)
		m.changeCluster("a", set("no"))
		time.Sleep(time.Minute)
		m.settleRows("web")
		expectRows(t, m, "web", "a Removing r1, b Active r1")
		m.cutRevision("web", attackSet()) // any whole step while a is away
		m.settleRows("web")
		expectRows(t, m, "web", "a Removing r1, b Active r2")
		m.setOnline("a", true) // it runs its copy still
		time.Sleep(time.Minute)
		synctest.Wait()
		b, _ := (fakeBundles{m}).Get("web")
		m.changeCluster("c", set("yes"))
		synctest.Wait()
		got := m.rowsOf("web")
		p, err := r.PreviewBundle(t.Context(), b)
		t.Logf("rows %s; a whole step withholds %v, %v", got, p.Output.Withheld, err)
		if got != "a Removing r1, b Active r2" {
			t.Errorf("c came although the copy of a, which is connected, has not ended: %s", got)
		}
	})
}

// A rebalance over the budget that states Recreate: the decision is made anew in each step, since no row records it.
func TestAttackHeldRebalanceComesToRest(t *testing.T) {
	for _, order := range []v1alpha1.MoveOrder{v1alpha1.MoveSurge, v1alpha1.MoveRecreate} {
		t.Run(string(order), func(t *testing.T) {
			m := newFakeHub()
			addClusters(m, "a")
			tight := intstr.FromInt32(0)
			runReconciler(t, m, func(t *testing.T, r *PlacementReconciler) {
				m.changeBundle("web", func(b *state.Bundle) {
					b.Spec.Removal.Budget, b.Spec.MoveOrder, b.Spec.Placement = &tight, order, atMostClusters(1)
				})
				m.cutRevision("web", &atoll.Content{})
				m.settleRows("web")
				fillCluster(m, "a", 5)
				addClusters(m, "b")
				synctest.Wait()
				m.changeBundle("web", rebalanceAskedAt(time.Now()))
				m.settleRows("web")
				first := m.rowsOf("web")
				for range 5 {
					m.changeBundle("web", nil)
					r.enqueueAllRows("web")
					m.settleRows("web")
					if got := m.rowsOf("web"); got != first {
						t.Fatalf("the same Bundle had %s, then %s", first, got)
					}
				}
				b, _ := (fakeBundles{m}).Get("web")
				p, err := r.PreviewBundle(t.Context(), b)
				if err != nil || p.Output.PendingRemoval == nil {
					t.Fatalf("no plan waits: %s, %v", first, err)
				}
				m.changeBundle("web", func(b *state.Bundle) { b.Meta.Annotations[atoll.AnnotationConfirm] = p.Output.PendingRemoval.Hash })
				m.settleRows("web")
				expectRows(t, m, "web", "b Active r1")
			})
		})
	}
}

// A rebalance moves to where it was foreseen, also when scores change while the old copy ends.
func TestAttackRebalanceWithRecreateKeepsItsDecision(t *testing.T) {
	for _, order := range []v1alpha1.MoveOrder{v1alpha1.MoveSurge, v1alpha1.MoveRecreate} {
		t.Run(string(order), func(t *testing.T) {
			m := newFakeHub()
			addClusters(m, "a")
			runReconciler(t, m, func(t *testing.T, r *PlacementReconciler) {
				m.changeBundle("web", func(b *state.Bundle) { b.Spec.MoveOrder, b.Spec.Placement = order, atMostClusters(1) })
				m.cutRevision("web", &atoll.Content{})
				m.settleRows("web")
				fillCluster(m, "a", 5)
				addClusters(m, "b")
				synctest.Wait()
				m.changeBundle("web", rebalanceAskedAt(time.Now()))
				synctest.Wait()
				t.Log(m.rowsOf("web"))
				fillCluster(m, "b", 20)
				synctest.Wait()
				t.Log(m.rowsOf("web"))
				r.enqueueAllRows("web")
				synctest.Wait()
				t.Log(m.rowsOf("web"))
				m.settleRows("web")
				expectRows(t, m, "web", "b Active r1")
			})
		})
	}
}

// Groups with failback: the first group cannot run it, the second does; on the way back no two copies.
func TestAttackFailbackWithRecreate(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b")
	runReconciler(t, m, func(t *testing.T, r *PlacementReconciler) {
		m.changeBundle("web", func(b *state.Bundle) {
			b.Spec.Placement, b.Spec.MoveOrder = ownThenCloudPlacement(time.Minute), v1alpha1.MoveRecreate
		})
		m.cutRevision("web", &atoll.Content{})
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r1")
		m.changeCluster("a", func(c *v1alpha1.Cluster) {
			c.Spec.Taints = []v1alpha1.Taint{{Key: "down", Effect: corev1.TaintEffectNoExecute}}
		})
		expectRows(t, m, "web", "a Removing r1")
		m.settleRows("web")
		expectRows(t, m, "web", "b Active r1")
		m.changeCluster("a", func(c *v1alpha1.Cluster) { c.Spec.Taints = nil })
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		for i := range 5 {
			t.Log(i, m.rowsOf("web"))
			r.enqueueAllRows("web")
			time.Sleep(time.Minute)
			synctest.Wait()
			if got := m.rowsOf("web"); got != "b Removing r1" {
				t.Fatalf("step %d: %s", i, got)
			}
		}
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r1")
	})
}
