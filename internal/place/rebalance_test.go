package place

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

// asked gives the Bundle the annotation of a rebalance.
func asked(at time.Time) func(*state.Bundle) {
	return func(b *state.Bundle) {
		b.Meta.Annotations = maps.Clone(b.Meta.Annotations)
		if b.Meta.Annotations == nil {
			b.Meta.Annotations = map[string]string{}
		}
		b.Meta.Annotations[atoll.AnnotationRebalance] = atoll.FormatRebalance(at)
	}
}

// crowd a cluster with Bundles that are there by name.
func crowd(m *memory, cluster string, n int) {
	for i := range n {
		uid := fmt.Sprint(cluster, "crowd", i)
		m.place(uid, names(cluster), &atoll.Content{})
		m.settle(uid)
	}
}

// forget who listened, as when a hub's process ends.
func (m *memory) forget() {
	m.onBundle, m.onRows, m.onCluster, m.onRev, m.onSpace, m.onHub = nil, nil, nil, nil, nil, nil
}

// generations of a Bundle's rows.
func generations(m *memory, uid string) string {
	var out []string
	for _, r := range (memRows{m}).OfBundle(uid) {
		out = append(out, fmt.Sprint(r.Cluster, " ", r.Spec.Generation))
	}
	return strings.Join(out, ", ")
}

// A rebalance moves what would be placed elsewhere today, make before break, once: neither
// the same annotation again, nor a hub that starts, does it again, and what stays has
// nothing to do.
func TestRebalance(t *testing.T) {
	m := newMemory()
	fleet(m, "a", "b")
	first := time.Time{}
	run(t, m, func(t *testing.T, r *Reconciler) {
		m.place("web", most(2), &atoll.Content{})
		m.settle("web")
		want(t, m, "web", "a Active r1, b Active r1")
		crowd(m, "a", 5)
		fleet(m, "c")
		want(t, m, "web", "a Active r1, b Active r1")
		stays := generations(m, "web")
		before, _ := m.counts()
		first = time.Now()
		m.bundle("web", asked(first))
		want(t, m, "web", "a Leaving r1, b Active r1, c Active r1")
		row, _ := (memRows{m}).Get("web", "a")
		if why := atoll.ParseRowReason(row.Spec.Reason); why.Word != atoll.RowRebalanced {
			t.Errorf("a says %q", row.Spec.Reason)
		}
		if b, _ := (memRows{m}).Get("web", "b"); !strings.Contains(stays, fmt.Sprint("b ", b.Spec.Generation)) || !b.Spec.Rebalanced().Equal(first.Truncate(time.Millisecond)) {
			t.Errorf("b stays, and is %+v; it was %s", b.Spec, stays)
		}
		m.settle("web")
		want(t, m, "web", "b Active r1, c Active r1")
		// One when c comes and a is told to leave, one when a goes.
		if now, _ := m.counts(); now != before+2 {
			t.Errorf("a move of one row wrote %d times, want 2", now-before)
		}
		// Whatever scores come to now, it is done.
		crowd(m, "c", 9)
		writes, _ := m.counts()
		m.bundle("web", asked(first))
		m.bundle("web", nil)
		m.settle("web")
		want(t, m, "web", "b Active r1, c Active r1")
		if now, _ := m.counts(); now != writes {
			t.Errorf("the same rebalance wrote %d times again", now-writes)
		}
	})
	m.forget()
	run(t, m, func(t *testing.T, r *Reconciler) {
		m.settle("web")
		writes, _ := m.counts()
		want(t, m, "web", "b Active r1, c Active r1")
		m.bundle("web", asked(first.Add(time.Second)))
		m.settle("web")
		want(t, m, "web", "a Active r1, b Active r1")
		if now, _ := m.counts(); now == writes {
			t.Error("a later rebalance wrote nothing")
		}
	})
}

// A hub that starts while a rebalance is under way goes on with it.
func TestRebalanceGoesOnAfterAStart(t *testing.T) {
	m := newMemory()
	fleet(m, "a")
	run(t, m, func(t *testing.T, _ *Reconciler) {
		m.place("web", most(1), &atoll.Content{})
		m.settle("web")
		crowd(m, "a", 5)
		fleet(m, "b")
		synctest.Wait()
		m.bundle("web", asked(time.Now()))
		want(t, m, "web", "a Leaving r1, b Active r1")
	})
	m.forget()
	run(t, m, func(t *testing.T, _ *Reconciler) {
		crowd(m, "b", 20)
		want(t, m, "web", "a Leaving r1, b Active r1")
		m.settle("web")
		want(t, m, "web", "b Active r1")
	})
}

// A rebalance of clusters that drifted is under the removal budget, like any edit.
func TestRebalanceIsUnderTheBudget(t *testing.T) {
	m := newMemory()
	fleet(m, "a", "b")
	tight := intstr.FromInt32(0)
	run(t, m, func(t *testing.T, r *Reconciler) {
		m.bundle("web", func(b *state.Bundle) { b.Spec.Removal.Budget = &tight })
		m.cut("web", &atoll.Content{})
		m.settle("web")
		m.cluster("a", func(c *v1alpha1.Cluster) {
			c.Spec.Taints = []v1alpha1.Taint{{Key: "old", Effect: corev1.TaintEffectNoSchedule}}
		})
		want(t, m, "web", "a Active r1, b Active r1")
		m.bundle("web", asked(time.Now()))
		want(t, m, "web", "a Held r1, b Active r1")
		b, _ := (memBundles{m}).Get("web")
		p, err := r.Preview(t.Context(), b)
		if err != nil || p.Output.Plan == nil {
			t.Fatalf("no plan waits: %v", err)
		}
		m.bundle("web", func(b *state.Bundle) { b.Meta.Annotations[atoll.AnnotationConfirm] = p.Output.Plan.Hash })
		m.settle("web")
		want(t, m, "web", "b Active r1")
	})
}

