package overrides_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/overrides"
)

// Overriders that a user writes have keys and values that labels and annotations can have. Stored overriders of older hubs may
// break that, and are not refused again.
func TestWrittenKeysHaveTheirSyntax(t *testing.T) {
	for _, tc := range []struct{ over, path, reason string }{
		{`{labelsOverrider: [{operator: add, value: {app: web}}]}`, "", ""},
		{`{labelsOverrider: [{operator: add, value: {"a b": web}}]}`, "labelsOverrider[0].value", "a b: name part must consist of"},
		{`{labelsOverrider: [{operator: add, value: {app: "a b"}}]}`, "labelsOverrider[0].value[app]", "a valid label must be"},
		{`{labelsOverrider: [{operator: remove, value: {app: "a b"}}]}`, "", ""},
		{`{annotationsOverrider: [{operator: add, value: {note: "any text: at all"}}]}`, "", ""},
		{`{annotationsOverrider: [{operator: add, value: {"no/te/s": x}}]}`, "annotationsOverrider[0].value", "no/te/s: a valid"},
		{`{ordered: [{labelsOverrider: {operator: replace, value: {app: "-"}}}, {replicas: 2}]}`, "ordered[0].labelsOverrider.value[app]", "a valid label must be"},
	} {
		o := parseOverriders(t, tc.over)
		got := overrides.CheckOverridersOnWrite(o)
		if len(got) == 1 != (tc.path != "") || len(got) == 1 && (got[0].Path != tc.path || !strings.HasPrefix(got[0].Reason, tc.reason)) {
			t.Errorf("%s: %q, want %s: %s", tc.over, got, tc.path, tc.reason)
		}
		if stored := overrides.CheckOverriders(o); len(stored) > 0 {
			t.Errorf("%s: stored overriders have the problems %q", tc.over, stored)
		}
	}
	// Problems of stored overriders come first.
	got := overrides.CheckOverridersOnWrite(parseOverriders(t, `{labelsOverrider: [{operator: add, value: {app: "a b"}}], plaintext: [{path: /status, operator: remove}]}`))
	if len(got) != 2 || got[0].Path != "plaintext[0].path" || got[1].Path != "labelsOverrider[0].value[app]" {
		t.Errorf("%q", got)
	}
}

// Problems come by the paths of their fields, whatever the order in which types are checked.
func TestProblemsAreSortedByPath(t *testing.T) {
	got := overrides.CheckOverriders(parseOverriders(t, `{plaintext: [{path: /status, operator: remove}], labelsOverrider: [{operator: add}], commandOverrider: [{containerName: a, operator: add}], imageOverrider: [{component: Tag, operator: add}]}`))
	var paths []string
	for _, p := range got {
		paths = append(paths, p.Path)
	}
	if want := []string{"commandOverrider[0].value", "imageOverrider[0].value", "labelsOverrider[0].value", "plaintext[0].path"}; !slices.Equal(paths, want) {
		t.Errorf("%q, want %q", paths, want)
	}
	if got := overrides.CheckOverriders(parseOverriders(t, `{ordered: [{}]}`)); len(got) != 0 {
		t.Errorf("an overrider of a newer hub has the problems %q", got)
	}
}

