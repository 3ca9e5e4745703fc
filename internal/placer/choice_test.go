package placer

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

// clustersHolding of a Bundle, and how many of its rows stay.
func clustersHolding(m *fakeHub, uid string) (names []string) {
	for _, r := range (fakeRows{m}).ListOfBundle(uid) {
		if r.Spec.Phase == atoll.RowActive {
			names = append(names, r.Cluster)
		}
	}
	return names
}

func atMostClusters(n int32) v1alpha1.PlacementSpec { return v1alpha1.PlacementSpec{MaxClusters: n} }

// maxClusters keeps its number of clusters. When one goes, another takes its place.
func TestMaxClusters(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b", "c")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement = atMostClusters(2) })
		m.cutRevision("web", &atoll.Content{})
		m.settleRows("web")
		first := clustersHolding(m, "web")
		if len(first) != 2 {
			t.Fatalf("chosen: %s", first)
		}
		_, looks := m.countsAfterWait()
		for i := range 10 {
			m.changeCluster(fmt.Sprint("new", i), nil)
		}
		synctest.Wait()
		if _, now := m.countsAfterWait(); now != looks {
			t.Errorf("clusters for which nothing waits cost %d steps", now-looks)
		}
		if got := clustersHolding(m, "web"); fmt.Sprint(got) != fmt.Sprint(first) {
			t.Errorf("others came, and %s became %s", first, got)
		}
		m.deleteCluster(first[0])
		m.settleRows("web")
		if got := clustersHolding(m, "web"); len(got) != 2 || !strings.Contains(fmt.Sprint(got), first[1]) {
			t.Errorf("%s is deleted, and %s became %s", first[0], first, got)
		}
	})
}

// A cluster that starts to fit is chosen while fewer are chosen than wanted.
func TestAClusterComesThatIsWanted(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		p := atMostClusters(3)
		p.SpreadConstraints = []v1alpha1.SpreadConstraint{{SpreadByField: v1alpha1.SpreadByRegion, MinGroups: 2}}
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement = p })
		m.cutRevision("web", &atoll.Content{})
		m.settleRows("web")
		expectRows(t, m, "web", "")
		in := func(region string) func(*v1alpha1.Cluster) {
			return func(c *v1alpha1.Cluster) { c.Spec.Region = region }
		}
		m.changeCluster("a", in("eu"))
		m.changeCluster("b", in("eu"))
		m.settleRows("web")
		expectRows(t, m, "web", "")
		m.changeCluster("c", in("us"))
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r1, b Active r1, c Active r1")
		// A cluster that drifts out of every group loses nothing, and this is reported.
		m.changeCluster("c", in("eu"))
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r1, b Active r1, c Active r1")
		row, _ := (fakeRows{m}).Get("web", "a")
		if reason := atoll.ParseRowReason(row.Spec.Reason); reason.Reason != atoll.ReasonSpreadUnmet {
			t.Errorf("the row says %q", row.Spec.Reason)
		}
	})
}

// Lowering maxClusters takes out what is over, and moves nothing else.
func TestMaxClustersIsLowered(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b", "c", "d")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement = atMostClusters(4) })
		m.cutRevision("web", &atoll.Content{})
		m.settleRows("web")
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement = atMostClusters(3) })
		m.settleRows("web")
		if got := clustersHolding(m, "web"); len(got) != 3 || len((fakeRows{m}).ListOfBundle("web")) != 3 {
			t.Errorf("left: %s", m.rowsOf("web"))
		}
	})
}

// Many Bundles fill a fleet evenly, also where they are placed at the same time.
func TestBundlesBalance(t *testing.T) {
	m := newFakeHub()
	for i := range 10 {
		m.changeCluster(fmt.Sprint("c", i), nil)
	}
	for i := range 40 {
		uid := fmt.Sprint("bundle", i)
		m.changeBundle(uid, func(b *state.Bundle) { b.Spec.Placement = atMostClusters(1) })
		m.cutRevision(uid, &atoll.Content{})
	}
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		synctest.Wait()
		for i := range 10 {
			if n := (fakeRows{m}).RequestedPodsOf(fmt.Sprint("uid-c", i)); n < 2 || n > 6 {
				t.Errorf("c%d has %d of 40 rows", i, n)
			}
		}
	})
}

