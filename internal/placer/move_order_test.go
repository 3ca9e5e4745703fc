package placer

import (
	"fmt"
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

// statefulSetContent is content of which two copies should not run.
func statefulSetContent() *atoll.Content {
	return &atoll.Content{Items: []atoll.Item{{Key: atoll.ItemKey{Group: "apps", Kind: "StatefulSet", Namespace: "shop", Name: "db"}, Object: []byte(`{}`)}}}
}

// A move removes the old copy first where the Bundle states it, or where its content has copies of which
// two should not run. A disconnected cluster delays a replacement only where it is stated.
func TestMoveOrderOfABundle(t *testing.T) {
	claim := &atoll.Content{Items: []atoll.Item{{Key: atoll.ItemKey{Kind: "PersistentVolumeClaim", Namespace: "shop", Name: "data"}, Object: []byte(`{}`)}}}
	for name, tc := range map[string]struct {
		order       v1alpha1.MoveOrder
		content     *atoll.Content
		away, moved string
	}{
		"nothing stated":          {"", &atoll.Content{}, "a Leaving r1, b Active r1", "a Leaving r1, b Active r1"},
		"stated":                  {v1alpha1.MoveRecreate, &atoll.Content{}, "a Removing r1, b Pending r1", "a Removing r1, b Pending r1"},
		"a claim":                 {"", claim, "a Leaving r1, b Active r1", "a Removing r1, b Pending r1"},
		"a claim with Surge":      {v1alpha1.MoveSurge, claim, "a Leaving r1, b Active r1", "a Leaving r1, b Active r1"},
		"a claim, stated as well": {v1alpha1.MoveRecreate, claim, "a Removing r1, b Pending r1", "a Removing r1, b Pending r1"},
	} {
		for _, connected := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, connected %t", name, connected), func(t *testing.T) {
				m := newFakeHub()
				addClusters(m, "a", "b")
				runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
					place := func(cluster string) {
						m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement, b.Spec.MoveOrder = placementNamed(cluster), tc.order })
					}
					place("a")
					m.cutRevision("web", tc.content)
					m.settleRows("web")
					want := tc.moved
					if !connected {
						m.setOnline("a", false)
						want = tc.away
					}
					place("b")
					expectRows(t, m, "web", want)
					m.setOnline("a", true)
					m.settleRows("web")
					expectRows(t, m, "web", "b Active r1")
				})
			})
		}
	}
}

// A replacement that waits for the old copy by default comes when the old cluster is disconnected, and one that
// is stated to wait comes when the policy does not state it any more.
func TestReplacementsThatStopWaiting(t *testing.T) {
	for name, tc := range map[string]struct {
		order v1alpha1.MoveOrder
		then  func(m *fakeHub)
	}{
		"disconnected": {"", func(m *fakeHub) { m.setOnline("a", false) }},
		"edited": {v1alpha1.MoveRecreate, func(m *fakeHub) {
			m.changeBundle("web", func(b *state.Bundle) { b.Spec.MoveOrder = v1alpha1.MoveSurge })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			m := newFakeHub()
			addClusters(m, "a", "b")
			runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
				m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement, b.Spec.MoveOrder = placementNamed("a"), tc.order })
				m.cutRevision("web", statefulSetContent())
				m.settleRows("web")
				m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement = placementNamed("b") })
				expectRows(t, m, "web", "a Removing r1, b Pending r1")
				tc.then(m)
				expectRows(t, m, "web", "a Removing r1, b Active r1")
			})
		})
	}
}

// A hub that starts has no streams for a moment. A replacement waits on until the hub can decide which clusters
// are disconnected.
func TestARestartOfTheHubStartsNoReplacement(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b")
	for _, name := range []string{"a", "b"} {
		m.changeCluster(name, func(c *v1alpha1.Cluster) {
			c.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ClusterReady, Status: metav1.ConditionTrue}}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		stop := startReconciler(t, m)
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement = placementNamed("a") })
		m.cutRevision("web", statefulSetContent())
		m.settleRows("web")
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement = placementNamed("b") })
		expectRows(t, m, "web", "a Removing r1, b Pending r1")
		stop()
		time.Sleep(time.Minute)
		for _, name := range []string{"a", "b"} {
			m.setOnline(name, false)
		}
		stop = startReconciler(t, m)
		time.Sleep(5 * time.Second)
		got := m.rowsOf("web")
		stop()
		time.Sleep(time.Minute)
		if got != "a Removing r1, b Pending r1" {
			t.Errorf("5 s after a start of the hub, before the agents are back: %s", got)
		}
	})
}

