package policycheck

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/v1alpha1"
)

// A label selector that selects everything by mistake, or nothing by contradiction, is refused.
func TestLabelSelectorsThatAreRefused(t *testing.T) {
	const contradicts = "l: the requirements of this key contradict each other, so that nothing matches"
	for selector, want := range map[string]string{
		"{}":                    "l: an empty selector selects everything: leave it out if that is meant",
		"{matchLabels: {a: b}}": "",
		"{matchExpressions: [{key: a, operator: Exists}]}":                                                                                             "",
		"{matchExpressions: [{key: a, operator: DoesNotExist}]}":                                                                                       "",
		"{matchExpressions: [{key: a, operator: Exists, values: [b]}]}":                                                                                "l.matchExpressions[0].values: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
		"{matchExpressions: [{key: a, operator: Exists}, {key: a, operator: DoesNotExist}]}":                                                           contradicts,
		"{matchExpressions: [{key: a, operator: Exists}, {key: b, operator: DoesNotExist}]}":                                                           "",
		"{matchLabels: {a: b}, matchExpressions: [{key: a, operator: DoesNotExist}]}":                                                                  contradicts,
		"{matchLabels: {a: b}, matchExpressions: [{key: a, operator: Exists}]}":                                                                        "",
		"{matchLabels: {a: b}, matchExpressions: [{key: a, operator: In, values: [b, c]}]}":                                                            "",
		"{matchLabels: {a: b}, matchExpressions: [{key: a, operator: In, values: [c, d]}]}":                                                            contradicts,
		"{matchLabels: {a: b}, matchExpressions: [{key: a, operator: NotIn, values: [b]}]}":                                                            contradicts,
		"{matchLabels: {a: b}, matchExpressions: [{key: a, operator: NotIn, values: [c]}]}":                                                            "",
		"{matchExpressions: [{key: a, operator: In, values: [b, c]}, {key: a, operator: NotIn, values: [b]}]}":                                         "",
		"{matchExpressions: [{key: a, operator: In, values: [b, c]}, {key: a, operator: NotIn, values: [b, c]}]}":                                      contradicts,
		"{matchExpressions: [{key: a, operator: NotIn, values: [b]}, {key: a, operator: DoesNotExist}]}":                                               "",
		"{matchExpressions: [{key: a, operator: In, values: [b, c]}, {key: a, operator: In, values: [c, d]}, {key: a, operator: NotIn, values: [d]}]}": "",
	} {
		var s v1alpha1.ResourceSelector
		if err := yaml.UnmarshalStrict([]byte("labelSelector: "+selector), &s); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(listErrors(CheckLabelSelector(s.LabelSelector, field.NewPath("l"))), ", "); got != want {
			t.Errorf("%s: %q, want %q", selector, got, want)
		}
	}
	if errs := CheckLabelSelector(nil, field.NewPath("l")); len(errs) > 0 {
		t.Errorf("no selector: %v", errs)
	}
}

// Requirements on fields of a Cluster are refused where no cluster could meet them.
func TestRequirementsOnFieldsThatAreRefused(t *testing.T) {
	const contradicts = "f: the requirements of this key contradict each other, so that nothing matches"
	for requirements, want := range map[string]string{
		"[{key: zone, operator: In, values: [a, b]}, {key: zone, operator: NotIn, values: [a]}]": "",
		"[{key: zone, operator: In, values: [a]}, {key: zone, operator: NotIn, values: [a]}]":    contradicts,
		"[{key: zone, operator: In, values: [a]}, {key: region, operator: DoesNotExist}]":        "",
		"[{key: zone, operator: In, values: [a]}, {key: zone, operator: DoesNotExist}]":          contradicts,
		"[{key: n, operator: Gt, values: ['3']}, {key: n, operator: DoesNotExist}]":              contradicts,
		"[{key: n, operator: Lt, values: ['3']}, {key: n, operator: DoesNotExist}]":              contradicts,
		"[{key: n, operator: Gt, values: ['3']}, {key: n, operator: Lt, values: ['5']}]":         "",
		"[{key: n, operator: NotIn}]": "f.matchExpressions[0].values: operator NotIn needs at least one",
		"[{key: n, operator: Exists}, {key: m, operator: DoesNotExist, values: [a]}]": "f.matchExpressions[1].values: operator DoesNotExist takes none",
		"[{key: n, operator: Gt}]":                 "f.matchExpressions[0].values: operator Gt needs exactly one",
		"[{key: n, operator: Gt, values: [many]}]": "f.matchExpressions[0].values[0]: must be a quantity, such as 10 or 64Gi",
		"[{key: n, operator: Near, values: [a]}]":  `f.matchExpressions[0].operator: supported values: "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"`,
		"[{key: n, operator: In}, {key: zone, operator: Exists}, {key: zone, operator: DoesNotExist}]": "f.matchExpressions[0].values: operator In needs at least one",
	} {
		var s v1alpha1.FieldSelector
		if err := yaml.UnmarshalStrict([]byte("matchExpressions: "+requirements), &s); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(listErrors(checkFields(&s, field.NewPath("f"))), ", "); got != want {
			t.Errorf("%s: %q, want %q", requirements, got, want)
		}
	}
}
