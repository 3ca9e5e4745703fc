package overrides_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/overrides"
)

const widgetDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  names: {kind: Widget, plural: widgets}
  scope: Namespaced
  versions:
  - name: v1
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              size: {type: integer}
              parts: {type: array, items: {type: object, properties: {name: {type: string}}}}
              byName: {type: object, additionalProperties: {type: object, properties: {a: {type: string}}}}
              open: {type: object, x-kubernetes-preserve-unknown-fields: true, properties: {closed: {type: object, properties: {a: {type: string}}}}}
              pod: {type: object, x-kubernetes-embedded-resource: true}
              port: {x-kubernetes-int-or-string: true}
  - name: v2
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {newer: {type: string}}}}}}
`

// A field that no version of a selected kind has is refused, wherever an overrider names it.
func TestUnknownFields(t *testing.T) {
	definition := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(widgetDefinition), &definition.Object); err != nil {
		t.Fatal(err)
	}
	deployment, widget, config := schema.GroupKind{Group: "apps", Kind: "Deployment"}, schema.GroupKind{Group: "example.com", Kind: "Widget"}, schema.GroupKind{Kind: "ConfigMap"}
	autoscaler, other := schema.GroupKind{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}, schema.GroupKind{Group: "example.com", Kind: "Other"}
	for _, tc := range []struct {
		kind             schema.GroupKind
		over, path, want string // want empty: known
	}{
		{deployment, `{mergePatch: {spec: {resourcez: {}}}}`, "mergePatch", "objects of the kind Deployment.apps have no field /spec/resourcez"},
		{deployment, `{mergePatch: {spec: {template: {spec: {containers: [{name: web, resourcez: {}}]}}}}}`, "mergePatch", "no field /spec/template/spec/containers/0/resourcez"},
		{deployment, `{strategicMerge: {spec: {template: {spec: {$retainKeys: [containers], containers: [{name: web, $patch: delete}], hostnam: x}}}}}`, "strategicMerge", "no field /spec/template/spec/hostnam"},
		{deployment, `{plaintext: [{path: /spec/template/spec/containers/0/resourcez, operator: add, value: {}}]}`, "plaintext[0].path", "no field /spec/template/spec/containers/0/resourcez"},
		{deployment, `{plaintext: [{path: /spec/template/spec/containers/-, operator: add, value: {name: a, resources: {limit: {}}}}]}`, "plaintext[0].path", "no field /spec/template/spec/containers/-/resources/limit"},
		{deployment, `{plaintext: [{path: /spec/strategy, from: /spec/strateg, operator: move}]}`, "plaintext[0].from", "no field /spec/strateg"},
		{deployment, `{ordered: [{plaintext: {path: /spec/replica, operator: remove}}]}`, "ordered[0].plaintext.path", "no field /spec/replica"},
		{deployment, `{plaintext: [{path: /spec/replicas/a, operator: remove}, {path: /spec/replicas/0, operator: add, value: [{a: 1}]}]}`, "", ""},
		{widget, `{plaintext: [{path: /spec/size/a, operator: remove}]}`, "", ""},
		{deployment, `{imageOverrider: [{predicate: {path: /spec/image}, component: Tag, operator: remove}]}`, "imageOverrider[0].predicate.path", "no field /spec/image"},
		{config, `{fieldOverrider: [{fieldPath: /dat/a, json: [{subPath: /b, operator: remove}]}]}`, "fieldOverrider[0].fieldPath", "no field /dat"},
		{config, `{fieldOverrider: [{fieldPath: /data/a, json: [{subPath: /b, operator: remove}]}], mergePatch: {data: {any: x}, binaryData: {b: eA==}, immutable: true, metadata: {labels: {a: b}}}}`, "", ""},
		{deployment, `{mergePatch: {spec: {template: {spec: {containers: [{name: a, resources: {limits: {cpu: 1, example.com/gpu: 2}}, ports: [{containerPort: 80}], livenessProbe: {httpGet: {port: http}}}]}}}}}`, "", ""},
		{deployment, `{plaintext: [{path: /spec/strategy/rollingUpdate/maxSurge, operator: add, value: 25%}]}`, "", ""},
		{autoscaler, `{mergePatch: {spec: {metrics: [{type: Resource}]}}}`, "", ""},
		{autoscaler, `{mergePatch: {spec: {targetCPUUtilizationPercentage: 5}}}`, "", ""},
		{widget, `{mergePatch: {spec: {size: 1, newer: x, parts: [{name: a}], byName: {k: {a: b}}, open: {any: {thing: 1}}, pod: {spec: {}}, port: http}, metadata: {annotations: {a: b}}}}`, "", ""},
		{widget, `{mergePatch: {spec: {siz: 1}}}`, "mergePatch", "objects of the kind Widget.example.com have no field /spec/siz"},
		{widget, `{mergePatch: {spec: {parts: [{nam: a}]}}}`, "mergePatch", "no field /spec/parts/0/nam"},
		{widget, `{mergePatch: {spec: {byName: {k: {b: 1}}}}}`, "mergePatch", "no field /spec/byName/k/b"},
		{widget, `{mergePatch: {spec: {open: {closed: {b: 1}}}}}`, "mergePatch", "no field /spec/open/closed/b"},
		{widget, `{mergePatch: {data: {}}}`, "mergePatch", "no field /data"},
		{other, `{mergePatch: {anything: 1}}`, "", ""},
	} {
		rule := &v1alpha1.RuleWithCluster{Overriders: parseOverriders(t, tc.over)}
		definitionOf := func(gk schema.GroupKind) *unstructured.Unstructured {
			if gk == widget {
				return definition
			}
			return nil
		}
		problems := overrides.UnknownFields(rule, []schema.GroupKind{tc.kind}, definitionOf)
		if tc.want == "" && len(problems) > 0 || tc.want != "" && (len(problems) != 1 || problems[0].Path != tc.path || !strings.Contains(problems[0].Reason, tc.want)) {
			t.Errorf("%s: %q, want %s: %s", tc.over, problems, tc.path, tc.want)
		}
	}
}

// Each of several kinds has to have the field; under onMissing Skip, one of them.
func TestUnknownFieldsOfSeveralKinds(t *testing.T) {
	none := func(schema.GroupKind) *unstructured.Unstructured { return nil }
	both := []schema.GroupKind{{Group: "apps", Kind: "Deployment"}, {Kind: "Service"}}
	for over, want := range map[string][2]int{ // under Stop, under Skip
		`{plaintext: [{path: /spec/replicas, operator: replace, value: 1}]}`: {1, 0},
		`{plaintext: [{path: /spec/replica, operator: replace, value: 1}]}`:  {1, 1},
		`{plaintext: [{path: /metadata/labels/a, operator: remove}]}`:        {0, 0},
	} {
		rule := &v1alpha1.RuleWithCluster{Overriders: parseOverriders(t, over)}
		if got := overrides.UnknownFields(rule, both, none); len(got) != want[0] {
			t.Errorf("%s: %q", over, got)
		}
		rule.OnMissing = v1alpha1.OnMissingSkip
		if got := overrides.UnknownFields(rule, both, none); len(got) != want[1] {
			t.Errorf("%s under Skip: %q", over, got)
		}
	}
}
