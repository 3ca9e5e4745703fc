package placer

import (
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

func (m *fakeHub) setTaints(cluster string, taints ...v1alpha1.Taint) {
	m.changeCluster(cluster, func(c *v1alpha1.Cluster) { c.Spec.Taints = taints })
}

var drained = v1alpha1.Taint{Key: v1alpha1.TaintDrain, Effect: corev1.TaintEffectNoExecute}

// placeOne places a Bundle on one cluster of a, before b is there.
func (m *fakeHub) placeOne(t *testing.T, content *atoll.Content, order v1alpha1.MoveOrder) {
	t.Helper()
	m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement.MaxClusters, b.Spec.MoveOrder = 1, order })
	m.cutRevision("web", content)
	m.settleRows("web")
	expectRows(t, m, "web", "a Active r1")
}

// A drained cluster loses a Bundle to a replacement, in the order of its move. A copy that nothing replaces stays
// until something can.
func TestADrainedClusterIsReplaced(t *testing.T) {
	for name, tc := range map[string]struct {
		content *atoll.Content
		order   v1alpha1.MoveOrder
		want    string
	}{
		"replacement first": {&atoll.Content{}, "", "a Leaving r1, b Active r1"},
		"with a volume":     {statefulSetContent(), "", "a Removing r1, b Pending r1"},
		"the old one first": {&atoll.Content{}, v1alpha1.MoveRecreate, "a Removing r1, b Pending r1"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newFakeHub()
			addClusters(m, "a")
			runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
				m.placeOne(t, tc.content, tc.order)
				m.setTaints("a", drained)
				expectRows(t, m, "web", "a Active r1")
				expectRowReason(t, m, "a", atoll.ReasonNoReplacement)
				addClusters(m, "b")
				expectRows(t, m, "web", tc.want)
			})
		})
	}
}

func expectRowReason(t *testing.T, m *fakeHub, cluster string, want atoll.Reason) {
	t.Helper()
	synctest.Wait()
	row, _ := fakeRows{m}.Get("web", cluster)
	if got := atoll.ParseRowReason(row.Spec.Reason); got.Reason != want {
		t.Errorf("the row of %s has the reason %s: %s, want %s", cluster, got.Reason, got.Text, want)
	}
}

// A drain that ends in the middle keeps what has no healthy replacement yet, and the row of a copy that stayed loses its reason.
func TestADrainIsTakenBack(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		m.placeOne(t, &atoll.Content{}, "")
		m.setTaints("a", drained)
		expectRowReason(t, m, "a", atoll.ReasonNoReplacement)
		m.setTaints("a")
		expectRowReason(t, m, "a", "")
		addClusters(m, "b")
		m.setTaints("a", drained)
		expectRows(t, m, "web", "a Leaving r1, b Active r1")
		m.setTaints("a")
		synctest.Wait()
		m.settleRows("web")
		rows := m.rowsOf("web")
		if n := strings.Count(rows, "Active"); n != 1 {
			t.Errorf("after the end: %s", rows)
		}
	})
}

// An edit during a drain goes to both copies, and the drain goes on.
func TestAnEditDuringADrain(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement.MaxClusters = 1 })
		m.cutRevision("web", &atoll.Content{})
		m.settleRows("web")
		holder, other, _ := strings.Cut(map[bool]string{true: "a b", false: "b a"}[strings.HasPrefix(m.rowsOf("web"), "a")], " ")
		m.setTaints(holder, drained)
		synctest.Wait()
		m.cutRevision("web", &atoll.Content{})
		want := []string{holder + " Leaving r2", other + " Active r2"}
		if holder == "b" {
			want[0], want[1] = want[1], want[0]
		}
		expectRows(t, m, "web", strings.Join(want, ", "))
		m.settleRows("web") // the member reports the removal, too
		expectRows(t, m, "web", other+" Active r2")
	})
}

// Another hub that starts in the middle of a drain goes on with it.
func TestADrainOutlivesTheHub(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		m.placeOne(t, &atoll.Content{}, "")
		addClusters(m, "b")
		m.setTaints("a", drained)
		expectRows(t, m, "web", "a Leaving r1, b Active r1")
	})
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		expectRows(t, m, "web", "a Leaving r1, b Active r1")
		m.reportState("web", "b", atoll.RowReady)
		expectRows(t, m, "web", "a Removing r1, b Active r1")
	})
}

