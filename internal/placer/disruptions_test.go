package placer

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

// evicting is a taint that takes out copies, also those that nothing replaces.
var evicting = v1alpha1.Taint{Key: "maintenance", Effect: corev1.TaintEffectNoExecute}

// setBudget states how many copies must stay, or how many may be unavailable.
func (m *fakeHub) setBudget(uid, least, most string) {
	m.changeBundle(uid, func(b *state.Bundle) {
		bound := intstr.Parse(least + most)
		b.Spec.DisruptionBudget = &v1alpha1.DisruptionBudget{MinAvailable: &bound}
		if least == "" {
			b.Spec.DisruptionBudget = &v1alpha1.DisruptionBudget{MaxUnavailable: &bound}
		}
	})
	synctest.Wait()
}

// newBudgetedBundle places a Bundle on a, b and c that must keep two copies, an hour ago.
func newBudgetedBundle(m *fakeHub) {
	newPlacedBundle(m, "web", oneItem(), "a", "b", "c")
	m.setBudget("web", "2", "")
	time.Sleep(time.Hour)
}

// An eviction waits while a copy is broken, over a restart and without a write or a step, and goes on with the report that the copy is healthy.
func TestABudgetKeepsACopy(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b", "c")
	runWithRestarts(t, m, func(t *testing.T) {
		newBudgetedBundle(m)
		m.reportState("web", "c", atoll.RowDegraded)
		m.setTaints("a", evicting)
		expectOrdered(t, m, "web", "a Leaving r1, b Active r1, c Active r1")
		m.reportState("web", "a", atoll.RowReady)
		expectReason(t, m, "web", "a", atoll.ReasonDisruptionBudget)
	}, func(t *testing.T) {
		awaitWakes()
		writes, reads := m.countsAfterWait()
		time.Sleep(24 * time.Hour)
		if w, n := m.countsAfterWait(); w != writes || n != reads {
			t.Errorf("%d writes and %d reads of rows while a copy waits", w-writes, n-reads)
		}
		expectRows(t, m, "web", "a Leaving r1, b Active r1, c Active r1")
		m.reportState("web", "c", atoll.RowReady)
		expectOrdered(t, m, "web", "a Removing r1, b Active r1, c Active r1")
		expectReason(t, m, "web", "a", atoll.ReasonEvicted)
	})
}

// A copy in a disconnected cluster is not available. Its connection, and an edit of the budget, let the eviction go on.
func TestABudgetWithADisconnectedCluster(t *testing.T) {
	for name, act := range map[string]func(m *fakeHub){
		"the connection": func(m *fakeHub) { m.setOnline("c", true) },
		"an edit":        func(m *fakeHub) { m.setBudget("web", "", "1") },
		"no budget": func(m *fakeHub) {
			m.changeBundle("web", func(b *state.Bundle) { b.Spec.DisruptionBudget = nil })
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newFakeHub()
			addClusters(m, "a", "b", "c")
			runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
				newBudgetedBundle(m)
				m.setOnline("c", false)
				time.Sleep(time.Hour)
				m.setTaints("a", evicting)
				expectOrdered(t, m, "web", "a Leaving r1, b Active r1, c Active r1")
				expectReason(t, m, "web", "a", atoll.ReasonDisruptionBudget)
				m.reportState("web", "a", atoll.RowReady)
				act(m)
				expectOrdered(t, m, "web", "a Removing r1, b Active r1, c Active r1")
			})
		})
	}
}

// Without a stated rollout, a change takes as many copies as the budget lets go.
func TestABudgetBoundsAChange(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b", "c")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		newBudgetedBundle(m)
		m.cutRevision("web", oneItem())
		expectOrdered(t, m, "web", "a Active r2, b Active r1, c Active r1")
		m.reportState("web", "a", atoll.RowDegraded)
		expectOrdered(t, m, "web", "a Active r2, b Active r1, c Active r1")
		m.reportState("web", "a", atoll.RowReady)
		expectOrdered(t, m, "web", "a Active r2, b Active r2, c Active r1")
		m.settleRows("web")
		expectOrdered(t, m, "web", "a Active r2, b Active r2, c Active r2")
	})
}

// A Bundle with a budget gets its first copies at once, and its deletion takes them at once.
func TestABudgetHoldsNeitherFirstCopiesNorDeletions(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		m.setBudget("web", "2", "")
		newPlacedBundle(m, "web", oneItem(), "a", "b")
		expectRows(t, m, "web", "a Active r1, b Active r1")
		m.cutRevision("web", noItems())
		expectOrdered(t, m, "web", "a Active r2, b Active r2")
		m.cutRevision("web", oneItem())
		m.settleRows("web")
		m.markDeleted("web")
		if rows := m.rowsOf("web"); !strings.HasPrefix(rows, "a Removing") || strings.Contains(rows, "Active") {
			t.Errorf("the rows of a deleted Bundle are %s", rows)
		}
	})
}

