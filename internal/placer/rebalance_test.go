package placer

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

// rebalanceAskedAt sets the annotation of a rebalance on the Bundle.
func rebalanceAskedAt(at time.Time) func(*state.Bundle) {
	return func(b *state.Bundle) {
		b.Meta.Annotations = maps.Clone(b.Meta.Annotations)
		if b.Meta.Annotations == nil {
			b.Meta.Annotations = map[string]string{}
		}
		b.Meta.Annotations[atoll.AnnotationRebalance] = atoll.FormatRebalanceTime(at)
	}
}

// fillCluster a cluster with Bundles that are there by name.
func fillCluster(m *fakeHub, cluster string, n int) {
	for i := range n {
		uid := fmt.Sprint(cluster, "crowd", i)
		m.placeBundle(uid, placementNamed(cluster), &atoll.Content{})
		m.settleRows(uid)
	}
}

// forgetCounts drops the subscribers, as when a hub's process ends.
func (m *fakeHub) forgetCounts() {
	m.onBundle, m.onRows, m.onCluster, m.onRevision, m.onNamespace, m.onHub = nil, nil, nil, nil, nil, nil
}

// generationsText of a Bundle's rows.
func generationsText(m *fakeHub, uid string) string {
	var out []string
	for _, r := range (fakeRows{m}).ListOfBundle(uid) {
		out = append(out, fmt.Sprint(r.Cluster, " ", r.Spec.Generation))
	}
	return strings.Join(out, ", ")
}

// A rebalance moves what would be placed elsewhere today, make before break, once: neither
// the same annotation again, nor a hub that starts, does it again, and what stays has
// nothing to do.
func TestRebalance(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b")
	first := time.Time{}
	runReconciler(t, m, func(t *testing.T, r *PlacementReconciler) {
		m.placeBundle("web", atMostClusters(2), &atoll.Content{})
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r1, b Active r1")
		fillCluster(m, "a", 5)
		addClusters(m, "c")
		expectRows(t, m, "web", "a Active r1, b Active r1")
		stays := generationsText(m, "web")
		before, _ := m.countsAfterWait()
		first = time.Now()
		m.changeBundle("web", rebalanceAskedAt(first))
		expectRows(t, m, "web", "a Leaving r1, b Active r1, c Active r1")
		row, _ := (fakeRows{m}).Get("web", "a")
		if why := atoll.ParseRowReason(row.Spec.Reason); why.Reason != atoll.ReasonRebalanced {
			t.Errorf("a says %q", row.Spec.Reason)
		}
		if b, _ := (fakeRows{m}).Get("web", "b"); !strings.Contains(stays, fmt.Sprint("b ", b.Spec.Generation)) || !b.Spec.LastRebalance().Equal(first.Truncate(time.Millisecond)) {
			t.Errorf("b stays, and is %+v; it was %s", b.Spec, stays)
		}
		m.settleRows("web")
		expectRows(t, m, "web", "b Active r1, c Active r1")
		// One when c comes and a is ordered to leave, one when a goes.
		if now, _ := m.countsAfterWait(); now != before+2 {
			t.Errorf("a move of one row wrote %d times, want 2", now-before)
		}
		// The decision is made, whatever the scores are now.
		fillCluster(m, "c", 9)
		writes, _ := m.countsAfterWait()
		m.changeBundle("web", rebalanceAskedAt(first))
		m.changeBundle("web", nil)
		m.settleRows("web")
		expectRows(t, m, "web", "b Active r1, c Active r1")
		if now, _ := m.countsAfterWait(); now != writes {
			t.Errorf("the same rebalance wrote %d times again", now-writes)
		}
	})
	m.forgetCounts()
	runReconciler(t, m, func(t *testing.T, r *PlacementReconciler) {
		m.settleRows("web")
		writes, _ := m.countsAfterWait()
		expectRows(t, m, "web", "b Active r1, c Active r1")
		m.changeBundle("web", rebalanceAskedAt(first.Add(time.Second)))
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r1, b Active r1")
		if now, _ := m.countsAfterWait(); now == writes {
			t.Error("a later rebalance wrote nothing")
		}
	})
}

