package place

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

// holders of a Bundle, and how many of its rows stay.
func holders(m *memory, uid string) (names []string) {
	for _, r := range (memRows{m}).OfBundle(uid) {
		if r.Spec.Phase == atoll.RowActive {
			names = append(names, r.Cluster)
		}
	}
	return names
}

func most(n int32) v1alpha1.PlacementSpec { return v1alpha1.PlacementSpec{MaxClusters: n} }

// maxClusters keeps so many, whoever comes; when one goes, another takes its place.
func TestMaxClusters(t *testing.T) {
	m := newMemory()
	fleet(m, "a", "b", "c")
	run(t, m, func(t *testing.T, _ *Reconciler) {
		m.bundle("web", func(b *state.Bundle) { b.Spec.Placement = most(2) })
		m.cut("web", &atoll.Content{})
		m.settle("web")
		first := holders(m, "web")
		if len(first) != 2 {
			t.Fatalf("chosen: %s", first)
		}
		_, looks := m.counts()
		for i := range 10 {
			m.cluster(fmt.Sprint("new", i), nil)
		}
		synctest.Wait()
		if _, now := m.counts(); now != looks {
			t.Errorf("clusters that nobody waits for cost %d steps", now-looks)
		}
		if got := holders(m, "web"); fmt.Sprint(got) != fmt.Sprint(first) {
			t.Errorf("others came, and %s became %s", first, got)
		}
		m.deleteCluster(first[0])
		m.settle("web")
		if got := holders(m, "web"); len(got) != 2 || !strings.Contains(fmt.Sprint(got), first[1]) {
			t.Errorf("%s is deleted, and %s became %s", first[0], first, got)
		}
	})
}

// Where fewer are chosen than wanted, one that comes to fit is.
func TestAClusterComesThatIsWanted(t *testing.T) {
	m := newMemory()
	fleet(m, "a")
	run(t, m, func(t *testing.T, _ *Reconciler) {
		p := most(3)
		p.SpreadConstraints = []v1alpha1.SpreadConstraint{{SpreadByField: v1alpha1.SpreadByRegion, MinGroups: 2}}
		m.bundle("web", func(b *state.Bundle) { b.Spec.Placement = p })
		m.cut("web", &atoll.Content{})
		m.settle("web")
		want(t, m, "web", "")
		in := func(region string) func(*v1alpha1.Cluster) {
			return func(c *v1alpha1.Cluster) { c.Spec.Region = region }
		}
		m.cluster("a", in("eu"))
		m.cluster("b", in("eu"))
		m.settle("web")
		want(t, m, "web", "")
		m.cluster("c", in("us"))
		m.settle("web")
		want(t, m, "web", "a Active r1, b Active r1, c Active r1")
		// That a cluster drifts to where no group is left takes nothing, and says so.
		m.cluster("c", in("eu"))
		m.settle("web")
		want(t, m, "web", "a Active r1, b Active r1, c Active r1")
		row, _ := (memRows{m}).Get("web", "a")
		if reason := atoll.ParseRowReason(row.Spec.Reason); reason.Word != atoll.RowSpreadUnmet {
			t.Errorf("the row says %q", row.Spec.Reason)
		}
	})
}

// Lowering maxClusters takes out what is over, and moves nothing else.
func TestMaxClustersIsLowered(t *testing.T) {
	m := newMemory()
	fleet(m, "a", "b", "c", "d")
	run(t, m, func(t *testing.T, _ *Reconciler) {
		m.bundle("web", func(b *state.Bundle) { b.Spec.Placement = most(4) })
		m.cut("web", &atoll.Content{})
		m.settle("web")
		m.bundle("web", func(b *state.Bundle) { b.Spec.Placement = most(3) })
		m.settle("web")
		if got := holders(m, "web"); len(got) != 3 || len((memRows{m}).OfBundle("web")) != 3 {
			t.Errorf("left: %s", m.show("web"))
		}
	})
}

// Many Bundles fill a fleet evenly, also where they are placed at the same time.
func TestBundlesBalance(t *testing.T) {
	m := newMemory()
	for i := range 10 {
		m.cluster(fmt.Sprint("c", i), nil)
	}
	for i := range 40 {
		uid := fmt.Sprint("bundle", i)
		m.bundle(uid, func(b *state.Bundle) { b.Spec.Placement = most(1) })
		m.cut(uid, &atoll.Content{})
	}
	run(t, m, func(t *testing.T, _ *Reconciler) {
		synctest.Wait()
		for i := range 10 {
			if n := (memRows{m}).PodsOf(fmt.Sprint("uid-c", i)); n < 2 || n > 6 {
				t.Errorf("c%d has %d of 40 rows", i, n)
			}
		}
	})
}

