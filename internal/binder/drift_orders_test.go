package binder

import (
	"maps"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/policymatch"
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

// An edit of the Bundle drops what is taken with the same write. Without an edit nothing is written.
func TestAnEditOfABundleDropsTakenDriftOrders(t *testing.T) {
	const ask, id = atoll.AnnotationCorrectDrift, "00000000000000aa"
	b, x, _ := newTestBinder(t)
	b.Rows = &countedRows{rows: []state.Row{{Spec: atoll.RowSpec{Approvals: []atoll.DriftApproval{{ID: id}}}}}}
	name := policymatch.BundleID{Namespace: "shop", Name: "web"}
	plan := bundlePlan{intent: &policymatch.Intent{Spec: v1alpha1.PropagationSpec{WhenUnfit: v1alpha1.UnfitKeep}}}
	made, err := b.writeBundle(t.Context(), name, state.Bundle{}, plan)
	if err != nil {
		t.Fatal(err)
	}
	made.Ref.UID, made.Meta.Annotations = "bundle-uid", map[string]string{ask: id + " alice", "team": "blue"}
	writes := len(x.written)
	if same, err := b.writeBundle(t.Context(), name, made, plan); err != nil || len(x.written) != writes || same.Meta.Annotations[ask] == "" {
		t.Errorf("without an edit: %d writes, %v", len(x.written)-writes, err)
	}
	plan.intent.Spec.WhenUnfit = v1alpha1.UnfitRemove
	edited, err := b.writeBundle(t.Context(), name, made, plan)
	if want := map[string]string{"team": "blue"}; err != nil || len(x.written) != writes+1 || !maps.Equal(edited.Meta.Annotations, want) {
		t.Errorf("after an edit: %v, %d writes, %v", edited.Meta.Annotations, len(x.written)-writes, err)
	}
}
