package overrides_test

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/manifest"
)

// The result of an override rule is frozen to the byte with the Revision that holds it. Another
// hub, with other libraries, sends members the same bytes. Cases may be added to the golden file,
// and no case may change. A new result needs a new atoll.CurrentRuleSemantics.
func TestRenderingsOfOldRevisionsStay(t *testing.T) {
	view := tokyo
	got := map[string]json.RawMessage{}
	for name, tc := range map[string]struct {
		key          atoll.ItemKey
		object, over string
		meaning      int
	}{
		"0 add": {webKey, deploymentYAML, `{labelsOverrider: [{operator: add, value: {a: x, b: z}}], annotationsOverrider: [{operator: add, value: {a: x}}]}`, 0},
		"0 image, replicas, plaintext": {webKey, deploymentYAML, `{imageOverrider: [{component: Tag, operator: replace, value: "2"}], replicas: 7,
  plaintext: [{path: /spec/template/spec/containers/0/env/-, operator: add, value: {name: Z, value: "<&>"}}]}`, 0},
		"1 add":            {webKey, deploymentYAML, `{labelsOverrider: [{operator: add, value: {a: x, b: z}}]}`, 1},
		"1 command, args":  {webKey, deploymentYAML, `{commandOverrider: [{containerName: web, operator: add, value: [x]}], argsOverrider: [{containerName: web, operator: remove, value: [--a]}]}`, 1},
		"1 env, resources": {webKey, deploymentYAML, `{envOverrider: [{operator: add, value: [{name: A, value: x}, {name: Q, value: q}]}], resourcesOverrider: [{operator: add, limits: {cpu: 1500m, memory: "1073741824"}}]}`, 1},
		"1 mergePatch":     {webKey, deploymentYAML, `{mergePatch: {spec: {paused: true, replicas: null, progressDeadlineSeconds: 1.5}}}`, 1},
		"1 strategicMerge": {webKey, deploymentYAML, `{strategicMerge: {metadata: {labels: {a: null}}, spec: {template: {spec: {containers: [{name: side, image: "s:1"}, {name: web, ports: [{containerPort: 80}], env: [{name: A, $patch: delete}, {name: NEW, value: v}]}], tolerations: [{key: k}]}}}}}`, 1},
		"1 fieldOverrider": {atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "c"}, configYAML, `{fieldOverrider: [
  {fieldPath: /data/db.yaml, yaml: [{subPath: /db/host, operator: replace, value: "no"}, {subPath: /new, operator: add, value: {list: [1, "2", 3.5, null, true, "a: b\nc"]}}]},
  {fieldPath: /data/db.json, json: [{subPath: /db/host, operator: replace, value: "<eu>"}, {subPath: /n, operator: add, value: 1.50}]}]}`, 1},
		"1 valueFrom": {webKey, deploymentYAML, `{plaintext: [{path: /spec/x, operator: add, valueFrom: {cel: "{'i': int(cluster.labels['n']), 'd': 0.5, 's': cluster.labels['dns'], 'l': [true, null]}"}}]}`, 1},
		"2 labels":    {webKey, deploymentYAML, `{labelsOverrider: [{operator: remove, value: {a: ""}}]}`, 2},
		"2 digest":    {webKey, deploymentYAML, `{imageOverrider: [{containerName: log, component: Digest, operator: add, value: "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}]}`, 2},
		"2 plaintext": {webKey, deploymentYAML, `{plaintext: [{path: /spec/template/spec/containers/1/args, from: /spec/template/spec/containers/0/args, operator: move}, {path: /spec/template/spec/containers/1/args/-, from: /metadata/labels/a, operator: copy}, {path: /spec/x, operator: add, value: null}, {path: /spec/x, operator: test, value: null}]}`, 2},
		"2 fieldOverrider": {atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "c"}, configYAML, `{fieldOverrider: [
  {fieldPath: /data/db.yaml, mergePatch: {db: {host: "no", url: null}, big: 1.50, new: {list: [1, null, "a: b\nc"], gone: null}}},
  {fieldPath: /data/db.json, mergePatch: {db: {host: <eu>, url: null}, num: 1.50}}]}`, 2},
	} {
		c := &atoll.Content{Items: []atoll.Item{newItem(tc.key, yamlToJSON(t, tc.object))}, Rules: []atoll.Rule{newRule("ClusterOverridePolicy/p", parseOverriders(t, tc.over), tc.key)}}
		c.Rules[0].Semantics = tc.meaning
		rules, _ := manifest.MatchRules(c, view)
		items, _ := manifest.RenderItems(c, manifest.RenderInput{Rules: rules, Cluster: &view})
		if items[0].Error != "" {
			t.Fatalf("%s: %s", name, items[0].Error)
		}
		got[name] = items[0].Object
	}
	text, err := json.MarshalIndent(got, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	const file = "testdata/overrides.frozen.json"
	want, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(bytes.TrimSpace(want), text) {
		t.Errorf("%s (%v) is not\n%s", file, err, text)
	}
}
