package script_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/kinds/script"
)

// A status over the bound lacks its largest fields in the report. Its health is judged by the whole
// object, by a script and by Atoll itself.
func TestHealthDoesNotDependOnTheSizeOfAStatus(t *testing.T) {
	text := func(n int) string { return strings.Repeat("x", n) }
	joins := luaRule("function AggregateStatus(obj, items) return obj end")
	ready := []any{map[string]any{"type": "Ready", "status": "True", "message": text(script.MaxStatus)}}
	broken := []any{map[string]any{"type": "Ready", "status": "True"}, map[string]any{"type": "Stalled", "status": "True", "reason": "Broken", "message": text(script.MaxStatus)}}
	for name, c := range map[string]struct {
		health  *v1alpha1.InterpreterRule
		status  map[string]any
		want    atoll.Health
		report  string // its beginning
		missing int    // fields that the message counts
	}{
		"a script reads the field that is left out": {
			luaRule("function InterpretHealth(o) return #o.status.noise > 16384 end"), map[string]any{"noise": text(20_000), "ready": int64(2)},
			atoll.Healthy, `{"s":{"ready":2},"cut":1}`, 1,
		},
		"Atoll reads a condition that is left out":        {nil, map[string]any{"conditions": ready, "ready": int64(2)}, atoll.Healthy, `{"s":{"ready":2},"cut":1}`, 1},
		"Atoll reads a bad condition that is left out":    {nil, map[string]any{"conditions": broken, "ready": int64(2)}, atoll.Degraded, `{"s":{"ready":2},"cut":1}`, 0},
		"more than one field is too large":                {nil, map[string]any{"conditions": ready, "a": text(17_000), "b": "c"}, atoll.Healthy, `{"s":{"b":"c"},"cut":2}`, 2},
		"no field fits":                                   {nil, map[string]any{"conditions": ready}, atoll.Healthy, `{"s":null,"cut":1}`, 1},
		"an object of an older generation keeps the mark": {nil, map[string]any{"conditions": ready, "observedGeneration": int64(2)}, atoll.Progressing, `{"s":{"observedGeneration":2},"late":true,"cut":1}`, 0},
		"a status of 8 KiB":                               {nil, map[string]any{"conditions": ready[:0], "a": text(8 << 10)}, atoll.Unknown, `{"s":{"a":"xxx`, 0},
		// {"s":{"a":""}} has 14 bytes.
		"a status of the bound":      {luaRule("function InterpretHealth(o) return true end"), map[string]any{"a": text(script.MaxStatus - 14)}, atoll.Healthy, `{"s":{"a":"xxx`, 0},
		"one byte more than allowed": {luaRule("function InterpretHealth(o) return true end"), map[string]any{"a": text(script.MaxStatus - 13)}, atoll.Healthy, `{"s":null,"cut":1}`, 1},
	} {
		t.Run(name, func(t *testing.T) {
			l := script.NewLibrary([]*v1alpha1.ResourceInterpreter{newTestInterpreter("a", trainers, v1alpha1.ResourceInterpreterSpec{Health: c.health, Aggregate: joins})})
			agent := script.NewInterpreters(script.InterpretersForMember(l.InterpretersForContent([]schema.GroupVersionKind{gvk})))
			o := newTrainer(c.status)
			o.SetGeneration(3)
			got := agent.ReportState(o)
			if got.Health != c.want {
				t.Errorf("health %s, %s, %s; want %s", got.Health, got.Reason, got.Message, c.want)
			}
			if !strings.HasPrefix(string(got.Reflected), c.report) || len(got.Reflected) > script.MaxStatus {
				t.Errorf("%d bytes are reported: %.100s", len(got.Reflected), got.Reflected)
			}
			if says := strings.Contains(got.Message, "the report leaves out the "); says != (c.missing > 0) {
				t.Errorf("message %q", got.Message)
			}
		})
	}
}
