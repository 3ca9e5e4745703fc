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

// move, copy and test are those of RFC 6902.
func TestPlaintextTransfers(t *testing.T) {
	const pod = "/spec/template/spec/"
	for _, tc := range []struct{ name, over, want, notes, err string }{
		{"move", `{path: /metadata/labels/b, from: /metadata/labels/a, operator: move}`, `"labels":{"b":"1"}`, "/metadata/labels/a=<nil> /metadata/labels/b=1", ""},
		{"move within a list", `{path: /spec/template/spec/containers/0, from: /spec/template/spec/containers/1, operator: move}`, `"containers":[{"image":"fluent:1"`, "", ""},
		{"move to the end of a list", `{path: /spec/template/spec/containers/0/args/-, from: /spec/template/spec/containers/0/args/1, operator: move}`, `"args":["--a","--a","--b"]`, pod + "containers/0/args/1=<nil> " + pod + "containers/0/args/-=--b", ""},
		{"move to itself", `{path: /spec/replicas, from: /spec/replicas, operator: move}`, `"replicas":3`, "/spec/replicas=<nil> /spec/replicas=3", ""},
		{"copy", `{path: /spec/template/spec/containers/1/args, from: /spec/template/spec/containers/0/args, operator: copy}`, `{"args":["--a","--b","--a"],"image":"fluent:1","name":"log"}`, pod + "containers/1/args=[--a --b --a]", ""},
		{"copy in place of a value", `{path: /spec/replicas, from: /metadata/labels/a, operator: copy}`, `"replicas":"1"`, "/spec/replicas=1", ""},
		{"copy into itself", `{path: /metadata/labels/b, from: /metadata/labels, operator: copy}`, `"labels":{"a":"1","b":{"a":"1"}}`, "", ""},
		{"test", `{path: /spec/template/spec/containers/0/args, operator: test, value: [--a, --b, --a]}`, `"replicas":3`, "", ""},
		{"test of a number", `{path: /spec/replicas, operator: test, value: 3.0}`, `"replicas":3`, "", ""},
		{"test that fails", `{path: /spec/replicas, operator: test, value: 4}`, "", "", "plaintext[0] test /spec/replicas: the test fails: /spec/replicas has another value"},
		{"test of null", `{path: /spec/replicas, operator: test, value: null}`, "", "", "has another value"},
		{"test of what is not there", `{path: /spec/paused, operator: test, value: null}`, "", "", "the test fails: there is nothing at /spec/paused"},
		{"nothing to move", `{path: /spec/a, from: /spec/b, operator: move}`, "", "", "plaintext[0] move /spec/b to /spec/a: there is nothing at /spec/b to move"},
		{"nothing to copy", `{path: /spec/a, from: /spec/template/spec/containers/7, operator: copy}`, "", "", "there is nothing at /spec/template/spec/containers/7 to copy"},
		{"nowhere to move", `{path: /spec/a/b, from: /spec/replicas, operator: move}`, "", "", `there is no "a"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, notes, failed := overrideObject(t, "Deployment", deploymentYAML, "{plaintext: ["+tc.over+"]}")
			if !strings.Contains(failed, tc.err) || (failed == "") != (tc.err == "") || !strings.Contains(got, tc.want) || tc.notes != "" && notes != tc.notes {
				t.Errorf("%s%s, provenance %q; want %s%s, %q", failed, got, notes, tc.err, tc.want, tc.notes)
			}
		})
	}
	// A test that fails follows onMissing; what moved before it, in the same rule, stays moved.
	c := newContent(newRule("OverridePolicy/shop/p", parseOverriders(t, `{plaintext: [{path: /metadata/labels/b, from: /metadata/labels/app, operator: move}, {path: /spec/replicas, operator: test, value: 9}]}`), webKey))
	c.Rules[0].OnMissing = v1alpha1.OnMissingSkip
	r, notes := renderedItem(t, c, manifest.RenderInput{Rules: []int{0}}, webKey)
	if r.Error != "" || !strings.Contains(string(r.Object), `"labels":{"b":"web"}`) || len(notes) != 3 || !strings.Contains(notes[2].Skipped, "the test fails") {
		t.Errorf("onMissing Skip: %s%s, provenance %+v", r.Error, r.Object, notes)
	}
}

// Both paths of a move and of a copy are protected, at admission and at rendering.
func TestPlaintextTransfersAreProtected(t *testing.T) {
	for _, tc := range []struct{ over, path, want string }{
		{`{path: /spec/a, from: /metadata/name, operator: copy}`, "plaintext[0].from", "never touch /metadata/name"},
		{`{path: /spec/a, from: /metadata/finalizers, operator: move}`, "plaintext[0].from", "never touch"},
		{`{path: /spec/a, from: /status, operator: copy}`, "plaintext[0].from", "never touch /status"},
		{`{path: /metadata/name, from: /metadata/labels/a, operator: copy}`, "plaintext[0].path", "never touch /metadata/name"},
		{`{path: /metadata/labels/atoll.dev~1bundle-uid, from: /metadata/labels/a, operator: move}`, "plaintext[0].path", "Atoll's own"},
		{`{path: /spec/a, from: /metadata/labels/atoll.dev~1bundle-uid, operator: move}`, "plaintext[0].from", "Atoll's own"},
		{`{path: /status, operator: test, value: 1}`, "plaintext[0].path", "never touch /status"},
		{`{path: /spec/template/x, from: /spec/template, operator: move}`, "plaintext[0].from", "moved into itself"},
		{`{path: /spec/a, operator: move}`, "plaintext[0].from", "needs a path"},
		{`{path: /spec/a, from: /spec/b, operator: copy, value: 1}`, "plaintext[0].from", "takes no value"},
		{`{path: /spec/a, operator: test}`, "plaintext[0].value", "needs a value"},
	} {
		o := parseOverriders(t, "{plaintext: ["+tc.over+"]}")
		if problems := overrides.CheckOverriders(o); len(problems) != 1 || problems[0].Path != tc.path || !strings.Contains(problems[0].Reason, tc.want) {
			t.Errorf("%s: problems %q, want %s: %s", tc.over, problems, tc.path, tc.want)
		}
		if got, _, failed := overrideObject(t, "Deployment", deploymentYAML, "{plaintext: ["+tc.over+"]}"); failed == "" || got != "" {
			t.Errorf("%s is rendered: %s", tc.over, got)
		}
	}
	// The keys of a map that is moved count, too.
	object := strings.Replace(deploymentYAML, "replicas: 3", "replicas: 3\n  x: {atoll.dev/bundle-uid: theirs}", 1)
	if got, _, failed := overrideObject(t, "Deployment", object, `{plaintext: [{path: /metadata/labels, from: /spec/x, operator: move}]}`); !strings.Contains(failed, "Atoll's own") {
		t.Errorf("a map with keys of Atoll became labels: %s%s", failed, got)
	}
	for _, over := range []string{
		`{plaintext: [{path: /spec/x, from: /spec/replicas, operator: move}]}`, `{plaintext: [{path: /spec/replicas, from: /spec/x, operator: copy}]}`,
		`{plaintext: [{path: /metadata/annotations, from: /spec, operator: move}]}`,
	} {
		o := parseOverriders(t, over)
		c := newContent(newRule("ClusterOverridePolicy/p", o, webKey))
		c.Items = []atoll.Item{newItem(webKey, strings.Replace(webObject, `"replicas"`, `"x":5,"replicas"`, 1))}
		c.Items[0].Divided = true
		if r, _ := renderedItem(t, c, manifest.RenderInput{Rules: []int{0}, Assigned: map[string]int64{webKey.String(): 2}}, webKey); !overrides.CanSetReplicas(o) || !strings.Contains(r.Error, "divides") {
			t.Errorf("%s sets divided replicas: %s%s", over, r.Error, r.Object)
		}
	}
	if overrides.CanSetReplicas(parseOverriders(t, `{plaintext: [{path: /spec/replicas, operator: test, value: 3}, {path: /spec/x, from: /spec/replicas, operator: copy}]}`)) {
		t.Error("a test or a copy of replicas sets them")
	}
	for _, over := range []string{
		`{plaintext: [{path: /metadata/annotations/a, from: /data/p, operator: copy}]}`, `{plaintext: [{path: /data/p, operator: test, value: eA==}]}`,
		`{ordered: [{plaintext: {path: /metadata/annotations, from: /data, operator: move}}]}`,
	} {
		o := parseOverriders(t, over)
		r, _ := renderedItem(t, newContent(newRule("OverridePolicy/shop/p", o, secretKey)), manifest.RenderInput{Rules: []int{0}}, secretKey)
		if !overrides.ChangesSecretData(o) || !strings.Contains(r.Error, "only a ClusterOverridePolicy") {
			t.Errorf("%s of a Secret: %s%s", over, r.Error, r.Object)
		}
	}
}

// Copies of copies do not grow without bound.
func TestCopiesAreBounded(t *testing.T) {
	var o v1alpha1.Overriders
	for i := range 40 {
		o.Plaintext = append(o.Plaintext, v1alpha1.PlaintextOverrider{Operator: v1alpha1.OverrideCopy, From: "/data", Path: fmt.Sprintf("/data/k%d", i)})
	}
	item, allocated := renderDocument(t, strings.Repeat("x", 1000), o)
	if !strings.Contains(item.Error, "over the bound") || item.Object != nil || allocated > 10*16<<20 {
		t.Errorf("error %q, %d bytes allocated", item.Error, allocated)
	}
}
