package placer

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

// benchSizes are the clusters of a fleet in benchmarks.
var benchSizes = []int{1000, 10_000, 100_000}

// newStepFixture returns a Reconciler over a fleet, with open queues and no workers.
func newStepFixture(b testing.TB, clusters int) (*fakeHub, *PlacementReconciler) {
	b.Helper()
	m := newFakeHub()
	for i := range clusters {
		m.changeCluster(fmt.Sprintf("c%06d", i), func(c *v1alpha1.Cluster) {
			c.Labels = map[string]string{"env": "prod", "group": fmt.Sprint("g", i%(clusters/10))}
		})
	}
	r := New(m.reconcilerConfig())
	r.startAcceptingChanges()
	return m, r
}

// allAtOnce is a stated rollout without bounds.
func allAtOnce() *v1alpha1.Rollout { return &v1alpha1.Rollout{Type: v1alpha1.RolloutAll} }

func runStep(b testing.TB, r *PlacementReconciler, uid string) {
	b.Helper()
	if err := r.reconcileBundle(b.Context(), uid); err != nil {
		b.Fatal(err)
	}
}

// newRegionalContent has an override rule per region.
func newRegionalContent(items int) *atoll.Content {
	c := &atoll.Content{}
	for i := range items {
		c.Items = append(c.Items, atoll.Item{Key: atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: fmt.Sprint(i)}, Object: []byte(`{}`)})
	}
	for i := range 5 {
		c.Rules = append(c.Rules, atoll.Rule{Target: &v1alpha1.ClusterTarget{ClusterAffinity: v1alpha1.ClusterAffinity{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"group": fmt.Sprint("g", i)}}}}})
	}
	return c
}

// BenchmarkNewBundle is the first step of a Bundle that goes everywhere, or to 10.
func BenchmarkNewBundle(b *testing.B) {
	for _, n := range benchSizes {
		for name, p := range map[string]v1alpha1.PlacementSpec{"all": {}, "ten": placementLabelled(map[string]string{"group": "g1"}), "named": placementNamed("c000001", "c000002")} {
			b.Run(fmt.Sprint(name, "/", n), func(b *testing.B) {
				m, r := newStepFixture(b, n)
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					uid := fmt.Sprint("b", i)
					m.changeBundle(uid, func(b *state.Bundle) { b.Spec.Placement = p })
					m.cutRevision(uid, newRegionalContent(1))
					runStep(b, r, uid)
					b.StopTimer()
					delete(m.rows, uid)
					delete(m.bundles, uid)
					r.index.removeBundle(uid)
					b.StartTimer()
				}
			})
		}
	}
}

// newEverywhereFixture is a Bundle with a row in every cluster, all Ready.
func newEverywhereFixture(b *testing.B, n int) (*fakeHub, *PlacementReconciler) {
	b.Helper()
	m, r := newStepFixture(b, n)
	m.changeBundle("web", func(b *state.Bundle) { b.Spec.Rollout = allAtOnce() })
	m.cutRevision("web", newRegionalContent(1))
	runStep(b, r, "web")
	for c := range m.rows["web"] {
		m.reportState("web", c, atoll.RowReady)
	}
	runStep(b, r, "web")
	return m, r
}

// TestAStepAllocatesNothingForOtherClusters: an edit of what ten clusters have costs the
// same in a fleet of ten and in one of 10,000.
func TestAStepAllocatesNothingForOtherClusters(t *testing.T) {
	const touched = 10
	edit := func(fleet int) float64 {
		m, r := newStepFixture(t, fleet)
		m.changeBundle("web", func(b *state.Bundle) {
			b.Spec.Placement, b.Spec.Rollout = placementLabelled(map[string]string{"group": "g0"}), allAtOnce()
		})
		m.cutRevision("web", newRegionalContent(1))
		runStep(t, r, "web")
		if n := len(m.rows["web"]); n != touched {
			t.Fatalf("it has %d rows, want %d", n, touched)
		}
		allocations := testing.AllocsPerRun(20, func() {
			m.cutRevision("web", newRegionalContent(1))
			runStep(t, r, "web")
			for c := range m.rows["web"] {
				m.reportState("web", c, atoll.RowReady)
			}
			runStep(t, r, "web")
		})
		for c, row := range m.rows["web"] {
			if latest, _ := (fakeRevisions{m}).LatestOfBundle("web"); row.Spec.Revision != latest.Name {
				t.Fatalf("%s is at %s: nothing was done", c, row.Spec.Revision)
			}
		}
		return allocations
	}
	few, many := edit(touched), edit(10_000)
	t.Logf("%v allocations among 10 clusters, %v among 10,000", few, many)
	if many > few+100 {
		t.Errorf("a step allocates %v times among 10 clusters and %v times among 10,000", few, many)
	}
}