// A decision collides with what was reserved after its start in the same direction, also where
// it is released already, and with nothing else.
func TestReservationsCollide(t *testing.T) {
	x := newBundleIndex()
	add, remove := map[string]int64{"a": 2, "b": 1}, map[string]int64{"a": -2}
	for name, tc := range map[string]struct {
		other, mine map[string]int64
		before      bool
		taken       bool
	}{
		"both add":           {add, map[string]int64{"b": 3}, false, true},
		"both remove":        {remove, map[string]int64{"a": -1}, false, true},
		"one adds":           {add, remove, false, false},
		"one removes":        {remove, add, false, false},
		"of another cluster": {add, map[string]int64{"c": 1}, false, false},
		"before the start":   {add, add, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			bystander := x.beginDeciding() // keeps what is older than my start
			defer x.endDeciding()
			if tc.before && !x.reservePods(tc.other, bystander, true) {
				t.Fatal("not reserved in any case")
			}
			began := x.beginDeciding()
			defer x.endDeciding()
			if !tc.before && !x.reservePods(tc.other, bystander, true) {
				t.Fatal("not reserved in any case")
			}
			x.releasePods(tc.other)
			if got := x.reservePods(tc.mine, began, false); got == tc.taken {
				t.Errorf("reserved: %t", got)
			} else if got {
				x.releasePods(tc.mine)
			}
			if left := x.copyReservations(); len(left) != 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
	if n := len(x.reserved.lastAdded) + len(x.reserved.lastRemoved); n != 0 {
		t.Errorf("%d numbers are kept while nothing is decided", n)
	}
}

// collidingRevisions reserves the pods of a cluster in each decision, as another step would.
type collidingRevisions struct {
	Revisions
	decided func()
}

func (c collidingRevisions) GetContent(ctx context.Context, name string) (*atoll.Content, error) {
	c.decided()
	return c.Revisions.GetContent(ctx, name)
}

// A decision that always collides is made maxDecideTries times. The last one counts.
func TestADecisionThatAlwaysCollidesEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newFakeHub()
		addClusters(m, "a")
		r, shutDown := newIdleReconciler(m)
		defer shutDown()
		m.placeBundle("web", atMostClusters(1), &atoll.Content{})
		b, _ := fakeBundles{m}.Get("web")
		terms, err := r.termsOf(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		v, decisions := r.index.viewOf(b, terms, time.Now()), 0
		r.Revisions = collidingRevisions{r.Revisions, func() {
			decisions++
			r.index.reservePods(map[string]int64{"a": 1}, 0, true)
		}}
		snap, end, err := r.decideWithReservation(t.Context(), b, v)
		if err != nil {
			t.Fatal(err)
		}
		if decisions != maxDecideTries || snap.countPlacedClusters() != 1 {
			t.Errorf("%d decisions, the last with %d clusters, want %d with 1", decisions, snap.countPlacedClusters(), maxDecideTries)
		}
		end()
		if left := r.index.copyReservations(); left["a"] != maxDecideTries {
			t.Errorf("the reservations of the others are %v", left)
		}
	})
}

// The loads of all clusters in a decision are those of the table and the reservations, while
// rows and clusters come, grow and go.
func TestLoadsOfAllAreThoseOfEach(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b", "c")
	runReconciler(t, m, func(t *testing.T, r *PlacementReconciler) {
		reserved := map[string]int64{"b": 7, "gone": 3}
		check := func(when string) {
			t.Helper()
			m.settleRows("web")
			b, _ := fakeBundles{m}.Get("web")
			r.index.requireWholeFleet("web")
			r.index.dropReserveClusters("web")
			v := r.index.viewOf(b, schedule.PlacementTerms{Placement: b.Spec.Placement}, time.Now())
			got := r.fleetLoads.loadsOf(&v, v.fleet, r.Rows, reserved)
			if len(got) != len(v.fleet) || len(got) == 0 {
				t.Fatalf("%s: %d loads of %d clusters", when, len(got), len(v.fleet))
			}
			for i, c := range v.fleet {
				if want := (fakeRows{m}).RequestedPodsOf(c.UID) + reserved[c.Name]; got[i] != want {
					t.Errorf("%s: %s has %d in the decision, and %d in the table", when, c.Name, got[i], want)
				}
			}
		}
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement = atMostClusters(2) })
		m.cutRevision("web", &atoll.Content{})
		check("two are chosen")
		for i := range 5 {
			uid := fmt.Sprint("other", i)
			m.changeBundle(uid, func(b *state.Bundle) { b.Spec.Placement = atMostClusters(1) })
			m.cutRevision(uid, &atoll.Content{})
			m.settleRows(uid)
		}
		check("others come")
		m.changeCluster("d", nil)
		check("a cluster comes")
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement = atMostClusters(4) })
		check("more are chosen")
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement = atMostClusters(1) })
		check("fewer are chosen")
	})
}

