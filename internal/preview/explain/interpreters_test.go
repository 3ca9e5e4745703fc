package explain

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/kinds/script"
	"atoll.dev/atoll/internal/rollout"
)

// flinkLibrary is a hub's interpreters of Deployments: one that names them, and one that means them
// by a wildcard and answers what is left.
func flinkLibrary() *script.Library {
	cel := func(s string) *v1alpha1.InterpreterRule { return &v1alpha1.InterpreterRule{CEL: s} }
	named := &v1alpha1.ResourceInterpreter{Spec: v1alpha1.ResourceInterpreterSpec{
		Target:   v1alpha1.InterpreterTarget{APIVersion: "apps/v1", Kinds: []string{"Deployment"}},
		Replicas: cel("1"), Health: cel("true"), Aggregate: cel("{}"),
	}}
	wild := &v1alpha1.ResourceInterpreter{Spec: v1alpha1.ResourceInterpreterSpec{
		Target: v1alpha1.InterpreterTarget{Group: "*", Kinds: []string{"*"}}, Health: cel("false"), Status: cel("{}"),
	}}
	named.Name, wild.Name = "flink", "all"
	return script.NewLibrary([]*v1alpha1.ResourceInterpreter{named, wild})
}

// taughtBundle is the shop whose Deployment interpreters speak of.
func taughtBundle(l *script.Library) Bundle {
	b := shopBundle()
	item := &b.Content.Items[0]
	n := int64(2)
	item.APIVersion, item.Interpreted = "apps/v1", &atoll.InterpreterAnswers{Replicas: &n}
	b.Content.Interpreters = l.InterpretersForContent([]schema.GroupVersionKind{{Group: "apps", Version: "v1", Kind: "Deployment"}})
	return b
}

// The answering interpreter is named, where one is for the object, and only there.
func TestInterpretersOfAnObject(t *testing.T) {
	l := flinkLibrary()
	in := explainInput(webKey, taughtBundle(l))
	in.Interpreters = l
	e := Explain(in)
	want := []Interpreter{{Name: "all", Answers: []string{"status"}}, {Name: "flink", Answers: []string{"replicas", "health", "aggregated"}}}
	if got := e.Bundles[0].Interpreters; !reflect.DeepEqual(got, want) {
		t.Errorf("interpreters %+v", got)
	}
	const says = "  ResourceInterpreter all picks the status that is reported.\n  ResourceInterpreter flink returns its replicas, judges its health and joins its status.\n"
	if text := e.FormatText(false); !strings.Contains(text, says) || strings.Contains(text, "repeats what fails") {
		t.Errorf("lacks %q, or says that something fails:\n%s", says, text)
	}
	for _, other := range []atoll.ItemKey{secretKey, {Group: "atoll.dev", Kind: "Bundle", Namespace: "shop", Name: "web-4f2a"}} {
		if got := Explain(explainInput(other, taughtBundle(l))).Bundles[0].Interpreters; got != nil {
			t.Errorf("of %s: %+v", other, got)
		}
	}
	in.Interpreters = nil
	if text := Explain(in).FormatText(false); !strings.Contains(text, "  A ResourceInterpreter that is gone returns its replicas, which stays as it was.\n") {
		t.Errorf("it does not report that the answer stays:\n%s", text)
	}
}

// A failure has its interpreter, field and line, time, the person that must act, and the way to do
// so.
func TestInterpretersThatFail(t *testing.T) {
	const why = "ResourceInterpreter flink: spec.health.lua, line 3, InterpretHealth: attempt to index a nil value"
	l := flinkLibrary()
	b := taughtBundle(l)
	oslo := b.Rows["oslo"]
	oslo.Status.Items[0] = atoll.ItemStatus{Key: webKey, Health: atoll.Unknown, Reason: atoll.ReasonInterpreterFailed, Message: why}
	b.Output = rollout.AdvanceRows(rollout.Input{BundleUID: "b", Rows: b.Rows, Decision: b.Decision, Revision: "b-2", RemovalMode: v1alpha1.RemoveDelete, ExplainWaits: true, Now: testTime})
	in := explainInput(webKey, b)
	in.Interpreters = l
	since := testTime.Add(-5 * time.Minute)
	in.Failures = []Failure{
		{Asked: FailureSent, Message: "ResourceInterpreter flink: spec.replicas.cel: no such key: spec."},
		{Asked: FailureJoined, Message: "ResourceInterpreter flink: spec.aggregate.lua, line 1, AggregateStatus: no", Since: &since},
	}
	text := Explain(in).FormatText(false)
	for _, says := range []string{
		"\nWhat users state now is not sent: ResourceInterpreter flink: spec.replicas.cel: no such key: spec; to act: the hub's administrator.\n  `atoll interpret -f OBJECT --with INTERPRETER` repeats what fails; kubectl edit resourceinterpreters mends it.\n",
		"\nIts status is not joined, and stays as it was for 5m: ResourceInterpreter flink: spec.aggregate.lua, line 1, AggregateStatus: no; to act: the hub's administrator.\n",
		"    - Deployment/web InterpreterFailed: " + why + "; for 60s; to act: the hub's administrator\n",
		"judges its health and joins its status.\n  `atoll interpret -f OBJECT --with INTERPRETER` repeats",
	} {
		if !strings.Contains(text, says) {
			t.Errorf("lacks %q:\n%s", says, text)
		}
	}
	if b, err := json.Marshal(Explain(in)); err != nil || !strings.Contains(string(b), `"failures":[{"asked":"sent","message":"ResourceInterpreter flink: spec.replicas`) {
		t.Errorf("as JSON: %s, %v", b, err)
	}
}

// An object that was never sent is in no cluster, however healthy the rows of its Bundle are.
func TestWhatWasNotSentIsInNoCluster(t *testing.T) {
	l := flinkLibrary()
	b := taughtBundle(l)
	b.Content.Items = slices.DeleteFunc(slices.Clone(b.Content.Items), func(i atoll.Item) bool { return i.Key == webKey })
	in := explainInput(webKey, b)
	if text := Explain(in).FormatText(false); !strings.Contains(text, "is in no cluster: the latest revision of its Bundle does not have it yet.") {
		t.Errorf("one with an unknown reason:\n%s", text)
	}
	in.Failures = []Failure{{Asked: FailureSent, Message: "ResourceInterpreter flink: spec.replicas.cel: no such key: spec"}}
	if text := Explain(in).FormatText(false); !strings.Contains(text, "does not have it yet, since a script fails that is called for it.") || strings.Contains(text, "ready in all") {
		t.Errorf("one about which a script fails:\n%s", text)
	}
}
