package manifest

import (
	"fmt"
	"math/rand/v2"
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