// An arrival waits also for an old copy whose own row did not change with it.
func TestAnArrivalWaitsForAnOldCopyThatIsInNoStep(t *testing.T) {
	m := newFakeHub()
	set := func(v string) func(*v1alpha1.Cluster) {
		return func(c *v1alpha1.Cluster) { c.Labels = map[string]string{"db": v} }
	}
	m.changeCluster("a", set("yes"))
	m.changeCluster("b", set("yes"))
	m.changeCluster("c", set("no"))
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		m.changeBundle("web", func(b *state.Bundle) {
			b.Spec.Placement, b.Spec.WhenUnfit, b.Spec.MoveOrder = placementLabelled(map[string]string{"db": "yes"}), v1alpha1.UnfitRemove, v1alpha1.MoveRecreate
		})
		m.cutRevision("web", statefulSetContent())
		m.settleRows("web")
		m.setOnline("a", false)
		m.changeCluster("a", set("no"))
		time.Sleep(time.Minute)
		m.settleRows("web")
		expectRows(t, m, "web", "a Removing r1, b Active r1")
		m.cutRevision("web", statefulSetContent()) // any whole step while a is away
		m.settleRows("web")
		expectRows(t, m, "web", "a Removing r1, b Active r2")
		m.setOnline("a", true) // it runs its copy still
		time.Sleep(time.Minute)
		synctest.Wait()
		m.changeCluster("c", set("yes"))
		synctest.Wait()
		expectRows(t, m, "web", "a Removing r1, b Active r2, c Pending r2")
		m.settleRows("web")
		expectRows(t, m, "web", "b Active r2, c Active r2")
	})
}

// A rebalance over the budget keeps its decision in the rows, in either order.
func TestAHeldRebalanceComesToRest(t *testing.T) {
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

// A rebalance moves to where it was decided, also when scores change while the old copy ends.
func TestARebalanceKeepsItsDecision(t *testing.T) {
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
				fillCluster(m, "b", 20)
				synctest.Wait()
				r.enqueueAllRows("web")
				synctest.Wait()
				m.settleRows("web")
				expectRows(t, m, "web", "b Active r1")
			})
		})
	}
}

// On the way to the second group and back, one copy runs at most.
func TestAFailbackRemovesTheOldCopyFirst(t *testing.T) {
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
		expectRows(t, m, "web", "a Removing r1, b Pending r1")
		m.settleRows("web")
		expectRows(t, m, "web", "b Active r1")
		m.changeCluster("a", func(c *v1alpha1.Cluster) { c.Spec.Taints = nil })
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		for i := range 5 {
			r.enqueueAllRows("web")
			time.Sleep(time.Minute)
			synctest.Wait()
			if got := m.rowsOf("web"); got != "a Pending r1, b Removing r1" {
				t.Fatalf("step %d: %s", i, got)
			}
		}
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r1")
	})
}

// A cluster that was evicted while it was disconnected and comes back is used again after the other copy has
// ended.
func TestAnEvictedClusterThatComesBackStartsNoSecondCopy(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement = ownThenCloudPlacement(time.Minute) })
		m.cutRevision("web", statefulSetContent())
		m.settleRows("web")
		m.setOnline("a", false)
		m.changeCluster("a", func(c *v1alpha1.Cluster) {
			c.Spec.Taints = []v1alpha1.Taint{{Key: "down", Effect: corev1.TaintEffectNoExecute}}
		})
		m.settleRows("web")
		expectRows(t, m, "web", "a Removing r1, b Active r1")
		// a comes back; its agent removes the copy, and its report is late while the hold time ends.
		m.setOnline("a", true)
		m.changeCluster("a", func(c *v1alpha1.Cluster) { c.Spec.Taints = nil })
		time.Sleep(2 * time.Minute)
		expectRows(t, m, "web", "a Removing r1, b Removing r1")
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r1")
	})
}

