package ownership

import (
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

// Only what Atoll made, for the present content and for one Bundle, and would not make again, may be deleted because it is
// finished.
func TestWhatMayExpire(t *testing.T) {
	job := atoll.ItemKey{Group: "batch", Kind: "Job", Namespace: "ci", Name: "once"}
	conf := atoll.ItemKey{Kind: "ConfigMap", Namespace: "ci", Name: "once"}
	byRule := &atoll.Assessment{Completion: "true"}
	for name, c := range map[string]struct {
		key  atoll.ItemKey
		edit func(*Record, *atoll.RenderedItem)
		want bool
	}{
		"a Job":                 {job, func(*Record, *atoll.RenderedItem) {}, true},
		"by a rule":             {conf, func(_ *Record, it *atoll.RenderedItem) { it.Assessment = byRule }, true},
		"without a rule":        {conf, func(*Record, *atoll.RenderedItem) {}, false},
		"not finished":          {job, func(r *Record, _ *atoll.RenderedItem) { r.FinishedAt = 0 }, false},
		"adopted":               {job, func(r *Record, _ *atoll.RenderedItem) { r.Adopted = true }, false},
		"gone":                  {job, func(r *Record, _ *atoll.RenderedItem) { r.UID = "" }, false},
		"of other content":      {job, func(_ *Record, it *atoll.RenderedItem) { it.Hash = "h2" }, false},
		"of another template":   {job, func(_ *Record, it *atoll.RenderedItem) { it.UID = "t2" }, false},
		"a hook":                {job, func(_ *Record, it *atoll.RenderedItem) { it.Hook = &atoll.Hook{} }, false},
		"not listed any more":   {job, func(r *Record, _ *atoll.RenderedItem) { r.Claims["b1"] = Claim{State: Kept, Template: "t1"} }, false},
		"another Bundle's, too": {job, func(r *Record, _ *atoll.RenderedItem) { r.Claims["b2"] = Claim{State: Wanted, Template: "t1"} }, false},
		"it takes data along":   {atoll.ItemKey{Kind: "PersistentVolumeClaim", Namespace: "ci", Name: "data"}, func(_ *Record, it *atoll.RenderedItem) { it.Assessment = byRule }, false},
	} {
		r := Record{
			Key: c.key, UID: "u1", Template: "t1", Owner: "b1", Label: "b1", Applied: "h1", Ran: "t1", RanHash: "h1", FinishedAt: 7,
			Claims: map[string]Claim{"b1": {State: Wanted, Template: "t1"}},
		}
		it := atoll.RenderedItem{Key: c.key, UID: "t1", Hash: "h1"}
		c.edit(&r, &it)
		if got := r.MayExpire(&it); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	if r := (Record{UID: "u", FinishedAt: 1}); r.MayExpire(nil) {
		t.Error("an object without an item may expire")
	}
}

// The first time counts, of the object that is there. It ends with the object, and when the object is not finished any more.
func TestSinceWhenAnObjectIsFinished(t *testing.T) {
	key := atoll.ItemKey{Kind: "ConfigMap", Namespace: "ci", Name: "once"}
	b := NewOwnershipRecords()
	b.RestoreRecord(Record{Key: key, UID: "u1", Template: "t1", Owner: "b1", Claims: map[string]Claim{"b1": {State: Kept, Template: "t1"}}})
	expect := func(what string, want int64) {
		t.Helper()
		if r, _ := b.Record(key); r.FinishedAt != want {
			t.Errorf("%s: %d, want %d", what, r.FinishedAt, want)
		}
	}
	b.RecordApplied(key, Fact{UID: "u1", Template: "t1", Hash: "h1", Label: "b1"})
	b.RecordFinish(key, "another", 5)
	expect("another object", 0)
	b.RecordCompletion(key, "u1", true)
	b.RecordFinish(key, "u1", 5)
	b.RecordFinish(key, "u1", 9)
	expect("the first time", 5)
	b.RecordApplied(key, Fact{UID: "u1", Template: "t1", Hash: "h1", Label: "b1"})
	expect("the same content", 5)
	b.RecordCompletion(key, "u1", false)
	expect("not completed any more", 0)
	b.RecordCompletion(key, "u1", true)
	b.RecordFinish(key, "u1", 6)
	b.RecordApplied(key, Fact{UID: "u1", Template: "t1", Hash: "h2", Label: "b1"})
	expect("other content", 0)
	b.RecordFinish(key, "u1", 7)
	b.RecordGone(key, "u1", nil)
	expect("gone", 0)
}