// A hub that starts while a rebalance is under way goes on with it.
func TestRebalanceGoesOnAfterAStart(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		m.placeBundle("web", atMostClusters(1), &atoll.Content{})
		m.settleRows("web")
		fillCluster(m, "a", 5)
		addClusters(m, "b")
		synctest.Wait()
		m.changeBundle("web", rebalanceAskedAt(time.Now()))
		expectRows(t, m, "web", "a Leaving r1, b Active r1")
	})
	m.forgetCounts()
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		fillCluster(m, "b", 20)
		expectRows(t, m, "web", "a Leaving r1, b Active r1")
		m.settleRows("web")
		expectRows(t, m, "web", "b Active r1")
	})
}

// A rebalance of clusters that drifted is under the removal budget, like any edit.
func TestRebalanceIsUnderTheBudget(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b")
	tight := intstr.FromInt32(0)
	runReconciler(t, m, func(t *testing.T, r *PlacementReconciler) {
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Removal.Budget = &tight })
		m.cutRevision("web", &atoll.Content{})
		m.settleRows("web")
		m.changeCluster("a", func(c *v1alpha1.Cluster) {
			c.Spec.Taints = []v1alpha1.Taint{{Key: "old", Effect: corev1.TaintEffectNoSchedule}}
		})
		expectRows(t, m, "web", "a Active r1, b Active r1")
		m.changeBundle("web", rebalanceAskedAt(time.Now()))
		expectRows(t, m, "web", "a Held r1, b Active r1")
		b, _ := (fakeBundles{m}).Get("web")
		p, err := r.PreviewBundle(t.Context(), b)
		if err != nil || p.Output.PendingRemoval == nil {
			t.Fatalf("no plan waits: %v", err)
		}
		m.changeBundle("web", func(b *state.Bundle) { b.Meta.Annotations[atoll.AnnotationConfirm] = p.Output.PendingRemoval.Hash })
		m.settleRows("web")
		expectRows(t, m, "web", "b Active r1")
	})
}

// Replicas that follow free capacity are divided again. Growing rows come first; shrinking rows
// keep their replicas until then, and the result stays.
func TestRebalanceDividesAnew(t *testing.T) {
	m := newFakeHub()
	m.changeCluster("a", withFreeCPUs(9))
	m.changeCluster("b", withFreeCPUs(3))
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		m.placeBundle("web", byFreeCapacity, contentAsking("web", 4))
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r1 3, b Active r1 1")
		m.changeCluster("a", withFreeCPUs(0))
		m.changeCluster("b", withFreeCPUs(90))
		time.Sleep(2 * time.Minute)
		expectRows(t, m, "web", "a Active r1 3, b Active r1 1")
		m.changeBundle("web", rebalanceAskedAt(time.Now()))
		// From scratch a has room for its own 3, b for 91.
		expectRows(t, m, "web", "a Active r1 3, b Active r1 4")
		if row, _ := (fakeRows{m}).Get("web", "a"); fmt.Sprint(slices.Collect(maps.Values(row.Spec.ShrinkTo))) != "[0]" {
			t.Errorf("a is due %v", row.Spec.ShrinkTo)
		}
		m.changeCluster("a", withFreeCPUs(90))
		m.changeCluster("b", withFreeCPUs(0))
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r1 0, b Active r1 4")
		if row, _ := (fakeRows{m}).Get("web", "a"); row.Spec.ShrinkTo != nil {
			t.Errorf("a is still due %v", row.Spec.ShrinkTo)
		}
		time.Sleep(2 * time.Minute)
		m.changeBundle("web", nil)
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r1 0, b Active r1 4")
	})
}

