package sources

import (
	"testing"

	"atoll.dev/atoll/internal/sources/fetch"
	"atoll.dev/atoll/internal/sources/render"
)

// The last commit that was read is known, also when it is refused. One that changes nothing for the Source is left out.
func TestSeenCommits(t *testing.T) {
	h := newHub(t, branch)
	expect := func(when, want string) {
		t.Helper()
		h.runCheck()
		if got := h.readSource().Status.SeenCommit; got != want {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
	}
	h.setCommit("c1", "a=1")
	expect("the first commit", "c1")
	h.commit.Commit = "c2"
	expect("a commit of other files", "c1")
	h.commit = fetch.Content{Commit: "c3", Result: render.Result{Problems: []render.Problem{{File: "a.yaml", Line: 1, Message: "no object"}}}}
	expect("a commit that is refused", "c3")
	h.setCommit("c4", "a=2")
	expect("the next one", "c4")
}
