package overrides_test

import (
	"strings"
	"testing"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/manifest"
)

// Operators, components and rules that only a newer hub supports stop the object; none gets another
// meaning.
func TestPartsOfNewerHubsStopTheObject(t *testing.T) {
	for over, want := range map[string]string{
		`{imageOverrider: [{component: Colour, operator: replace, value: x}]}`:                        `component "Colour"`,
		`{imageOverrider: [{component: Tag, operator: bump, value: x}]}`:                              `operator "bump"`,
		`{commandOverrider: [{containerName: web, operator: replace, value: [x]}]}`:                   `operator "replace"`,
		`{argsOverrider: [{containerName: web, operator: insert, value: [x]}]}`:                       `operator "insert"`,
		`{labelsOverrider: [{operator: rename, value: {a: b}}]}`:                                      `operator "rename"`,
		`{annotationsOverrider: [{operator: rename, value: {a: b}}]}`:                                 `operator "rename"`,
		`{envOverrider: [{operator: rename, value: [{name: A, value: b}]}]}`:                          `operator "rename"`,
		`{resourcesOverrider: [{operator: scale, limits: {cpu: 1}}]}`:                                 `operator "scale"`,
		`{plaintext: [{path: /spec/replicas, operator: increase, value: 1}]}`:                         `operator "increase"`,
		`{fieldOverrider: [{fieldPath: /kind, yaml: [{subPath: /a, operator: increase, value: 1}]}]}`: `operator "increase"`,
		`{fieldOverrider: [{fieldPath: /kind}]}`:                                                      "the change of the document",
		`{ordered: [{}]}`:                                                                             "this overrider",
	} {
		c := newContent(newRule("ClusterOverridePolicy/p", parseOverriders(t, over), webKey))
		r, _ := renderedItem(t, c, manifest.RenderInput{Rules: []int{0}}, webKey)
		if !strings.Contains(r.Error, "a newer hub wrote "+want+", which this one does not support") || r.ErrorReason != atoll.ReasonRuleUnknown || r.Object != nil {
			t.Errorf("%s: error %q (%s), object %s", over, r.Error, r.ErrorReason, r.Object)
		}
	}
	c := newContent(newRule("ClusterOverridePolicy/p", parseOverriders(t, `{replicas: 1}`), webKey))
	c.Rules[0].Semantics = atoll.FirstRuleSemantics + 1
	if r, _ := renderedItem(t, c, manifest.RenderInput{Rules: []int{0}}, webKey); !strings.Contains(r.Error, "a newer hub wrote this rule") || r.ErrorReason != atoll.ReasonRuleUnknown {
		t.Errorf("of a newer meaning: %q (%s)", r.Error, r.ErrorReason)
	}
}

// The map of labels stays when its last key is removed, so that a later overrider can add into it. The
// rendered object has no empty map: nothing differs in a member.
func TestRemovingTheLastKeyKeepsTheMap(t *testing.T) {
	const gone = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"shop"},"spec":{}}`
	object := strings.Replace(gone, `"name"`, `"annotations":{"a":"1"},"labels":{"a":"1"},"name"`, 1)
	const add = `plaintext: [{path: /metadata/labels/b, operator: add, value: "2"}]`
	for _, tc := range []struct {
		name, over string
		semantics  int
		want, err  string
	}{
		{"removed", `{labelsOverrider: [{operator: remove, value: {a: ""}}], annotationsOverrider: [{operator: remove, value: {a: ""}}]}`, 2, gone, ""},
		{"and added", `{labelsOverrider: [{operator: remove, value: {a: ""}}], annotationsOverrider: [{operator: remove, value: {a: ""}}], ` + add + `}`, 2, strings.Replace(gone, `"name"`, `"labels":{"b":"2"},"name"`, 1), ""},
		{"and added from the cluster", `{labelsOverrider: [{operator: remove, value: {a: ""}}], ordered: [{plaintext: {path: /metadata/labels/b, operator: add, valueFrom: {cel: cluster.name}}}]}`, 2, strings.Replace(object, `"labels":{"a":"1"}`, `"labels":{"b":"tokyo"}`, 1), ""},
		{"and added, by an older hub", `{labelsOverrider: [{operator: remove, value: {a: ""}}], ` + add + `}`, 1, "", `there is no "labels"`},
		{"where there are none", `{labelsOverrider: [{operator: remove, value: {b: ""}}]}`, 2, object, ""},
	} {
		c := newContent(newRule("ClusterOverridePolicy/p", parseOverriders(t, tc.over), webKey))
		c.Items, c.Rules[0].Semantics = []atoll.Item{newItem(webKey, object)}, tc.semantics
		items, _, _ := renderInCluster(c, tokyo)
		if string(items[0].Object) != tc.want || !strings.Contains(items[0].Error, tc.err) || (tc.err == "") != (items[0].Error == "") {
			t.Errorf("%s: %s%s, want %s%s", tc.name, items[0].Error, items[0].Object, tc.err, tc.want)
		}
	}
	// A rule that removes in all clusters, before one that adds a value of each cluster.
	c := newContent(
		newRule("ClusterOverridePolicy/p", parseOverriders(t, `{labelsOverrider: [{operator: remove, value: {a: ""}}]}`), webKey),
		newRule("ClusterOverridePolicy/q", parseOverriders(t, `{annotationsOverrider: [{operator: replace, valueFrom: {a: {cel: cluster.name}}}]}`), webKey),
	)
	c.Items = []atoll.Item{newItem(webKey, object)}
	if items, _, _ := renderInCluster(c, tokyo); string(items[0].Object) != strings.Replace(gone, `"name"`, `"annotations":{"a":"tokyo"},"name"`, 1) {
		t.Errorf("shared: %s%s", items[0].Error, items[0].Object)
	}
}