// BenchmarkEdit is an image edit that reaches all rows.
func BenchmarkEdit(b *testing.B) {
	for _, n := range benchSizes {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			m, r := newEverywhereFixture(b, n)
			b.ReportAllocs()
			for b.Loop() {
				m.cutRevision("web", newRegionalContent(1))
				runStep(b, r, "web")
			}
		})
	}
}

// BenchmarkJoin is a cluster that joins a Bundle with so many rows.
func BenchmarkJoin(b *testing.B) {
	for _, n := range benchSizes {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			m, r := newEverywhereFixture(b, n)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				name := fmt.Sprintf("d%06d", i)
				m.changeCluster(name, nil)
				r.handleClusterChange(b.Context(), name)
				runStep(b, r, "web")
			}
			if _, ok := (fakeRows{m}).Get("web", "d000000"); !ok {
				b.Fatal("it has no row")
			}
		})
	}
}

// BenchmarkReport is a row that turns, which nothing waits for.
func BenchmarkReport(b *testing.B) {
	for _, n := range benchSizes {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			m, _ := newEverywhereFixture(b, n)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				m.reportState("web", fmt.Sprintf("c%06d", i%n), atoll.RowDegraded)
			}
		})
	}
}

// BenchmarkCompare is a cluster's change that makes no difference to 1,000 Bundles, and
// one that does to one of them.
func BenchmarkCompare(b *testing.B) {
	m, r := newStepFixture(b, 100)
	for i := range 1000 {
		uid := fmt.Sprint("b", i)
		m.changeBundle(uid, func(b *state.Bundle) { b.Spec.Placement = placementLabelled(map[string]string{"app": uid}) })
		m.cutRevision(uid, newRegionalContent(1))
		runStep(b, r, uid)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		m.changeCluster("c000001", func(c *v1alpha1.Cluster) { c.Labels = map[string]string{"n": fmt.Sprint(i)} })
		r.handleClusterChange(b.Context(), "c000001")
	}
}

// BenchmarkFleet is a fleet that joins one by one while 10 Bundles match every cluster:
// what one cluster costs until it has its 10 rows, and how many writes there are.
func BenchmarkFleet(b *testing.B) {
	const bundles = 10
	for _, n := range []int{1000, 10_000, 50_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				m := newFakeHub()
				for i := range bundles {
					uid := fmt.Sprint("b", i)
					m.changeBundle(uid, nil)
					m.cutRevision(uid, newRegionalContent(1))
				}
				ctx, cancel := context.WithCancel(b.Context())
				r, done := New(m.reconcilerConfig()), make(chan error)
				go func() { done <- r.Run(ctx) }()
				for i := range n {
					m.changeCluster(fmt.Sprintf("c%06d", i), nil)
				}
				err := wait.PollUntilContextTimeout(ctx, time.Millisecond, 5*time.Minute, true, func(context.Context) (bool, error) {
					m.mu.Lock()
					defer m.mu.Unlock()
					for i := range bundles {
						if len(m.rows[fmt.Sprint("b", i)]) < n {
							return false, nil
						}
					}
					return true, nil
				})
				if err != nil {
					b.Fatal(err)
				}
				cancel()
				if err := <-done; err != nil {
					b.Fatal(err)
				}
				writes, _ := m.countsAfterWait()
				b.ReportMetric(float64(writes), "writes")
			}
		})
	}
}
