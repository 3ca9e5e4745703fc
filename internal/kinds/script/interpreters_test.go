package script_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/kinds"
	"atoll.dev/atoll/internal/kinds/script"
)

func newTestInterpreter(name string, target v1alpha1.InterpreterTarget, spec v1alpha1.ResourceInterpreterSpec) *v1alpha1.ResourceInterpreter {
	o := &v1alpha1.ResourceInterpreter{Spec: spec}
	o.Name, o.Spec.Target = name, target
	return o
}

func luaRule(s string) *v1alpha1.InterpreterRule { return &v1alpha1.InterpreterRule{Lua: s} }

func celRule(s string) *v1alpha1.InterpreterRule { return &v1alpha1.InterpreterRule{CEL: s} }

var (
	trainers = v1alpha1.InterpreterTarget{APIVersion: "ai.example/v1", Kinds: []string{"Trainer"}}
	all      = v1alpha1.InterpreterTarget{Group: "*.example", Kinds: []string{"*"}}
	gvk      = schema.GroupVersionKind{Group: "ai.example", Version: "v1", Kind: "Trainer"}
)

func newTrainer(status map[string]any) *unstructured.Unstructured {
	o := map[string]any{
		"apiVersion": "ai.example/v1", "kind": "Trainer", "metadata": map[string]any{"name": "cats", "namespace": "shop", "generation": int64(3)},
		"spec": map[string]any{"workers": int64(4)},
	}
	if status != nil {
		o["status"] = status
	}
	return &unstructured.Unstructured{Object: o}
}

// Each question goes to the first interpreter by name that names the kind exactly, or else to
// the first with a wildcard.
func TestEachQuestionHasItsInterpreter(t *testing.T) {
	l := script.NewLibrary([]*v1alpha1.ResourceInterpreter{
		newTestInterpreter("z", trainers, v1alpha1.ResourceInterpreterSpec{Health: celRule("'Degraded'")}),
		newTestInterpreter("y", trainers, v1alpha1.ResourceInterpreterSpec{Health: celRule("'Suspended'")}),
		newTestInterpreter("a", all, v1alpha1.ResourceInterpreterSpec{Health: celRule("'Healthy'"), Revise: celRule("{'spec': {'workers': replicas}}")}),
	})
	if h, reason, _ := l.AssessHealth(newTrainer(nil)); h != atoll.Suspended || reason != string(atoll.ReasonInterpreted) {
		t.Errorf("health %s %s", h, reason)
	}
	made, err := l.ReviseReplicas(newTrainer(nil), 7)
	if n, _, _ := unstructured.NestedInt64(made.Object, "spec", "workers"); err != nil || n != 7 {
		t.Errorf("revised to %d: %v", n, err)
	}
	if other := newTrainer(nil); !l.AnswersGroupKind(schema.GroupKind{Group: "b.example", Kind: "Any"}) || l.AnswersGroupKind(schema.GroupKind{Group: "apps", Kind: "Deployment"}) || !l.RevisesReplicas(other.GroupVersionKind()) {
		t.Error("the kinds of the interpreters are unknown")
	}
}