// What a decision is told of all clusters' loads at once is what the table says of each, as
// rows come, grow and go and as clusters do, and what others have reserved on top.
func TestLoadsOfAllAreThoseOfEach(t *testing.T) {
	m := newMemory()
	fleet(m, "a", "b", "c")
	run(t, m, func(t *testing.T, r *Reconciler) {
		reserved := map[string]int64{"b": 7, "gone": 3}
		check := func(when string) {
			t.Helper()
			m.settle("web")
			b, _ := memBundles{m}.Get("web")
			r.index.incomplete("web")
			r.index.spend("web")
			v := r.index.view(b, schedule.Terms{Placement: b.Spec.Placement}, time.Now())
			got := r.loads.of(&v, v.fleet, r.Rows, reserved)
			if len(got) != len(v.fleet) || len(got) == 0 {
				t.Fatalf("%s: %d loads of %d clusters", when, len(got), len(v.fleet))
			}
			for i, c := range v.fleet {
				if want := (memRows{m}).PodsOf(c.UID) + reserved[c.Name]; got[i] != want {
					t.Errorf("%s: %s is told to have %d, and has %d", when, c.Name, got[i], want)
				}
			}
		}
		m.bundle("web", func(b *state.Bundle) { b.Spec.Placement = most(2) })
		m.cut("web", &atoll.Content{})
		check("two are chosen")
		for i := range 5 {
			uid := fmt.Sprint("other", i)
			m.bundle(uid, func(b *state.Bundle) { b.Spec.Placement = most(1) })
			m.cut(uid, &atoll.Content{})
			m.settle(uid)
		}
		check("others come")
		m.cluster("d", nil)
		check("a cluster comes")
		m.bundle("web", func(b *state.Bundle) { b.Spec.Placement = most(4) })
		check("more are chosen")
		m.bundle("web", func(b *state.Bundle) { b.Spec.Placement = most(1) })
		check("fewer are chosen")
	})
}

// A cluster whose load changes causes no step.
func TestReportsOfResourcesCauseNothing(t *testing.T) {
	m := newMemory()
	fleet(m, "a", "b")
	run(t, m, func(t *testing.T, _ *Reconciler) {
		m.bundle("web", func(b *state.Bundle) { b.Spec.Placement = most(5) })
		m.cut("web", &atoll.Content{})
		m.settle("web")
		_, looks := m.counts()
		m.cluster("a", func(c *v1alpha1.Cluster) {
			c.Status.Resources.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}
			c.Status.Conditions = []metav1.Condition{{Type: "Ready"}}
		})
		synctest.Wait()
		if _, now := m.counts(); now != looks {
			t.Errorf("a report of resources cost %d steps", now-looks)
		}
	})
}

// Scores see the Bundles of the same namespace that are named or labelled so.
func TestNear(t *testing.T) {
	for _, tc := range []struct {
		name    string
		bundles v1alpha1.NearBundles
		want    string
	}{
		{"names", v1alpha1.NearBundles{Names: []string{"db"}}, "c"},
		{"names of a policy", v1alpha1.NearBundles{Names: []string{"db-policy"}}, "c"},
		{"labelSelector", v1alpha1.NearBundles{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "db"}}}, "c"},
		{"within", v1alpha1.NearBundles{Names: []string{"db"}, Within: v1alpha1.SpreadByRegion}, "b c"},
		{"of another namespace", v1alpha1.NearBundles{Names: []string{"foreign"}}, "a b c d"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := newMemory()
			fleet(m, "a", "b", "c", "d")
			for _, c := range []string{"b", "c"} {
				m.cluster(c, func(c *v1alpha1.Cluster) { c.Spec.Region = "eu" })
			}
			run(t, m, func(t *testing.T, _ *Reconciler) {
				m.bundle("db", func(b *state.Bundle) {
					b.Spec.Placement, b.Spec.Source.Name = names("c"), "db-policy"
					b.Meta.Labels = map[string]string{"tier": "db"}
				})
				m.bundle("foreign", func(b *state.Bundle) { b.Spec.Placement, b.Ref.Namespace = names("c"), "bank" })
				m.cut("db", &atoll.Content{})
				m.cut("foreign", &atoll.Content{})
				m.settle("db")
				m.settle("foreign")
				went := map[string]bool{}
				for i := range 20 { // equals are told apart by the Bundle
					uid := fmt.Sprint("web", i)
					m.bundle(uid, func(b *state.Bundle) {
						b.Spec.Placement = most(1)
						b.Spec.Placement.Scores = []v1alpha1.Score{{Name: v1alpha1.ScoreAffinity, Bundles: &tc.bundles}}
					})
					m.cut(uid, &atoll.Content{})
					m.settle(uid)
					went[strings.Join(holders(m, uid), " ")] = true
				}
				if got := strings.Join(slices.Sorted(maps.Keys(went)), " "); got != tc.want {
					t.Errorf("went to %s, want %s", got, tc.want)
				}
			})
		})
	}
}

