package overrides_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/manifest"
	"atoll.dev/atoll/internal/overrides"
)

var configKey = atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "c"}

// renderDocument renders a ConfigMap with a document, under overriders, and returns what the render
// allocated.
func renderDocument(t *testing.T, document string, o v1alpha1.Overriders) (item atoll.RenderedItem, allocated uint64) {
	t.Helper()
	object, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "c", "namespace": "shop"}, "data": map[string]any{"d": document},
	})
	if err != nil {
		t.Fatal(err)
	}
	c := newContent(newRule("OverridePolicy/shop/p", o, configKey))
	c.Items = []atoll.Item{newItem(configKey, string(object))}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	item, _ = renderedItem(t, c, manifest.RenderInput{Rules: []int{0}}, configKey)
	runtime.ReadMemStats(&after)
	return item, after.TotalAlloc - before.TotalAlloc
}

func documentPatch(path, value string) []v1alpha1.DocumentPatch {
	return []v1alpha1.DocumentPatch{{Operator: v1alpha1.OverrideAdd, SubPath: path, Value: &apiextensionsv1.JSON{Raw: []byte(value)}}}
}

// A small document cannot become a large one: neither by its own indentation, nor by its depth.
func TestADocumentDoesNotGrowBeyondItsBound(t *testing.T) {
	const most = 10 * overrides.MaxObjectBytes
	wide := "{\n" + strings.Repeat(" ", 1000) + `"a": [` + strings.TrimSuffix(strings.Repeat("[[0]],", 1000), ",") + "]\n}"
	deep := "{\n " + `"a": ` + strings.Repeat("[", 3000) + strings.Repeat("]", 3000) + "\n}"
	deepYAML := "a:\n"
	for i := range 3000 {
		deepYAML += strings.Repeat(" ", i%900) + "- x\n"
	}
	for name, c := range map[string]struct {
		document string
		patch    v1alpha1.FieldOverrider
	}{
		"its indentation": {wide, v1alpha1.FieldOverrider{FieldPath: "/data/d", JSON: documentPatch("/b", "1")}},
		"its depth":       {deep, v1alpha1.FieldOverrider{FieldPath: "/data/d", JSON: documentPatch("/b", "1")}},
		"by a merge":      {wide, v1alpha1.FieldOverrider{FieldPath: "/data/d", MergePatch: &apiextensionsv1.JSON{Raw: []byte(`{"b":1}`)}}},
		"YAML by a merge": {deepYAML, v1alpha1.FieldOverrider{FieldPath: "/data/d", MergePatch: &apiextensionsv1.JSON{Raw: []byte(`{"b":1}`)}}},
		"YAML":            {deepYAML, v1alpha1.FieldOverrider{FieldPath: "/data/d", YAML: documentPatch("/b", "1")}},
	} {
		item, allocated := renderDocument(t, c.document, v1alpha1.Overriders{FieldOverrider: []v1alpha1.FieldOverrider{c.patch}})
		if len(item.Object) > overrides.MaxObjectBytes || allocated > most {
			t.Errorf("%s: %d bytes became %d, and took %d; error %q", name, len(c.document), len(item.Object), allocated, item.Error)
		}
	}
	item, _ := renderDocument(t, wide, v1alpha1.Overriders{FieldOverrider: []v1alpha1.FieldOverrider{{FieldPath: "/data/d", JSON: documentPatch("/b", "1")}}})
	if !strings.Contains(item.Error, overrides.ErrObjectTooLarge.Error()) {
		t.Errorf("the error is %q", item.Error)
	}
	item, _ = renderDocument(t, "{\n    \"a\": [\n        1\n    ]\n}\n", v1alpha1.Overriders{FieldOverrider: []v1alpha1.FieldOverrider{{FieldPath: "/data/d", JSON: documentPatch("/b", "1")}}})
	if want := `{\n    \"a\": [\n        1\n    ],\n    \"b\": 1\n}\n`; !strings.Contains(string(item.Object), want) {
		t.Errorf("a document within the bound became %s, want %s", item.Object, want)
	}
}

// The number of overriders of an object and the bytes that they patch are bounded, also where
// overriders that do not apply are skipped.
func TestOverridersOfAnObjectAreBounded(t *testing.T) {
	var many, heavy v1alpha1.Overriders
	for i := range 2001 {
		many.Plaintext = append(many.Plaintext, v1alpha1.PlaintextOverrider{Operator: v1alpha1.OverrideAdd, Path: fmt.Sprintf("/data/k%d", i), Value: &apiextensionsv1.JSON{Raw: []byte(`"v"`)}})
	}
	for i := range 20 {
		heavy.FieldOverrider = append(heavy.FieldOverrider, v1alpha1.FieldOverrider{FieldPath: "/data/d", JSON: documentPatch(fmt.Sprintf("/b%d", i), "1")})
	}
	large := `{"a":"` + strings.Repeat("x", 1<<20) + `"}`
	// Patches count the bytes that they write, too: these read 10 MiB and write another 10 MiB.
	written := v1alpha1.Overriders{FieldOverrider: heavy.FieldOverrider[:10]}
	few := v1alpha1.Overriders{FieldOverrider: heavy.FieldOverrider[:7]}
	if item, _ := renderDocument(t, large, few); item.Error != "" {
		t.Errorf("14 MiB of documents are refused: %s", item.Error)
	}
	for name, c := range map[string]struct {
		document, want string
		o              v1alpha1.Overriders
	}{
		"number":            {"{}", "more than 2000 overriders", many},
		"bytes of document": {large, "patch more than", heavy},
		"bytes written":     {large, "patch more than", written},
	} {
		if item, _ := renderDocument(t, c.document, c.o); !strings.Contains(item.Error, c.want) || item.Object != nil {
			t.Errorf("%s: error %q, want %q", name, item.Error, c.want)
		}
	}
}

// An object that overriders make too large or too deep has an error in place of its bytes.
func TestAnObjectDoesNotGrowBeyondItsBound(t *testing.T) {
	value, err := json.Marshal(strings.Repeat("x", 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	var grown, deep v1alpha1.Overriders
	for i := range 4 {
		grown.Plaintext = append(grown.Plaintext, v1alpha1.PlaintextOverrider{Operator: v1alpha1.OverrideAdd, Path: fmt.Sprintf("/data/k%d", i), Value: &apiextensionsv1.JSON{Raw: value}})
	}
	path := "/deep"
	for range 20 {
		deep.Plaintext = append(deep.Plaintext, v1alpha1.PlaintextOverrider{Operator: v1alpha1.OverrideAdd, Path: path, Value: &apiextensionsv1.JSON{Raw: []byte(strings.Repeat(`{"a":`, 59) + "{}" + strings.Repeat("}", 59))}})
		path += strings.Repeat("/a", 59)
		path += "/a"
	}
	if item, _ := renderDocument(t, "{}", grown); !strings.Contains(item.Error, "more than") || item.Object != nil {
		t.Errorf("grown: error %q, %d bytes", item.Error, len(item.Object))
	}
	if item, _ := renderDocument(t, "{}", deep); !strings.Contains(item.Error, "nested more than") || item.Object != nil {
		t.Errorf("deep: error %q", item.Error)
	}
}