// Agents get the questions of agents alone, and equal parts have equal hashes.
func TestPartsOfInterpreters(t *testing.T) {
	spec := v1alpha1.ResourceInterpreterSpec{
		Replicas: celRule("object.spec.workers"), Revise: celRule("{'spec': {'workers': replicas}}"), Health: celRule("'Healthy'"), Aggregate: celRule("{}"),
	}
	l := script.NewLibrary([]*v1alpha1.ResourceInterpreter{newTestInterpreter("a", trainers, spec)})
	content := l.InterpretersForContent([]schema.GroupVersionKind{gvk})
	member := script.InterpretersForMember(content)
	if len(content) != 1 || len(member) != 1 || !member[0].ReportsWholeStatus {
		t.Fatalf("content %v, member %v", content, member)
	}
	var has v1alpha1.ResourceInterpreterSpec
	if err := json.Unmarshal(member[0].Spec, &has); err != nil || has.Health == nil || has.Replicas != nil || has.Revise != nil || has.Aggregate != nil {
		t.Errorf("an agent gets %s", member[0].Spec)
	}
	spec.Revise = celRule("{'spec': {'workers': replicas + 0}}")
	l = script.NewLibrary([]*v1alpha1.ResourceInterpreter{newTestInterpreter("a", trainers, spec)})
	if again := l.InterpretersForContent([]schema.GroupVersionKind{gvk}); again[0].Hash == content[0].Hash || script.InterpretersForMember(again)[0].Hash != member[0].Hash {
		t.Error("the hub's part counts for agents, or its own edit for nothing")
	}
	if other := l.InterpretersForContent([]schema.GroupVersionKind{{Group: "ai.example", Version: "v2", Kind: "Trainer"}}); other != nil {
		t.Errorf("another version's objects get %v", other)
	}
}

// A status for a script on the hub is reported whole. Without the script it counts as not reported.
func TestStatusesThatAScriptJoins(t *testing.T) {
	spec := v1alpha1.ResourceInterpreterSpec{Aggregate: luaRule(`function AggregateStatus(obj, items)
		local n = 0
		for _, i in ipairs(items) do n = n + i.status.ready end
		obj.status = {ready = n}
		return obj
	end`)}
	l := script.NewLibrary([]*v1alpha1.ResourceInterpreter{newTestInterpreter("a", trainers, spec)})
	agent := script.NewInterpreters(script.InterpretersForMember(l.InterpretersForContent([]schema.GroupVersionKind{gvk})))
	reported, err := agent.ReflectStatus(newTrainer(map[string]any{"ready": int64(2)}))
	if err != nil || string(reported) != `{"s":{"ready":2}}` {
		t.Fatalf("reported %s: %v", reported, err)
	}
	rows := []kinds.RowItem{
		{Cluster: "b", Health: atoll.Healthy, Reflected: reported}, {Cluster: "a", Health: atoll.Healthy, Reflected: reported},
		{Cluster: "c", Health: atoll.Healthy, Reflected: reported, Disconnected: true},
	}
	template := newTrainer(map[string]any{"observedGeneration": int64(2)})
	status, ok, err := l.AggregateStatus(template, false, rows, 3, 0)
	if err != nil || !ok || status["ready"] != int64(4) || status["observedGeneration"] != int64(3) {
		t.Errorf("joined: %v %v: %v", status, ok, err)
	}
	if status, _, _ = l.AggregateStatus(template, false, rows, 0, 0); status["observedGeneration"] != int64(2) {
		t.Errorf("not applied everywhere: %v", status)
	}
	if _, ok, _ := (script.Interpreters{}).AggregateStatus(template, false, rows, 3, 0); ok {
		if st, _, _ := (script.Interpreters{}).AggregateStatus(template, false, rows, 3, 0); st["ready"] != nil {
			t.Errorf("a whole status is read as a compact one: %v", st)
		}
	}
}