// Images, documents, variables and resources are refused where they can never apply.
func TestOverridersThatNeverApplyAreRefused(t *testing.T) {
	for _, tc := range []struct{ over, path, reason string }{
		{`{imageOverrider: [{component: Tag, operator: add, value: x, containerName: a, predicate: {path: /spec/image}}]}`, "imageOverrider[0].containerName", "it has either a predicate or a containerName"},
		{`{imageOverrider: [{component: Tag, operator: add, value: x, predicate: {path: /status/image}}]}`, "imageOverrider[0].predicate.path", "overrides never touch /status/image"},
		{`{imageOverrider: [{component: Repository, operator: remove}]}`, "imageOverrider[0].value", "an image without a repository is none: replace it instead"},
		{`{imageOverrider: [{component: Tag, operator: replace}]}`, "imageOverrider[0].value", "operator replace needs a value"},
		{`{imageOverrider: [{component: Digest, operator: add, value: latest}]}`, "imageOverrider[0].value", `"latest" is not a digest`},
		{`{imageOverrider: [{component: Tag, operator: replace, value: "a b"}]}`, "imageOverrider[0].value", `"a b" is neither a tag nor a digest`},
		{`{imageOverrider: [{component: Repository, operator: replace, value: A}]}`, "imageOverrider[0].value", `"A" is not a repository`},
		{`{imageOverrider: [{component: Registry, operator: replace, value: host}]}`, "imageOverrider[0].value", `"host" is not a registry: it needs a host with a dot or a port, such as registry.example.com`},
		{`{resourcesOverrider: [{operator: add}]}`, "resourcesOverrider[0]", "it names neither requests nor limits"},
		{`{mergePatch: []}`, "mergePatch", "a merge patch has to be an object"},
		{`{mergePatch: {$patch: delete}}`, "mergePatch", "overrides never touch an object as a whole, as $patch would"},
		{`{mergePatch: {metadata: 1}}`, "mergePatch", "overrides never touch /metadata as a whole"},
		{`{mergePatch: {metadata: {name: x}}}`, "mergePatch", "overrides never touch /metadata/name: of metadata they change labels and annotations only"},
		{`{labelsOverrider: [{operator: add, value: {atoll.dev/x: y}}]}`, "labelsOverrider[0].value[atoll.dev/x]", "overrides never touch what is Atoll's own"},
		{`{fieldOverrider: [{fieldPath: data, json: [{subPath: /a, operator: remove}]}]}`, "fieldOverrider[0].fieldPath", `"data" is not a JSON Pointer: it has to begin with /`},
		{`{fieldOverrider: [{fieldPath: /data/a}]}`, "fieldOverrider[0]", "it has to have either json, yaml or mergePatch"},
		{`{fieldOverrider: [{fieldPath: /data/a, json: [{subPath: /a, operator: remove}], mergePatch: {}}]}`, "fieldOverrider[0]", "it has to have either json, yaml or mergePatch"},
		{`{fieldOverrider: [{fieldPath: /data/a, mergePatch: 1}]}`, "fieldOverrider[0].mergePatch", "a merge patch has to be an object"},
		{`{fieldOverrider: [{fieldPath: /data/a, yaml: [{subPath: a, operator: remove}]}]}`, "fieldOverrider[0].yaml[0].subPath", `"a" is not a JSON Pointer: it has to begin with /`},
		{`{fieldOverrider: [{fieldPath: /data/a, json: [{subPath: /a, operator: add}]}]}`, "fieldOverrider[0].json[0].value", "operator add needs a value"},
		{`{fieldOverrider: [{fieldPath: /data/a, json: [{subPath: /a, operator: remove, value: 1}]}]}`, "fieldOverrider[0].json[0].value", "operator remove takes no value"},
		{`{envOverrider: [{operator: add, value: [{name: "a=b", value: c}]}]}`, "envOverrider[0].value[0].name", "the name of a variable has no ="},
		{`{envOverrider: [{operator: remove, value: [{name: a}, {name: b, value: c}]}]}`, "envOverrider[0].value[1].value", "operator remove takes no value"},
		{`{plaintext: [{path: /spec/a, from: /spec/b, operator: remove}]}`, "plaintext[0].from", "operator remove takes no value from another path"},
		{`{plaintext: [{path: /spec/a, operator: remove, value: 1}]}`, "plaintext[0].value", "operator remove takes no value"},
		{`{plaintext: [{path: /spec/a, operator: add}]}`, "plaintext[0].value", "operator add needs a value"},
		{`{plaintext: [{path: spec, operator: remove}]}`, "plaintext[0].path", `"spec" is not a JSON Pointer: it has to begin with /`},
		{`{plaintext: [{path: /metadata, operator: remove}]}`, "plaintext[0].path", "overrides never touch /metadata: of metadata they change labels and annotations only"},
	} {
		got := overrides.CheckOverriders(parseOverriders(t, tc.over))
		if want := []overrides.OverriderProblem{{Path: tc.path, Reason: tc.reason}}; !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", tc.over, got, want)
		}
	}
	for _, over := range []string{
		`{imageOverrider: [{component: Tag, operator: add, value: "-x"}, {component: Digest, operator: remove}, {component: Tag, operator: remove}]}`,
		`{imageOverrider: [{component: Registry, operator: replace, value: registry.example.com/path}, {component: Registry, operator: replace, value: "localhost:5000"}]}`,
		`{resourcesOverrider: [{operator: add, limits: {cpu: 1}}]}`, `{fieldOverrider: [{fieldPath: /data/a, mergePatch: {}}]}`, `{mergePatch: {}}`,
	} {
		if got := overrides.CheckOverriders(parseOverriders(t, over)); len(got) != 0 {
			t.Errorf("%s: %q", over, got)
		}
	}
}

