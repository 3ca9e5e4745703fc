package placer

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/state"
)

// runWithRestarts runs one hub after the other over the same store, each from nothing but that.
func runWithRestarts(t *testing.T, m *fakeHub, each ...func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		for _, life := range each {
			m.onBundle, m.onRows, m.onCluster, m.onRevision, m.onNamespace, m.onHub = nil, nil, nil, nil, nil, nil
			ctx, cancel := context.WithCancel(t.Context())
			r, done := New(m.reconcilerConfig()), make(chan error, 1)
			go func() { done <- r.Run(ctx) }()
			synctest.Wait()
			life(t)
			cancel()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		// Queues end their goroutines a moment after they are shut down.
		time.Sleep(time.Minute)
	})
}

// newPlacedBundle makes a Bundle that runs, healthy, in clusters of these names.
func newPlacedBundle(m *fakeHub, uid string, content *atoll.Content, clusters ...string) {
	m.changeBundle(uid, func(b *state.Bundle) { b.Spec.Placement = placementNamed(clusters...) })
	m.cutRevision(uid, content)
	m.settleRows(uid)
}

func (m *fakeHub) moveBundle(uid string, clusters ...string) {
	m.changeBundle(uid, func(b *state.Bundle) { b.Spec.Placement = placementNamed(clusters...) })
	synctest.Wait()
}

// heldPlan that the rows of a Bundle wait with; "" for none.
func (m *fakeHub) heldPlan(t *testing.T, uid string) string {
	t.Helper()
	synctest.Wait()
	plan := ""
	for _, r := range (fakeRows{m}).ListOfBundle(uid) {
		p := atoll.ParseRowReason(r.Spec.Reason).Plan
		if p != "" && plan != "" && p != plan {
			t.Fatalf("two plans wait: %s and %s", plan, p)
		}
		if p != "" {
			plan = p
		}
	}
	return plan
}

func (m *fakeHub) confirmPlan(uid, plan string) {
	m.changeBundle(uid, func(b *state.Bundle) { b.Meta.Annotations = map[string]string{atoll.AnnotationConfirm: plan} })
}

// A replacement that is there and never healthy: after ten minutes it is asked, and
// nothing but the answer, or health, takes the old place away.
func TestReplacementThatIsNeverHealthy(t *testing.T) {
	for _, state := range []atoll.RowState{atoll.RowProgressing, atoll.RowDegraded, atoll.RowFailed} {
		t.Run(string(state), func(t *testing.T) {
			m := newFakeHub()
			addClusters(m, "a", "b")
			runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
				newPlacedBundle(m, "web", &atoll.Content{}, "a")
				m.moveBundle("web", "b")
				m.reportState("web", "b", state)
				time.Sleep(10*time.Minute - time.Second)
				if p := m.heldPlan(t, "web"); p != "" || len(m.takeWarnings()) > 0 {
					t.Fatalf("asked too early: %s %q", p, m.takeWarnings())
				}
				time.Sleep(2 * time.Second)
				if m.heldPlan(t, "web") == "" || len(m.takeWarnings()) != 1 || !strings.Contains(m.takeWarnings()[0], "atoll confirm bundle/web -n shop --plan") {
					t.Fatalf("not asked after ten minutes: %q", m.takeWarnings())
				}
				time.Sleep(100 * time.Hour)
				expectRows(t, m, "web", "a Leaving r1, b Active r1")
				if len(m.takeWarnings()) != 1 {
					t.Errorf("asked again and again: %q", m.takeWarnings())
				}
				m.reportState("web", "b", atoll.RowReady)
				expectRows(t, m, "web", "a Removing r1, b Active r1")
			})
		})
	}
}