// The observed generation of a joined status is the template's, at the top and in conditions. It
// advances once every member's controller has observed it, and is never a member's own.
func TestTheGenerationThatAJoinedStatusTellsOf(t *testing.T) {
	x := script.NewLibrary([]*v1alpha1.ResourceInterpreter{newTestInterpreter("a", trainers, v1alpha1.ResourceInterpreterSpec{
		Status:    celRule("{'phase': object.status.phase, 'conditions': object.status.conditions}"),
		Aggregate: celRule("{'observedGeneration': 77, 'phase': items[0].status.phase, 'conditions': items[0].status.conditions}"),
	})})
	member := func(generation, top, condition int64) json.RawMessage {
		o := newTrainer(map[string]any{"phase": "Running", "observedGeneration": top, "conditions": []any{
			map[string]any{"type": "Ready", "status": "True", "observedGeneration": condition}, map[string]any{"type": "Other", "status": "True"},
		}})
		o.SetGeneration(generation)
		reported, err := x.ReflectStatus(o)
		if err != nil {
			t.Fatal(err)
		}
		return reported
	}
	ready := func(reflected json.RawMessage) kinds.RowItem {
		return kinds.RowItem{Cluster: "a", Health: atoll.Healthy, Reflected: reflected}
	}
	silent := kinds.RowItem{Cluster: "b", Health: atoll.Progressing}
	exists := kinds.RowItem{Cluster: "b", Health: atoll.Healthy}
	for name, c := range map[string]struct {
		before any // observedGeneration of the template's status
		rows   []kinds.RowItem
		want   int64
	}{
		"all have seen it":                        {nil, []kinds.RowItem{ready(member(9, 9, 9))}, 5},
		"one has not, though it drops the number": {int64(4), []kinds.RowItem{ready(member(9, 9, 9)), ready(member(3, 2, 3))}, 4},
		"a condition is behind":                   {nil, []kinds.RowItem{ready(member(9, 9, 8))}, 0},
		"one says nothing yet":                    {int64(4), []kinds.RowItem{ready(member(9, 9, 9)), silent}, 4},
		"one is there, and has nothing to say":    {int64(4), []kinds.RowItem{ready(member(9, 9, 9)), exists}, 5},
		"a number that no template had":           {int64(8), []kinds.RowItem{ready(member(9, 9, 9))}, 5},
		"a text":                                  {"4", []kinds.RowItem{silent, ready(member(9, 9, 9))}, 4},
	} {
		own := map[string]any{}
		if c.before != nil {
			own["observedGeneration"] = c.before
		}
		template := newTrainer(own)
		template.SetGeneration(5)
		status, ok, err := x.AggregateStatus(template, false, c.rows, 5, 0)
		if err != nil || !ok {
			t.Fatalf("%s: %v %v", name, ok, err)
		}
		if status["observedGeneration"] != c.want {
			t.Errorf("%s: %v, want %d", name, status["observedGeneration"], c.want)
		}
		if list, _ := status["conditions"].([]any); len(list) == 2 {
			first, second := list[0].(map[string]any), list[1].(map[string]any)
			if first["observedGeneration"] != c.want || second["observedGeneration"] != nil {
				t.Errorf("%s: conditions %v", name, list)
			}
		}
	}
}

// An interpreter that cannot be compiled answers with the error, and others still work.
func TestAnInterpreterOfANewerHub(t *testing.T) {
	x := script.NewInterpreters([]atoll.Interpreter{{Name: "new", Hash: "1", Spec: json.RawMessage(`{"target":{"apiVersion":"ai.example/v1","kinds":["Trainer"]},"health":{"cel":"nonsense("}}`)}})
	if h, reason, message := x.AssessHealth(newTrainer(nil)); h != atoll.Unknown || reason != string(atoll.ReasonInterpreterFailed) || !strings.Contains(message, "ResourceInterpreter new") {
		t.Errorf("%s %s %s", h, reason, message)
	}
	if n, _, ok := kinds.ReplicasOf(newTrainer(nil)); ok {
		t.Errorf("replicas %d", n)
	}
	if out, err := x.InterpretTemplate(newTrainer(nil)); out != nil || err != nil {
		t.Errorf("what it does not answer: %v %v", out, err)
	}
}