// Every type of overrider reports whether it changes Secrets or sets replicas.
func TestTraitsOfOverriders(t *testing.T) {
	for _, tc := range []struct {
		over              string
		secrets, replicas bool
		builtIn           string
	}{
		{`{replicas: 2}`, false, true, "[]"}, {`{notHere: true}`, false, true, "[]"}, {`{notHere: false}`, false, false, "[]"},
		{`{mergePatch: {spec: {replicas: 2}}}`, false, true, "[]"}, {`{mergePatch: {spec: {paused: true}}}`, false, false, "[]"}, {`{mergePatch: {spec: null}}`, false, true, "[]"},
		{`{mergePatch: {metadata: {labels: {a: b}}}}`, false, false, "[]"}, {`{mergePatch: {data: {a: b}}}`, true, false, "[]"}, {`{mergePatch: {stringData: {a: b}}}`, true, false, "[]"},
		{`{strategicMerge: {spec: {$patch: replace}}}`, false, true, "[strategicMerge]"}, {`{strategicMerge: {spec: {$retainKeys: [a]}}}`, false, true, "[strategicMerge]"}, {`{strategicMerge: {data: {}}}`, true, false, "[strategicMerge]"},
		{`{plaintext: [{path: /spec, operator: replace, value: {}}]}`, false, true, "[]"}, {`{plaintext: [{path: /spec/replicas, operator: replace, value: 1}]}`, false, true, "[]"},
		{`{plaintext: [{path: /spec/paused, operator: add, value: true}]}`, false, false, "[]"}, {`{plaintext: [{path: /data/a, operator: remove}]}`, true, false, "[]"},
		{`{plaintext: [{path: /metadata/labels/data, operator: remove}]}`, false, false, "[]"},
		{`{imageOverrider: [{component: Tag, operator: remove, predicate: {path: /data/image}}]}`, true, false, "[]"}, {`{imageOverrider: [{component: Tag, operator: remove}]}`, false, false, "[]"},
		{`{fieldOverrider: [{fieldPath: /stringData/a, mergePatch: {}}]}`, true, false, "[]"}, {`{fieldOverrider: [{fieldPath: /spec/a, mergePatch: {}}]}`, false, false, "[]"},
		{`{labelsOverrider: [{operator: add, value: {a: b}}]}`, false, false, "[]"}, {`{ordered: [{strategicMerge: {}}, {replicas: 1}]}`, false, true, "[ordered[0].strategicMerge]"}, {`{ordered: [{}]}`, false, false, "[]"},
	} {
		o := parseOverriders(t, tc.over)
		if got := overrides.ChangesSecretData(o); got != tc.secrets {
			t.Errorf("%s: changes the data of Secrets: %t", tc.over, got)
		}
		if got := overrides.CanSetReplicas(o); got != tc.replicas {
			t.Errorf("%s: can set replicas: %t", tc.over, got)
		}
		if got := fmt.Sprint(overrides.BuiltInOnlyOverriders(o)); got != tc.builtIn {
			t.Errorf("%s: for kinds of Kubernetes alone: %s", tc.over, got)
		}
	}
	for gk, want := range map[schema.GroupKind]bool{
		{Group: "rbac.authorization.k8s.io", Kind: "Role"}: true, {Group: "admissionregistration.k8s.io", Kind: "ValidatingAdmissionPolicy"}: true,
		{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}: true, {Group: "apiextensions.k8s.io", Kind: "Other"}: false, {Kind: "Secret"}: false,
	} {
		if got := overrides.RequiresClusterOverridePolicy(gk); got != want {
			t.Errorf("%s needs a ClusterOverridePolicy: %t", gk, got)
		}
	}
	for gk, want := range map[schema.GroupKind]bool{{Group: "apps", Kind: "Deployment"}: true, {Group: "apps", Kind: "Toy"}: false, {Group: "example.com", Kind: "Toy"}: false} {
		if got := overrides.SupportsStrategicMerge(gk); got != want {
			t.Errorf("%s takes a strategic merge: %t", gk, got)
		}
	}
}