// A Bundle that may move does when a report shows a better place, after its dwell, and
// the old place goes when the new one is healthy.
func TestMovesOneAtATime(t *testing.T) {
	m := newMemory()
	free := func(cpus string) func(*v1alpha1.Cluster) {
		return func(c *v1alpha1.Cluster) {
			c.Status.Resources.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpus)}
		}
	}
	m.cluster("a", free("10"))
	m.cluster("b", free("10"))
	run(t, m, func(t *testing.T, _ *Reconciler) {
		full := resource.MustParse("100")
		p := most(2)
		p.Scores = []v1alpha1.Score{{Name: v1alpha1.ScoreResourceAvailable, Resource: "cpu", Full: &full}}
		p.Rescheduling = &v1alpha1.Rescheduling{When: v1alpha1.RescheduleWhenBetter}
		m.bundle("web", func(b *state.Bundle) { b.Spec.Placement = p })
		m.cut("web", &atoll.Content{})
		m.settle("web")
		m.cluster("c", free("15"))
		m.cluster("d", free("15"))
		m.settle("web")
		want(t, m, "web", "a Active r1, b Active r1")
		_, looks := m.counts()
		m.cluster("c", free("17"))
		time.Sleep(2 * gatherScores)
		synctest.Wait()
		if _, now := m.counts(); now != looks {
			t.Errorf("a report that makes nothing better cost %d steps", now-looks)
		}
		m.cluster("c", free("90"))
		m.cluster("d", free("80"))
		synctest.Wait()
		want(t, m, "web", "a Active r1, b Active r1")
		time.Sleep(11 * time.Minute)
		synctest.Wait()
		first := m.show("web")
		if strings.Count(first, "Leaving") != 1 || !strings.Contains(first, "c Active") || strings.Contains(first, "d Active") {
			t.Fatalf("after the dwell: %s", first)
		}
		m.settle("web")
		time.Sleep(11 * time.Minute)
		m.settle("web")
		want(t, m, "web", "c Active r1, d Active r1")
	})
}

// memScores rate clusters: "namespace cluster measure".
type memScores struct {
	values map[string]int64
	ends   map[string]time.Time // by cluster
	fn     func(string)
}

func (s *memScores) Of(ns, cluster, measure string, now time.Time) (int64, bool) {
	v, ok := s.values[ns+" "+cluster+" "+measure]
	if end, ends := s.ends[cluster]; ends && !now.Before(end) {
		return 0, false
	}
	return v, ok
}
func (s *memScores) Ends(cluster string, now time.Time) time.Time {
	if end := s.ends[cluster]; now.Before(end) {
		return end
	}
	return time.Time{}
}
func (s *memScores) Ending() []string          { return slices.Sorted(maps.Keys(s.ends)) }
func (s *memScores) Subscribe(fn func(string)) { s.fn = fn }

// A tenant's scores count for the tenant's policies alone, the hub's for all.
func TestWhoRatesClusters(t *testing.T) {
	scores := &memScores{values: map[string]int64{
		"shop a price": 1, "bank a price": 2, "atoll-system a price": 3, "atoll-system a noise": 4, "bank a heat": 5,
	}}
	cfg := newMemory().config()
	cfg.Scores = scores
	r := New(cfg)
	for _, tc := range []struct {
		namespace, source, measure string
		want                       int64
	}{
		{"shop", v1alpha1.SourcePropagationPolicy, "price", 1},
		{"shop", v1alpha1.SourcePropagationPolicy, "noise", 4},
		{"shop", v1alpha1.SourcePropagationPolicy, "heat", 0},
		{"shop", v1alpha1.SourceClusterPropagationPolicy, "price", 3},
		{"", v1alpha1.SourceClusterPropagationPolicy, "price", 3},
		{"bank", v1alpha1.SourceAnnotation, "price", 2},
	} {
		c := schedule.Cluster{ClusterView: atoll.ClusterView{Name: "a"}}
		if got := r.rated(tc.namespace, tc.source)(&c, tc.measure); got != tc.want {
			t.Errorf("%s for %s in %q: %d, want %d", tc.measure, tc.source, tc.namespace, got, tc.want)
		}
	}
}