// A cluster whose load changes causes no step.
func TestReportsOfResourcesCauseNothing(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement = atMostClusters(5) })
		m.cutRevision("web", &atoll.Content{})
		m.settleRows("web")
		_, looks := m.countsAfterWait()
		m.changeCluster("a", func(c *v1alpha1.Cluster) {
			c.Status.Resources.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}
			c.Status.Conditions = []metav1.Condition{{Type: "Ready"}}
		})
		synctest.Wait()
		if _, now := m.countsAfterWait(); now != looks {
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
			m := newFakeHub()
			addClusters(m, "a", "b", "c", "d")
			for _, c := range []string{"b", "c"} {
				m.changeCluster(c, func(c *v1alpha1.Cluster) { c.Spec.Region = "eu" })
			}
			runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
				m.changeBundle("db", func(b *state.Bundle) {
					b.Spec.Placement, b.Spec.Source.Name = placementNamed("c"), "db-policy"
					b.Meta.Labels = map[string]string{"tier": "db"}
				})
				m.changeBundle("foreign", func(b *state.Bundle) { b.Spec.Placement, b.Ref.Namespace = placementNamed("c"), "bank" })
				m.cutRevision("db", &atoll.Content{})
				m.cutRevision("foreign", &atoll.Content{})
				m.settleRows("db")
				m.settleRows("foreign")
				went := map[string]bool{}
				for i := range 20 { // the Bundle decides between equals
					uid := fmt.Sprint("web", i)
					m.changeBundle(uid, func(b *state.Bundle) {
						b.Spec.Placement = atMostClusters(1)
						b.Spec.Placement.Scores = []v1alpha1.Score{{Name: v1alpha1.ScoreAffinity, Bundles: &tc.bundles}}
					})
					m.cutRevision(uid, &atoll.Content{})
					m.settleRows(uid)
					went[strings.Join(clustersHolding(m, uid), " ")] = true
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
	m := newFakeHub()
	free := func(cpus string) func(*v1alpha1.Cluster) {
		return func(c *v1alpha1.Cluster) {
			c.Status.Resources.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpus)}
		}
	}
	m.changeCluster("a", free("10"))
	m.changeCluster("b", free("10"))
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		full := resource.MustParse("100")
		p := atMostClusters(2)
		p.Scores = []v1alpha1.Score{{Name: v1alpha1.ScoreResourceAvailable, Resource: "cpu", Full: &full}}
		p.Rescheduling = &v1alpha1.Rescheduling{When: v1alpha1.RescheduleWhenBetter}
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement = p })
		m.cutRevision("web", &atoll.Content{})
		m.settleRows("web")
		m.changeCluster("c", free("15"))
		m.changeCluster("d", free("15"))
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r1, b Active r1")
		_, looks := m.countsAfterWait()
		m.changeCluster("c", free("17"))
		time.Sleep(2 * scoreDebounce)
		synctest.Wait()
		if _, now := m.countsAfterWait(); now != looks {
			t.Errorf("a report that makes nothing better cost %d steps", now-looks)
		}
		m.changeCluster("c", free("90"))
		m.changeCluster("d", free("80"))
		synctest.Wait()
		expectRows(t, m, "web", "a Active r1, b Active r1")
		time.Sleep(11 * time.Minute)
		synctest.Wait()
		first := m.rowsOf("web")
		if strings.Count(first, "Leaving") != 1 || !strings.Contains(first, "c Active") || strings.Contains(first, "d Active") {
			t.Fatalf("after the dwell: %s", first)
		}
		m.settleRows("web")
		time.Sleep(11 * time.Minute)
		m.settleRows("web")
		expectRows(t, m, "web", "c Active r1, d Active r1")
	})
}

// fakeScores rate clusters: "namespace cluster measure".
type fakeScores struct {
	values    map[string]int64
	ends      map[string]time.Time // by cluster
	onCluster func(string)
}

func (s *fakeScores) RatingOf(ns, cluster, measure string, now time.Time) (int64, bool) {
	v, ok := s.values[ns+" "+cluster+" "+measure]
	if end, ends := s.ends[cluster]; ends && !now.Before(end) {
		return 0, false
	}
	return v, ok
}
func (s *fakeScores) NextExpiry(cluster string, now time.Time) time.Time {
	if end := s.ends[cluster]; now.Before(end) {
		return end
	}
	return time.Time{}
}
func (s *fakeScores) ClustersWithExpiry() []string { return slices.Sorted(maps.Keys(s.ends)) }
func (s *fakeScores) Subscribe(fn func(string))    { s.onCluster = fn }