// A cluster that checks in every twenty minutes gets three of those before it is asked.
func TestReplacementThatChecksIn(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a")
	m.changeCluster("b", func(c *v1alpha1.Cluster) {
		c.Spec.Connection = &v1alpha1.ClusterConnection{Type: v1alpha1.ConnectionCheckIn, Interval: &metav1.Duration{Duration: 20 * time.Minute}}
	})
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		newPlacedBundle(m, "web", &atoll.Content{}, "a")
		m.moveBundle("web", "b")
		time.Sleep(time.Hour - time.Second)
		if p := m.heldPlan(t, "web"); p != "" {
			t.Fatal("asked before the third check-in")
		}
		time.Sleep(2 * time.Second)
		if p := m.heldPlan(t, "web"); p == "" {
			t.Fatal("not asked after the third check-in")
		}
		expectRows(t, m, "web", "a Leaving r1, b Active r1")
	})
}

// If several leave, all are kept for every replacement, and one answer is for all.
func TestSeveralLeaveForSeveral(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b", "c", "d", "e")
	m.setOnline("e", false)
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		newPlacedBundle(m, "web", &atoll.Content{}, "a", "b", "c")
		m.moveBundle("web", "c", "d", "e")
		m.reportState("web", "d", atoll.RowReady)
		expectRows(t, m, "web", "a Leaving r1, b Leaving r1, c Active r1, d Active r1, e Active r1")
		time.Sleep(rollout.ReadinessTimeout + time.Second)
		plan := m.heldPlan(t, "web")
		if plan == "" || !strings.Contains(m.takeWarnings()[0], "2 removals wait") {
			t.Fatalf("plan %q, warnings %q", plan, m.takeWarnings())
		}
		// A third that is to go makes another plan: the answer to the first is none.
		m.moveBundle("web", "d", "e")
		time.Sleep(rollout.ReadinessTimeout + time.Second)
		m.confirmPlan("web", plan)
		expectRows(t, m, "web", "a Leaving r1, b Leaving r1, c Leaving r1, d Active r1, e Active r1")
		again := m.heldPlan(t, "web")
		if again == "" || again == plan {
			t.Fatalf("the plan is %s after %s", again, plan)
		}
		m.confirmPlan("web", again)
		expectRows(t, m, "web", "a Removing r1, b Removing r1, c Removing r1, d Active r1, e Active r1")
		m.settleRows("web")
		expectRows(t, m, "web", "d Active r1, e Active r1")
	})
}

// The budget is asked first, the replacements after it; the answer to the one is not
// the answer to the other.
func TestBudgetAndReplacements(t *testing.T) {
	m := newFakeHub()
	var old, next []string
	for i := range 20 {
		old = append(old, fmt.Sprintf("c%02d", i))
	}
	addClusters(m, append(old, "new")...)
	next = append(append(next, old[5:]...), "new")
	count := func(phase atoll.RowPhase) (n int) {
		synctest.Wait()
		for _, r := range (fakeRows{m}).ListOfBundle("web") {
			if r.Spec.Phase == phase {
				n++
			}
		}
		return n
	}
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		newPlacedBundle(m, "web", &atoll.Content{}, old...)
		m.moveBundle("web", next...)
		m.settleRows("web")
		budget := m.heldPlan(t, "web")
		if count(atoll.RowHeld) != 5 || count(atoll.RowActive) != 16 || budget == "" {
			t.Fatalf("%s, plan %q", m.rowsOf("web"), budget)
		}
		// The replacement falls ill before the budget is given.
		m.reportState("web", "new", atoll.RowDegraded)
		m.confirmPlan("web", budget)
		if count(atoll.RowLeaving) != 5 {
			t.Fatal(m.rowsOf("web"))
		}
		time.Sleep(rollout.ReadinessTimeout + time.Second)
		ask := m.heldPlan(t, "web")
		if ask == "" || ask == budget || count(atoll.RowLeaving) != 5 {
			t.Fatalf("%s, plan %q after %q", m.rowsOf("web"), ask, budget)
		}
		m.confirmPlan("web", ask)
		if count(atoll.RowRemoving) != 5 {
			t.Fatal(m.rowsOf("web"))
		}
	})
}

