package gateway

import (
	"testing"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

// TestWhatARowIsRenderedFromTellsParcelsApart, and nothing else does: rows that get the same
// share one.
func TestWhatARowIsRenderedFromTellsParcelsApart(t *testing.T) {
	p := &parcels{}
	key := func(edit func(*atoll.RowSpec)) string {
		row := state.Row{Bundle: enginev1.BundleRef{UID: "b"}, Spec: atoll.RowSpec{
			UID: "u", Generation: 3, Revision: "r", Variant: "v", Assigned: map[string]int64{"web": 2}, Ordinals: map[string]int64{"db": 0},
			NotYet: map[string]int64{"config": 10}, Phase: atoll.RowActive,
		}}
		edit(&row.Spec)
		return p.keyOf(row)
	}
	same := key(func(*atoll.RowSpec) {})
	for name, edit := range map[string]func(*atoll.RowSpec){
		"revision":        func(r *atoll.RowSpec) { r.Revision = "s" },
		"variant":         func(r *atoll.RowSpec) { r.Variant = "w" },
		"share":           func(r *atoll.RowSpec) { r.Assigned = map[string]int64{"web": 3} },
		"ordinals":        func(r *atoll.RowSpec) { r.Ordinals = map[string]int64{"db": 9} },
		"what waits":      func(r *atoll.RowSpec) { r.NotYet = nil },
		"what else waits": func(r *atoll.RowSpec) { r.NotYet = map[string]int64{"other": 10} },
		"removing":        func(r *atoll.RowSpec) { r.Phase = atoll.RowRemoving },
		"orphan":          func(r *atoll.RowSpec) { r.Orphan = true },
	} {
		if key(edit) == same {
			t.Errorf("%s does not tell rows apart", name)
		}
	}
	for name, edit := range map[string]func(*atoll.RowSpec){
		"another cluster":   func(r *atoll.RowSpec) { r.UID = "w" },
		"generation":        func(r *atoll.RowSpec) { r.Generation = 9 },
		"since when":        func(r *atoll.RowSpec) { r.NotYet = map[string]int64{"config": 11} },
		"what is out of it": func(r *atoll.RowSpec) { r.NotHere = []string{"x"} },
		"reason":            func(r *atoll.RowSpec) { r.Reason = "x" },
	} {
		if key(edit) != same {
			t.Errorf("%s tells rows apart", name)
		}
	}
}
