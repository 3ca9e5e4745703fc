package overrides

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

func newDocumentPatch(op v1alpha1.OverriderOperator, path, value string) []v1alpha1.DocumentPatch {
	p := v1alpha1.DocumentPatch{SubPath: path, Operator: op}
	if value != "" {
		p.Value = &apiextensionsv1.JSON{Raw: []byte(value)}
	}
	return []v1alpha1.DocumentPatch{p}
}

// Operations mean the same in a JSON document and in a YAML document.
func TestDocumentOperations(t *testing.T) {
	const add, replace, remove = v1alpha1.OverrideAdd, v1alpha1.OverrideReplace, v1alpha1.OverrideRemove
	for _, c := range []struct {
		op          v1alpha1.OverriderOperator
		path, value string
		want        string // JSON; empty: an error
	}{
		{add, "/a/1", "9", `{"a":[1,9,2],"b":"x"}`},
		{add, "/a/-", "9", `{"a":[1,2,9],"b":"x"}`},
		{add, "/c", "9", `{"a":[1,2],"b":"x","c":9}`},
		{add, "/b", "9", `{"a":[1,2],"b":9}`},
		{replace, "/a/1", "9", `{"a":[1,9],"b":"x"}`},
		{replace, "/b", "9", `{"a":[1,2],"b":9}`},
		{replace, "/c", "9", ""},
		{remove, "/a/0", "", `{"a":[2],"b":"x"}`},
		{remove, "/b", "", `{"a":[1,2]}`},
		{remove, "/c", "", ""},
		{add, "a", "9", ""},
	} {
		list := newDocumentPatch(c.op, c.path, c.value)
		inJSON, jsonErr := patchJSON(`{"a":[1,2],"b":"x"}`, list)
		inYAML, yamlErr := patchYAML("a:\n- 1\n- 2\nb: x\n", list)
		if yamlErr == nil {
			var raw []byte
			if raw, yamlErr = yaml.YAMLToJSON([]byte(inYAML)); yamlErr == nil {
				inYAML = string(raw)
			}
		}
		if inJSON != c.want || inYAML != c.want || (jsonErr != nil) != (c.want == "") || (yamlErr != nil) != (c.want == "") {
			t.Errorf("%s %s: %q, %v and %q, %v; want %q", c.op, c.path, inJSON, jsonErr, inYAML, yamlErr, c.want)
		}
	}
}

func TestDocumentsAreBounded(t *testing.T) {
	indent := "  "
	for name, in := range map[string]*string{"one line": nil, "indented": &indent} {
		if _, err := encodeDocument(strings.Repeat("x", MaxObjectBytes), in); !errors.Is(err, ErrObjectTooLarge) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The document ends with a line break, and its text is in quotes.
	if got, err := encodeDocument(strings.Repeat("x", MaxObjectBytes-3), nil); err != nil || len(got) != MaxObjectBytes {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	b := limitedBuffer{limit: 3}
	for _, c := range []struct {
		text string
		n    int
		err  error
	}{{"ab", 2, nil}, {"cd", 0, ErrObjectTooLarge}, {"c", 1, nil}} {
		if n, err := b.Write([]byte(c.text)); n != c.n || !errors.Is(err, c.err) {
			t.Errorf("%s: %d, %v", c.text, n, err)
		}
	}
	if string(b.bytes) != "abc" {
		t.Errorf("it holds %q", b.bytes)
	}
}

// A value in a document is nested at most maxDepth deep.
func TestCheckDocumentReportsDeepValues(t *testing.T) {
	for depth, want := range map[int]string{maxDepth: "", maxDepth + 1: ".json[0].value: " + tooDeepReason} {
		got := ""
		// The innermost list is at the depth, and holds a number.
		f := &v1alpha1.FieldOverrider{FieldPath: "/data/a", JSON: newDocumentPatch(v1alpha1.OverrideAdd, "/a", strings.Repeat("[", depth)+"1"+strings.Repeat("]", depth))}
		checkDocument(f, func(path, problem string) { got += path + ": " + problem })
		if got != want {
			t.Errorf("%d lists in each other: %q, want %q", depth, got, want)
		}
	}
}

func TestParseMergePatchTakesObjectsAlone(t *testing.T) {
	for text, fails := range map[string]bool{`{"spec":{"a":1}}`: false, `{}`: false, `null`: true, `[]`: true, `{`: true} {
		if p, err := parseAllowedMergePatch([]byte(text)); (err != nil) != fails || (p == nil) != fails {
			t.Errorf("%s: %v, %v", text, p, err)
		}
	}
}

// Each protected field is compared, wherever it stands.
func TestCheckProtectedComparesEachField(t *testing.T) {
	for _, name := range protectedFields {
		o := &ObjectPatcher{Item: &atoll.Item{}, Object: map[string]any{"metadata": map[string]any{}}}
		before := o.captureProtected()
		if err := o.checkProtected(before); err != nil {
			t.Errorf("%s: unchanged, but %v", name, err)
		}
		in, field := o.Object, name
		if below, ok := strings.CutPrefix(name, "metadata/"); ok {
			in, field = o.Object["metadata"].(map[string]any), below
		}
		in[field] = "changed"
		if err := o.checkProtected(before); err == nil || !strings.HasSuffix(err.Error(), "/"+name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Replicas are overridden where a rule has set them, or where they differ from the template's.
func TestOverriddenReplicas(t *testing.T) {
	const rule = "OverridePolicy/shop/p"
	note := func(path, policy string) []Provenance { return []Provenance{{Path: path, Policy: policy}} }
	for _, c := range []struct {
		name    string
		may     bool
		now     int64 // -1: of a kind without replicas
		notes   []Provenance
		want    int64
		changed bool
	}{
		{"nothing changed", true, 2, nil, 2, false},
		{"another number", true, 3, nil, 3, true},
		{"a rule set the same number", true, 2, note("/spec/replicas", rule), 2, true},
		{"a rule set another field", true, 2, note("/spec/paused", rule), 2, false},
		{"the placement set it", true, 2, note("/spec/replicas", PolicyPlacement), 2, false},
		{"the placement, then a rule", true, 2, append(note("/spec/replicas", PolicyPlacement), note("/spec/replicas", rule)...), 2, true},
		{"a rule, then another field", true, 2, append(note("/spec/replicas", rule), note("/spec/paused", rule)...), 2, true},
		{"rules may not", false, 3, note("/spec/replicas", rule), 0, false},
		{"no replicas", true, -1, nil, 0, false},
	} {
		object := map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "spec": map[string]any{"replicas": c.now}}
		if c.now < 0 {
			object = map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}
		}
		o := &ObjectPatcher{Item: &atoll.Item{ReplicaOverrides: c.may}, Object: object, Notes: c.notes}
		if n, ok := o.OverriddenReplicas(2); n != c.want || ok != c.changed {
			t.Errorf("%s: %s, want %d, %t", c.name, fmt.Sprint(n, ok), c.want, c.changed)
		}
	}
}
