package place

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
	"atoll.dev/atoll/internal/state"
)

func whenBetter(p v1alpha1.PlacementSpec) v1alpha1.PlacementSpec {
	p.Rescheduling = &v1alpha1.Rescheduling{When: v1alpha1.RescheduleWhenBetter, MinDwell: &metav1.Duration{}}
	return p
}

// What other Bundles are placed on a cluster moves what may move, though no agent reports
// anything.
func TestLoadMovesWhatMayMove(t *testing.T) {
	m := newMemory()
	fleet(m, "a", "b")
	run(t, m, func(t *testing.T, _ *Reconciler) {
		m.bundle("web", func(b *state.Bundle) { b.Spec.Placement = whenBetter(most(1)) })
		m.cut("web", &atoll.Content{})
		m.settle("web")
		is := m.show("web")[:1]
		other := map[string]string{"a": "b", "b": "a"}[is]
		for i := range 30 {
			name := fmt.Sprint("other", i)
			m.bundle(name, func(b *state.Bundle) { b.Spec.Placement = names(is) })
			m.cut(name, &atoll.Content{})
		}
		time.Sleep(2 * gatherScores)
		m.settle("web")
		want(t, m, "web", other+" Active r1")
	})
}

// Reports that make nothing better for anybody cost no step, however many come; one that
// is better for many lets them look one after the other, each once.
func TestReportsDecideNothingAnew(t *testing.T) {
	const bundles, clusters = 40, 300
	m := newMemory()
	free := func(cpus int) func(*v1alpha1.Cluster) {
		return func(c *v1alpha1.Cluster) {
			c.Status.Resources.Allocatable = corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(int64(cpus), resource.DecimalSI)}
		}
	}
	for i := range clusters {
		m.cluster(fmt.Sprintf("c%03d", i), free(10))
	}
	m.cluster("best", free(50))
	run(t, m, func(t *testing.T, _ *Reconciler) {
		full := resource.MustParse("100")
		p := whenBetter(most(1))
		p.Scores = []v1alpha1.Score{{Name: v1alpha1.ScoreResourceAvailable, Resource: "cpu", Full: &full}}
		for i := range bundles {
			name := fmt.Sprint("web", i)
			m.bundle(name, func(b *state.Bundle) { b.Spec.Placement = p })
			m.cut(name, &atoll.Content{})
			m.settle(name)
			want(t, m, name, "best Active r1")
		}
		time.Sleep(time.Minute)
		_, looks := m.counts()
		for round := range 5 {
			for i := range clusters {
				m.cluster(fmt.Sprintf("c%03d", i), free(11+round))
			}
			m.cluster("best", free(51+round))
			time.Sleep(2 * gatherScores)
		}
		if _, now := m.counts(); now != looks {
			t.Errorf("%d reports that make nothing better cost %d steps", 5*(clusters+1), now-looks)
		}
		for i := range 100 { // of one cluster, better for all
			m.cluster("c007", free(90+i%2))
		}
		synctest.Wait()
		time.Sleep(gatherScores + time.Second)
		_, now := m.counts()
		if most := int(time.Second/paceScores) + 1; now-looks == 0 || now-looks > 2*most {
			t.Errorf("in the first second %d reads of rows, want some, and at most 2 for each of %d Bundles", now-looks, most)
		}
		time.Sleep(time.Minute)
		moved := 0
		for i := range bundles {
			if strings.Contains(m.show(fmt.Sprint("web", i)), "c007 Active") {
				moved++
			}
		}
		if moved != bundles {
			t.Errorf("%d of %d move", moved, bundles)
		}
	})
}

// What matters to nobody by itself may matter together: one cluster that gets a little
// better, and then another that gets much worse.
func TestSmallChangesAddUp(t *testing.T) {
	m := newMemory()
	free := func(cpus int) func(*v1alpha1.Cluster) {
		return func(c *v1alpha1.Cluster) {
			c.Status.Resources.Allocatable = corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(int64(cpus), resource.DecimalSI)}
		}
	}
	m.cluster("a", free(50))
	m.cluster("b", free(1))
	run(t, m, func(t *testing.T, _ *Reconciler) {
		full := resource.MustParse("100")
		p := whenBetter(most(1))
		p.Scores = []v1alpha1.Score{{Name: v1alpha1.ScoreResourceAvailable, Resource: "cpu", Full: &full}}
		m.bundle("web", func(b *state.Bundle) { b.Spec.Placement = p })
		m.cut("web", &atoll.Content{})
		m.settle("web")
		want(t, m, "web", "a Active r1")
		m.cluster("b", free(40)) // worse than where it is
		time.Sleep(3 * gatherScores)
		want(t, m, "web", "a Active r1")
		m.cluster("a", free(2)) // no worse than b was when it was decided, within the cost of a move
		time.Sleep(3 * gatherScores)
		m.settle("web")
		if got := m.show("web"); !strings.Contains(got, "b Active") {
			t.Errorf("it stays where it is worse: %s", got)
		}
	})
}

