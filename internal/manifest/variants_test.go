package manifest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// randomTarget that says something about names, labels, fields, sets and all of that, or
// nothing.
func randomTarget(rnd *rand.Rand) *v1alpha1.ClusterTarget {
	if rnd.IntN(5) == 0 {
		return nil
	}
	var names []string
	for i := range 8 {
		if rnd.IntN(2) == 0 {
			names = append(names, fmt.Sprint("c", i))
		}
	}
	a := &v1alpha1.ClusterTarget{}
	if rnd.IntN(3) == 0 {
		a.ClusterNames = names
	}
	if rnd.IntN(3) == 0 {
		a.ExcludeClusters = names[:len(names)/2]
	}
	switch rnd.IntN(4) {
	case 0:
		a.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"env": fmt.Sprint(rnd.IntN(3))}}
	case 1:
		a.LabelSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "env", Operator: "Wrong"}}}
	}
	if rnd.IntN(3) == 0 {
		a.FieldSelector = &v1alpha1.FieldSelector{MatchExpressions: []v1alpha1.FieldRequirement{{Key: "region", Operator: corev1.NodeSelectorOpIn, Values: []string{fmt.Sprint(rnd.IntN(2))}}}}
	}
	if rnd.IntN(3) == 0 {
		a.ClusterSets = []string{"asia", "paid"}[rnd.IntN(2):]
	}
	a.CELSelector = []string{"", "", "'paid' in cluster.sets && cluster.labels['env'] != '1'", "cluster.labels['none'] == ''"}[rnd.IntN(4)]
	return a
}

// TestVariantCacheAgreesWithMatchRules for any rules and clusters.
func TestVariantCacheAgreesWithMatchRules(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		content := &atoll.Content{}
		for range rnd.IntN(5) {
			content.Rules = append(content.Rules, atoll.Rule{Target: randomTarget(rnd)})
		}
		targets := NewVariantCache(content)
		for range 20 {
			c := atoll.ClusterView{Name: fmt.Sprint("c", rnd.IntN(10)), Region: fmt.Sprint(rnd.IntN(3)), Labels: map[string]string{"env": fmt.Sprint(rnd.IntN(4))}, Sets: []string{"asia", "paid"}[rnd.IntN(3):], Properties: map[string]string{"env": "1"}}
			if _, want := MatchRules(content, c); targets.VariantOf(c) != want {
				t.Fatalf("%+v: variant %q, want %q of rules %+v", c, targets.VariantOf(c), want, content.Rules)
			}
		}
	}
}

// BenchmarkVariants of 10,000 clusters under 5 rules.
func BenchmarkVariants(b *testing.B) {
	content, clusters := &atoll.Content{}, make([]atoll.ClusterView, 10_000)
	for i := range 5 {
		content.Rules = append(content.Rules, atoll.Rule{Target: &v1alpha1.ClusterTarget{ClusterAffinity: v1alpha1.ClusterAffinity{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"env": fmt.Sprint(i)}}}}})
	}
	for i := range clusters {
		clusters[i] = atoll.ClusterView{Name: fmt.Sprint("c", i), Labels: map[string]string{"env": fmt.Sprint(i % 7)}}
	}
	b.ReportAllocs()
	for b.Loop() {
		targets := NewVariantCache(content)
		for _, c := range clusters {
			targets.VariantOf(c)
		}
	}
}

// Clusters under the same rules are of one variant only while the values that the rules take are
// equal. Each cluster gets its own values from a shared cache.
func TestVariantsTellValuesApart(t *testing.T) {
	key := atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "conf"}
	content := &atoll.Content{
		Items: []atoll.Item{{Key: key, APIVersion: "v1", Object: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"conf","namespace":"shop"}}`)}},
		Rules: []atoll.Rule{{Policy: "ClusterOverridePolicy/p", Items: []atoll.ItemKey{key}, Semantics: atoll.CurrentRuleSemantics, Overriders: v1alpha1.Overriders{
			LabelsOverrider: []v1alpha1.LabelAnnotationOverrider{{Operator: v1alpha1.OverrideAdd, ValueFrom: map[string]v1alpha1.ValueSource{"dns": {CEL: "cluster.labels['dns']"}}}},
		}}},
	}
	at := func(name string, labels map[string]string) atoll.ClusterView {
		return atoll.ClusterView{Name: name, Labels: labels}
	}
	first := at("a", map[string]string{"dns": "one"})
	variants, renderer := NewVariantCache(content), NewRenderer(content)
	for _, c := range []struct {
		view   atoll.ClusterView
		shares bool   // the variant of the first
		want   string // in the object; empty: it is not rendered
	}{
		{first, true, `"dns":"one"`},
		{at("b", map[string]string{"dns": "one"}), true, `"dns":"one"`},
		{at("a", map[string]string{"dns": "two"}), false, `"dns":"two"`},
		{at("c", nil), false, ""},
		{at("a", map[string]string{"dns": "one", "other": "x"}), true, `"dns":"one"`},
	} {
		_, of := MatchRules(content, first)
		items, _, variant := renderer.RenderRow(atoll.RowSpec{}, c.view)
		if (variant == of) != c.shares || variants.VariantOf(c.view) != variant {
			t.Errorf("%+v: variant %q and from the cache %q, that of the first is %q", c.view, variant, variants.VariantOf(c.view), of)
		}
		if (c.want == "") != (items[0].Error != "") || !strings.Contains(string(items[0].Object), c.want) {
			t.Errorf("%+v gets %s%s, want %s", c.view, items[0].Object, items[0].Error, c.want)
		}
	}
}