// An object without a namespace cannot depend on objects in one.
func TestDependenciesOfWhatIsInNoNamespace(t *testing.T) {
	o := newTrainer(nil)
	o.SetNamespace("")
	for answer, ok := range map[string]bool{
		"[{'apiVersion': 'v1', 'kind': 'Secret', 'namespace': 'kube-system', 'name': 'x'}]":     false,
		"[{'apiVersion': 'scheduling.k8s.io/v1', 'kind': 'PriorityClass', 'name': 'training'}]": true,
	} {
		l := script.NewLibrary([]*v1alpha1.ResourceInterpreter{newTestInterpreter("a", trainers, v1alpha1.ResourceInterpreterSpec{Dependencies: celRule(answer)})})
		if answers, err := l.Interpreters.InterpretTemplate(o); (err == nil) != ok || ok && len(answers.Dependencies) != 1 {
			t.Errorf("%s: %v", answer, err)
		}
	}
}

func TestCheckNamesFieldLineAndColumn(t *testing.T) {
	errs := script.CheckSpec(v1alpha1.ResourceInterpreterSpec{
		Target: trainers, Health: &v1alpha1.InterpreterRule{Lua: "if obj then\nreturn {"}, Revise: celRule("replicas +"),
	})
	var messages []string
	for _, e := range errs {
		messages = append(messages, e.Error())
	}
	all := strings.Join(messages, "\n")
	for _, want := range []string{"spec.health.lua, line 2, column", "spec.revise.cel"} {
		if !strings.Contains(all, want) {
			t.Errorf("it does not say %q:\n%s", want, all)
		}
	}
}

// Every question can be answered in both languages, to the same effect.
func TestRulesInBothLanguages(t *testing.T) {
	inLua := v1alpha1.ResourceInterpreterSpec{
		Target:       trainers,
		Replicas:     luaRule(`function GetReplicas(obj) return obj.spec.workers, {resourceRequest = {cpu = "250m"}} end`),
		Components:   luaRule(`function GetComponents(obj) return {{name = "head", replicas = 1, replicaRequirements = {resourceRequest = {memory = "1Gi"}}}} end`),
		Revise:       luaRule(`function ReviseReplica(obj, n) obj.spec.workers = n return obj end`),
		Retain:       luaRule(`function Retain(desired, observed) desired.spec.seed = observed.spec.seed return desired end`),
		Health:       luaRule(`function InterpretHealth(obj) return obj.status.phase == "Running" end`),
		Status:       luaRule(`function ReflectStatus(obj) return {phase = obj.status.phase} end`),
		Aggregate:    luaRule(`function AggregateStatus(obj, items) obj.status = {clusters = #items} return obj end`),
		Dependencies: luaRule(`function GetDependencies(obj) return {{apiVersion = "v1", kind = "Secret", namespace = "shop", name = "key"}} end`),
	}
	inCEL := v1alpha1.ResourceInterpreterSpec{
		Target:       trainers,
		Replicas:     celRule(`{'replicas': object.spec.workers, 'requirements': {'resourceRequest': {'cpu': '250m'}}}`),
		Components:   celRule(`[{'name': 'head', 'replicas': 1, 'requirements': {'resourceRequest': {'memory': '1Gi'}}}]`),
		Revise:       celRule(`{'spec': {'workers': replicas}}`),
		Retain:       celRule(`{'spec': {'seed': observed.spec.seed}}`),
		Health:       celRule(`object.status.phase == 'Running'`),
		Status:       celRule(`{'phase': object.status.phase}`),
		Aggregate:    celRule(`{'clusters': size(items)}`),
		Dependencies: celRule(`[{'apiVersion': 'v1', 'kind': 'Secret', 'namespace': 'shop', 'name': 'key'}]`),
	}
	for language, spec := range map[string]v1alpha1.ResourceInterpreterSpec{"Lua": inLua, "CEL": inCEL} {
		t.Run(language, func(t *testing.T) {
			if errs := script.CheckSpec(spec); errs != nil {
				t.Fatal(errs)
			}
			x := script.NewLibrary([]*v1alpha1.ResourceInterpreter{newTestInterpreter("a", trainers, spec)})
			got := map[string]any{}
			note := func(key string, v any, err error) {
				t.Helper()
				if err != nil {
					t.Errorf("%s: %v", key, err)
				}
				got[key] = v
			}
			is, err := x.Interpreters.InterpretTemplate(newTrainer(nil))
			note("interpreted", is, err)
			spec.Replicas = nil
			parts, err := script.NewLibrary([]*v1alpha1.ResourceInterpreter{newTestInterpreter("a", trainers, spec)}).Interpreters.InterpretTemplate(newTrainer(nil))
			note("components", parts, err)
			is.AnsweredBy, parts.AnsweredBy = "", ""
			revised, err := x.ReviseReplicas(newTrainer(nil), 9)
			note("revised", revised.Object["spec"], err)
			observed := newTrainer(map[string]any{"phase": "Running", "noise": "much"})
			observed.Object["spec"].(map[string]any)["seed"] = int64(7)
			retained, err := x.RetainFields(newTrainer(nil), observed)
			note("retained", retained.Object["spec"], err)
			h, _, _ := x.AssessHealth(observed)
			note("health", h, nil)
			reported, err := x.ReflectStatus(observed)
			note("status", string(reported), err)
			joined, _, err := x.AggregateStatus(newTrainer(nil), false, []kinds.RowItem{{Cluster: "a", Health: atoll.Healthy}, {Cluster: "b", Health: atoll.Healthy}}, 3, 0)
			note("aggregated", joined, err)
			text, err := json.Marshal(got)
			if err != nil {
				t.Fatal(err)
			}
			const want = `{"aggregated":{"clusters":2},` +
				`"components":{"pods":[{"name":"head","count":1,"requests":{"memory":1073741824}}],"dependencies":["/Secret/shop/key"],"depends":true},` +
				`"health":"Healthy",` +
				`"interpreted":{"replicas":4,"pods":[{"count":1,"requests":{"cpu":250}}],"dependencies":["/Secret/shop/key"],"depends":true},` +
				`"retained":{"seed":7,"workers":4},"revised":{"workers":9},"status":"{\"s\":{\"phase\":\"Running\"}}"}`
			if string(text) != want {
				t.Errorf("got\n%s\nwant\n%s", text, want)
			}
		})
	}
}

