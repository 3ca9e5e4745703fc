package overrides_test

import (
	"fmt"
	"strings"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/manifest"
	"atoll.dev/atoll/internal/overrides"
)

var tokyo = atoll.ClusterView{Name: "tokyo", Region: "ap", Labels: map[string]string{"dns": "10.0.0.10", "mirror": "m.example", "n": "3", "bad": "-"}}

// renderInCluster returns what the rules make of an object in a cluster.
func renderInCluster(c *atoll.Content, view atoll.ClusterView) ([]atoll.RenderedItem, []overrides.Provenance, string) {
	rules, variant := manifest.MatchRules(c, view)
	items, notes := manifest.RenderItems(c, manifest.RenderInput{Rules: rules, Cluster: &view})
	return items, notes, variant
}

// Every overrider takes its value from the cluster, and none stops the object alone.
func TestValueFromFields(t *testing.T) {
	for _, tc := range []struct{ name, kind, object, over, want string }{
		{"imageOverrider valueFrom cel", "Deployment", deploymentYAML, `{imageOverrider: [{component: Registry, operator: replace, valueFrom: {cel: "cluster.labels['mirror']"}}]}`, `"m.example/nginx:1"`},
		{"commandOverrider valueFrom cel", "Deployment", deploymentYAML, `{commandOverrider: [{containerName: web, operator: add, value: [--dns], valueFrom: {cel: "cluster.labels['dns']"}}]}`, `"command":["run","--fast","--dns","10.0.0.10"]`},
		{"argsOverrider valueFrom cel", "Deployment", deploymentYAML, `{argsOverrider: [{containerName: log, operator: add, valueFrom: {cel: "['--dns', cluster.labels['dns']]"}}]}`, `"args":["--dns","10.0.0.10"]`},
		{"labelsOverrider valueFrom cel", "Deployment", deploymentYAML, `{labelsOverrider: [{operator: add, value: {b: c}, valueFrom: {a: {cel: "cluster.labels['dns']"}}}]}`, `"labels":{"a":"10.0.0.10","b":"c"}`},
		{"annotationsOverrider valueFrom cel", "Deployment", deploymentYAML, `{annotationsOverrider: [{operator: add, valueFrom: {at: {cel: "cluster.region + '/' + cluster.labels['dns']"}}}]}`, `"annotations":{"at":"ap/10.0.0.10"}`},
		{"envOverrider valueFrom cel", "Deployment", deploymentYAML, `{envOverrider: [{containerName: web, operator: add, value: [{name: A, valueFrom: {cel: "int(cluster.labels['n']) + 1 + size(cluster.labels['dns']) - 9"}}]}]}`, `{"name":"A","value":"4"}`},
		{"plaintext valueFrom cel", "Deployment", deploymentYAML, `{plaintext: [{path: /spec/replicas, operator: replace, valueFrom: {cel: "int(cluster.labels['n']) + size(cluster.labels['dns'])"}}]}`, `"replicas":12`},
		{"fieldOverrider json valueFrom cel", "ConfigMap", configYAML, `{fieldOverrider: [{fieldPath: /data/one.json, json: [{subPath: /a, operator: replace, valueFrom: {cel: "{'dns': cluster.labels['dns']}"}}]}]}`, `"one.json":"{\"a\":{\"dns\":\"10.0.0.10\"},\"b\":2}"`},
		{"fieldOverrider yaml valueFrom cel", "ConfigMap", configYAML, `{fieldOverrider: [{fieldPath: /data/db.yaml, yaml: [{subPath: /db/host, operator: replace, valueFrom: {cel: "cluster.labels['dns']"}}]}]}`, `host: 10.0.0.10 # where`},
		{"ordered valueFrom cel", "Deployment", deploymentYAML, `{ordered: [{labelsOverrider: {operator: replace, valueFrom: {a: {cel: "cluster.labels['dns']"}}}}]}`, `"labels":{"a":"10.0.0.10"}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := parseOverriders(t, tc.over)
			if problems := overrides.CheckOverriders(o); len(problems) > 0 {
				t.Fatalf("refused: %v", problems)
			}
			key := map[string]atoll.ItemKey{"Deployment": webKey, "ConfigMap": {Kind: "ConfigMap", Namespace: "shop", Name: "c"}}[tc.kind]
			c := &atoll.Content{Items: []atoll.Item{newItem(key, yamlToJSON(t, tc.object))}, Rules: []atoll.Rule{newRule("ClusterOverridePolicy/p", o, key)}}
			items, notes, variant := renderInCluster(c, tokyo)
			if items[0].Error != "" || !strings.Contains(string(items[0].Object), tc.want) || len(notes) == 0 {
				t.Errorf("no %s: %s%s", tc.want, items[0].Error, items[0].Object)
			}
			without := tokyo
			without.Labels = nil
			items, _, other := renderInCluster(c, without)
			if !strings.Contains(items[0].Error, "valueFrom") || !strings.Contains(items[0].Error, "no such key") || items[0].Object != nil || other == variant {
				t.Errorf("without the label: %s%s", items[0].Error, items[0].Object)
			}
			if targets := manifest.NewVariantCache(c); targets.VariantOf(tokyo) != variant || targets.VariantOf(without) != other {
				t.Error("Targets names the variants otherwise than Rules")
			}
			c.Rules[0].OnMissing = v1alpha1.OnMissingSkip
			items, notes, _ = renderInCluster(c, without)
			if items[0].Error != "" || string(items[0].Object) != yamlToJSON(t, tc.object) || len(notes) != 1 || !strings.Contains(notes[0].Skipped, "no such key") {
				t.Errorf("onMissing Skip: %s%s, provenance %+v", items[0].Error, items[0].Object, notes)
			}
		})
	}
}

// A cluster's value may be unusable at its place.
func TestUnusableValues(t *testing.T) {
	for over, want := range map[string]string{
		`{labelsOverrider: [{operator: add, valueFrom: {a: {cel: "cluster.labels['bad']"}}}]}`:                        "a valid label",
		`{labelsOverrider: [{operator: add, valueFrom: {a: {cel: "[cluster.region]"}}}]}`:                             "gives no text",
		`{imageOverrider: [{component: Registry, operator: replace, valueFrom: {cel: "cluster.region"}}]}`:            "is not a registry",
		`{argsOverrider: [{containerName: web, operator: add, valueFrom: {cel: "[1]"}}]}`:                             "neither a text nor a list",
		`{plaintext: [{path: /metadata/labels, operator: add, valueFrom: {cel: "{'atoll.dev/x': cluster.region}"}}]}`: "Atoll's own",
	} {
		c := &atoll.Content{Items: []atoll.Item{newItem(webKey, yamlToJSON(t, deploymentYAML))}, Rules: []atoll.Rule{newRule("ClusterOverridePolicy/p", parseOverriders(t, over), webKey)}}
		if items, _, _ := renderInCluster(c, tokyo); !strings.Contains(items[0].Error, want) {
			t.Errorf("%s: %s%s", over, items[0].Error, items[0].Object)
		}
	}
}

// onMissing Skip leaves no trace of an overrider that applies in half, and spares nothing
// that no override may touch; what comes after it goes on.
func TestOnMissingSkip(t *testing.T) {
	c := newContent(newRule("OverridePolicy/shop/p", parseOverriders(t, `{
  imageOverrider: [{component: Registry, operator: replace, value: m.io}, {component: Tag, operator: add, value: "!"}],
  plaintext: [{path: /spec/none, operator: remove}, {path: /spec/paused, operator: add, value: true}]}`), webKey))
	c.Rules[0].OnMissing = v1alpha1.OnMissingSkip
	r, notes := renderedItem(t, c, manifest.RenderInput{Rules: []int{0}}, webKey)
	if r.Error != "" || !strings.Contains(string(r.Object), `"m.io/nginx:1"`) || !strings.Contains(string(r.Object), `"paused":true`) {
		t.Errorf("%s%s", r.Error, r.Object)
	}
	var skipped []string
	for _, n := range notes {
		if n.Skipped != "" {
			skipped = append(skipped, n.Overrider)
		}
	}
	if fmt.Sprint(skipped) != "[imageOverrider[1] plaintext[0]]" {
		t.Errorf("skipped %v of %+v", skipped, notes)
	}
	c = newContent(newRule("OverridePolicy/shop/p", parseOverriders(t, `{mergePatch: {rules: []}}`), roleKey))
	c.Rules[0].OnMissing = v1alpha1.OnMissingSkip
	if r, _ := renderedItem(t, c, manifest.RenderInput{Rules: []int{0}}, roleKey); !strings.Contains(r.Error, "only a ClusterOverridePolicy") {
		t.Errorf("skipped a forbidden change: %s%s", r.Error, r.Object)
	}
}

// An atomic rule that stops one object stops all of them; others stop their own.
func TestAtomicRules(t *testing.T) {
	c := newContent(newRule("OverridePolicy/shop/p", plaintextOverriders("replace", "/spec/replicas", "9"), webKey, jobKey))
	for _, atomic := range []bool{false, true} {
		c.Rules[0].Atomic = atomic
		items, notes := manifest.RenderItems(c, manifest.RenderInput{Rules: []int{0}})
		for _, r := range items {
			wants := atomic || r.Key == jobKey
			if (r.Error != "") != wants || (r.Object == nil) != wants || wants && r.Hash == atoll.HashParts(nil, []byte("null"), nil) {
				t.Errorf("atomic %t: %s has error %q and object %s", atomic, r.Key, r.Error, r.Object)
			}
		}
		if atomic != (len(notes) == 0) {
			t.Errorf("atomic %t: %v", atomic, notes)
		}
	}
}

// All expressions of a row together have a bound, whatever the policies are.
func TestExpressionsAreBoundedInSum(t *testing.T) {
	var rules []atoll.Rule
	var stated []v1alpha1.RuleWithCluster
	for i := range 40 {
		o := parseOverriders(t, fmt.Sprintf(`{labelsOverrider: [{operator: add, valueFrom: {a%d: {cel: "string(cluster.labels.exists(k, k == 'none%d'))"}}}]}`, i, i))
		rules = append(rules, newRule("ClusterOverridePolicy/p", o, webKey))
		stated = append(stated, v1alpha1.RuleWithCluster{Overriders: o})
	}
	c := newContent(rules...)
	items, _, variant := renderInCluster(c, tokyo)
	if again, _, other := renderInCluster(c, tokyo); variant != other || again[1].Error != items[1].Error || !strings.Contains(items[1].Error, "more than the 10000 units") {
		t.Errorf("variants %s and %s, error %q", variant, other, items[1].Error)
	}
	if cost, over := overrides.SumExpressionCost(stated); !over {
		t.Errorf("admission would let it pass: %d", cost)
	}
	if cost, over := overrides.SumExpressionCost(stated[:2]); over {
		t.Errorf("admission would refuse little: %d", cost)
	}
}

// An expression that never gives a value is refused at admission.
func TestCheckOverridersReportsImpossibleSources(t *testing.T) {
	for _, tc := range []struct{ over, path, reason string }{
		{`{labelsOverrider: [{operator: add, valueFrom: {a: {cel: "cluster.labels["}}}]}`, "labelsOverrider[0].valueFrom[a].cel", "line 1"},
		{`{labelsOverrider: [{operator: add, value: {a: b}, valueFrom: {a: {cel: "cluster.name"}}}]}`, "labelsOverrider[0].valueFrom[a]", "beside it"},
		{`{labelsOverrider: [{operator: remove, valueFrom: {a: {cel: "cluster.name"}}}]}`, "labelsOverrider[0].valueFrom[a]", "takes no value"},
		{`{labelsOverrider: [{operator: add}]}`, "labelsOverrider[0].value", "names no key"},
		{`{argsOverrider: [{containerName: a, operator: add}]}`, "argsOverrider[0].value", "names no value"},
		{`{ordered: [{envOverrider: {operator: add, value: [{name: a, value: b, valueFrom: {cel: "cluster.name"}}]}}]}`, "ordered[0].envOverrider.value[0].valueFrom", "beside it"},
		{`{plaintext: [{path: /spec/a, operator: add, valueFrom: {cel: "cluster.properties['x']"}}]}`, "plaintext[0].valueFrom.cel", `cluster has no field "properties" here`},
		{`{annotationsOverrider: [{operator: add, valueFrom: {atoll.dev/x: {cel: "cluster.name"}}}]}`, "annotationsOverrider[0].valueFrom[atoll.dev/x]", "Atoll's own"},
	} {
		problems := overrides.CheckOverriders(parseOverriders(t, tc.over))
		if len(problems) != 1 || problems[0].Path != tc.path || !strings.Contains(problems[0].Reason, tc.reason) {
			t.Errorf("%s: problems %q, want %s: %s", tc.over, problems, tc.path, tc.reason)
		}
	}
}