// A hub that restarts goes on with a move. It asks when the first hub would have, with the same
// plan, and takes an answer that was given to the first.
func TestMoveOverRestarts(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b")
	plan := ""
	runWithRestarts(t, m,
		func(t *testing.T) {
			newPlacedBundle(m, "web", &atoll.Content{}, "a")
			m.moveBundle("web", "b")
			m.reportState("web", "b", atoll.RowProgressing)
			time.Sleep(6 * time.Minute)
		},
		func(t *testing.T) {
			expectRows(t, m, "web", "a Leaving r1, b Active r1")
			time.Sleep(4*time.Minute - time.Second)
			if p := m.heldPlan(t, "web"); p != "" {
				t.Fatal("asked before the ten minutes were over")
			}
			time.Sleep(2 * time.Second)
			if plan = m.heldPlan(t, "web"); plan == "" {
				t.Fatal("a restart began the ten minutes again")
			}
		},
		func(t *testing.T) {
			expectRows(t, m, "web", "a Leaving r1, b Active r1")
			if again := m.heldPlan(t, "web"); again != plan {
				t.Fatalf("plan %s became %s", plan, again)
			}
			m.confirmPlan("web", plan)
			expectRows(t, m, "web", "a Removing r1, b Active r1")
		},
		func(t *testing.T) {
			m.settleRows("web")
			expectRows(t, m, "web", "b Active r1")
		},
	)
}

// Moving replicas are in two places before they leave the first, also when the hub restarts in
// between. A disconnected new place requires a confirmation.
func TestDividedReplicasMoveOverRestarts(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b", "c")
	six := &atoll.Content{Items: []atoll.Item{{
		Key: atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}, Divided: true,
		Object: []byte(`{"apiVersion":"apps/v1","kind":"Deployment","spec":{"replicas":6}}`),
	}}}
	runWithRestarts(t, m,
		func(t *testing.T) {
			newPlacedBundle(m, "web", six, "a", "b")
			expectRows(t, m, "web", "a Active r1 3, b Active r1 3")
			m.moveBundle("web", "b", "c")
			expectRows(t, m, "web", "a Leaving r1 3, b Active r1 3, c Active r1 3")
			m.setOnline("c", false)
			time.Sleep(time.Minute)
		},
		func(t *testing.T) {
			time.Sleep(9*time.Minute + time.Second)
			expectRows(t, m, "web", "a Leaving r1 3, b Active r1 3, c Active r1 3")
			if m.heldPlan(t, "web") == "" {
				t.Fatal("not asked")
			}
			m.setOnline("c", true)
			m.reportState("web", "c", atoll.RowReady)
			expectRows(t, m, "web", "a Removing r1 3, b Active r1 3, c Active r1 3")
			if m.heldPlan(t, "web") != "" {
				t.Error("it still asks")
			}
		},
	)
}

// An eviction, and a cluster that stops fitting where the policy says Remove, go the
// way of an edit: the new place first, then ten minutes, then the question.
func TestEvictedAndUnfitGoTheWayOfAnEdit(t *testing.T) {
	prod := map[string]string{"env": "prod"}
	for name, act := range map[string]func(m *fakeHub){
		"NoExecute": func(m *fakeHub) {
			at := metav1.Now()
			m.changeCluster("a", func(c *v1alpha1.Cluster) {
				c.Spec.Taints = []v1alpha1.Taint{{Key: "down", Effect: corev1.TaintEffectNoExecute, TimeAdded: &at}}
			})
		},
		"whenUnfit Remove": func(m *fakeHub) { m.changeCluster("a", func(c *v1alpha1.Cluster) { c.Labels = nil }) },
	} {
		t.Run(name, func(t *testing.T) {
			m := newFakeHub()
			m.changeCluster("a", func(c *v1alpha1.Cluster) { c.Labels = prod })
			runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
				m.changeBundle("web", func(b *state.Bundle) {
					b.Spec.Placement, b.Spec.WhenUnfit = placementLabelled(prod), v1alpha1.UnfitRemove
				})
				m.cutRevision("web", &atoll.Content{})
				m.settleRows("web")
				m.changeCluster("b", func(c *v1alpha1.Cluster) { c.Labels = prod })
				synctest.Wait()
				m.reportState("web", "b", atoll.RowProgressing)
				act(m)
				expectRows(t, m, "web", "a Leaving r1, b Active r1")
				time.Sleep(rollout.ReadinessTimeout + time.Second)
				expectRows(t, m, "web", "a Leaving r1, b Active r1")
				if m.heldPlan(t, "web") == "" {
					t.Fatal("not asked")
				}
				m.reportState("web", "b", atoll.RowReady)
				expectRows(t, m, "web", "a Removing r1, b Active r1")
			})
		})
	}
}