// Requests of scripts are capped at the largest number.
func TestRequestsOfScriptsDoNotRunOver(t *testing.T) {
	x := script.NewLibrary([]*v1alpha1.ResourceInterpreter{newTestInterpreter("a", trainers, v1alpha1.ResourceInterpreterSpec{
		Replicas: celRule(`{'replicas': 1, 'requirements': {'resourceRequest': {'cpu': '9223372036854775807', 'memory': '100E', 'example.com/gpu': '-1'}}}`),
	})})
	is, err := x.Interpreters.InterpretTemplate(newTrainer(nil))
	if err != nil {
		t.Fatal(err)
	}
	const most = math.MaxInt64
	if got := is.Pods[0].Requests; len(got) != 2 || got["cpu"] != most || got["memory"] != most {
		t.Errorf("each pod requests %v", got)
	}
}

// Scripts see no Secrets, by wildcards neither, since their answers are shown.
func TestScriptsSeeNoSecrets(t *testing.T) {
	secret := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "data": map[string]any{"password": "aHVzaA=="}}}
	rule := v1alpha1.ResourceInterpreterSpec{Health: celRule("{'status': 'Degraded', 'message': object.data.password}")}
	l := script.NewLibrary([]*v1alpha1.ResourceInterpreter{newTestInterpreter("all", v1alpha1.InterpreterTarget{Group: "*", Kinds: []string{"*"}}, rule)})
	if h, _, message := l.AssessHealth(secret); h != atoll.Healthy || message != "" {
		t.Errorf("%s %s", h, message)
	}
	if l.AnswersGroupKind(schema.GroupKind{Kind: "Secret"}) || l.InterpretersForContent([]schema.GroupVersionKind{{Version: "v1", Kind: "Secret"}}) != nil {
		t.Error("Secrets are meant")
	}
	rule.Target = v1alpha1.InterpreterTarget{APIVersion: "v1", Kinds: []string{"ConfigMap", "Secret"}}
	if errs := script.CheckSpec(rule); len(errs) != 1 || !strings.Contains(errs[0].Error(), "scripts see no Secrets") {
		t.Errorf("a target that names them: %v", errs)
	}
}

