package preview

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// A plan names what Atoll does otherwise on purpose, for a policy that came from Karmada alone.
func TestKarmadaNotes(t *testing.T) {
	const (
		policy    = "apiVersion: atoll.dev/v1alpha1\nkind: PropagationPolicy\n"
		divides   = "PropagationPolicy shop/web: replicaScheduling has no type: "
		withLabel = "metadata: {name: web, namespace: shop, labels: {propagationpolicy.karmada.io/permanent-id: x}}\n"
		noType    = "spec: {placement: {replicaScheduling: {}}}"
	)
	for name, tc := range map[string]struct{ text, want string }{
		"a label":                      {policy + withLabel + noType, divides},
		"an annotation":                {policy + "metadata: {name: web, namespace: shop, annotations: {karmada.io/x: v}}\n" + noType, divides},
		"applied there":                {policy + `metadata: {name: web, namespace: shop, annotations: {kubectl.kubernetes.io/last-applied-configuration: '{"apiVersion":"policy.karmada.io/v1alpha1"}'}}` + "\n" + noType, divides},
		"of a cluster policy":          {"apiVersion: atoll.dev/v1alpha1\nkind: ClusterPropagationPolicy\nmetadata: {name: web, labels: {a.karmada.io/b: c}}\n" + noType, "ClusterPropagationPolicy web: replicaScheduling has no type: "},
		"with a type":                  {policy + withLabel + "spec: {placement: {replicaScheduling: {replicaSchedulingType: Duplicated}}}", ""},
		"with a field that divides":    {policy + withLabel + "spec: {placement: {replicaScheduling: {replicaDivisionPreference: Weighted}}}", ""},
		"both duplicate":               {policy + withLabel + "spec: {placement: {}}", ""},
		"not from there":               {policy + "metadata: {name: web, namespace: shop, labels: {notkarmada.io/x: v, karmada.io: z}}\n" + noType, ""},
		"another kind":                 {"apiVersion: atoll.dev/v1alpha1\nkind: Placement\n" + withLabel + noType, ""},
		"another group":                {"apiVersion: example.com/v1\nkind: PropagationPolicy\n" + withLabel + noType, ""},
		"still of Karmada's API":       {"apiVersion: policy.karmada.io/v1alpha1\nkind: OverridePolicy\nmetadata: {name: web, namespace: shop}", "OverridePolicy shop/web: it is of Karmada's API"},
		"a customization is Karmada's": {"apiVersion: config.karmada.io/v1alpha1\nkind: ResourceInterpreterCustomization\nmetadata: {name: web}", ""},
	} {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(tc.text), &u.Object); err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, n := range ListKarmadaNotes([]*unstructured.Unstructured{u}) {
			got += n.Object + ": " + n.Note
		}
		if !strings.HasPrefix(got, tc.want) || (got == "") != (tc.want == "") {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
	text := Plan{Notes: []PolicyNote{{Object: "PropagationPolicy web", Note: "it differs"}}}.FormatText(false)
	if !strings.HasPrefix(text, "note: PropagationPolicy web: it differs\n") {
		t.Errorf("the text of a plan is\n%s", text)
	}
}
