package admission

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// An error that only the whole policy shows is refused with the path.
func TestOverridePoliciesThatCannotBe(t *testing.T) {
	at := field.NewPath("spec")
	for _, tc := range []struct{ name, spec, path, reason string }{
		{"strategicMerge of a custom kind", `{resourceSelectors: [{apiVersion: apps/v1, kind: Deployment}, {apiVersion: example.com/v1, kind: Widget}], overrideRules: [{overriders: {strategicMerge: {spec: {}}}}]}`,
			"spec.overrideRules[0].overriders.strategicMerge", "Widget.example.com, which resourceSelectors chooses, is no built-in kind"},
		{"strategicMerge of a custom kind, ordered", `{resourceSelectors: [{apiVersion: example.com/v1, kind: Widget}], overrideRules: [{overriders: {ordered: [{replicas: 1}, {strategicMerge: {spec: {}}}]}}]}`,
			"spec.overrideRules[0].overriders.ordered[1].strategicMerge", "no built-in kind"},
		{"strategicMerge of built-in kinds", `{resourceSelectors: [{apiVersion: apps/v1, kind: Deployment}, {apiVersion: v1, kind: ConfigMap}], overrideRules: [{overriders: {strategicMerge: {spec: {}}}}]}`, "", ""},
		{"the data of Secrets by a merge patch", `{resourceSelectors: [{apiVersion: v1, kind: Secret}], overrideRules: [{overriders: {mergePatch: {data: {a: null}}}}]}`,
			"spec.overrideRules[0].overriders", "only a ClusterOverridePolicy may change the data"},
		{"the labels of Secrets by a merge patch", `{resourceSelectors: [{apiVersion: v1, kind: Secret}], overrideRules: [{overriders: {mergePatch: {metadata: {labels: {a: b}}}}}]}`, "", ""},
		{"CRDs", `{resourceSelectors: [{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition}], overrideRules: [{overriders: {notHere: true}}]}`,
			"spec.resourceSelectors[0]", "only a ClusterOverridePolicy"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var spec v1alpha1.OverrideSpec
			if err := yaml.UnmarshalStrict([]byte(tc.spec), &spec); err != nil {
				t.Fatal(err)
			}
			errs := append(forbidClusterOnlyOverrides(&spec, at), checkStrategicMergeSupport(&spec, spec.OverrideRules[0].Overriders, at.Child("overrideRules").Index(0).Child("overriders"))...)
			switch {
			case tc.path == "" && len(errs) > 0:
				t.Errorf("refused: %v", errs)
			case tc.path != "" && (len(errs) != 1 || errs[0].Field != tc.path || !strings.Contains(errs[0].Detail, tc.reason)):
				t.Errorf("%v, want %s: %s", errs, tc.path, tc.reason)
			}
		})
	}
}

// An override of divided replicas is refused at its place, with the alternative. One that only
// excludes an object from a cluster sets no number.
func TestOverridesOfDividedReplicas(t *testing.T) {
	for overriders, want := range map[string]string{
		"{replicas: 3}":                                      "o.replicas: Forbidden: the placement of Deployment web divides its replicas, so that no override can set them, unless",
		"{mergePatch: {spec: {replicas: 1}}}":                "o: Forbidden: the placement of Deployment web divides its replicas, so that no override can set them, unless",
		"{notHere: true, mergePatch: {spec: {replicas: 1}}}": "o: Forbidden: the placement of Deployment web divides its replicas, so that no override can set them, unless",
		"{notHere: true}":                                    "o.notHere: Forbidden: the placement of Deployment web divides its replicas, and so shows which clusters have any: exclude clusters there, unless its replicaScheduling has replicaOverrides: Allow",
	} {
		var o v1alpha1.Overriders
		if err := yaml.UnmarshalStrict([]byte(overriders), &o); err != nil {
			t.Fatal(err)
		}
		if got := DividedReplicasError(o, atoll.ItemKey{Group: "apps", Kind: "Deployment", Name: "web"}, field.NewPath("o")).Error(); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", overriders, got, want)
		}
	}
}

