package binder

import "testing"

// A template that got bind's own finalizer is no news; one that lost it is.
func TestOwnFinalizerIsNoNews(t *testing.T) {
	for _, tc := range []struct {
		before, now templateState
		same        bool
	}{
		{templateState{"a", false}, templateState{"a", true}, true},
		{templateState{"a", true}, templateState{"a", true}, true},
		{templateState{"a", false}, templateState{"a", false}, true},
		{templateState{"a", true}, templateState{"a", false}, false},
		{templateState{"a", false}, templateState{"b", true}, false},
		{templateState{"a", true}, templateState{"b", true}, false},
	} {
		if got := tc.now.isUnchangedSince(tc.before); got != tc.same {
			t.Errorf("%+v after %+v: the same is %t", tc.now, tc.before, got)
		}
	}
}
