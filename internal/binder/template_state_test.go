package binder

import "testing"

// A template that got bind's own finalizer is no news; one that lost it is.
func TestOwnFinalizerIsNoNews(t *testing.T) {
	for _, tc := range []struct {
		before, now templateState
		same        bool
	}{
		{templateState{content: "a", hasFinalizer: false}, templateState{content: "a", hasFinalizer: true}, true},
		{templateState{content: "a", hasFinalizer: true}, templateState{content: "a", hasFinalizer: true}, true},
		{templateState{content: "a", hasFinalizer: false}, templateState{content: "a", hasFinalizer: false}, true},
		{templateState{content: "a", hasFinalizer: true}, templateState{content: "a", hasFinalizer: false}, false},
		{templateState{content: "a", hasFinalizer: false}, templateState{content: "b", hasFinalizer: true}, false},
		{templateState{content: "a", hasFinalizer: true}, templateState{content: "b", hasFinalizer: true}, false},
	} {
		if got := tc.now.isUnchangedSince(tc.before); got != tc.same {
			t.Errorf("%+v after %+v: the same is %t", tc.now, tc.before, got)
		}
	}
}