// A field that a selected kind does not have is refused when it is written. A rule that was there
// before stays.
func TestUnknownFieldsAreRefusedWhenWritten(t *testing.T) {
	p := New(Options{Own: func(user.Info) bool { return false }})
	p.Hub = func() (Hub, bool) { return Hub{Definitions: noDefinitions{}}, true }
	at := field.NewPath("spec", "overrideRules")
	parse := func(text string) *v1alpha1.OverridePolicy {
		var o v1alpha1.OverridePolicy
		if err := yaml.UnmarshalStrict([]byte("spec: "+text), &o); err != nil {
			t.Fatal(err)
		}
		return &o
	}
	const selectors = "resourceSelectors: [{apiVersion: apps/v1, kind: Deployment}]"
	const typo = "{overriders: {mergePatch: {spec: {resourcez: 1}}}}"
	bad := parse("{" + selectors + ", overrideRules: [" + typo + "]}")
	errs := p.checkKnownFields(&bad.Spec, nil, at)
	if len(errs) != 1 || errs[0].Field != "spec.overrideRules[0].overriders.mergePatch" || !strings.Contains(errs[0].Detail, "Deployment.apps have no field /spec/resourcez") {
		t.Errorf("when created: %v", errs)
	}
	edited := parse("{" + selectors + ", overrideRules: [{overriders: {replicas: 1}}, " + typo + "]}")
	if errs := p.checkKnownFields(&edited.Spec, bad, at); len(errs) > 0 {
		t.Errorf("a rule that was there before: %v", errs)
	}
	edited.Spec.ResourceSelectors[0].Name = "web"
	if errs := p.checkKnownFields(&edited.Spec, bad, at); len(errs) != 1 || errs[0].Field != "spec.overrideRules[1].overriders.mergePatch" {
		t.Errorf("with other selectors: %v", errs)
	}
	p.Hub = nil
	custom := parse("{resourceSelectors: [{apiVersion: example.com/v1, kind: Widget}], overrideRules: [" + typo + "]}")
	if errs := p.checkKnownFields(&custom.Spec, nil, at); len(errs) > 0 {
		t.Errorf("of an unknown kind, while the hub starts: %v", errs)
	}
}

// widgetDefinition is a hub with one custom kind.
type widgetDefinition struct{ crd *unstructured.Unstructured }

func (w widgetDefinition) FindCRD(gk schema.GroupKind) *unstructured.Unstructured {
	if gk != (schema.GroupKind{Group: "example.com", Kind: "Widget"}) {
		return nil
	}
	return w.crd
}

// Fields of custom kinds are known by their definition.
func TestFieldsOfCustomKindsAreKnownByTheirDefinition(t *testing.T) {
	crd := unstructuredOf(t, "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: widgets.example.com}, spec: {group: example.com, scope: Namespaced, names: {kind: Widget, plural: widgets}, versions: [{name: v1, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}}}]}}")
	p := New(Options{Hub: readyHub(Hub{Definitions: widgetDefinition{crd}})})
	for name, want := range map[string]int{"size": 0, "siz": 1} {
		var spec v1alpha1.OverrideSpec
		text := "{resourceSelectors: [{apiVersion: example.com/v1, kind: Widget}, {apiVersion: example.com/v1, kind: Widget, name: a}], overrideRules: [{overriders: {mergePatch: {spec: {" + name + ": 1}}}}]}"
		if err := yaml.UnmarshalStrict([]byte(text), &spec); err != nil {
			t.Fatal(err)
		}
		if errs := p.checkKnownFields(&spec, nil, field.NewPath("r")); len(errs) != want || want > 0 && errs[0].Field != "r[0].overriders.mergePatch" {
			t.Errorf("%s: %v", name, errs)
		}
	}
}

// noDefinitions is a hub without custom kinds.
type noDefinitions struct{}

func (noDefinitions) FindCRD(schema.GroupKind) *unstructured.Unstructured { return nil }
