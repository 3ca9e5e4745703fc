package sources

import "testing"

// Values that change back while a check applies them make an event of values as they were before the check. The check itself plans
// the next one.
func TestValuesThatChangeDuringACheckAreReadSoon(t *testing.T) {
	h := newHub(t, readsSecret)
	h.putValues("Secret/v", "a: 1")
	h.setCommit("c1", "a=1")
	h.expectCheck("the first values", "apply a", good)
	if h.r.tries[repoKey] != 0 {
		t.Error("values that are read are read again soon")
	}
	h.putValues("Secret/v", "a: 2")
	h.setCommit("c1", "a=2")
	h.during = func() { h.putValues("Secret/v", "a: 1") }
	h.expectCheck("other values", "apply a", good)
	if h.r.tries[repoKey] == 0 {
		t.Error("values that changed during the check wait for the interval")
	}
}
