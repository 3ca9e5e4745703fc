package sources

import (
	"testing"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/sources/fetch"
)

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

// A commit that was refused is refused again after its values were missing, also when the server was away at the same time.
func TestBadContentStaysBadAfterMissingValues(t *testing.T) {
	h := newHub(t, readsSecret)
	h.putValues("Secret/v", "a: 1")
	h.setCommit("c1", "a=1")
	h.expectCheck("the first commit", "apply a", good)
	h.setCommit("c2")
	h.expectCheck("bad content", "", "Applied=True/Applied Ready=False/Nowhere Rendered=False/ContentEmpty")
	h.putValues("Secret/v", "")
	h.fails = &fetch.Failure{Reason: atoll.ReasonRepositoryUnreachable, Message: "away"}
	h.expectCheck("gone, and the server is away", "", "Applied=True/Applied Ready=False/Nowhere Rendered=False/ValuesMissing")
	h.putValues("Secret/v", "a: 1")
	h.runCheck()
	h.fails = nil
	h.expectCheck("both are there again", "", "Applied=True/Applied Ready=False/Nowhere Rendered=False/ContentEmpty")
}
