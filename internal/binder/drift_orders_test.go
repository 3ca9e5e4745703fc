package binder

import (
	"maps"
	"testing"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

// A Bundle that is written loses the orders to correct drift that are taken, and nothing else.
func TestDropTakenDriftOrders(t *testing.T) {
	const ask, id, other = atoll.AnnotationCorrectDrift, "00000000000000aa", "00000000000000bb"
	taken := state.Row{Spec: atoll.RowSpec{Approvals: []atoll.DriftApproval{{ID: id}}}}
	for name, c := range map[string]struct{ before, want map[string]string }{
		"nothing":     {nil, nil},
		"no order":    {map[string]string{"a": "b"}, map[string]string{"a": "b"}},
		"taken":       {map[string]string{"a": "b", ask: id + " alice"}, map[string]string{"a": "b"}},
		"not taken":   {map[string]string{ask: other + " alice"}, map[string]string{ask: other + " alice"}},
		"one of two":  {map[string]string{ask: id + "," + other + " alice\n" + id + " bob"}, map[string]string{ask: other + " alice"}},
		"a bad value": {map[string]string{ask: "all"}, map[string]string{ask: "all"}},
	} {
		was := maps.Clone(c.before)
		got := dropTakenDriftOrders(c.before, func() []state.Row { return []state.Row{taken} })
		if !maps.Equal(got, c.want) || !maps.Equal(c.before, was) {
			t.Errorf("%s: %v, and the argument is %v", name, got, c.before)
		}
	}
}