// A custom kind whose definition cannot tell has any field: one without a schema, or that cannot be read.
func TestDefinitionsThatCannotTell(t *testing.T) {
	widget := schema.GroupKind{Group: "example.com", Kind: "Widget"}
	rule := &v1alpha1.RuleWithCluster{Overriders: parseOverriders(t, `{mergePatch: {spec: {size: 1}}, ordered: [{}]}`)}
	for name, tc := range map[string]struct {
		spec string
		want int
	}{
		"a closed schema":             {`{versions: [{name: v1, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object}}}}}]}`, 1},
		"one version has no schema":   {`{versions: [{name: v1, schema: {openAPIV3Schema: {type: object}}}, {name: v2}]}`, 0},
		"its schema is empty":         {`{versions: [{name: v1, schema: {}}]}`, 0},
		"it cannot be read":           {`{versions: 7}`, 0},
		"any key is allowed":          {`{versions: [{name: v1, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, additionalProperties: true}}}}}]}`, 0},
		"no key is allowed":           {`{versions: [{name: v1, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, additionalProperties: false}}}}}]}`, 1},
		"keys of a kind are allowed":  {`{versions: [{name: v1, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, additionalProperties: {type: integer}}}}}}]}`, 0},
		"unknown fields are dropped":  {`{versions: [{name: v1, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, x-kubernetes-preserve-unknown-fields: false}}}}}]}`, 1},
		"the schema names no type":    {`{versions: [{name: v1, schema: {openAPIV3Schema: {properties: {spec: {}}}}}]}`, 1},
		"one of two versions has it":  {`{versions: [{name: v1, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object}}}}}, {name: v2, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}}}]}`, 0},
		"one of two versions is open": {`{versions: [{name: v1, schema: {openAPIV3Schema: {type: object}}}, {name: v2, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}`, 0},
	} {
		definition := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte("spec: "+tc.spec), &definition.Object); err != nil {
			t.Fatal(err)
		}
		got := overrides.UnknownFields(rule, []schema.GroupKind{widget}, func(schema.GroupKind) *unstructured.Unstructured { return definition })
		if len(got) != tc.want {
			t.Errorf("%s: %q, want %d", name, got, tc.want)
		}
	}
}

// Values of every type become texts. Without the cluster they are not known.
func TestValuesBecomeTexts(t *testing.T) {
	for cel, want := range map[string]string{
		"cluster.name": "tokyo", "true": "true", "cluster.name == 'x'": "false", "7": "7", "-3": "-3", "1.5": "1.5", "1e30": "1e+30",
	} {
		over := `{annotationsOverrider: [{operator: add, valueFrom: {at: {cel: "` + cel + `"}}}]}`
		c := &atoll.Content{Items: []atoll.Item{newItem(webKey, yamlToJSON(t, deploymentYAML))}, Rules: []atoll.Rule{newRule("ClusterOverridePolicy/p", parseOverriders(t, over), webKey)}}
		if items, _, _ := renderInCluster(c, tokyo); items[0].Error != "" || !strings.Contains(string(items[0].Object), `"annotations":{"at":"`+want+`"}`) {
			t.Errorf("%s: %s%s", cel, items[0].Error, items[0].Object)
		}
		if got, _, failed := overrideObject(t, "Deployment", deploymentYAML, over); got != "" || !strings.HasSuffix(failed, "valueFrom: it is not known for which cluster") {
			t.Errorf("%s without a cluster: %s%s", cel, got, failed)
		}
	}
	values, known := overrides.EvaluateValues([]string{"cluster.", "cluster.name", "cluster.name"}, &tokyo)
	if fmt.Sprint(known) != "[cluster. cluster.name]" {
		t.Errorf("known are %q", known)
	}
	hash := values.ValuesForVariantHash(known)
	if failed, ok := hash[1].(map[string]string); !ok || failed["error"] == "" || fmt.Sprintf("%v %v", hash[0], hash[2:]) != "cluster. [cluster.name [tokyo]]" {
		t.Errorf("%v", hash)
	}
}

// An expression that occurs more than once costs once, whether it selects clusters or gives values.
func TestExpressionsCostOnce(t *testing.T) {
	rule := func(selector string, values ...string) (r v1alpha1.RuleWithCluster) {
		if selector != "" {
			r.TargetCluster = &v1alpha1.ClusterTarget{CELSelector: selector}
		}
		for _, cel := range values {
			r.Overriders.LabelsOverrider = append(r.Overriders.LabelsOverrider, v1alpha1.LabelAnnotationOverrider{ValueFrom: map[string]v1alpha1.ValueSource{"a": {CEL: cel}}})
		}
		return r
	}
	costOf := func(rules ...v1alpha1.RuleWithCluster) uint64 {
		cost, _ := overrides.SumExpressionCost(rules)
		return cost
	}
	const selects, gives, other = "cluster.region == 'eu'", "cluster.region + 'x'", "cluster.name + 'y'"
	s, g, o := costOf(rule(selects)), costOf(rule("", gives)), costOf(rule("", other))
	if s == 0 || g == 0 || o == 0 {
		t.Fatalf("costs are %d, %d and %d", s, g, o)
	}
	for name, tc := range map[string]struct{ got, want uint64 }{
		"two of each":       {costOf(rule(selects, gives, gives), rule(selects, gives)), s + g},
		"different ones":    {costOf(rule(selects, gives), rule("", other)), s + g + o},
		"malformed ones":    {costOf(rule("cluster.", "cluster."), rule("", gives)), g},
		"nothing is stated": {costOf(rule("")), 0},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: %d, want %d", name, tc.got, tc.want)
		}
	}
}