// A template that is deleted from an application that keeps others is its owner's act, which no budget keeps.
func TestABudgetHoldsNoDeletedTemplate(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b")
	two, gone := oneItem(), atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "other"}
	two.Items = append(two.Items, atoll.Item{Key: gone, APIVersion: "v1", UID: "v"})
	deleted := oneItem()
	deleted.Tombstones = []atoll.Tombstone{{Key: gone, UID: "v", Cause: atoll.CauseDeleted}}
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		newPlacedBundle(m, "web", two, "a", "b")
		m.setBudget("web", "2", "")
		m.cutRevision("web", deleted)
		expectOrdered(t, m, "web", "a Active r2, b Active r2")
		m.settleRows("web")
		m.cutRevision("web", two)
		expectOrdered(t, m, "web", "a Active r2, b Active r2")
	})
}

// onlyDeletes is true where nothing but deleted objects distinguishes two contents.
func TestContentsThatOnlyDelete(t *testing.T) {
	other := atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "other"}
	of := func(edit func(c *atoll.Content)) *atoll.Content {
		c := oneItem()
		c.Items = append(c.Items, atoll.Item{Key: other, APIVersion: "v1", UID: "v"})
		c.Rules = []atoll.Rule{{Policy: "a", Items: []atoll.ItemKey{c.Items[0].Key, other}}, {Policy: "b", Items: []atoll.ItemKey{other}}}
		edit(c)
		return c
	}
	drop := func(c *atoll.Content) {
		c.Items, c.Rules = c.Items[:1], []atoll.Rule{{Policy: "a", Items: []atoll.ItemKey{c.Items[0].Key}}}
		c.Tombstones = []atoll.Tombstone{{Key: other, UID: "v", Cause: atoll.CauseDeleted}}
	}
	for name, c := range map[string]struct {
		edit func(c *atoll.Content)
		want bool
	}{
		"a deletion":                    {drop, true},
		"another fingerprint":           {func(c *atoll.Content) { drop(c); c.Items[0].SourceFingerprint = "x" }, true},
		"another content":               {func(c *atoll.Content) { drop(c); c.Items[0].Hash = "x" }, false},
		"a recreated object":            {func(c *atoll.Content) { drop(c); c.Items[0].UID = "w" }, false},
		"another treatment":             {func(c *atoll.Content) { drop(c); c.Items[0].Treatment = &atoll.Treatment{Wave: 1} }, false},
		"a new object":                  {func(c *atoll.Content) { drop(c); c.Items = append(c.Items, atoll.Item{UID: "w"}) }, false},
		"another rule":                  {func(c *atoll.Content) { drop(c); c.Rules[0].Index = 1 }, false},
		"no rule":                       {func(c *atoll.Content) { drop(c); c.Rules = nil }, false},
		"an object that is handed over": {func(c *atoll.Content) { drop(c); c.Tombstones[0].Cause = atoll.CauseMoved }, false},
		"another removal":               {func(c *atoll.Content) { drop(c); c.Removal = v1alpha1.RemoveOrphan }, false},
		"another namespace":             {func(c *atoll.Content) { drop(c); c.Namespace = &atoll.NamespaceMeta{} }, false},
	} {
		if got := onlyDeletes(of(func(*atoll.Content) {}), of(c.edit)); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// A plan of a drain names the copies that the budget would keep while the others stay as healthy as they are, and shows the end all the same.
func TestABudgetIsPreviewed(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b", "c")
	runReconciler(t, m, func(t *testing.T, r *PlacementReconciler) {
		newBudgetedBundle(m)
		a, _ := fakeClusters{m}.Get("a")
		a = a.DeepCopy()
		a.Spec.Taints = []v1alpha1.Taint{evicting}
		tables := &SupposedTables{Clusters: overlaidClusters{Clusters: fakeClusters{m}, Changed: map[string]*v1alpha1.Cluster{"a": a}}}
		for state, want := range map[atoll.RowState]atoll.Reason{atoll.RowReady: "", atoll.RowDegraded: atoll.ReasonDisruptionBudget} {
			m.reportState("web", "c", state)
			synctest.Wait()
			b, _ := r.Bundles.Get("web")
			got, err := r.PreviewBundles(t.Context(), tables, []SupposedBundle{{Bundle: b, Revision: "web-1-r1", Content: oneItem()}})
			if err != nil {
				t.Fatal(err)
			}
			if w := got[0].DisruptionWaits["a"]; w.Reason != want || want != "" && !strings.Contains(w.For, "c to become available: 2 of 3 copies are") {
				t.Errorf("with c %s: %+v", state, w)
			}
			if after := rowsText(got[0].After); after != "b Active, c Active" {
				t.Errorf("with c %s: %s", state, after)
			}
		}
		expectRows(t, m, "web", "a Active r1, b Active r1, c Active r1")
	})
}

// A step over the touched rows alone takes no copy: the budget counts all rows.
func TestAClusterThatJoinsCountsForTheBudget(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		m.changeBundle("web", nil)
		m.cutRevision("web", oneItem())
		synctest.Wait()
		m.settleRows("web")
		m.setBudget("web", "", "1")
		time.Sleep(time.Hour)
		addClusters(m, "c")
		expectOrdered(t, m, "web", "a Active r1, b Active r1, c Active r1")
		m.cutRevision("web", oneItem())
		expectOrdered(t, m, "web", "a Active r1, b Active r1, c Active r2")
		m.settleRows("web")
		expectOrdered(t, m, "web", "a Active r2, b Active r1, c Active r2")
		m.settleRows("web")
		expectOrdered(t, m, "web", "a Active r2, b Active r2, c Active r2")
	})
}
