package ownership

import (
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// An object that ran to completion by a rule is not made again, but for other content or another template, or without
// the rule.
func TestWhatARuleCompletedIsNotMadeAgain(t *testing.T) {
	key := atoll.ItemKey{Kind: "ConfigMap", Namespace: "ci", Name: "once"}
	byRule, health := &atoll.Assessment{Completion: "true"}, &atoll.Assessment{Health: []v1alpha1.HealthRule{{Expression: "true"}}}
	for name, c := range map[string]struct {
		completed bool
		item      atoll.RenderedItem
		want      Verb
	}{
		"completed":            {true, atoll.RenderedItem{UID: "t1", Hash: "h1", Assessment: byRule}, Nothing},
		"edited since":         {true, atoll.RenderedItem{UID: "t1", Hash: "h2", Assessment: byRule}, Apply},
		"created again":        {true, atoll.RenderedItem{UID: "t2", Hash: "h1", Assessment: byRule}, Apply},
		"the rule went":        {true, atoll.RenderedItem{UID: "t1", Hash: "h1"}, Apply},
		"other rules are left": {true, atoll.RenderedItem{UID: "t1", Hash: "h1", Assessment: health}, Apply},
		"not completed":        {false, atoll.RenderedItem{UID: "t1", Hash: "h1", Assessment: byRule}, Apply},
	} {
		b := NewOwnershipRecords()
		b.RestoreRecord(Record{Key: key, UID: "u1", Template: "t1", Owner: "b1", Claims: map[string]Claim{"b1": {State: Kept, Template: "t1"}}})
		b.RecordApplied(key, Fact{UID: "u1", Template: "t1", Hash: "h1", Label: "b1"})
		b.RecordCompletion(key, "another", true)
		b.RecordCompletion(key, "u1", true)
		if !c.completed {
			b.RecordCompletion(key, "u1", false)
		}
		last := &atoll.ItemStatus{Key: key, Health: atoll.Healthy, Completed: true}
		b.RecordGone(key, "u1", last)
		r, _ := b.Record(key)
		if got := applyVerb(&r, Claim{Template: c.item.UID}, &c.item); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		if (r.Last == last) != c.completed {
			t.Errorf("%s: the last report is %+v", name, r.Last)
		}
	}
}