// An edit compiles the edited interpreter alone, however many there are.
func TestAnEditCompilesOneInterpreter(t *testing.T) {
	const many = 400 // more than are remembered by their hashes
	var list []*v1alpha1.ResourceInterpreter
	for i := range many {
		list = append(list, newTestInterpreter(fmt.Sprintf("i%03d", i), trainers, v1alpha1.ResourceInterpreterSpec{Health: luaRule(fmt.Sprintf("return {status = 'Healthy', message = '%d'}", i))}))
	}
	l, edits := script.NewLibrary(list), 0
	each := testing.AllocsPerRun(5, func() {
		edits++
		list[7] = newTestInterpreter("i007", trainers, v1alpha1.ResourceInterpreterSpec{Health: luaRule(fmt.Sprintf("return {status = 'Suspended', message = '%d'}", edits))})
		l = l.WithInterpreters(list)
	})
	if each > 3000 {
		t.Errorf("an edit makes %.0f allocations", each)
	}
	if l = l.WithInterpreters(list[7:8]); l.InterpretersForContent([]schema.GroupVersionKind{gvk})[0].Name != "i007" {
		t.Error("it is another one")
	}
	if h, _, _ := l.AssessHealth(newTrainer(nil)); h != atoll.Suspended {
		t.Errorf("the object is %s by its interpreter's last edition", h)
	}
}

// Answers are bounded, since the writer of an object controls the length of their lists.
func TestAnswersAreBounded(t *testing.T) {
	var names []any
	for i := range 1200 {
		names = append(names, fmt.Sprintf("%s%d", strings.Repeat("n", 120), i))
	}
	o := newTrainer(nil)
	o.Object["spec"] = map[string]any{"names": names}
	for _, spec := range []v1alpha1.ResourceInterpreterSpec{
		{Components: celRule("object.spec.names.map(n, {'name': n, 'replicas': 1})")},
		{Dependencies: celRule("object.spec.names.map(n, {'apiVersion': 'v1', 'kind': 'ConfigMap', 'namespace': 'shop', 'name': n})")},
	} {
		x := script.NewLibrary([]*v1alpha1.ResourceInterpreter{newTestInterpreter("x", trainers, spec)})
		if answers, err := x.Interpreters.InterpretTemplate(o); err == nil || !strings.Contains(err.Error(), "131072") {
			t.Errorf("%d components and %d dependencies, and the error %v", len(answers.Pods), len(answers.Dependencies), err)
		}
	}
}

