package e2e

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// The hub's API keeps null as the value of an operation, and takes every operator and component.
func TestOverrideFieldsAreKept(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "override-fields")
	const text = overridePrefix + `overrideRules:
  - overriders:
      imageOverrider: [{containerName: web, component: Digest, operator: remove}]
      fieldOverrider: [{fieldPath: /data/a, json: [{subPath: /a, operator: add, value: null}]}, {fieldPath: /data/b, mergePatch: {a: null, b: {c: 1}}}]
      plaintext: [{path: /spec/a, operator: add, value: null}, {path: /spec/b, from: /spec/a, operator: move}, {path: /spec/a, from: /spec/b, operator: copy}, {path: /spec/a, operator: test, value: null}]
`
	var o unstructured.Unstructured
	if err := yaml.Unmarshal([]byte(strings.ReplaceAll(text, "$NS", ns)), &o.Object); err != nil {
		t.Fatal(err)
	}
	if err := hubClient().Create(t.Context(), &o); err != nil {
		t.Fatal(err)
	}
	back, err := get(t.Context(), "hub", "atoll.dev/v1alpha1", "OverridePolicy", ns, "refused")
	if err != nil {
		t.Fatal(err)
	}
	rules, _, _ := unstructured.NestedSlice(back.Object, "spec", "overrideRules")
	if len(rules) != 1 {
		t.Fatalf("rules %v", rules)
	}
	overriders, _, _ := unstructured.NestedMap(rules[0].(map[string]any), "overriders")
	plaintext, _, _ := unstructured.NestedSlice(overriders, "plaintext")
	documents, _, _ := unstructured.NestedSlice(overriders, "fieldOverrider")
	if len(plaintext) != 4 || len(documents) != 2 {
		t.Fatalf("overriders %v", overriders)
	}
	patches, _, _ := unstructured.NestedSlice(documents[0].(map[string]any), "json")
	for _, operation := range append(patches, plaintext[0], plaintext[3]) {
		if value, there := operation.(map[string]any)["value"]; !there || value != nil {
			t.Errorf("the value null is not kept: %v", operation)
		}
	}
	merge, _, _ := unstructured.NestedMap(documents[1].(map[string]any), "mergePatch")
	if value, there := merge["a"]; !there || value != nil {
		t.Errorf("null in a merge patch is not kept: %v", merge)
	}
}
