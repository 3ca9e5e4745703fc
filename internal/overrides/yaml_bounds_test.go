package overrides

import (
	"errors"
	"strings"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// YAML documents are bounded like others.
func TestYAMLDocumentsAreBounded(t *testing.T) {
	big := newDocumentPatch(v1alpha1.OverrideAdd, "/b", `"`+strings.Repeat("x", MaxObjectBytes)+`"`)
	if got, err := patchYAML("a: 1\n", big); got != "" || !errors.Is(err, ErrObjectTooLarge) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	for _, text := range []string{"", "# nothing\n", "a: 1\n---\nb: 2\n", "a: [\n"} {
		if got, err := patchYAML(text, newDocumentPatch(v1alpha1.OverrideAdd, "/b", "1")); got != "" || err == nil {
			t.Errorf("%q is patched to %q", text, got)
		}
	}
}

// Under onMissing Skip, a document over the bound is an error all the same, in JSON and in YAML.
func TestDocumentsOverTheBoundAreNotSkipped(t *testing.T) {
	big := newDocumentPatch(v1alpha1.OverrideAdd, "/b", `"`+strings.Repeat("x", MaxObjectBytes)+`"`)
	for name, f := range map[string]v1alpha1.FieldOverrider{"JSON": {FieldPath: "/data/j", JSON: big}, "YAML": {FieldPath: "/data/y", YAML: big}} {
		o := &ObjectPatcher{Item: &atoll.Item{}, Object: map[string]any{"data": map[string]any{"j": "{}", "y": "a: 1\n"}}}
		rule := &atoll.Rule{Policy: "ClusterOverridePolicy/p", OnMissing: v1alpha1.OnMissingSkip, Semantics: atoll.CurrentRuleSemantics, Overriders: v1alpha1.Overriders{FieldOverrider: []v1alpha1.FieldOverrider{f}}}
		if failed, err := o.ApplyRules([]*CompiledRule{{Rule: rule}}); failed != rule || !errors.Is(err, ErrObjectTooLarge) || len(o.Notes) != 0 {
			t.Errorf("%s: %v, notes %+v", name, err, o.Notes)
		}
	}
}
