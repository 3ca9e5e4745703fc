package ownership

import (
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

// A finished object that is gone is not made again, unless it can be edited and was.
func TestWhatHasRunRunsAgainOnlyWhenItIsEdited(t *testing.T) {
	workflow := atoll.ItemKey{Group: "argoproj.io", Kind: "Workflow", Namespace: "ci", Name: "build"}
	job := atoll.ItemKey{Group: "batch", Kind: "Job", Namespace: "ci", Name: "build"}
	for _, tc := range []struct {
		name string
		r    Record
		hash string
		want bool
	}{
		{"as it ran", Record{Key: workflow, Ran: "t1", RanHash: "h1"}, "h1", true},
		{"edited since", Record{Key: workflow, Ran: "t1", RanHash: "h1"}, "h2", false},
		{"created again", Record{Key: workflow, Ran: "t0", RanHash: "h1"}, "h1", false},
		{"the run is not recorded", Record{Key: workflow, Ran: "t1"}, "h2", true},
		{"nothing says what it is to be", Record{Key: workflow, Ran: "t1", RanHash: "h1"}, "", true},
		{"a Job cannot be edited", Record{Key: job, Ran: "t1", RanHash: "h1"}, "h2", true},
		{"it does not run to completion", Record{Key: atoll.ItemKey{Kind: "ConfigMap", Name: "a"}, Ran: "t1"}, "h1", false},
	} {
		if got := tc.r.HasRun(&atoll.RenderedItem{UID: "t1"}, tc.hash); got != tc.want {
			t.Errorf("%s: has run is %t", tc.name, got)
		}
		want := Apply
		if tc.want {
			want = Nothing
		}
		item := &atoll.RenderedItem{UID: "t1", Hash: tc.hash}
		if tc.hash == "" {
			item = nil
			want = Nothing
		}
		if got := applyVerb(&tc.r, Claim{Template: "t1"}, item); got != want {
			t.Errorf("%s: %v, want %v", tc.name, got, want)
		}
	}
}

// An object that states that it never ends is made again once it is gone; one of the same
// kind that ends is not.
func TestWhatNeverEndsIsMadeAgain(t *testing.T) {
	key := atoll.ItemKey{Group: "apps.kruise.io", Kind: "BroadcastJob", Namespace: "ops", Name: "warm"}
	for _, endless := range []bool{false, true} {
		b := NewOwnershipRecords()
		// It ran to completion before the edit by which it goes on for ever.
		b.RestoreRecord(Record{Key: key, UID: "u1", Template: "t1", Owner: "b1", Ran: "t1", RanHash: "h0", Claims: map[string]Claim{"b1": {State: Kept, Template: "t1"}}})
		b.RecordApplied(key, Fact{UID: "u1", Template: "t1", Hash: "h1", Label: "b1", Endless: endless})
		b.RecordGone(key, "u1", nil)
		r, _ := b.Record(key)
		if got := r.HasRun(&atoll.RenderedItem{UID: "t1"}, "h1"); got == endless {
			t.Errorf("endless %t: has run is %t", endless, got)
		}
	}
}