// Many Bundles that are rebalanced together even out, and do not all run to the cluster
// that was empty; the preview foresees as much.
func TestRebalanceOfManyEvensOut(t *testing.T) {
	const all = 20
	m := newFakeHub()
	addClusters(m, "a")
	runReconciler(t, m, func(t *testing.T, r *PlacementReconciler) {
		var list []SupposedBundle
		at := time.Now()
		for i := range all {
			uid := fmt.Sprint("app", i)
			m.placeBundle(uid, atMostClusters(1), &atoll.Content{})
			m.settleRows(uid)
			b, _ := (fakeBundles{m}).Get(uid)
			rebalanceAskedAt(at)(&b)
			list = append(list, SupposedBundle{Bundle: b, Revision: uid + "-1-r1", Content: &atoll.Content{}})
		}
		addClusters(m, "b")
		synctest.Wait()
		foreseen, err := r.PreviewBundles(t.Context(), nil, list)
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
			m.changeBundle(s.Bundle.Ref.UID, rebalanceAskedAt(at))
		}
		synctest.Wait()
		for _, s := range list {
			m.settleRows(s.Bundle.Ref.UID)
		}
		// Steps that are taken at the same time may see the same.
		if a, b := (fakeRows{m}).RequestedPodsOf("uid-a"), (fakeRows{m}).RequestedPodsOf("uid-b"); a+b != all || b < all/2-3 || b > all/2+3 {
			t.Errorf("a has %d, b has %d", a, b)
		}
	})
}

// The preview of a rebalance comes true.
func TestARebalanceIsForeseen(t *testing.T) {
	m := newFakeHub()
	m.changeCluster("a", withFreeCPUs(9))
	m.changeCluster("b", withFreeCPUs(3))
	runReconciler(t, m, func(t *testing.T, r *PlacementReconciler) {
		p := byFreeCapacity
		p.MaxClusters = 2
		m.placeBundle("web", p, contentAsking("web", 8))
		m.settleRows("web")
		fillCluster(m, "a", 9)
		m.changeCluster("c", withFreeCPUs(50))
		time.Sleep(time.Minute)
		b, _ := (fakeBundles{m}).Get("web")
		rebalanceAskedAt(time.Now())(&b)
		before := m.rowsOf("web")
		got, err := r.PreviewBundles(t.Context(), nil, []SupposedBundle{{Bundle: b, Revision: "web-1-r1", Content: m.contents["web-1-r1"]}})
		if err != nil {
			t.Fatal(err)
		}
		if m.rowsOf("web") != before {
			t.Fatalf("foreseeing wrote: %s", m.rowsOf("web"))
		}
		m.changeBundle("web", func(x *state.Bundle) { x.Meta = b.Meta })
		m.settleRows("web")
		did := map[string]atoll.RowSpec{}
		for _, row := range (fakeRows{m}).ListOfBundle("web") {
			did[row.Cluster] = row.Spec
		}
		if rowsText(did) != rowsText(got[0].After) || rowsText(did) == rowsText(got[0].Before) {
			t.Errorf("before %s, foreseen %s, came about %s", rowsText(got[0].Before), rowsText(got[0].After), rowsText(did))
		}
	})
}

// A rebalance is part of the terms: filters are shared by Bundles that are asked at once,
// and by no others.
func TestRebalanceIsATerm(t *testing.T) {
	r := &PlacementReconciler{Config: newFakeHub().reconcilerConfig(), index: newBundleIndex()}
	b := state.Bundle{}
	rebalanceAskedAt(time.UnixMilli(5000))(&b)
	terms, err := r.termsOf(t.Context(), b)
	if err != nil || !terms.Rebalance.Equal(time.UnixMilli(5000)) || equalTerms(terms, schedule.PlacementTerms{}) || !equalTerms(terms, terms) {
		t.Errorf("terms %+v, %v", terms, err)
	}
}
