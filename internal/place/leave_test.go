package place

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

// lives runs one hub after the other over the same store, each from nothing but that.
func lives(t *testing.T, m *memory, each ...func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		for _, life := range each {
			m.onBundle, m.onRows, m.onCluster, m.onRev, m.onSpace, m.onHub = nil, nil, nil, nil, nil, nil
			ctx, cancel := context.WithCancel(t.Context())
			r, done := New(m.config()), make(chan error, 1)
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

// placed makes a Bundle that runs, healthy, in clusters of these names.
func placed(m *memory, uid string, content *atoll.Content, clusters ...string) {
	m.bundle(uid, func(b *state.Bundle) { b.Spec.Placement = names(clusters...) })
	m.cut(uid, content)
	m.settle(uid)
}

func (m *memory) move(uid string, clusters ...string) {
	m.bundle(uid, func(b *state.Bundle) { b.Spec.Placement = names(clusters...) })
	synctest.Wait()
}

// plan that the rows of a Bundle wait with; "" for none.
func (m *memory) plan(t *testing.T, uid string) string {
	t.Helper()
	synctest.Wait()
	plan := ""
	for _, r := range (memRows{m}).OfBundle(uid) {
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

func (m *memory) confirm(uid, plan string) {
	m.bundle(uid, func(b *state.Bundle) { b.Meta.Annotations = map[string]string{atoll.AnnotationConfirm: plan} })
}

// A replacement that is there and never healthy: after ten minutes it is asked, and
// nothing but the answer, or health, takes the old place away.
func TestReplacementThatIsNeverHealthy(t *testing.T) {
	for _, state := range []atoll.RowState{atoll.RowProgressing, atoll.RowDegraded, atoll.RowFailed} {
		t.Run(string(state), func(t *testing.T) {
			m := newMemory()
			fleet(m, "a", "b")
			run(t, m, func(t *testing.T, _ *Reconciler) {
				placed(m, "web", &atoll.Content{}, "a")
				m.move("web", "b")
				m.report("web", "b", state)
				time.Sleep(10*time.Minute - time.Second)
				if p := m.plan(t, "web"); p != "" || len(m.told()) > 0 {
					t.Fatalf("asked too early: %s %q", p, m.told())
				}
				time.Sleep(2 * time.Second)
				if m.plan(t, "web") == "" || len(m.told()) != 1 || !strings.Contains(m.told()[0], "atoll confirm bundle/web -n shop --plan") {
					t.Fatalf("not asked after ten minutes: %q", m.told())
				}
				time.Sleep(100 * time.Hour)
				want(t, m, "web", "a Leaving r1, b Active r1")
				if len(m.told()) != 1 {
					t.Errorf("asked again and again: %q", m.told())
				}
				m.report("web", "b", atoll.RowReady)
				want(t, m, "web", "a Removing r1, b Active r1")
			})
		})
	}
}

// A cluster that checks in every twenty minutes gets three of those before it is asked.
func TestReplacementThatChecksIn(t *testing.T) {
	m := newMemory()
	fleet(m, "a")
	m.cluster("b", func(c *v1alpha1.Cluster) {
		c.Spec.Connection = &v1alpha1.ClusterConnection{Type: v1alpha1.ConnectionCheckIn, Interval: &metav1.Duration{Duration: 20 * time.Minute}}
	})
	run(t, m, func(t *testing.T, _ *Reconciler) {
		placed(m, "web", &atoll.Content{}, "a")
		m.move("web", "b")
		time.Sleep(time.Hour - time.Second)
		if p := m.plan(t, "web"); p != "" {
			t.Fatal("asked before the third check-in")
		}
		time.Sleep(2 * time.Second)
		if p := m.plan(t, "web"); p == "" {
			t.Fatal("not asked after the third check-in")
		}
		want(t, m, "web", "a Leaving r1, b Active r1")
	})
}

// Where several leave, all are kept for every replacement, and one answer is for all.
func TestSeveralLeaveForSeveral(t *testing.T) {
	m := newMemory()
	fleet(m, "a", "b", "c", "d", "e")
	m.setOnline("e", false)
	run(t, m, func(t *testing.T, _ *Reconciler) {
		placed(m, "web", &atoll.Content{}, "a", "b", "c")
		m.move("web", "c", "d", "e")
		m.report("web", "d", atoll.RowReady)
		want(t, m, "web", "a Leaving r1, b Leaving r1, c Active r1, d Active r1, e Active r1")
		time.Sleep(rollout.Patience + time.Second)
		plan := m.plan(t, "web")
		if plan == "" || !strings.Contains(m.told()[0], "2 removals wait") {
			t.Fatalf("plan %q, warnings %q", plan, m.told())
		}
		// A third that is to go makes another plan: the answer to the first is none.
		m.move("web", "d", "e")
		time.Sleep(rollout.Patience + time.Second)
		m.confirm("web", plan)
		want(t, m, "web", "a Leaving r1, b Leaving r1, c Leaving r1, d Active r1, e Active r1")
		again := m.plan(t, "web")
		if again == "" || again == plan {
			t.Fatalf("the plan is %s after %s", again, plan)
		}
		m.confirm("web", again)
		want(t, m, "web", "a Removing r1, b Removing r1, c Removing r1, d Active r1, e Active r1")
		m.settle("web")
		want(t, m, "web", "d Active r1, e Active r1")
	})
}

// The budget is asked first, the replacements after it; the answer to the one is not
// the answer to the other.
func TestBudgetAndReplacements(t *testing.T) {
	m := newMemory()
	var old, next []string
	for i := range 20 {
		old = append(old, fmt.Sprintf("c%02d", i))
	}
	fleet(m, append(old, "new")...)
	next = append(append(next, old[5:]...), "new")
	count := func(phase atoll.RowPhase) (n int) {
		synctest.Wait()
		for _, r := range (memRows{m}).OfBundle("web") {
			if r.Spec.Phase == phase {
				n++
			}
		}
		return n
	}
	run(t, m, func(t *testing.T, _ *Reconciler) {
		placed(m, "web", &atoll.Content{}, old...)
		m.move("web", next...)
		m.settle("web")
		budget := m.plan(t, "web")
		if count(atoll.RowHeld) != 5 || count(atoll.RowActive) != 16 || budget == "" {
			t.Fatalf("%s, plan %q", m.show("web"), budget)
		}
		// The replacement falls ill before the budget is given.
		m.report("web", "new", atoll.RowDegraded)
		m.confirm("web", budget)
		if count(atoll.RowLeaving) != 5 {
			t.Fatal(m.show("web"))
		}
		time.Sleep(rollout.Patience + time.Second)
		ask := m.plan(t, "web")
		if ask == "" || ask == budget || count(atoll.RowLeaving) != 5 {
			t.Fatalf("%s, plan %q after %q", m.show("web"), ask, budget)
		}
		m.confirm("web", ask)
		if count(atoll.RowRemoving) != 5 {
			t.Fatal(m.show("web"))
		}
	})
}

// A hub that is started anew goes on with a move: it asks when the first would have,
// with the same plan, and takes the answer that was given to the first.
func TestMoveOverRestarts(t *testing.T) {
	m := newMemory()
	fleet(m, "a", "b")
	plan := ""
	lives(t, m,
		func(t *testing.T) {
			placed(m, "web", &atoll.Content{}, "a")
			m.move("web", "b")
			m.report("web", "b", atoll.RowProgressing)
			time.Sleep(6 * time.Minute)
		},
		func(t *testing.T) {
			want(t, m, "web", "a Leaving r1, b Active r1")
			time.Sleep(4*time.Minute - time.Second)
			if p := m.plan(t, "web"); p != "" {
				t.Fatal("asked before the ten minutes were over")
			}
			time.Sleep(2 * time.Second)
			if plan = m.plan(t, "web"); plan == "" {
				t.Fatal("a restart began the ten minutes again")
			}
		},
		func(t *testing.T) {
			want(t, m, "web", "a Leaving r1, b Active r1")
			if again := m.plan(t, "web"); again != plan {
				t.Fatalf("plan %s became %s", plan, again)
			}
			m.confirm("web", plan)
			want(t, m, "web", "a Removing r1, b Active r1")
		},
		func(t *testing.T) {
			m.settle("web")
			want(t, m, "web", "b Active r1")
		},
	)
}

// Replicas that move are in two places before they leave the first, also where the hub
// is started anew in between, and where the new place is away it is asked.
func TestDividedReplicasMoveOverRestarts(t *testing.T) {
	m := newMemory()
	fleet(m, "a", "b", "c")
	six := &atoll.Content{Items: []atoll.Item{{
		Key: atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}, Divided: true,
		Object: []byte(`{"apiVersion":"apps/v1","kind":"Deployment","spec":{"replicas":6}}`),
	}}}
	lives(t, m,
		func(t *testing.T) {
			placed(m, "web", six, "a", "b")
			want(t, m, "web", "a Active r1 3, b Active r1 3")
			m.move("web", "b", "c")
			want(t, m, "web", "a Leaving r1 3, b Active r1 3, c Active r1 3")
			m.setOnline("c", false)
			time.Sleep(time.Minute)
		},
		func(t *testing.T) {
			time.Sleep(9*time.Minute + time.Second)
			want(t, m, "web", "a Leaving r1 3, b Active r1 3, c Active r1 3")
			if m.plan(t, "web") == "" {
				t.Fatal("not asked")
			}
			m.setOnline("c", true)
			m.report("web", "c", atoll.RowReady)
			want(t, m, "web", "a Removing r1 3, b Active r1 3, c Active r1 3")
			if m.plan(t, "web") != "" {
				t.Error("it still asks")
			}
		},
	)
}

// An eviction, and a cluster that stops fitting where the policy says Remove, go the
// way of an edit: the new place first, then ten minutes, then the question.
func TestEvictedAndUnfitGoTheWayOfAnEdit(t *testing.T) {
	prod := map[string]string{"env": "prod"}
	for name, act := range map[string]func(m *memory){
		"NoExecute": func(m *memory) {
			at := metav1.Now()
			m.cluster("a", func(c *v1alpha1.Cluster) {
				c.Spec.Taints = []v1alpha1.Taint{{Key: "down", Effect: corev1.TaintEffectNoExecute, TimeAdded: &at}}
			})
		},
		"whenUnfit Remove": func(m *memory) { m.cluster("a", func(c *v1alpha1.Cluster) { c.Labels = nil }) },
	} {
		t.Run(name, func(t *testing.T) {
			m := newMemory()
			m.cluster("a", func(c *v1alpha1.Cluster) { c.Labels = prod })
			run(t, m, func(t *testing.T, _ *Reconciler) {
				m.bundle("web", func(b *state.Bundle) { b.Spec.Placement, b.Spec.WhenUnfit = labelled(prod), v1alpha1.UnfitRemove })
				m.cut("web", &atoll.Content{})
				m.settle("web")
				m.cluster("b", func(c *v1alpha1.Cluster) { c.Labels = prod })
				synctest.Wait()
				m.report("web", "b", atoll.RowProgressing)
				act(m)
				want(t, m, "web", "a Leaving r1, b Active r1")
				time.Sleep(rollout.Patience + time.Second)
				want(t, m, "web", "a Leaving r1, b Active r1")
				if m.plan(t, "web") == "" {
					t.Fatal("not asked")
				}
				m.report("web", "b", atoll.RowReady)
				want(t, m, "web", "a Removing r1, b Active r1")
			})
		})
	}
}

// A cluster that is to be cleaned keeps what it has until exactly that is confirmed, and over a
// restart; confirmed, it goes the way of an edit; a confirmation that is taken back keeps what
// is not on its way yet.
func TestACleanedClusterKeepsAllUntilThatIsConfirmed(t *testing.T) {
	m := newMemory()
	fleet(m, "a", "b")
	clean := func(confirm, found string) {
		m.cluster("a", func(c *v1alpha1.Cluster) {
			c.Spec.Removal = &v1alpha1.ClusterRemoval{Mode: v1alpha1.ClusterClean, Confirm: confirm}
			c.Status.Removal = &v1alpha1.ClusterRemovalStatus{Confirmed: found}
		})
	}
	lives(t, m,
		func(t *testing.T) {
			m.bundle("web", func(b *state.Bundle) { b.Spec.Placement, b.Spec.WhenUnfit = names("a"), v1alpha1.UnfitRemove })
			m.cut("web", &atoll.Content{})
			m.settle("web")
			clean("", "")
			time.Sleep(time.Hour)
			want(t, m, "web", "a Active r1")
			if len(m.told()) > 0 {
				t.Errorf("told: %q", m.told())
			}
		},
		func(t *testing.T) {
			time.Sleep(time.Hour)
			want(t, m, "web", "a Active r1")
			m.move("web", "a", "b")
			m.report("web", "b", atoll.RowProgressing)
			clean("p", "")
			want(t, m, "web", "a Active r1, b Active r1")
			clean("p", "p")
			want(t, m, "web", "a Leaving r1, b Active r1")
			clean("", "p")
			want(t, m, "web", "a Active r1, b Active r1")
			m.report("web", "b", atoll.RowReady)
			want(t, m, "web", "a Active r1, b Active r1")
			clean("p", "p")
			want(t, m, "web", "a Removing r1, b Active r1")
		},
	)
}

// A hub that is killed while a cluster leaves, or another one, goes on where that was: what
// replaces it is waited for, and how it goes stays as it was stated.
func TestARemovalGoesOnOverRestarts(t *testing.T) {
	for _, removal := range []v1alpha1.ClusterRemoval{{Mode: v1alpha1.ClusterOrphan}, {Mode: v1alpha1.ClusterClean, Confirm: "p"}} {
		t.Run(string(removal.Mode), func(t *testing.T) {
			m := newMemory()
			fleet(m, "a", "b")
			orphan := func(t *testing.T) {
				t.Helper()
				for _, r := range (memRows{m}).OfBundle("web") {
					if r.Cluster == "a" && r.Spec.Orphan != (removal.Mode == v1alpha1.ClusterOrphan) {
						t.Errorf("its row is orphaned: %t", r.Spec.Orphan)
					}
				}
			}
			lives(t, m,
				func(t *testing.T) {
					placed(m, "web", &atoll.Content{}, "a")
					m.move("web", "a", "b")
					m.report("web", "b", atoll.RowProgressing)
					m.cluster("a", func(c *v1alpha1.Cluster) {
						c.Spec.Removal, c.Status.Removal = &removal, &v1alpha1.ClusterRemovalStatus{Confirmed: removal.Confirm}
					})
					want(t, m, "web", "a Leaving r1, b Active r1")
				},
				func(t *testing.T) {
					want(t, m, "web", "a Leaving r1, b Active r1")
					m.report("web", "b", atoll.RowReady)
					want(t, m, "web", "a Removing r1, b Active r1")
					orphan(t)
				},
				func(t *testing.T) {
					want(t, m, "web", "a Removing r1, b Active r1")
					orphan(t)
					m.settle("web")
					want(t, m, "web", "b Active r1")
				},
			)
		})
	}
}
