package script_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/internal/kinds/script"
)

func parseObject(t testing.TB, text string) map[string]any {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := utiljson.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func readTestdata(t testing.TB, name string) *script.Customization {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	list, err := script.CompileFile(name, text)
	if err != nil || len(list) != 1 {
		t.Fatalf("%s: %d customizations, %v", name, len(list), err)
	}
	return list[0]
}

// asJSON returns the canonical JSON of a value.
func asJSON(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

const flinkYAML = `
apiVersion: flink.apache.org/v1beta1
kind: FlinkDeployment
metadata: {name: wc, namespace: shop, generation: 3, labels: {}, finalizers: []}
spec:
  jobManager: {replicas: 1, resource: {cpu: 0.5, memory: 1024m}}
  taskManager: {replicas: 4, resource: {cpu: 2, memory: 2048m}}
  podTemplate:
    spec:
      serviceAccountName: flink
      nodeSelector: {disk: ssd}
      priorityClassName: high
      tolerations: [{key: gpu, operator: Exists}]
      containers:
      - name: main
        image: flink
        resources: {requests: {cpu: 250m, memory: 64Mi}}
        envFrom: [{secretRef: {name: creds}}]
      volumes: [{name: c, configMap: {name: conf}}]
  big: 9007199254740993
  none: []
  nothing: {}
status: {jobStatus: {state: RUNNING}, observedGeneration: 3}
`

// Customizations of Karmada have the answers that Karmada gives.
func TestKarmada(t *testing.T) {
	c := readTestdata(t, "karmada.yaml")
	wc := parseObject(t, flinkYAML)
	before := asJSON(t, wc)
	if got, want := c.AnsweredQuestions(), strings.Fields("aggregated components dependencies health replicas retained revised status"); !reflect.DeepEqual(got, want) {
		t.Errorf("answers %v, want %v", got, want)
	}
	if !c.MatchesKind(schema.GroupVersionKind{Group: "flink.apache.org", Version: "v1beta1", Kind: "FlinkDeployment"}) ||
		c.MatchesKind(schema.GroupVersionKind{Group: "flink.apache.org", Version: "v1", Kind: "FlinkDeployment"}) {
		t.Error("it means the kind in that version alone")
	}
	observed := parseObject(t, flinkYAML)
	observed["metadata"].(map[string]any)["finalizers"] = []any{"flink"}
	observed["spec"].(map[string]any)["clusterIP"] = "10.0.0.1"
	five := int64(5)
	got, err := script.MergeByNameLastWins([]*script.Customization{c}).AnswerRequest(script.EvaluationRequest{Object: wc, Observed: observed, Replicas: &five, Items: []any{
		map[string]any{"clusterName": "a", "status": map[string]any{"replicas": int64(2), "list": []any{}, "conditions": []any{map[string]any{"type": "Ready"}}}},
		map[string]any{"clusterName": "b", "status": map[string]any{"replicas": int64(3), "list": []any{}}},
		map[string]any{"clusterName": "away"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"replicas": `5`,
		"requirements": `{"nodeClaim":{"nodeSelector":{"disk":"ssd"},"tolerations":[{"key":"gpu","operator":"Exists"}]},` +
			`"priorityClassName":"high","resourceRequest":{"cpu":"250m","memory":"64Mi"}}`,
		"components": `[{"name":"jobmanager","replicas":1,"requirements":{"resourceRequest":{"cpu":0.5}}},` +
			`{"name":"taskmanager","replicas":4,"requirements":{"resourceRequest":{"cpu":2}}}]`,
		"health": `{"status":"Healthy"}`,
		"status": `{"doubled":6,"jobStatus":{"state":"RUNNING"}}`,
		// The list of the items stays a list. The empty table of the script is an object where the
		// first item has one, and left out otherwise.
		"aggregated": `{"clusters":["a","b"],"conditions":[],"list":[],"replicas":5}`,
		"dependencies": `[{"apiVersion":"v1","kind":"ConfigMap","name":"conf","namespace":"shop"},{"apiVersion":"v1","kind":"Secret","name":"creds","namespace":"shop"},` +
			`{"apiVersion":"v1","kind":"ServiceAccount","name":"flink","namespace":"shop"},{"apiVersion":"v1","kind":"Secret","labelSelector":{"matchLabels":{"app":"wc"}},"namespace":"shop"}]`,
	} {
		if s := asJSON(t, got[key]); s != want {
			t.Errorf("%s:\n got %s\nwant %s", key, s, want)
		}
	}
	revised := parseObject(t, flinkYAML)
	revised["spec"].(map[string]any)["taskManager"].(map[string]any)["replicas"] = int64(4) // 5 less the coordinator
	if s, want := asJSON(t, got["revised"]), asJSON(t, revised); s != want {
		t.Errorf("revised:\n got %s\nwant %s", s, want)
	}
	retained := parseObject(t, flinkYAML)
	retained["spec"].(map[string]any)["clusterIP"] = "10.0.0.1"
	retained["metadata"].(map[string]any)["finalizers"] = []any{"flink"}
	if s, want := asJSON(t, got["retained"]), asJSON(t, retained); s != want {
		t.Errorf("retained:\n got %s\nwant %s", s, want)
	}
	if asJSON(t, wc) != before {
		t.Error("the object that was asked about has changed")
	}
}

// Health scripts of Argo CD are read bare and from its ConfigMap.
func TestArgo(t *testing.T) {
	c := readTestdata(t, "certificate.lua")
	for status, want := range map[string]script.Health{
		`{}`: {Status: "Progressing", Message: "Waiting for certificate"},
		`{conditions: [{type: Ready, status: "True", message: up to date}]}`:                                {Status: "Healthy", Message: "up to date"},
		`{conditions: [{type: Issuing, status: "True", message: wait}, {type: Ready, status: "False"}]}`:    {Status: "Progressing", Message: "wait"},
		`{conditions: [{type: Issuing, status: "False"}, {type: Ready, status: "False", message: no DNS}]}`: {Status: "Degraded", Message: "no DNS"},
	} {
		got, ok, err := c.AssessHealth(parseObject(t, "{apiVersion: cert-manager.io/v1, kind: Certificate, metadata: {name: x}, status: "+status+"}"))
		if err != nil || !ok || got != want {
			t.Errorf("%s: %v %t %v, want %v", status, got, ok, err, want)
		}
	}
	if _, ok, err := c.ReplicasOf(parseObject(t, "{kind: X}")); ok || err != nil {
		t.Errorf("a health script returns replicas: %v", err)
	}
	list, err := script.CompileFile("cm.yaml", []byte(`
apiVersion: v1
kind: ConfigMap
metadata: {name: argocd-cm}
data:
  resource.customizations.health.example.com_Exact: return {status = "Suspended"}
  resource.customizations.ignoreDifferences.apps_Deployment: "x"
  resource.customizations: |
    "*.crossplane.io/*":
      health.lua: return {status = "Degraded", message = obj.kind}
    "aws.crossplane.io/Bucket":
      health.lua: return {status = "Degraded", message = "bucket"}
`))
	if err != nil || len(list) != 3 {
		t.Fatalf("%d customizations: %v", len(list), err)
	}
	for gk, want := range map[schema.GroupVersionKind]string{
		{Group: "example.com", Kind: "Exact"}:        "Suspended",
		{Group: "aws.crossplane.io", Kind: "Bucket"}: "Degraded: bucket",
		{Group: "aws.crossplane.io", Kind: "Queue"}:  "Degraded: Queue",
		{Group: "crossplane.io", Kind: "Queue"}:      "",
		{Group: "example.com", Kind: "Other"}:        "",
	} {
		known, o := script.MergeByNameLastWins(list), &unstructured.Unstructured{}
		o.SetGroupVersionKind(gk)
		h, _, message := known.AssessHealth(o)
		if got := strings.TrimSuffix(string(h)+": "+message, ": "); known.AnswersKind(gk) != (want != "") || want != "" && got != want {
			t.Errorf("%v: %s, want %q", gk, got, want)
		}
	}
}

// A ResourceInterpreter in CEL answers every question.
func TestResourceInterpreter(t *testing.T) {
	c := readTestdata(t, "interpreter.yaml")
	three := int64(3)
	got, err := script.MergeByNameLastWins([]*script.Customization{c}).AnswerRequest(script.EvaluationRequest{Object: parseObject(t, flinkYAML), Observed: parseObject(t, flinkYAML), Replicas: &three, Items: []any{
		map[string]any{"clusterName": "a", "status": map[string]any{"replicas": int64(2)}},
		map[string]any{"clusterName": "b", "status": map[string]any{"replicas": int64(3)}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	want := parseObject(t, flinkYAML)
	want["spec"].(map[string]any)["taskManager"].(map[string]any)["replicas"] = int64(3)
	if s, w := asJSON(t, got["revised"]), asJSON(t, want); s != w {
		t.Errorf("revised:\n got %s\nwant %s", s, w)
	}
	delete(got, "revised")
	want = parseObject(t, flinkYAML)
	delete(want["spec"].(map[string]any), "none")
	if s, w := asJSON(t, got["retained"]), asJSON(t, want); s != w {
		t.Errorf("retained:\n got %s\nwant %s", s, w)
	}
	delete(got, "retained")
	const rest = `{"aggregated":{"clusters":["a","b"],"replicas":2},"components":[{"name":"tm","replicas":4}],` +
		`"dependencies":[{"apiVersion":"v1","kind":"ServiceAccount","name":"flink","namespace":"shop"}],` +
		`"health":{"message":"RUNNING","status":"Healthy"},"replicas":4,` +
		`"requirements":{"nodeClaim":{"nodeSelector":{"disk":"ssd"},"tolerations":[{"key":"gpu","operator":"Exists"}]},"priorityClassName":"high","resourceRequest":{"cpu":"250m","memory":"64Mi"}},` +
		`"status":{"state":"RUNNING"}}`
	if s := asJSON(t, got); s != rest {
		t.Errorf("\n got %s\nwant %s", s, rest)
	}
}

// A returned object is unchanged except for the fields that the script sets.
func TestRoundTrip(t *testing.T) {
	in := parseObject(t, `{apiVersion: v1, kind: X, metadata: {name: x}, a: [], b: {}, c: [[], {}, [1]], d: 9007199254740993, m: 9007199254740992, e: -9223372036854775808, f: 9223372036854775807,
		g: 0.1, h: 1e300, i: true, j: "", k: {"1": x, "2": y}, l: [{}, {a: []}], moved: [], same: [9007199254740993, 9007199254740993]}`)
	list, err := script.CompileFile("x.yaml", []byte(`
apiVersion: atoll.dev/v1alpha1
kind: ResourceInterpreter
metadata: {name: x}
spec:
  target: {group: "", kinds: [X]}
  retain:
    lua: |
      function Retain(desiredObj, observedObj)
        desiredObj.new = {}
        desiredObj.b = {}
        desiredObj.elsewhere = observedObj.moved
        desiredObj.moved = nil
        desiredObj.l[3] = {}
        desiredObj.c[3][1] = nil
        return desiredObj
      end
`))
	if err != nil {
		t.Fatal(err)
	}
	got, _, err := list[0].RetainFields(in, in)
	if err != nil {
		t.Fatal(err)
	}
	want := parseObject(t, asJSON(t, in))
	want["elsewhere"] = []any{} // a list wherever it is put
	delete(want, "moved")
	want["l"] = append(want["l"].([]any), map[string]any{})
	want["c"].([]any)[2] = []any{} // a list that was emptied
	if s, w := asJSON(t, got), asJSON(t, want); s != w {
		t.Errorf("\n got %s\nwant %s", s, w)
	}
}

// Errors have place, line and column.
func TestRefused(t *testing.T) {
	const head = "apiVersion: atoll.dev/v1alpha1\nkind: ResourceInterpreter\nmetadata: {name: x}\nspec:\n  target: {group: g, kinds: [K]}\n"
	for text, want := range map[string]string{
		head:                    "answers no question",
		head + "  health: {}\n": "spec.health: needs either cel or lua",
		head + "  health: {cel: 'true', lua: 'return true'}\n":                                  "needs either cel or lua",
		head + "  health: {cel: 'object.a &&'}\n":                                               "x.yaml: x: spec.health.cel: line 1, column 12",
		head + "  health: {cel: 'observed.a'}\n":                                                "column 1: undeclared reference to 'observed'",
		head + "  health:\n    lua: |\n      local a = 1\n      return {status = = 1}\n":        "spec.health.lua, line 2, column 18",
		head + "  health:\n    lua: |\n      if obj then\n        return 1\n":                   "spec.health.lua, line 2, column 11",
		head + "  health:\n    lua: |\n      local x = 1\n      return   os.clock()\n":          "spec.health.lua, line 2, column 10: os.clock is not here",
		head + "  health:\n    lua: |\n      goto nowhere\n":                                    "spec.health.lua, line 1, column 1",
		head + "  replicas: {lua: 'return 1'}\n":                                                "spec.replicas.lua, line 1, column 1: it makes no function GetReplicas(object)",
		head + "  health: {lua: 'function InterpretHelth(o) return true end'}\n":                "spec.health.lua, line 1, column 1: it makes no function InterpretHealth(object), and gives nothing by itself",
		head + "  health: {lua: 'if obj then return end'}\n":                                    "it makes no function InterpretHealth(object), and gives nothing by itself",
		head + "  heath: {cel: 'true'}\n":                                                       `unknown field "spec.heath"`,
		strings.Replace(head, "kinds: [K]", "kinds: []", 1):                                     "spec.target.kinds",
		strings.Replace(head, "group: g", "apiVersion: a/b/c", 1) + "  health: {cel: 'true'}\n": "spec.target.apiVersion",
		"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\n":                          "a Deployment of apps/v1 is no interpreter",
		"apiVersion: config.karmada.io/v1alpha1\nkind: ResourceInterpreterCustomization\nmetadata: {name: x}\nspec: {target: {apiVersion: v1, kind: K}, customizations: {retention: {luaScript: 'function'}}}\n": "spec.customizations.retention.luaScript, line 1, column",
		"return {status = ":    "x.yaml, line 1, column 18",
		"kind: [\napiVersion:": "yaml: line",
	} {
		_, err := script.CompileFile("x.yaml", []byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// An answer of the wrong shape is an error with script, function and reason.
func TestNonsense(t *testing.T) {
	x := map[string]any{"kind": "X", "metadata": map[string]any{"name": "x"}}
	for text, want := range map[string]string{
		`return 1`:                 "x.lua: its answer is the number 1, and a health is needed",
		`return nil`:               "its answer is nothing",
		`return {}`:                "its answer is an empty table",
		`return {status = "Fine"}`: `has the status the string "Fine"`,
		`return {status = "Healthy", message = {1}}`: "has a message that is a list",
		`return obj.a.b`:                                  "x.lua, line 1: attempt to index a non-table object(nil) with key 'b'",
		"\n\nerror('no')\nreturn 1":                       "x.lua, line 3: no",
		"local x = obj.kind .. nil\nreturn x":             "line 1: a nil is joined to a text",
		"return 1 < 'a'":                                  "attempt to compare",
		"function InterpretHealth(o)\n return o.x.y end":  "x.lua, line 2, InterpretHealth: attempt to index",
		"function InterpretHealth(o)\n return {1, 2} end": "x.lua, InterpretHealth: its answer is a list",
	} {
		list, err := script.CompileFile("x.lua", []byte(text))
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if _, ok, err := list[0].AssessHealth(x); !ok || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