// The capacity of the cluster that was chosen stays with the Bundle while its old copy ends.
func TestThePlaceOfAReplacementThatWaitsIsKept(t *testing.T) {
	for _, order := range []v1alpha1.MoveOrder{v1alpha1.MoveSurge, v1alpha1.MoveRecreate} {
		t.Run(string(order), func(t *testing.T) {
			m := newFakeHub()
			m.changeCluster("a", withCapacity(5))
			m.changeCluster("b", withCapacity(5))
			runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
				m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement, b.Spec.MoveOrder = placementNamed("a"), order })
				m.cutRevision("web", undividedContent("web", 5))
				m.settleRows("web")
				expectRows(t, m, "web", "a Active r1")
				m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement = placementNamed("b") })
				time.Sleep(time.Minute)
				m.placeBundle("late", placementNamed("b"), undividedContent("late", 5))
				m.settleRows("late")
				m.settleRows("web")
				if got := m.rowsOf("web"); got != "b Active r1" {
					t.Errorf("web has %q, late has %q", got, m.rowsOf("late"))
				}
			})
		})
	}
}

// A move that scores began and that is over the removal budget comes to rest.
func TestAHeldReschedulingComesToRest(t *testing.T) {
	for _, order := range []v1alpha1.MoveOrder{v1alpha1.MoveSurge, v1alpha1.MoveRecreate} {
		t.Run(string(order), func(t *testing.T) {
			m := newFakeHub()
			addClusters(m, "a")
			tight := intstr.FromInt32(0)
			runReconciler(t, m, func(t *testing.T, r *PlacementReconciler) {
				m.changeBundle("web", func(b *state.Bundle) {
					b.Spec.Placement = atMostClusters(1)
					b.Spec.Placement.Rescheduling = &v1alpha1.Rescheduling{When: v1alpha1.RescheduleWhenBetter, MinDwell: &metav1.Duration{Duration: time.Minute}, MoveCost: new(int32)}
					b.Spec.Removal.Budget, b.Spec.MoveOrder = &tight, order
				})
				m.cutRevision("web", &atoll.Content{})
				m.settleRows("web")
				fillCluster(m, "a", 30)
				addClusters(m, "b")
				time.Sleep(time.Hour)
				m.settleRows("web")
				first := m.rowsOf("web")
				seen := map[string]int{first: 1}
				for range 60 {
					time.Sleep(time.Minute)
					m.settleRows("web")
					r.enqueueAllRows("web") // any edit or report
					m.settleRows("web")
					seen[m.rowsOf("web")]++
				}
				if len(seen) > 1 {
					t.Errorf("it goes to and fro: %v", seen)
				}
			})
		})
	}
}

// A failback over the removal budget comes to rest.
func TestAHeldFailbackComesToRest(t *testing.T) {
	for _, order := range []v1alpha1.MoveOrder{v1alpha1.MoveSurge, v1alpha1.MoveRecreate} {
		t.Run(string(order), func(t *testing.T) {
			m := newFakeHub()
			addClusters(m, "b")
			tight := intstr.FromInt32(0)
			runReconciler(t, m, func(t *testing.T, r *PlacementReconciler) {
				m.changeBundle("web", func(b *state.Bundle) {
					b.Spec.Placement, b.Spec.MoveOrder, b.Spec.Removal.Budget = ownThenCloudPlacement(time.Minute), order, &tight
				})
				m.cutRevision("web", &atoll.Content{})
				m.settleRows("web")
				expectRows(t, m, "web", "b Active r1")
				addClusters(m, "a")
				time.Sleep(5 * time.Minute)
				m.settleRows("web")
				seen := map[string]int{}
				for range 20 {
					r.enqueueAllRows("web")
					time.Sleep(time.Minute)
					m.settleRows("web")
					seen[m.rowsOf("web")]++
				}
				if len(seen) > 1 {
					t.Errorf("it goes to and fro: %v", seen)
				}
			})
		})
	}
}

