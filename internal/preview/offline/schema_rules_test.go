package offline

import (
	"testing"

	"k8s.io/kube-openapi/pkg/validation/spec"
)

// TestEveryRuleIsEvaluated: each CEL rule in the definitions of Atoll's kinds compiles, but those about
// a change, so that no rule of the hub is unknown to a plan over files.
func TestEveryRuleIsEvaluated(t *testing.T) {
	files, err := definitionFiles()
	if err != nil {
		t.Fatal(err)
	}
	rules := 0
	var walk func(s *spec.Schema)
	walk = func(s *spec.Schema) {
		for _, r := range rulesOf(s) {
			rules++
			if _, err := r.compileRule(); err != nil || r.message == "" {
				t.Errorf("%q: %v, message %q", r.rule, err, r.message)
			}
		}
		for _, p := range s.Properties {
			walk(&p)
		}
		if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
			walk(s.AdditionalProperties.Schema)
		}
		if s.Items != nil && s.Items.Schema != nil {
			walk(s.Items.Schema)
		}
	}
	for kind := range files {
		d, err := findAtollCRD(kind)
		if err != nil || d == nil {
			t.Fatalf("%s: %v", kind, err)
		}
		walk(&d.schema)
	}
	if len(files) < 14 || rules < 40 {
		t.Errorf("%d kinds with %d rules: the definitions are not all read", len(files), rules)
	}
}