// That a cluster is rated better, or that a rating ends, moves what may move.
func TestRatedAnew(t *testing.T) {
	m := newMemory()
	fleet(m, "a")
	scores := &memScores{values: map[string]int64{"shop a price": 500}}
	cfg := m.config()
	cfg.Scores = scores
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r := New(cfg)
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		synctest.Wait()
		p := most(1)
		p.Scores = []v1alpha1.Score{{Name: v1alpha1.ScoreCluster, Measure: "price"}}
		p.Rescheduling = &v1alpha1.Rescheduling{When: v1alpha1.RescheduleWhenBetter, MinDwell: &metav1.Duration{}}
		m.bundle("web", func(b *state.Bundle) { b.Spec.Placement = p })
		m.cut("web", &atoll.Content{})
		m.settle("web")
		m.cluster("b", nil)
		m.settle("web")
		want(t, m, "web", "a Active r1")
		scores.values["shop b price"] = 700
		scores.fn("b")
		time.Sleep(2 * gatherScores)
		m.settle("web")
		want(t, m, "web", "b Active r1")

		// Nobody tells that a rating ends; something else has the cluster looked at before.
		scores.ends = map[string]time.Time{"b": time.Now().Add(time.Hour)}
		scores.fn("b")
		time.Sleep(time.Hour - time.Minute)
		m.settle("web")
		want(t, m, "web", "b Active r1")
		time.Sleep(2 * time.Minute)
		m.settle("web")
		want(t, m, "web", "a Active r1")
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
	})
}

// The end of a rating that was there before the hub started counts as well.
func TestARatingEndsAfterAStart(t *testing.T) {
	m := newMemory()
	fleet(m, "a", "b")
	scores := &memScores{values: map[string]int64{"shop a price": 700, "shop b price": 500}}
	cfg := m.config()
	cfg.Scores = scores
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		scores.ends = map[string]time.Time{"a": time.Now().Add(time.Hour)}
		r := New(cfg)
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		synctest.Wait()
		p := whenBetter(most(1))
		p.Scores = []v1alpha1.Score{{Name: v1alpha1.ScoreCluster, Measure: "price"}}
		m.bundle("web", func(b *state.Bundle) { b.Spec.Placement = p })
		m.cut("web", &atoll.Content{})
		m.settle("web")
		want(t, m, "web", "a Active r1")
		time.Sleep(time.Hour + time.Minute)
		m.settle("web")
		want(t, m, "web", "b Active r1")
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
	})
}

// What takes the place of clusters that go is the best there is, whether it is found in
// the reserve or, when that is spent or old, among all.
func TestReplacementsAreTheBest(t *testing.T) {
	m := newMemory()
	for i := range 30 {
		m.cluster(fmt.Sprintf("c%02d", i), func(c *v1alpha1.Cluster) {
			c.Status.Resources.Allocatable = corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(int64(100-i), resource.DecimalSI)}
		})
	}
	run(t, m, func(t *testing.T, _ *Reconciler) {
		full := resource.MustParse("100")
		p := most(3)
		p.Scores = []v1alpha1.Score{{Name: v1alpha1.ScoreResourceAvailable, Resource: "cpu", Full: &full}}
		m.bundle("web", func(b *state.Bundle) { b.Spec.Placement = p })
		m.cut("web", &atoll.Content{})
		m.settle("web")
		for i := range 20 {
			next := fmt.Sprintf("c%02d Active r1, c%02d Active r1, c%02d Active r1", i, i+1, i+2)
			want(t, m, "web", next)
			if i == 11 {
				time.Sleep(2 * reserveAge)
			}
			m.deleteCluster(fmt.Sprintf("c%02d", i))
			m.settle("web")
		}
		// One that came since the reserve was made counts as well.
		m.cluster("best", func(c *v1alpha1.Cluster) {
			c.Status.Resources.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100")}
		})
		time.Sleep(2 * reserveAge)
		m.deleteCluster("c20")
		m.settle("web")
		want(t, m, "web", "best Active r1, c21 Active r1, c22 Active r1")
	})
}
