package script_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/kinds/script"
)

// os.time is the stated time of the report, or the time at which the object was created.
func TestTimeOfAReport(t *testing.T) {
	x := script.NewLibrary([]*v1alpha1.ResourceInterpreter{newTestInterpreter("a", trainers, v1alpha1.ResourceInterpreterSpec{
		Health: luaRule(`function InterpretHealth(o)
			local y, mo, d, h, mi, s = o.status.since:match("(%d+)-(%d+)-(%d+)T(%d+):(%d+):(%d+)Z")
			local since = os.time({year = y, month = mo, day = d, hour = h, min = mi, sec = s})
			if os.time() - since > 600 then return {status = "Degraded", message = os.date("!%H:%M")} end
			return {status = "Progressing"}
		end`),
		Status:    luaRule("function ReflectStatus(o) return {at = os.time()} end"),
		Aggregate: luaRule("function AggregateStatus(obj, items) obj.status = {at = os.time()} return obj end"),
	})})
	// 2026-01-02T03:04:05Z is 1767323045.
	o := newTrainer(map[string]any{"since": "2026-01-02T03:04:05Z"})
	if err := setCreation(o.Object, "2026-01-02T03:00:00Z"); err != "" {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		at      int64
		want    atoll.Health
		message string
		status  string
	}{
		"ten minutes later": {1767323645, atoll.Progressing, "", `{"s":{"at":1767323645}}`},
		"a second after":    {1767323646, atoll.Degraded, "03:14", `{"s":{"at":1767323646}}`},
		"no time is stated": {0, atoll.Progressing, "", `{"s":{"at":1767322800}}`},
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 {
				got := x.ForReportTime(c.at).ReportState(o)
				if got.Health != c.want || got.Message != c.message || string(got.Reflected) != c.status {
					t.Errorf("%s %q %s", got.Health, got.Message, got.Reflected)
				}
			}
		})
	}
}

func setCreation(object map[string]any, at string) string {
	meta, ok := object["metadata"].(map[string]any)
	if !ok {
		return "the object has no metadata"
	}
	meta["creationTimestamp"] = at
	return ""
}

// A function that does not compile is refused alone: the others of its interpreter answer.
func TestAFunctionThatDoesNotCompile(t *testing.T) {
	l := script.NewLibrary([]*v1alpha1.ResourceInterpreter{newTestInterpreter("a", trainers, v1alpha1.ResourceInterpreterSpec{
		Replicas: luaRule("function GetReplicas(o) return 4 end"), Health: luaRule("function InterpretHealth(o) return = end"), Status: celRule("{'phase': 'x'"),
		Revise: luaRule("function ReviseReplica(o, n) o.spec.workers = n return o end"), Retain: luaRule("return os.execute('id')"),
	})})
	agent := script.NewInterpreters(script.InterpretersForMember(l.InterpretersForContent([]schema.GroupVersionKind{gvk})))
	o := newTrainer(map[string]any{"phase": "Running"})
	if _, err := l.InterpretTemplate(o, "", nil); err != nil {
		t.Errorf("replicas: %v", err)
	}
	if made, err := l.ReviseReplicas(o, 7); err != nil || made.Object["spec"].(map[string]any)["workers"] != int64(7) {
		t.Errorf("revised: %v %v", made, err)
	}
	if h, reason, message := agent.AssessHealth(o); h != atoll.Unknown || reason != "InterpreterFailed" || !strings.Contains(message, "ResourceInterpreter a: spec.health.lua, line 1, column") {
		t.Errorf("health %s %s %s", h, reason, message)
	}
	if _, err := agent.ReflectStatus(o); err == nil || !strings.Contains(err.Error(), "ResourceInterpreter a: spec.status.cel: line 1") {
		t.Errorf("status: %v", err)
	}
	if _, err := agent.RetainFields(o, o); err == nil || !strings.Contains(err.Error(), "spec.retain.lua, line 1, column 8: os.execute is not here") {
		t.Errorf("retain: %v", err)
	}
}
