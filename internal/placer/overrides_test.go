package placer

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

var configMapContent = atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "config"}

// contentWithRule is a content of one item with one rule for clusters that have the label.
func contentWithRule(o v1alpha1.Overriders) *atoll.Content {
	return &atoll.Content{
		Items: []atoll.Item{{Key: configMapContent, UID: "u1", Object: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"config","namespace":"shop"}}`)}},
		Rules: []atoll.Rule{{
			Policy: "OverridePolicy/shop/p", Items: []atoll.ItemKey{configMapContent}, Overriders: o, Semantics: atoll.CurrentRuleSemantics,
			Target: &v1alpha1.ClusterTarget{ClusterAffinity: v1alpha1.ClusterAffinity{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"special": "yes"}}}},
		}},
	}
}

func labelSpecial(c *v1alpha1.Cluster) { c.Labels = map[string]string{"special": "yes"} }

// Rows stay at a revision that differs from the latest only in overrides that wait. A new
// cluster starts with the latest, a cluster whose own label changes moves to it, and the next
// change takes all rows along.
func TestOverridesThatWait(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		n := int32(1)
		newPlacedBundle(m, "web", contentWithRule(v1alpha1.Overriders{Replicas: &n}), "a", "b", "c")
		expectRows(t, m, "web", "a Active r1, b Active r1")
		waits := contentWithRule(v1alpha1.Overriders{})
		waits.MinRevision = 1
		m.cutRevision("web", waits)
		m.settleRows("web")
		before, _ := m.countsAfterWait()
		expectRows(t, m, "web", "a Active r1, b Active r1")
		m.changeCluster("c", nil)
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r1, b Active r1, c Active r2")
		if after, _ := m.countsAfterWait(); after != before+1 {
			t.Errorf("%d writes for one row that comes", after-before)
		}
		m.changeCluster("b", func(c *v1alpha1.Cluster) { c.Labels = map[string]string{"other": "label"} })
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r1, b Active r1, c Active r2")
		m.changeCluster("b", labelSpecial)
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r1, b Active r2, c Active r2")
		next := contentWithRule(v1alpha1.Overriders{})
		next.Items[0].UID = "u2"
		m.cutRevision("web", next)
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r3, b Active r3, c Active r3")
	})
}

// An exclusion by override rules in a cluster with the object is a removal, and held over the
// budget: for a new rule, and for a cluster that it starts to target.
func TestWhatIsKeptOutIsHeldOverTheBudget(t *testing.T) {
	yes := true
	m := newFakeHub()
	m.changeCluster("a", labelSpecial)
	m.changeCluster("b", labelSpecial)
	addClusters(m, "c")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		newPlacedBundle(m, "web", contentWithRule(v1alpha1.Overriders{}), "a", "b", "c")
		one := intstr.FromInt32(1)
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Removal.Budget = &one })
		out := contentWithRule(v1alpha1.Overriders{NotHere: &yes})
		m.cutRevision("web", out)
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r2, b Active r2, c Active r2")
		row := func(cluster string) atoll.RowSpec {
			got, _ := fakeRows{m}.Get("web", cluster)
			return got.Spec
		}
		plan := m.heldPlan(t, "web")
		if plan == "" || !strings.Contains(row("a").Reason, configMapContent.String()) || row("a").ExcludedPending[configMapContent.String()] == 0 {
			t.Fatalf("plan %q, row %+v", plan, row("a"))
		}
		// Nothing else of the row waits.
		next := contentWithRule(v1alpha1.Overriders{NotHere: &yes, Replicas: new(int32)})
		m.cutRevision("web", next)
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r3, b Active r3, c Active r3")
		if again := m.heldPlan(t, "web"); again != plan || len(row("a").ExcludedPending) != 1 {
			t.Fatalf("plan %q, row %+v", again, row("a"))
		}
		m.confirmPlan("web", plan)
		m.settleRows("web")
		if a := row("a"); len(a.ExcludedPending) != 0 || !slices.Equal(a.Absent, []string{configMapContent.String()}) || m.heldPlan(t, "web") != "" {
			t.Fatalf("confirmed, and the row is %+v", a)
		}

		// A label makes the rule target c as well; nothing may go without being asked, and
		// the row is of what its cluster is now, so that it can be rendered.
		none := intstr.FromInt32(0)
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Removal.Budget = &none })
		before := row("c")
		m.changeCluster("c", labelSpecial)
		m.settleRows("web")
		held := row("c")
		if plan = m.heldPlan(t, "web"); plan == "" || held.Variant == before.Variant || len(held.ExcludedPending) != 1 {
			t.Fatalf("plan %q, row %+v, was %+v", plan, held, before)
		}
		m.confirmPlan("web", plan)
		m.settleRows("web")
		if gone := row("c"); len(gone.ExcludedPending) != 0 || gone.Generation == held.Generation || m.heldPlan(t, "web") != "" {
			t.Errorf("confirmed, and the row is %+v", gone)
		}
	})
}