// The hash of an aggregation changes with every input of the script and with nothing else. It
// does not change with the last answer.
func TestTheQuestionOfAJoin(t *testing.T) {
	teach := func(source string) *script.Library {
		return script.NewLibrary([]*v1alpha1.ResourceInterpreter{newTestInterpreter("a", trainers, v1alpha1.ResourceInterpreterSpec{Aggregate: celRule(source)})})
	}
	rows := func(edit func([]kinds.RowItem)) []kinds.RowItem {
		out := []kinds.RowItem{
			{Cluster: "b", Health: atoll.Healthy, Reflected: json.RawMessage(`{"s":{"ready":2}}`)},
			{Cluster: "a", Health: atoll.Healthy, Reflected: json.RawMessage(`{"s":{"ready":1}}`)},
			{Cluster: "c", Health: atoll.Healthy, Disconnected: true}, {Cluster: "d"},
		}
		if edit != nil {
			edit(out)
		}
		return out
	}
	l := teach("{}")
	first := l.AggregationHash(newTrainer(nil), rows(nil), 3)
	if first == "" {
		t.Fatal("there is no question")
	}
	written := newTrainer(map[string]any{"ready": int64(3)})
	written.SetResourceVersion("7")
	written.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "atoll"}})
	for name, same := range map[string]string{
		"another status and version":            l.AggregationHash(written, rows(nil), 3),
		"rows in another order":                 l.AggregationHash(newTrainer(nil), rows(func(r []kinds.RowItem) { r[0], r[1] = r[1], r[0] }), 3),
		"what a cluster says that is away":      l.AggregationHash(newTrainer(nil), rows(func(r []kinds.RowItem) { r[2].Health = atoll.Degraded }), 3),
		"why, of what is applied":               l.AggregationHash(newTrainer(nil), rows(func(r []kinds.RowItem) { r[0].Message = "x" }), 3),
		"the same interpreter in another place": teach("{}").AggregationHash(newTrainer(nil), rows(nil), 3),
	} {
		if same != first {
			t.Errorf("%s is another question", name)
		}
	}
	edited := newTrainer(nil)
	edited.SetLabels(map[string]string{"a": "b"})
	for name, other := range map[string]string{
		"an edit":              l.AggregationHash(edited, rows(nil), 3),
		"another script":       teach("{'a': 1}").AggregationHash(newTrainer(nil), rows(nil), 3),
		"another generation":   l.AggregationHash(newTrainer(nil), rows(nil), 2),
		"a status":             l.AggregationHash(newTrainer(nil), rows(func(r []kinds.RowItem) { r[0].Reflected = json.RawMessage(`{"s":{"ready":3}}`) }), 3),
		"a health":             l.AggregationHash(newTrainer(nil), rows(func(r []kinds.RowItem) { r[0].Health = atoll.Progressing }), 3),
		"older content":        l.AggregationHash(newTrainer(nil), rows(func(r []kinds.RowItem) { r[0].Stale = true }), 3),
		"a cluster comes back": l.AggregationHash(newTrainer(nil), rows(func(r []kinds.RowItem) { r[2].Disconnected = false }), 3),
		"another cluster":      l.AggregationHash(newTrainer(nil), rows(func(r []kinds.RowItem) { r[0].Cluster = "e" }), 3),
	} {
		if other == first {
			t.Errorf("%s is no other question", name)
		}
	}
	if q := (script.Interpreters{}).AggregationHash(newTrainer(nil), rows(nil), 3); q != "" {
		t.Errorf("where no script is asked, the question is %q", q)
	}
}

// Questions about a template see the user-owned fields, in both languages. A script that starts
// from the present status would otherwise be asked again because of its own answer.
func TestScriptsSeeTemplatesAsStated(t *testing.T) {
	o := newTrainer(map[string]any{"ready": int64(1)})
	o.SetResourceVersion("7")
	o.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "atoll"}})
	rows := []kinds.RowItem{{Cluster: "a", Health: atoll.Healthy}}
	const volatile = "has(object.status) || has(object.metadata.managedFields) || has(object.metadata.resourceVersion)"
	for name, spec := range map[string]v1alpha1.ResourceInterpreterSpec{
		"CEL": {Replicas: celRule(volatile + " ? -1 : 1"), Dependencies: celRule(volatile + " ? [1] : []"), Aggregate: celRule("{'volatile': " + volatile + "}")},
		"Lua": {Components: luaRule(`function GetComponents(obj) if obj.status ~= nil then error("no") end return {} end`),
			Aggregate: luaRule(`function AggregateStatus(obj, items)
				local sees = obj.status ~= nil or obj.metadata.managedFields ~= nil or obj.metadata.resourceVersion ~= nil
				if obj.status == nil then obj.status = {} end
				obj.status.volatile = sees
				return obj
			end`)},
	} {
		l := script.NewLibrary([]*v1alpha1.ResourceInterpreter{newTestInterpreter("a", trainers, spec)})
		if _, err := l.Interpreters.InterpretTemplate(o); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		joined, ok, err := l.AggregateStatus(o, false, rows, 3, 0)
		if err != nil || !ok || joined["volatile"] != false {
			t.Errorf("%s: %v %t %v", name, joined, ok, err)
		}
	}
	if o.Object["status"] == nil || o.GetResourceVersion() != "7" {
		t.Error("the template was changed")
	}
}

