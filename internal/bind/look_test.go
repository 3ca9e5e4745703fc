package bind

import "testing"

// A template that got bind's own finalizer is no news; one that lost it is.
func TestOwnFinalizerIsNoNews(t *testing.T) {
	for _, tc := range []struct {
		before, now looked
		same        bool
	}{
		{looked{"a", false}, looked{"a", true}, true},
		{looked{"a", true}, looked{"a", true}, true},
		{looked{"a", false}, looked{"a", false}, true},
		{looked{"a", true}, looked{"a", false}, false},
		{looked{"a", false}, looked{"b", true}, false},
		{looked{"a", true}, looked{"b", true}, false},
	} {
		if got := tc.now.sameAs(tc.before); got != tc.same {
			t.Errorf("%+v after %+v: the same is %t", tc.now, tc.before, got)
		}
	}
}
