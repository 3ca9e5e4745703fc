package place

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

var config = atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "config"}

// ruled is a content of one item with one rule for clusters that have the label.
func ruled(o v1alpha1.Overriders) *atoll.Content {
	return &atoll.Content{
		Items: []atoll.Item{{Key: config, UID: "u1", Object: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"config","namespace":"shop"}}`)}},
		Rules: []atoll.Rule{{
			Policy: "OverridePolicy/shop/p", Items: []atoll.ItemKey{config}, Overriders: o, Meaning: atoll.RuleMeaning,
			Target: &v1alpha1.ClusterTarget{ClusterAffinity: v1alpha1.ClusterAffinity{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"special": "yes"}}}},
		}},
	}
}

func special(c *v1alpha1.Cluster) { c.Labels = map[string]string{"special": "yes"} }

// Rows stay at a revision from which nothing but overrides that wait tells the latest;
// who comes starts with the latest, whose own label changes moves to it, and the next
// change takes all along.
func TestOverridesThatWait(t *testing.T) {
	m := newMemory()
	fleet(m, "a", "b")
	run(t, m, func(t *testing.T, _ *Reconciler) {
		n := int32(1)
		placed(m, "web", ruled(v1alpha1.Overriders{Replicas: &n}), "a", "b", "c")
		want(t, m, "web", "a Active r1, b Active r1")
		waits := ruled(v1alpha1.Overriders{})
		waits.Base = 1
		m.cut("web", waits)
		m.settle("web")
		before, _ := m.counts()
		want(t, m, "web", "a Active r1, b Active r1")
		m.cluster("c", nil)
		m.settle("web")
		want(t, m, "web", "a Active r1, b Active r1, c Active r2")
		if after, _ := m.counts(); after != before+1 {
			t.Errorf("%d writes for one row that comes", after-before)
		}
		m.cluster("b", func(c *v1alpha1.Cluster) { c.Labels = map[string]string{"other": "label"} })
		m.settle("web")
		want(t, m, "web", "a Active r1, b Active r1, c Active r2")
		m.cluster("b", special)
		m.settle("web")
		want(t, m, "web", "a Active r1, b Active r2, c Active r2")
		next := ruled(v1alpha1.Overriders{})
		next.Items[0].UID = "u2"
		m.cut("web", next)
		m.settle("web")
		want(t, m, "web", "a Active r3, b Active r3, c Active r3")
	})
}

// What override rules keep out of clusters that have it is a removal, and held over the
// budget: whether the rule is new, or the cluster comes to be one that it targets.
func TestWhatIsKeptOutIsHeldOverTheBudget(t *testing.T) {
	yes := true
	m := newMemory()
	m.cluster("a", special)
	m.cluster("b", special)
	fleet(m, "c")
	run(t, m, func(t *testing.T, _ *Reconciler) {
		placed(m, "web", ruled(v1alpha1.Overriders{}), "a", "b", "c")
		one := intstr.FromInt32(1)
		m.bundle("web", func(b *state.Bundle) { b.Spec.Removal.Budget = &one })
		out := ruled(v1alpha1.Overriders{NotHere: &yes})
		m.cut("web", out)
		m.settle("web")
		want(t, m, "web", "a Active r2, b Active r2, c Active r2")
		row := func(cluster string) atoll.RowSpec {
			got, _ := memRows{m}.Get("web", cluster)
			return got.Spec
		}
		plan := m.plan(t, "web")
		if plan == "" || !strings.Contains(row("a").Reason, config.String()) || row("a").NotYet[config.String()] == 0 {
			t.Fatalf("plan %q, row %+v", plan, row("a"))
		}
		// Nothing else of the row waits.
		next := ruled(v1alpha1.Overriders{NotHere: &yes, Replicas: new(int32)})
		m.cut("web", next)
		m.settle("web")
		want(t, m, "web", "a Active r3, b Active r3, c Active r3")
		if again := m.plan(t, "web"); again != plan || len(row("a").NotYet) != 1 {
			t.Fatalf("plan %q, row %+v", again, row("a"))
		}
		m.confirm("web", plan)
		m.settle("web")
		if a := row("a"); len(a.NotYet) != 0 || !slices.Equal(a.NotHere, []string{config.String()}) || m.plan(t, "web") != "" {
			t.Fatalf("confirmed, and the row is %+v", a)
		}

		// A label makes the rule target c as well; nothing may go without being asked, and
		// the row is of what its cluster is now, so that it can be rendered.
		none := intstr.FromInt32(0)
		m.bundle("web", func(b *state.Bundle) { b.Spec.Removal.Budget = &none })
		before := row("c")
		m.cluster("c", special)
		m.settle("web")
		held := row("c")
		if plan = m.plan(t, "web"); plan == "" || held.Variant == before.Variant || len(held.NotYet) != 1 {
			t.Fatalf("plan %q, row %+v, was %+v", plan, held, before)
		}
		m.confirm("web", plan)
		m.settle("web")
		if gone := row("c"); len(gone.NotYet) != 0 || gone.Generation == held.Generation || m.plan(t, "web") != "" {
			t.Errorf("confirmed, and the row is %+v", gone)
		}
	})
}
