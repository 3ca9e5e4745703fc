package generate

import (
	"testing"

	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/v1alpha1"
)

func TestIsAsStated(t *testing.T) {
	const live = `{metadata: {name: a, labels: {x: v, more: z}, annotations: {note: m}}, spec: {repository: shop, ref: {branch: main}, paths: [a, b], prune: Remove, suspend: true, build: {helm: {hooks: Run, values: {num: 3, deep: {a: 1}}}}, placement: {maxClusters: 2}, drift: {mode: Correct}}}`
	var s v1alpha1.Source
	if err := yaml.UnmarshalStrict([]byte(live), &s); err != nil {
		t.Fatal(err)
	}
	for stated, want := range map[string]bool{
		"{metadata: {labels: {x: v}}, spec: {repository: shop, paths: [a, b]}}":   true,
		"{metadata: {labels: {x: v}}, spec: {repository: shop, force: false}}":    true,
		"{metadata: {labels: {x: v}}, spec: {targetNamespace: '', variants: []}}": true,
		"{spec: {build: {helm: {values: {num: 3, deep: {a: 1}}}}}}":               true,
		"{spec: {placement: {maxClusters: 2}, ref: {branch: main}}}":              true,
		"{spec: {prune: null, ref: null, variants: null, repository: shop}}":      true,
		"{spec: {build: {helm: {values: {num: null}}}}}":                          false,
		"{spec: {build: {helm: {values: {none: null}}}}}":                         true,
		"{metadata: {labels: {x: other}}, spec: {}}":                              false,
		"{metadata: {labels: {gone: v}}, spec: {}}":                               false,
		"{metadata: {annotations: {note: other}}, spec: {}}":                      false,
		"{spec: {repository: other}}":                                             false,
		"{spec: {paths: [a]}}":                                                    false,
		"{spec: {paths: [a, c]}}":                                                 false,
		"{spec: {suspend: false}}":                                                false,
		"{spec: {force: true}}":                                                   false,
		"{spec: {ref: {branch: next}}}":                                           false,
		"{spec: {ref: {tag: v1}}}":                                                false,
		"{spec: {build: {helm: {values: {num: 4}}}}}":                             false,
		"{spec: {placement: {maxClusters: 3}}}":                                   false,
		"{spec: {variants: [{name: a, targetCluster: {}}]}}":                      false,
	} {
		var object map[string]any
		if err := yaml.Unmarshal([]byte(stated), &object); err != nil {
			t.Fatal(err)
		}
		if got := IsAsStated(object, &s); got != want {
			t.Errorf("%s: %v, want %v", stated, got, want)
		}
	}
}

// A stated duration is the same in any form.
func TestFormsOfOneValue(t *testing.T) {
	for _, c := range []struct {
		stated, typed, live any
		want                bool
	}{
		{"60s", "1m0s", "1m0s", true}, {"60s", "1m0s", "2m0s", false}, {int64(3), nil, 3.0, true}, {3.5, nil, int64(3), false}, {nil, nil, nil, true}, {nil, nil, "x", false},
		{"", nil, nil, true}, {false, nil, nil, true}, {"x", nil, nil, false}, {false, nil, true, false}, {map[string]any{}, nil, "x", false}, {[]any{"a"}, nil, "a", false},
		{[]any{"60s"}, []any{"1m0s"}, []any{"1m0s"}, true},
	} {
		if got := includesStated(c.stated, c.typed, c.live); got != c.want {
			t.Errorf("%v (%v) of %v: %v", c.stated, c.typed, c.live, got)
		}
	}
}
