package placer

import (
	"fmt"
	"math"
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

func withRebalance(p v1alpha1.PlacementSpec) v1alpha1.PlacementSpec {
	p.Rescheduling = &v1alpha1.Rescheduling{When: v1alpha1.RescheduleWhenBetter, MinDwell: &metav1.Duration{}}
	return p
}

// A group of movable Bundles ends with its last Bundle.
func TestRemoveMovableBundle(t *testing.T) {
	m := newMovableBundles()
	kind := movableKind{}
	for _, uid := range []string{"a", "b"} {
		m.setScoreThresholds(uid, kind, &schedule.ScoreThresholds{})
		m.queued[uid] = true
	}
	m.removeBundle("gone")
	m.removeBundle("a")
	g := m.groups[kind]
	if g == nil || len(g.standings) != 1 || g.standings["b"] == nil || !g.isStale {
		t.Fatalf("without a: %+v", g)
	}
	if _, known := m.kindOfBundle["a"]; known || m.queued["a"] || !m.queued["b"] {
		t.Errorf("kinds %v, queued %v", m.kindOfBundle, m.queued)
	}
	m.removeBundle("b")
	if len(m.groups)+len(m.kindOfBundle)+len(m.queued) > 0 {
		t.Errorf("without both: %+v", m)
	}
}

// Other Bundles' rows on a cluster move the movable Bundles, without a report of an agent.
func TestLoadMovesWhatMayMove(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement = withRebalance(atMostClusters(1)) })
		m.cutRevision("web", &atoll.Content{})
		m.settleRows("web")
		is := m.rowsOf("web")[:1]
		other := map[string]string{"a": "b", "b": "a"}[is]
		for i := range 30 {
			name := fmt.Sprint("other", i)
			m.changeBundle(name, func(b *state.Bundle) { b.Spec.Placement = placementNamed(is) })
			m.cutRevision(name, &atoll.Content{})
		}
		time.Sleep(2 * scoreDebounce)
		m.settleRows("web")
		expectRows(t, m, "web", other+" Active r1")
	})
}

// Reports that make nothing better cost no step, however many come. A report that is better for
// many Bundles gives each one step, one after the other.
func TestReportsDecideNothingAnew(t *testing.T) {
	const bundles, clusters = 40, 300
	m := newFakeHub()
	free := func(cpus int) func(*v1alpha1.Cluster) {
		return func(c *v1alpha1.Cluster) {
			c.Status.Resources.Allocatable = corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(int64(cpus), resource.DecimalSI)}
		}
	}
	for i := range clusters {
		m.changeCluster(fmt.Sprintf("c%03d", i), free(10))
	}
	m.changeCluster("best", free(50))
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		full := resource.MustParse("100")
		p := withRebalance(atMostClusters(1))
		p.Scores = []v1alpha1.Score{{Name: v1alpha1.ScoreResourceAvailable, Resource: "cpu", Full: &full}}
		for i := range bundles {
			name := fmt.Sprint("web", i)
			m.changeBundle(name, func(b *state.Bundle) { b.Spec.Placement = p })
			m.cutRevision(name, &atoll.Content{})
			m.settleRows(name)
			expectRows(t, m, name, "best Active r1")
		}
		time.Sleep(time.Minute)
		_, looks := m.countsAfterWait()
		for round := range 5 {
			for i := range clusters {
				m.changeCluster(fmt.Sprintf("c%03d", i), free(11+round))
			}
			m.changeCluster("best", free(51+round))
			time.Sleep(2 * scoreDebounce)
		}
		if _, now := m.countsAfterWait(); now != looks {
			t.Errorf("%d reports that make nothing better cost %d steps", 5*(clusters+1), now-looks)
		}
		for i := range 100 { // of one cluster, better for all
			m.changeCluster("c007", free(90+i%2))
		}
		synctest.Wait()
		time.Sleep(scoreDebounce + time.Second)
		_, now := m.countsAfterWait()
		if most := int(time.Second/scoreMoveInterval) + 1; now-looks == 0 || now-looks > 2*most {
			t.Errorf("in the first second %d reads of rows, want some, and at most 2 for each of %d Bundles", now-looks, most)
		}
		time.Sleep(time.Minute)
		moved := 0
		for i := range bundles {
			if strings.Contains(m.rowsOf(fmt.Sprint("web", i)), "c007 Active") {
				moved++
			}
		}
		if moved != bundles {
			t.Errorf("%d of %d move", moved, bundles)
		}
	})
}