// A tenant's scores count for the tenant's policies alone, the hub's for all.
func TestWhoRatesClusters(t *testing.T) {
	scores := &fakeScores{values: map[string]int64{
		"shop a price": 1, "bank a price": 2, "atoll-system a price": 3, "atoll-system a noise": 4, "bank a heat": 5,
	}}
	cfg := newFakeHub().reconcilerConfig()
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
		if got := (&fleetFacts{r: r, scope: schedule.PlacementScope{Namespace: tc.namespace, Source: tc.source}}).RatingOf(&c, tc.measure); got != tc.want {
			t.Errorf("%s for %s in %q: %d, want %d", tc.measure, tc.source, tc.namespace, got, tc.want)
		}
	}
}

// A better rating of a cluster, or the end of a rating, moves the movable Bundles.
func TestRatedAnew(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a")
	scores := &fakeScores{values: map[string]int64{"shop a price": 500}}
	cfg := m.reconcilerConfig()
	cfg.Scores = scores
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r := New(cfg)
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		synctest.Wait()
		p := atMostClusters(1)
		p.Scores = []v1alpha1.Score{{Name: v1alpha1.ScoreCluster, Measure: "price"}}
		p.Rescheduling = &v1alpha1.Rescheduling{When: v1alpha1.RescheduleWhenBetter, MinDwell: &metav1.Duration{}}
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement = p })
		m.cutRevision("web", &atoll.Content{})
		m.settleRows("web")
		m.changeCluster("b", nil)
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r1")
		scores.values["shop b price"] = 700
		scores.onCluster("b")
		time.Sleep(2 * scoreDebounce)
		m.settleRows("web")
		expectRows(t, m, "web", "b Active r1")

		// No event reports the end of a rating; another event rescores the cluster before.
		scores.ends = map[string]time.Time{"b": time.Now().Add(time.Hour)}
		scores.onCluster("b")
		time.Sleep(time.Hour - time.Minute)
		m.settleRows("web")
		expectRows(t, m, "web", "b Active r1")
		time.Sleep(2 * time.Minute)
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r1")
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
	})
}

// The end of a rating that was there before the hub started counts as well.
func TestARatingEndsAfterAStart(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b")
	scores := &fakeScores{values: map[string]int64{"shop a price": 700, "shop b price": 500}}
	cfg := m.reconcilerConfig()
	cfg.Scores = scores
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		scores.ends = map[string]time.Time{"a": time.Now().Add(time.Hour)}
		r := New(cfg)
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		synctest.Wait()
		p := withRebalance(atMostClusters(1))
		p.Scores = []v1alpha1.Score{{Name: v1alpha1.ScoreCluster, Measure: "price"}}
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement = p })
		m.cutRevision("web", &atoll.Content{})
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r1")
		time.Sleep(time.Hour + time.Minute)
		m.settleRows("web")
		expectRows(t, m, "web", "b Active r1")
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
	})
}

// The best clusters replace clusters that go, whether they are found in the reserve or, when that
// is spent or old, among all.
func TestReplacementsAreTheBest(t *testing.T) {
	m := newFakeHub()
	for i := range 30 {
		m.changeCluster(fmt.Sprintf("c%02d", i), func(c *v1alpha1.Cluster) {
			c.Status.Resources.Allocatable = corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(int64(100-i), resource.DecimalSI)}
		})
	}
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		full := resource.MustParse("100")
		p := atMostClusters(3)
		p.Scores = []v1alpha1.Score{{Name: v1alpha1.ScoreResourceAvailable, Resource: "cpu", Full: &full}}
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement = p })
		m.cutRevision("web", &atoll.Content{})
		m.settleRows("web")
		for i := range 20 {
			next := fmt.Sprintf("c%02d Active r1, c%02d Active r1, c%02d Active r1", i, i+1, i+2)
			expectRows(t, m, "web", next)
			if i == 11 {
				time.Sleep(2 * reserveMaxAge)
			}
			m.deleteCluster(fmt.Sprintf("c%02d", i))
			m.settleRows("web")
		}
		// One that came since the reserve was made counts as well.
		m.changeCluster("best", func(c *v1alpha1.Cluster) {
			c.Status.Resources.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100")}
		})
		time.Sleep(2 * reserveMaxAge)
		m.deleteCluster("c20")
		m.settleRows("web")
		expectRows(t, m, "web", "best Active r1, c21 Active r1, c22 Active r1")
	})
}