func TestRisesSinceANumber(t *testing.T) {
	var l rises
	for i, score := range []int64{30, 50, 20, 40, 10} {
		l = l.with(rise{score, int64(i)})
	}
	for number, want := range []int64{50, 50, 40, 40, 10, math.MinInt64} {
		if got := l.since(int64(number)); got != want {
			t.Errorf("since %d the highest is %d, want %d", number, got, want)
		}
	}
	for i := range int64(10 * mostRises) {
		l = l.with(rise{1000 - i, 10 + i})
	}
	if len(l) != mostRises || l.since(0) != 1000 || l.since(10*mostRises+9) != 1000-(10*mostRises-1) {
		t.Errorf("%d are kept; %d, %d", len(l), l.since(0), l.since(10*mostRises+9))
	}
}

// What a cluster was assigned weighs by its replicas, not by how many Bundles brought them.
func TestBalanceWeighsReplicas(t *testing.T) {
	m := newMemory()
	fleet(m, "a", "b")
	run(t, m, func(t *testing.T, _ *Reconciler) {
		content := func(replicas int, divided bool) *atoll.Content {
			c := asking("x", replicas)
			c.Items[0].Divided = divided
			return c
		}
		m.place("large", names("a"), content(50, false))
		divided := names("b")
		divided.ReplicaScheduling = v1alpha1.ReplicaScheduling{ReplicaSchedulingType: v1alpha1.Divided}
		m.place("divided", divided, content(20, true))
		for i := range 9 {
			m.place(fmt.Sprint("small", i), names("b"), &atoll.Content{})
		}
		synctest.Wait()
		for cluster, want := range map[string]int64{"uid-a": 50, "uid-b": 29} {
			if got := (memRows{m}).PodsOf(cluster); got != want {
				t.Errorf("%s has %d pods, want %d", cluster, got, want)
			}
		}
		for i := range 4 { // 50 and 29: to b until it has more
			name := fmt.Sprint("web", i)
			m.place(name, most(1), content(8, false))
			m.settle(name)
			want := map[int]string{0: "b", 1: "b", 2: "b", 3: "a"}[i] // 37, 45, 53, then 50 is less
			if got := m.show(name)[:1]; got != want {
				t.Errorf("%s is in %s, want %s", name, got, want)
			}
		}
	})
}

// What a Bundle itself brings to a cluster is no reason for it to leave: it would be the
// same wherever it is.
func TestWhatABundleBringsIsNoReasonToMove(t *testing.T) {
	m := newMemory()
	fleet(m, "a", "b")
	run(t, m, func(t *testing.T, r *Reconciler) {
		content := asking("web", 60)
		content.Items[0].Divided = false
		m.place("web", whenBetter(most(1)), content)
		m.settle("web")
		is := m.show("web")[:1]
		m.place("small", names(is), &atoll.Content{}) // somebody scores otherwise
		for range 5 {
			time.Sleep(2 * gatherScores)
			m.settle("web")
		}
		want(t, m, "web", is+" Active r1")
		m.bundle("web", asked(time.Now()))
		m.settle("web")
		other := map[string]string{"a": "b", "b": "a"}[is]
		want(t, m, "web", other+" Active r1") // which has nothing
		m.bundle("web", asked(time.Now().Add(time.Second)))
		m.settle("web")
		want(t, m, "web", other+" Active r1")
	})
}

// Replicas beyond counting load a cluster like very many, and not like none.
func TestHugeReplicasAreALoad(t *testing.T) {
	m := newMemory()
	fleet(m, "a", "b")
	run(t, m, func(t *testing.T, _ *Reconciler) {
		huge := names("b")
		huge.ReplicaScheduling = v1alpha1.ReplicaScheduling{ReplicaSchedulingType: v1alpha1.Divided}
		for i := range 2 {
			m.place(fmt.Sprint("huge", i), huge, asking("x", math.MaxInt64))
		}
		synctest.Wait()
		m.place("few", names("a"), &atoll.Content{})
		m.settle("few")
		m.place("web", most(1), &atoll.Content{})
		m.settle("web")
		want(t, m, "web", "a Active r1")
	})
}
