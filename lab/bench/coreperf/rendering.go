package coreperf

import (
	"fmt"

	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/manifest"
)

var webKey = atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}

const webObject = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"labels":{"app":"web"},"name":"web","namespace":"shop"},` +
	`"spec":{"replicas":3,"template":{"spec":{"containers":[{"image":"nginx:1","name":"a"},{"image":"r.io/b:1","name":"b"}],"initContainers":[{"image":"busybox","name":"i"}]}}}}`

// overrideRules are four rules, three of them for some clusters, with equal results
// everywhere.
const overrideRules = `
- {overriders: {imageOverrider: [{component: Registry, operator: replace, value: m.io}]}}
- {targetCluster: {labelSelector: {matchLabels: {env: prod}}}, overriders: {envOverrider: [{operator: add, value: [{name: A, value: b}]}]}}
- {targetCluster: {labelSelector: {matchExpressions: [{key: tier, operator: In, values: ["1", "2"]}]}}, overriders: {plaintext: [{path: /spec/paused, operator: add, value: true}]}}
- {targetCluster: {fieldSelector: {matchExpressions: [{key: region, operator: In, values: [r1, r2]}]}}, overriders: {strategicMerge: {spec: {template: {spec: {containers: [{name: a, imagePullPolicy: Always}]}}}}}}
`

const (
	constantRule   = `- {overriders: {labelsOverrider: [{operator: add, value: {by: five}}]}}` + "\n"
	perClusterRule = `- {overriders: {envOverrider: [{operator: add, value: [{name: DNS, valueFrom: {cel: "cluster.labels['dns']"}}]}]}}` + "\n"
)

func renderingCases() []Case {
	const size = 10_000
	return []Case{
		{
			Name: "render", What: "render for all", Goal: "< 1 s",
			How:     "a Deployment for 10,000 clusters under 5 override rules: 8 different results",
			Prepare: newRenderAllWork(size, overrideRules+constantRule, 8),
		}, {
			Name: "render-values", What: "render for all, all different", Goal: "< 1 s",
			How:     "the same, where the last rule takes a value from each cluster: 10,000 different results",
			Prepare: newRenderAllWork(size, overrideRules+perClusterRule, size),
		}, {
			Name: "render-values-first", What: "render for all, all different from the first rule on", Goal: "< 1 s",
			How:     "the same, where the first rule does: nothing is in common",
			Prepare: newRenderAllWork(size, perClusterRule+overrideRules, size),
		},
	}
}

// newRenderAllWork names the variant of each of n clusters, as placing does. It renders each
// variant once, as the gateway does.
func newRenderAllWork(n int, rules string, results int) func() (func() error, error) {
	return func() (func() error, error) {
		content, err := newBenchContent(rules)
		if err != nil {
			return nil, err
		}
		views := clusterViews(n)
		return func() error {
			targets, renderer := manifest.NewVariantCache(content), manifest.NewRenderer(content)
			rendered := make(map[string][]atoll.RenderedItem, results)
			for i := range views {
				variant := targets.VariantOf(views[i])
				if _, known := rendered[variant]; known {
					continue
				}
				matching, again := renderer.MatchRules(&views[i])
				items, _ := renderer.RenderItems(manifest.RenderInput{Rules: matching, Cluster: &views[i]})
				if again != variant || items[0].Error != "" {
					return fmt.Errorf("cluster %s is of variant %s and %s: %s", views[i].Name, variant, again, items[0].Error)
				}
				rendered[variant] = items
			}
			if len(rendered) != results {
				return fmt.Errorf("%d different results, %d are expected", len(rendered), results)
			}
			return nil
		}, nil
	}
}

func newBenchContent(rules string) (*atoll.Content, error) {
	var list []v1alpha1.RuleWithCluster
	if err := yaml.UnmarshalStrict([]byte(rules), &list); err != nil {
		return nil, fmt.Errorf("override rules: %w", err)
	}
	content := &atoll.Content{Items: []atoll.Item{{
		Key: webKey, APIVersion: "apps/v1", UID: "0b6e5a1c", Object: []byte(webObject), Hash: atoll.HashParts([]byte(webObject)),
	}}}
	for i, r := range list {
		content.Rules = append(content.Rules, atoll.Rule{
			Policy: "ClusterOverridePolicy/bench", Index: i, Target: r.TargetCluster, Items: []atoll.ItemKey{webKey},
			Overriders: r.Overriders, Semantics: atoll.CurrentRuleSemantics,
		})
	}
	return content, nil
}

// clusterViews returns n clusters, each with its own address.
func clusterViews(n int) []atoll.ClusterView {
	out := make([]atoll.ClusterView, n)
	for i := range out {
		out[i] = atoll.ClusterView{
			Name: fmt.Sprintf("c%d", i), Region: fmt.Sprintf("r%d", i%5),
			Labels: map[string]string{"env": []string{"prod", "test"}[i%2], "tier": fmt.Sprint(i % 3), "dns": fmt.Sprintf("10.0.%d.%d", i/256, i%256)},
		}
	}
	return out
}
