package policy

import (
	"slices"
	"strings"
	"testing"
)

// The nodeLabels of a policy are reported. A policy that is not understood changes nothing of what is reported.
func TestNodeLabels(t *testing.T) {
	var none *Policy
	for name, tc := range map[string]struct {
		policy  *Policy
		want    []string
		isKnown bool
	}{
		"no policy":         {none, nil, true},
		"no keys":           {read(t, "{}"), nil, true},
		"keys":              {read(t, "{nodeLabels: [kubernetes.io/arch, pool]}"), []string{"kubernetes.io/arch", "pool"}, true},
		"none at all":       {read(t, "{nodeLabels: []}"), nil, true},
		"not understood":    {DenyAllPolicy("why"), nil, false},
		"too many keys":     {read(t, "{nodeLabels: [a, b, c, d, e, f, g, h, i]}"), nil, false},
		"no key of a label": {read(t, "{nodeLabels: ['a b']}"), nil, false},
	} {
		keys, isKnown := tc.policy.NodeLabels()
		if !slices.Equal(keys, tc.want) || isKnown != tc.isKnown {
			t.Errorf("%s: %v, %t; want %v, %t", name, keys, isKnown, tc.want, tc.isKnown)
		}
	}
	for spec, want := range map[string]string{
		"{nodeLabels: [a, b, c, d, e, f, g, h, i]}": "spec.nodeLabels: has 9 keys, and at most 8",
		"{nodeLabels: ['a b']}":                     `spec.nodeLabels: "a b" is no key of a label`,
	} {
		if got := read(t, spec).ApplyRefusal(parseKey(deployment), Namespace{}); !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", spec, got, want)
		}
	}
}