// A cluster that is to be cleaned keeps what it has until exactly that is confirmed, and over a
// restart; confirmed, it goes the way of an edit; a confirmation that is taken back keeps what
// is not on its way yet.
func TestACleanedClusterKeepsAllUntilThatIsConfirmed(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b")
	clean := func(confirm, found string) {
		m.changeCluster("a", func(c *v1alpha1.Cluster) {
			c.Spec.Removal = &v1alpha1.ClusterRemoval{Mode: v1alpha1.ClusterClean, Confirm: confirm}
			c.Status.Removal = &v1alpha1.ClusterRemovalStatus{Confirmed: found}
		})
	}
	runWithRestarts(t, m,
		func(t *testing.T) {
			m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement, b.Spec.WhenUnfit = placementNamed("a"), v1alpha1.UnfitRemove })
			m.cutRevision("web", &atoll.Content{})
			m.settleRows("web")
			clean("", "")
			time.Sleep(time.Hour)
			expectRows(t, m, "web", "a Active r1")
			if len(m.takeWarnings()) > 0 {
				t.Errorf("warnings: %q", m.takeWarnings())
			}
		},
		func(t *testing.T) {
			time.Sleep(time.Hour)
			expectRows(t, m, "web", "a Active r1")
			m.moveBundle("web", "a", "b")
			m.reportState("web", "b", atoll.RowProgressing)
			clean("p", "")
			expectRows(t, m, "web", "a Active r1, b Active r1")
			clean("p", "p")
			expectRows(t, m, "web", "a Leaving r1, b Active r1")
			clean("", "p")
			expectRows(t, m, "web", "a Active r1, b Active r1")
			m.reportState("web", "b", atoll.RowReady)
			expectRows(t, m, "web", "a Active r1, b Active r1")
			clean("p", "p")
			expectRows(t, m, "web", "a Removing r1, b Active r1")
		},
	)
}

// A hub that is killed while a cluster leaves, or another one, goes on where that was: what
// replaces it is waited for, and how it goes stays as it was stated.
func TestARemovalGoesOnOverRestarts(t *testing.T) {
	for _, removal := range []v1alpha1.ClusterRemoval{{Mode: v1alpha1.ClusterOrphan}, {Mode: v1alpha1.ClusterClean, Confirm: "p"}} {
		t.Run(string(removal.Mode), func(t *testing.T) {
			m := newFakeHub()
			addClusters(m, "a", "b")
			orphan := func(t *testing.T) {
				t.Helper()
				for _, r := range (fakeRows{m}).ListOfBundle("web") {
					if r.Cluster == "a" && r.Spec.Orphan != (removal.Mode == v1alpha1.ClusterOrphan) {
						t.Errorf("its row is orphaned: %t", r.Spec.Orphan)
					}
				}
			}
			runWithRestarts(t, m,
				func(t *testing.T) {
					newPlacedBundle(m, "web", &atoll.Content{}, "a")
					m.moveBundle("web", "a", "b")
					m.reportState("web", "b", atoll.RowProgressing)
					m.changeCluster("a", func(c *v1alpha1.Cluster) {
						c.Spec.Removal, c.Status.Removal = &removal, &v1alpha1.ClusterRemovalStatus{Confirmed: removal.Confirm}
					})
					expectRows(t, m, "web", "a Leaving r1, b Active r1")
				},
				func(t *testing.T) {
					expectRows(t, m, "web", "a Leaving r1, b Active r1")
					m.reportState("web", "b", atoll.RowReady)
					expectRows(t, m, "web", "a Removing r1, b Active r1")
					orphan(t)
				},
				func(t *testing.T) {
					expectRows(t, m, "web", "a Removing r1, b Active r1")
					orphan(t)
					m.settleRows("web")
					expectRows(t, m, "web", "b Active r1")
				},
			)
		})
	}
}