// Replicas that follow room are divided anew, what grows first; what is to shrink keeps
// what it has until then, and what it comes to stays.
func TestRebalanceDividesAnew(t *testing.T) {
	m := newMemory()
	m.cluster("a", left(9))
	m.cluster("b", left(3))
	run(t, m, func(t *testing.T, _ *Reconciler) {
		m.place("web", byRoom, asking("web", 4))
		m.settle("web")
		want(t, m, "web", "a Active r1 3, b Active r1 1")
		m.cluster("a", left(0))
		m.cluster("b", left(90))
		time.Sleep(2 * time.Minute)
		want(t, m, "web", "a Active r1 3, b Active r1 1")
		m.bundle("web", asked(time.Now()))
		// From scratch a has room for its own 3, b for 91.
		want(t, m, "web", "a Active r1 3, b Active r1 4")
		if row, _ := (memRows{m}).Get("web", "a"); fmt.Sprint(slices.Collect(maps.Values(row.Spec.Due))) != "[0]" {
			t.Errorf("a is due %v", row.Spec.Due)
		}
		m.cluster("a", left(90))
		m.cluster("b", left(0))
		m.settle("web")
		want(t, m, "web", "a Active r1 0, b Active r1 4")
		if row, _ := (memRows{m}).Get("web", "a"); row.Spec.Due != nil {
			t.Errorf("a is still due %v", row.Spec.Due)
		}
		time.Sleep(2 * time.Minute)
		m.bundle("web", nil)
		m.settle("web")
		want(t, m, "web", "a Active r1 0, b Active r1 4")
	})
}

// Many Bundles that are rebalanced together even out, and do not all run to the cluster
// that was empty; the preview foresees as much.
func TestRebalanceOfManyEvensOut(t *testing.T) {
	const all = 20
	m := newMemory()
	fleet(m, "a")
	run(t, m, func(t *testing.T, r *Reconciler) {
		var list []Supposed
		at := time.Now()
		for i := range all {
			uid := fmt.Sprint("app", i)
			m.place(uid, most(1), &atoll.Content{})
			m.settle(uid)
			b, _ := (memBundles{m}).Get(uid)
			asked(at)(&b)
			list = append(list, Supposed{Bundle: b, Revision: uid + "-1-r1", Content: &atoll.Content{}})
		}
		fleet(m, "b")
		synctest.Wait()
		foreseen, err := r.Foresee(t.Context(), nil, list)
		if err != nil {
			t.Fatal(err)
		}
		moves := 0
		for _, f := range foreseen {
			if _, moved := f.After["b"]; moved {
				moves++
			}
		}
		if moves != all/2 {
			t.Errorf("%d of %d are foreseen to move, want half", moves, all)
		}
		for _, s := range list {
			m.bundle(s.Bundle.Ref.UID, asked(at))
		}
		synctest.Wait()
		for _, s := range list {
			m.settle(s.Bundle.Ref.UID)
		}
		// Steps that are taken at the same time may see the same.
		if a, b := (memRows{m}).PodsOf("uid-a"), (memRows{m}).PodsOf("uid-b"); a+b != all || b < all/2-3 || b > all/2+3 {
			t.Errorf("a has %d, b has %d", a, b)
		}
	})
}

// What is foreseen of a rebalance is what comes about.
func TestARebalanceIsForeseen(t *testing.T) {
	m := newMemory()
	m.cluster("a", left(9))
	m.cluster("b", left(3))
	run(t, m, func(t *testing.T, r *Reconciler) {
		p := byRoom
		p.MaxClusters = 2
		m.place("web", p, asking("web", 8))
		m.settle("web")
		crowd(m, "a", 9)
		m.cluster("c", left(50))
		time.Sleep(time.Minute)
		b, _ := (memBundles{m}).Get("web")
		asked(time.Now())(&b)
		before := m.show("web")
		got, err := r.Foresee(t.Context(), nil, []Supposed{{Bundle: b, Revision: "web-1-r1", Content: m.contents["web-1-r1"]}})
		if err != nil {
			t.Fatal(err)
		}
		if m.show("web") != before {
			t.Fatalf("foreseeing wrote: %s", m.show("web"))
		}
		m.bundle("web", func(x *state.Bundle) { x.Meta = b.Meta })
		m.settle("web")
		did := map[string]atoll.RowSpec{}
		for _, row := range (memRows{m}).OfBundle("web") {
			did[row.Cluster] = row.Spec
		}
		if shown(did) != shown(got[0].After) || shown(did) == shown(got[0].Before) {
			t.Errorf("before %s, foreseen %s, came about %s", shown(got[0].Before), shown(got[0].After), shown(did))
		}
	})
}

// A rebalance is part of the terms: filters are shared by Bundles that are asked at once,
// and by no others.
func TestRebalanceIsATerm(t *testing.T) {
	r := &Reconciler{Config: newMemory().config(), index: newIndex()}
	b := state.Bundle{}
	asked(time.UnixMilli(5000))(&b)
	terms, err := r.terms(t.Context(), b)
	if err != nil || !terms.Rebalance.Equal(time.UnixMilli(5000)) || sameTerms(terms, schedule.Terms{}) || !sameTerms(terms, terms) {
		t.Errorf("terms %+v, %v", terms, err)
	}
}
