package bundlestatus

import (
	"testing"
	"time"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

// A Bundle of nothing but hooks of its removal is in no cluster and waits for none. While a cluster removes it, the Bundle waits
// for the hook there, and for a person where it failed.
func TestABundleOfRemovalHooks(t *testing.T) {
	hook := atoll.Item{Key: atoll.ItemKey{Group: "batch", Kind: "Job", Namespace: "shop", Name: "backup"}, UID: "u", Treatment: &atoll.Treatment{Hook: &atoll.Hook{Events: []atoll.HookEvent{atoll.HookPreDelete}}}}
	removing := func(state atoll.RowState, reason atoll.Reason, failed bool) []Row {
		item := atoll.ItemStatus{Key: hook.Key, Health: atoll.Progressing, Reason: reason, Message: "m", Error: failed}
		return []Row{newRow("a", &atoll.RowStatus{Generation: 5, State: state, Reason: reason, Items: []atoll.ItemStatus{item}}, withPhase(atoll.RowRemoving, ""))}
	}
	for name, c := range map[string]struct {
		rows  []Row
		waits string
		want  atoll.Reason
	}{
		"no row":       {nil, "", ""},
		"a hook runs":  {removing(atoll.RowProgressing, atoll.ReasonWaitsForHook, false), "a: a hook of the removal, Job backup: m; no person has to act", atoll.ReasonWaitsForHook},
		"a hook fails": {removing(atoll.RowFailed, atoll.ReasonHookFailed, true), "a: a hook of the removal, Job backup: m; the application's owner must act", atoll.ReasonHookFailed},
	} {
		b := state.Bundle{Ref: enginev1.BundleRef{UID: "b", Namespace: "shop", Name: "web"}}
		got := ComputeStatus(StatusInput{Bundle: b, Rows: c.rows, Latest: &enginev1.Revision{Spec: enginev1.RevisionSpec{Items: 1}}, Content: &atoll.Content{Items: []atoll.Item{hook}, RemovedWithHooks: true}, Now: time.Unix(1000, 0)})
		if got.WaitsFor != c.waits || (got.Wait == nil) != (c.want == "") || got.Wait != nil && got.Wait.Reason != string(c.want) {
			t.Errorf("%s: it waits for %q, %+v", name, got.WaitsFor, got.Wait)
		}
		if said := conditionReasons(got); said != "Nowhere NotScheduled NotScheduled" {
			t.Errorf("%s: %s", name, said)
		}
	}
}