// Changes that matter to no Bundle alone may matter together: one cluster gets a little better,
// and another one much worse.
func TestSmallChangesAddUp(t *testing.T) {
	m := newFakeHub()
	free := func(cpus int) func(*v1alpha1.Cluster) {
		return func(c *v1alpha1.Cluster) {
			c.Status.Resources.Allocatable = corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(int64(cpus), resource.DecimalSI)}
		}
	}
	m.changeCluster("a", free(50))
	m.changeCluster("b", free(1))
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		full := resource.MustParse("100")
		p := withRebalance(atMostClusters(1))
		p.Scores = []v1alpha1.Score{{Name: v1alpha1.ScoreResourceAvailable, Resource: "cpu", Full: &full}}
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement = p })
		m.cutRevision("web", &atoll.Content{})
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r1")
		m.changeCluster("b", free(40)) // worse than where it is
		time.Sleep(3 * scoreDebounce)
		expectRows(t, m, "web", "a Active r1")
		m.changeCluster("a", free(2)) // no worse than b was when it was decided, within the cost of a move
		time.Sleep(3 * scoreDebounce)
		m.settleRows("web")
		if got := m.rowsOf("web"); !strings.Contains(got, "b Active") {
			t.Errorf("it stays where it is worse: %s", got)
		}
	})
}

func TestRisesSinceANumber(t *testing.T) {
	var l scoreRises
	for i, score := range []int64{30, 50, 20, 40, 10} {
		l = l.withRise(scoreRise{score, int64(i)})
	}
	for number, want := range []int64{50, 50, 40, 40, 10, math.MinInt64} {
		if got := l.highestScoreSinceStanding(int64(number)); got != want {
			t.Errorf("since %d the highest is %d, want %d", number, got, want)
		}
	}
	for i := range int64(10 * maxRises) {
		l = l.withRise(scoreRise{1000 - i, 10 + i})
	}
	if len(l) != maxRises || l.highestScoreSinceStanding(0) != 1000 || l.highestScoreSinceStanding(10*maxRises+9) != 1000-(10*maxRises-1) {
		t.Errorf("%d are kept; %d, %d", len(l), l.highestScoreSinceStanding(0), l.highestScoreSinceStanding(10*maxRises+9))
	}
}

// A cluster's load counts assigned replicas, not Bundles.
func TestBalanceWeighsReplicas(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		content := func(replicas int, divided bool) *atoll.Content {
			c := contentAsking("x", replicas)
			c.Items[0].Divided = divided
			return c
		}
		m.placeBundle("large", placementNamed("a"), content(50, false))
		divided := placementNamed("b")
		divided.ReplicaScheduling = v1alpha1.ReplicaScheduling{ReplicaSchedulingType: v1alpha1.Divided}
		m.placeBundle("divided", divided, content(20, true))
		for i := range 9 {
			m.placeBundle(fmt.Sprint("small", i), placementNamed("b"), &atoll.Content{})
		}
		synctest.Wait()
		for cluster, want := range map[string]int64{"uid-a": 50, "uid-b": 29} {
			if got := (fakeRows{m}).RequestedPodsOf(cluster); got != want {
				t.Errorf("%s has %d pods, want %d", cluster, got, want)
			}
		}
		for i := range 4 { // 50 and 29: to b until it has more
			name := fmt.Sprint("web", i)
			m.placeBundle(name, atMostClusters(1), content(8, false))
			m.settleRows(name)
			want := map[int]string{0: "b", 1: "b", 2: "b", 3: "a"}[i] // 37, 45, 53, then 50 is less
			if got := m.rowsOf(name)[:1]; got != want {
				t.Errorf("%s is in %s, want %s", name, got, want)
			}
		}
	})
}

// A Bundle's own load in a cluster is no reason to leave: it would be the same elsewhere.
func TestWhatABundleBringsIsNoReasonToMove(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b")
	runReconciler(t, m, func(t *testing.T, r *PlacementReconciler) {
		content := contentAsking("web", 60)
		content.Items[0].Divided = false
		m.placeBundle("web", withRebalance(atMostClusters(1)), content)
		m.settleRows("web")
		is := m.rowsOf("web")[:1]
		m.placeBundle("small", placementNamed(is), &atoll.Content{}) // another Bundle changes the scores
		for range 5 {
			time.Sleep(2 * scoreDebounce)
			m.settleRows("web")
		}
		expectRows(t, m, "web", is+" Active r1")
		m.changeBundle("web", rebalanceAskedAt(time.Now()))
		m.settleRows("web")
		other := map[string]string{"a": "b", "b": "a"}[is]
		expectRows(t, m, "web", other+" Active r1") // which has nothing
		m.changeBundle("web", rebalanceAskedAt(time.Now().Add(time.Second)))
		m.settleRows("web")
		expectRows(t, m, "web", other+" Active r1")
	})
}

// Replicas beyond counting load a cluster like very many, and not like none.
func TestHugeReplicasAreALoad(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		huge := placementNamed("b")
		huge.ReplicaScheduling = v1alpha1.ReplicaScheduling{ReplicaSchedulingType: v1alpha1.Divided}
		for i := range 2 {
			m.placeBundle(fmt.Sprint("huge", i), huge, contentAsking("x", math.MaxInt64))
		}
		synctest.Wait()
		m.placeBundle("few", placementNamed("a"), &atoll.Content{})
		m.settleRows("few")
		m.placeBundle("web", atMostClusters(1), &atoll.Content{})
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r1")
	})
}
