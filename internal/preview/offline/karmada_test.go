package offline

import (
	"strings"
	"testing"
)

// customizationYAML is a customization of Karmada's for Things, with these answers.
func customizationYAML(answers string) string {
	return "apiVersion: config.karmada.io/v1alpha1\nkind: ResourceInterpreterCustomization\nmetadata: {name: things}\nspec: {target: {apiVersion: example.com/v1, kind: Thing}, customizations: {" + answers + "}}"
}

// Karmada's customizations decide over files as the interpreter that a hub makes of them.
func TestCustomizationsOfKarmada(t *testing.T) {
	const thing = `
apiVersion: example.com/v1
kind: Thing
metadata: {name: t, namespace: shop}
spec: {size: 5}
---
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: things, namespace: shop}
spec:
  resourceSelectors: [{apiVersion: example.com/v1, kind: Thing}]
  placement:
    clusterTolerations: [{operator: Exists}]
    replicaScheduling: {replicaSchedulingType: Divided, replicaDivisionPreference: Weighted, weightPreference: {staticWeightList: [{targetCluster: {clusterNames: [oslo]}, weight: 3}, {targetCluster: {clusterNames: [tokyo]}, weight: 2}]}}
`
	const (
		replicas = `replicaResource: {luaScript: "function GetReplicas(obj) return obj.spec.size end"}`
		revision = `replicaRevision: {luaScript: "function ReviseReplica(obj, n) obj.spec.size = n return obj end"}`
		whole    = "shop/things[example.com/Thing/shop/t]: oslo tokyo"
		divided  = "shop/things[example.com/Thing/shop/t]: oslo=3 tokyo=2"
		written  = "apiVersion: atoll.dev/v1alpha1\nkind: ResourceInterpreter\nmetadata: {name: things}\nspec: {target: {group: other, kinds: [Thing]}, health: {cel: 'true'}}"
	)
	for name, tc := range map[string]struct{ text, want string }{
		"unknown":                 {"", whole},
		"divided":                 {customizationYAML(replicas + ", " + revision), divided},
		"not to be set":           {customizationYAML(replicas), whole},
		"it does not apply":       {strings.Replace(customizationYAML(replicas+", "+revision), "example.com/v1", "example.com/v2", 1), whole},
		"it does not compile":     {customizationYAML(`retention: {luaScript: "function("}`), "refused: ResourceInterpreterCustomization things: spec: Invalid value: spec.customizations.retention.luaScript, line 1, column"},
		"an unknown field":        {customizationYAML("retentoin: {luaScript: x}"), `refused: ResourceInterpreterCustomization things: strict decoding error: unknown field "spec.customizations.retentoin"`},
		"a wildcard":              {strings.Replace(customizationYAML(replicas), "kind: Thing", "kind: 'T*'", 1), "refused: ResourceInterpreterCustomization things: spec.target.kind in body should match"},
		"a name that another has": {customizationYAML(replicas) + "\n---\n" + written, "refused: ResourceInterpreterCustomization things: a ResourceInterpreter of this name is there"},
		"and before it":           {written + "\n---\n" + customizationYAML(replicas), "refused: ResourceInterpreterCustomization things: a ResourceInterpreter of this name is there"},
		"what the engine writes":  {"apiVersion: engine.atoll.dev/v1alpha1\nkind: Revision\nmetadata: {name: r}", "refused: engine.atoll.dev/Revision//r: a hub writes every Revision itself"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := describePlacement(t, parseObjects(t, threeClusters, thing, tc.text)); got != tc.want && !(strings.HasPrefix(tc.want, "refused: ") && strings.HasPrefix(got, tc.want)) {
				t.Errorf("comes to\n  %s\nwant\n  %s", got, tc.want)
			}
		})
	}
}
