package render_test

import (
	"fmt"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/render"
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
		decode(b, text, &o)
		return o.TargetCluster
	}
	own := `{labelsOverrider: [{operator: add, value: {by: five}}]}`
	values := `{envOverrider: [{operator: add, value: [{name: DNS, valueFrom: {cel: "cluster.labels['dns']"}}]}]}`
	for name, last := range map[string]string{"shared": own, "values": values, "values first": values} {
		c := content(
			rule("ClusterOverridePolicy/a", overriders(b, `{imageOverrider: [{component: Registry, operator: replace, value: m.io}]}`), webKey),
			rule("ClusterOverridePolicy/b", overriders(b, `{envOverrider: [{operator: add, value: [{name: A, value: b}]}]}`), webKey),
			rule("OverridePolicy/shop/c", overriders(b, `{plaintext: [{path: /spec/paused, operator: add, value: true}]}`), webKey),
			rule("OverridePolicy/shop/d", overriders(b, `{strategicMerge: {spec: {template: {spec: {containers: [{name: a, imagePullPolicy: Always}]}}}}}`), webKey),
			rule("OverridePolicy/shop/e", overriders(b, last), webKey),
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
				targets, renderer, rendered := render.TargetsOf(c), render.Compile(c), map[string][]atoll.Rendered{}
				for i := range clusters {
					view := &clusters[i]
					variant := targets.Variant(*view)
					if _, known := rendered[variant]; known {
						continue
					}
					rules, again := renderer.Rules(view)
					if again != variant {
						b.Fatal("two names for one variant")
					}
					items, _ := renderer.Render(render.Input{Rules: rules, Cluster: view})
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
