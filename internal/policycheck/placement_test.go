package policycheck

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/v1alpha1"
)

// listErrors returns the errors of fields without the values.
func listErrors(errs field.ErrorList) (out []string) {
	for _, e := range errs {
		out = append(out, e.Field+": "+e.Detail)
	}
	return out
}

// Names of clusters are well formed and named once, and none is excluded at the same time.
func TestAffinitiesThatAreRefused(t *testing.T) {
	const form = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
	for affinity, want := range map[string]string{
		"{clusterNames: [a, b], exclude: [c, d]}": "",
		"{clusterNames: [a, B]}":                  "p.clusterNames[1]: is not the name of a cluster: " + form,
		"{exclude: [a, B]}":                       "p.exclude[1]: is not the name of a cluster: " + form,
		"{clusterNames: [a, b, a]}":               "p.clusterNames[2]: ",
		"{exclude: [a, a]}":                       "p.exclude[1]: ",
		"{clusterNames: [a, b], exclude: [c, b]}": "p.clusterNames[1]: is named in exclude too",
		"{labelSelector: {}}":                     "p.labelSelector: an empty selector selects everything: leave it out if that is meant",
		"{fieldSelector: {matchExpressions: [{key: zone, operator: In}]}}": "p.fieldSelector.matchExpressions[0].values: operator In needs at least one",
	} {
		var a v1alpha1.ClusterAffinity
		if err := yaml.UnmarshalStrict([]byte(affinity), &a); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(listErrors(checkAffinity(&a, field.NewPath("p"))), ", "); got != want {
			t.Errorf("%s: %q, want %q", affinity, got, want)
		}
	}
	if errs := checkAffinity(nil, field.NewPath("p")); len(errs) > 0 {
		t.Errorf("no affinity: %v", errs)
	}
}

// A toleration has the effects of taints, and lasts only where a taint evicts.
func TestEffectsOfTolerations(t *testing.T) {
	for toleration, want := range map[string]string{
		"{key: a, effect: NoExecute, tolerationSeconds: 0}":           "",
		"{key: a, effect: NoSchedule}":                                "",
		"{key: a, effect: PreferNoSchedule, operator: Equal}":         "",
		"{key: a, effect: NoSchedule, tolerationSeconds: 60}":         "t.tolerationSeconds: needs effect NoExecute",
		"{key: a, tolerationSeconds: 60}":                             "t.tolerationSeconds: needs effect NoExecute",
		"{key: a, effect: Evict}":                                     `t.effect: supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"`,
		"{key: a, operator: Like}":                                    `t.operator: supported values: "Equal", "Exists"`,
		"{operator: Equal}":                                           "t.operator: must be Exists when there is no key, which tolerates every taint",
		"{operator: Exists, value: b}":                                "t.value: must be empty with operator Exists",
		"{operator: Exists, effect: NoExecute, tolerationSeconds: 9}": "",
	} {
		var in corev1.Toleration
		if err := yaml.UnmarshalStrict([]byte(toleration), &in); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(listErrors(checkToleration(in, field.NewPath("t"))), ", "); got != want {
			t.Errorf("%s: %q, want %q", toleration, got, want)
		}
	}
}

func TestTolerationsThatCannotBe(t *testing.T) {
	for name, c := range map[string]struct {
		toleration corev1.Toleration
		want       string // a part of the error; empty: none
	}{
		"a key and a value":      {corev1.Toleration{Key: "x.dev/a", Value: "b"}, ""},
		"every taint":            {corev1.Toleration{Operator: corev1.TolerationOpExists}, ""},
		"a key that exists":      {corev1.Toleration{Key: "a", Operator: corev1.TolerationOpExists}, ""},
		"a malformed key":        {corev1.Toleration{Key: "a b", Value: "c"}, "t.key"},
		"no key":                 {corev1.Toleration{Value: "c"}, "must be Exists when there is no key"},
		"a malformed value":      {corev1.Toleration{Key: "a", Value: "b c"}, "t.value"},
		"a value of what exists": {corev1.Toleration{Key: "a", Value: "b", Operator: corev1.TolerationOpExists}, "must be empty with operator Exists"},
	} {
		err := checkToleration(c.toleration, field.NewPath("t")).ToAggregate()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