// drainedOfAll also removes copies that nothing replaces.
var drainedOfAll = v1alpha1.Taint{Key: v1alpha1.TaintDrain, Value: v1alpha1.DrainRemoveUnreplaced, Effect: corev1.TaintEffectNoExecute}

// A drained cluster that is disconnected keeps the copies that should not run twice, and its other old copies are ordered to go
// when it is back.
func TestADisconnectedClusterIsDrained(t *testing.T) {
	for name, tc := range map[string]struct {
		content         *atoll.Content
		taint           v1alpha1.Taint
		away, connected string
	}{
		"stateless":             {&atoll.Content{}, drained, "a Leaving r1, b Active r1", "a Removing r1, b Active r1"},
		"with a volume":         {statefulSetContent(), drained, "a Active r1", "a Removing r1, b Pending r1"},
		"stateless, of all":     {&atoll.Content{}, drainedOfAll, "a Leaving r1, b Active r1", "a Removing r1, b Active r1"},
		"with a volume, of all": {statefulSetContent(), drainedOfAll, "a Active r1", "a Removing r1, b Pending r1"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newFakeHub()
			addClusters(m, "a")
			runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
				m.placeOne(t, tc.content, "")
				addClusters(m, "b")
				m.setOnline("a", false)
				m.setTaints("a", tc.taint)
				synctest.Wait()
				if strings.Contains(m.rowsOf("web"), "b ") {
					m.reportState("web", "b", atoll.RowReady)
				}
				expectRows(t, m, "web", tc.away)
				m.setOnline("a", true)
				expectRows(t, m, "web", tc.connected)
			})
		})
	}
}

// A copy that no placement selects any more stays in a drained cluster, and its reason is that of the drain while there is one.
func TestADrainOfAnUnwantedCopy(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		m.placeOne(t, &atoll.Content{}, "")
		m.changeBundle("web", func(b *state.Bundle) {
			b.Spec.Placement = v1alpha1.PlacementSpec{ClusterAffinity: &v1alpha1.ClusterAffinity{ClusterNames: []string{"z"}}}
		})
		expectRowReason(t, m, "a", atoll.ReasonNoClusterFits)
		m.setTaints("a", drained)
		expectRowReason(t, m, "a", atoll.ReasonNoReplacement)
		m.setTaints("a")
		expectRowReason(t, m, "a", atoll.ReasonNoClusterFits)
	})
}

// Drains over the removal budget keep all copies until exactly their plan is confirmed.
func TestABigDrainWaitsForItsConfirmation(t *testing.T) {
	m := newFakeHub()
	names := strings.Split("a b c d e f g h i j k l m n", " ")
	addClusters(m, names[:12]...)
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement.MaxClusters = 12 })
		m.cutRevision("web", &atoll.Content{})
		m.settleRows("web")
		addClusters(m, names[12:]...)
		m.setTaints("a", drained)
		m.setTaints("b", drained)
		synctest.Wait()
		m.settleRows("web")
		synctest.Wait()
		var plan string
		held := 0
		for _, row := range (fakeRows{m}).ListOfBundle("web") {
			if row.Spec.Phase == atoll.RowHeld {
				held, plan = held+1, atoll.ParseRowReason(row.Spec.Reason).Plan
			}
		}
		if held == 0 || plan == "" {
			t.Fatalf("nothing is held: %s", m.rowsOf("web"))
		}
		before := m.rowsOf("web")
		m.changeBundle("web", func(b *state.Bundle) { b.Meta.Annotations = map[string]string{atoll.AnnotationConfirm: "another"} })
		expectRows(t, m, "web", before)
		m.changeBundle("web", func(b *state.Bundle) { b.Meta.Annotations = map[string]string{atoll.AnnotationConfirm: plan} })
		synctest.Wait()
		m.settleRows("web")
		synctest.Wait()
		if rows := m.rowsOf("web"); strings.Contains(rows, "a Active") || strings.Contains(rows, "Held") {
			t.Errorf("after the confirmation: %s", rows)
		}
	})
}