// A move over the budget that scores began is not ordered and taken back in a quiet day.
func TestAHeldReschedulingWritesNothingByItself(t *testing.T) {
	for _, order := range []v1alpha1.MoveOrder{v1alpha1.MoveSurge, v1alpha1.MoveRecreate, ""} {
		t.Run("order "+string(order), func(t *testing.T) {
			m := newFakeHub()
			addClusters(m, "a")
			tight := intstr.FromInt32(0)
			runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
				m.changeBundle("web", func(b *state.Bundle) {
					b.Spec.Placement = atMostClusters(1)
					b.Spec.Placement.Rescheduling = &v1alpha1.Rescheduling{When: v1alpha1.RescheduleWhenBetter, MinDwell: &metav1.Duration{Duration: time.Minute}}
					b.Spec.Removal.Budget, b.Spec.MoveOrder = &tight, order
				})
				m.cutRevision("web", statefulSetContent())
				m.settleRows("web")
				fillCluster(m, "a", 30)
				addClusters(m, "b")
				time.Sleep(time.Hour)
				m.settleRows("web")
				writes, _ := m.countsAfterWait()
				for range 24 * 60 {
					time.Sleep(time.Minute)
					m.settleRows("web")
				}
				now, _ := m.countsAfterWait()
				if now > writes {
					t.Errorf("%d writes in a quiet day: %s", now-writes, m.rowsOf("web"))
				}
			})
		})
	}
}

// A plan names a wait for an old copy only where the move comes about.
func TestAPlanOfARebalanceNamesWaitsThatComeAbout(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a")
	tight := intstr.FromInt32(0)
	runReconciler(t, m, func(t *testing.T, r *PlacementReconciler) {
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement, b.Spec.Removal.Budget = atMostClusters(1), &tight })
		m.cutRevision("web", statefulSetContent())
		m.settleRows("web")
		fillCluster(m, "a", 5)
		addClusters(m, "b")
		synctest.Wait()
		b, _ := (fakeBundles{m}).Get("web")
		rebalanceAskedAt(time.Now())(&b)
		got, err := r.PreviewBundles(t.Context(), nil, []SupposedBundle{{Bundle: b, Revision: "web-1-r1", Content: m.contents["web-1-r1"]}})
		if err != nil {
			t.Fatal(err)
		}
		if got[0].HeldPlan == nil && len(got[0].OldCopyWaits) > 0 {
			t.Errorf("foreseen: %s, no plan that waits, and yet %v", rowsText(got[0].After), got[0].OldCopyWaits)
		}
	})
}

// Law 3: a removal that a disconnected cluster has yet to carry out does not make each change cost all rows.
func TestAnUnfinishedRemovalMakesNoChangeCostAllRows(t *testing.T) {
	for _, order := range []v1alpha1.MoveOrder{v1alpha1.MoveSurge, v1alpha1.MoveRecreate} {
		t.Run(string(order), func(t *testing.T) {
			m := newFakeHub()
			label := func(v string) func(*v1alpha1.Cluster) {
				return func(c *v1alpha1.Cluster) { c.Labels = map[string]string{"db": v} }
			}
			for i := range 20 {
				m.changeCluster(fmt.Sprintf("c%02d", i), label("yes"))
			}
			runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
				m.changeBundle("web", func(b *state.Bundle) {
					b.Spec.Placement, b.Spec.WhenUnfit, b.Spec.MoveOrder = placementLabelled(map[string]string{"db": "yes"}), v1alpha1.UnfitRemove, order
				})
				m.cutRevision("web", &atoll.Content{})
				m.settleRows("web")
				m.setOnline("c00", false)
				m.changeCluster("c00", label("no"))
				time.Sleep(time.Minute)
				m.settleRows("web")
				time.Sleep(time.Minute)
				synctest.Wait()
				_, looks := m.countsAfterWait()
				for i := range 10 {
					m.changeCluster(fmt.Sprintf("d%02d", i), label("yes"))
					synctest.Wait()
				}
				_, now := m.countsAfterWait()
				if now-looks > 2 {
					t.Errorf("%d looks at all rows", now-looks)
				}
			})
		})
	}
}