// Answers about a template are cached even where a plan stores nothing: equal answers of other
// interpreters, and errors.
func TestTheSameIsNotAskedAgain(t *testing.T) {
	o := newTrainer(nil)
	o.SetUID("u")
	teach := func(spec v1alpha1.ResourceInterpreterSpec) []*v1alpha1.ResourceInterpreter {
		return []*v1alpha1.ResourceInterpreter{newTestInterpreter("a", trainers, spec)}
	}
	l := script.NewLibrary(teach(v1alpha1.ResourceInterpreterSpec{Replicas: celRule("object.spec.workers")}))
	before, err := l.InterpretTemplate(o, "1", nil)
	if err != nil {
		t.Fatal(err)
	}
	if same, _ := (*script.Library)(nil).WithInterpreters(teach(v1alpha1.ResourceInterpreterSpec{Replicas: celRule("object.spec.workers")})).InterpretTemplate(o, "1", before); same != before {
		t.Error("what answered before is asked again")
	}
	l = l.WithInterpreters(teach(v1alpha1.ResourceInterpreterSpec{Replicas: celRule("object.spec.workers + 0"), Health: celRule("true")}))
	first, _ := l.InterpretTemplate(o, "1", before)
	if again, _ := l.InterpretTemplate(o, "1", before); again != first || again.AnsweredBy == before.AnsweredBy {
		t.Error("another interpreter is asked twice about the same")
	}
	if other, _ := l.InterpretTemplate(o, "2", nil); other == first {
		t.Error("an edit is not asked about")
	}
	another := newTrainer(nil)
	another.SetUID("v")
	if other, _ := l.InterpretTemplate(another, "1", nil); other == first {
		t.Error("another template is not asked about")
	}
	l = l.WithInterpreters(teach(v1alpha1.ResourceInterpreterSpec{Replicas: celRule("object.spec.nothing")}))
	_, failed := l.InterpretTemplate(o, "1", before)
	if _, again := l.InterpretTemplate(o, "1", before); failed == nil || again != failed {
		t.Errorf("what fails is asked again: %v", again)
	}
}

// The replicas path is the one field that a script sets to the number of replicas.
func TestPathOfReplicasThatAScriptSets(t *testing.T) {
	for rule, want := range map[string]string{
		"{'spec': {'workers': replicas}}":                   "[spec workers] true",
		"{'spec': {'workers': replicas + 1}}":               "[spec workers] false",
		"{'spec': {'workers': replicas, 'head': replicas}}": "[] false",
		"{'spec': {'workers': 3}}":                          "[] false",
		"{'spec': {'workers': object.spec.gone}}":           "[] false",
	} {
		l := script.NewLibrary([]*v1alpha1.ResourceInterpreter{newTestInterpreter("t", trainers, v1alpha1.ResourceInterpreterSpec{Revise: celRule(rule)})})
		path, ok := l.ScriptedReplicasPath(newTrainer(nil))
		if got := fmt.Sprint(path, ok); got != want {
			t.Errorf("%s: %s, want %s", rule, got, want)
		}
	}
	if path, ok := script.NewLibrary(nil).ScriptedReplicasPath(newTrainer(nil)); ok {
		t.Errorf("without a script: %v", path)
	}
}

func TestHealthIsPrintedWithItsMessage(t *testing.T) {
	for want, h := range map[string]script.Health{"Healthy": {Status: "Healthy"}, "Degraded: no disk": {Status: "Degraded", Message: "no disk"}} {
		if got := h.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
