package manifest_test

import (
	"fmt"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/manifest"
)

// One template for 10,000 clusters under five rules: what place does, a variant for each,
// and what the gateway does, a rendering for each variant. values: each cluster has its
// own, so that no result is shared; values first: nothing else is either.
func BenchmarkRender10k(b *testing.B) {
	clusters := make([]atoll.ClusterView, 10_000)
	for i := range clusters {
		clusters[i] = atoll.ClusterView{
			Name: fmt.Sprintf("c%d", i), Region: fmt.Sprintf("r%d", i%5),
			Labels: map[string]string{"env": []string{"prod", "test"}[i%2], "tier": fmt.Sprint(i % 3), "dns": fmt.Sprintf("10.0.%d.%d", i/256, i%256)},
		}
	}
	target := func(text string) *v1alpha1.ClusterTarget {
		var o struct{ TargetCluster *v1alpha1.ClusterTarget }
		decodeObject(b, text, &o)
		return o.TargetCluster
	}
	own := `{labelsOverrider: [{operator: add, value: {by: five}}]}`
	values := `{envOverrider: [{operator: add, value: [{name: DNS, valueFrom: {cel: "cluster.labels['dns']"}}]}]}`
	for name, last := range map[string]string{"shared": own, "values": values, "values first": values} {
		c := newContent(
			newRule("ClusterOverridePolicy/a", parseOverriders(b, `{imageOverrider: [{component: Registry, operator: replace, value: m.io}]}`), webKey),
			newRule("ClusterOverridePolicy/b", parseOverriders(b, `{envOverrider: [{operator: add, value: [{name: A, value: b}]}]}`), webKey),
			newRule("OverridePolicy/shop/c", parseOverriders(b, `{plaintext: [{path: /spec/paused, operator: add, value: true}]}`), webKey),
			newRule("OverridePolicy/shop/d", parseOverriders(b, `{strategicMerge: {spec: {template: {spec: {containers: [{name: a, imagePullPolicy: Always}]}}}}}`), webKey),
			newRule("OverridePolicy/shop/e", parseOverriders(b, last), webKey),
		)
		c.Items = c.Items[1:2]
		if name == "values first" {
			c.Rules[0].Overriders, c.Rules[4].Overriders = c.Rules[4].Overriders, c.Rules[0].Overriders
		}
		c.Rules[1].Target = target(`targetCluster: {labelSelector: {matchLabels: {env: prod}}}`)
		c.Rules[2].Target = target(`targetCluster: {labelSelector: {matchExpressions: [{key: tier, operator: In, values: ["1", "2"]}]}}`)
		c.Rules[3].Target = target(`targetCluster: {fieldSelector: {matchExpressions: [{key: region, operator: In, values: [r1, r2]}]}}`)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				targets, renderer, rendered := manifest.NewVariantCache(c), manifest.NewRenderer(c), map[string][]atoll.RenderedItem{}
				for i := range clusters {
					view := &clusters[i]
					variant := targets.VariantOf(*view)
					if _, known := rendered[variant]; known {
						continue
					}
					rules, again := renderer.MatchRules(view)
					if again != variant {
						b.Fatal("two names for one variant")
					}
					items, _ := renderer.RenderItems(manifest.RenderInput{Rules: rules, Cluster: view})
					if items[0].Error != "" {
						b.Fatal(items[0].Error)
					}
					rendered[variant] = items
				}
				b.ReportMetric(float64(len(rendered)), "variants")
			}
		})
	}
}
