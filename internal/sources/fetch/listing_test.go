package fetch

import (
	"testing"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/sources/render"
)

// A child lists directories and files of a commit, beside the contents of Sources. A listing that was seen is not sent again.
func TestListingsOfACommit(t *testing.T) {
	r := newRepository(t)
	r.commit(t, map[string]string{"apps/web/a.yaml": configMap, "apps/db/values.yaml": "size: 12345678901234567\n", "README.md": "x"})
	url := r.serve(t)
	wants := []Want{
		{ID: "web", Ref: "refs/heads/main", Want: render.Want{Paths: []string{"apps/web"}}},
		{ID: "set/dirs", Ref: "refs/heads/main", Listing: &render.ListingWant{Paths: []string{"apps/*"}}},
		{ID: "set/files", Ref: "refs/heads/main", Listing: &render.ListingWant{Files: true, Paths: []string{"apps/*/values.yaml"}}},
		{ID: "set/none", Ref: "refs/heads/main", Listing: &render.ListingWant{Paths: []string{"gone/*"}}},
		{ID: "set/bad", Ref: "refs/heads/main", Listing: &render.ListingWant{Files: true, Paths: []string{"README.md"}}},
		{ID: "set/branch", Ref: "refs/heads/gone", Listing: &render.ListingWant{Paths: []string{"apps/*"}}},
	}
	got := mustFetch(t, Request{Type: TypeGit, URL: url, Wants: wants})
	if describe(got[0]) != "apps/web/a.yaml:1" || got[0].Listing != nil {
		t.Errorf("the Source: %+v", got[0])
	}
	dirs := got[1].Listing
	if dirs == nil || len(dirs.Entries) != 2 || dirs.Entries[0].Path != "apps/db" || got[1].Commit == "" || got[1].Digest != dirs.Digest() {
		t.Errorf("directories: %+v", got[1])
	}
	if files := got[2].Listing; files == nil || len(files.Entries) != 1 || string(files.Entries[0].Values) != `{"size":12345678901234567}` {
		t.Errorf("files: %+v", got[2])
	}
	if none := got[3].Listing; none == nil || len(none.Entries) != 0 {
		t.Errorf("no directory: %+v", got[3])
	}
	if len(got[4].Problems) != 1 || got[4].Listing != nil || got[4].Commit == "" {
		t.Errorf("a file without parameters: %+v", got[4])
	}
	if got[5].Failure == nil || got[5].Failure.Reason != atoll.ReasonRefMissing {
		t.Errorf("a branch that is gone: %+v", got[5])
	}
	r.commit(t, map[string]string{"README.md": "another"})
	seen := wants[1]
	seen.SeenDigest = got[1].Digest
	if again := mustFetch(t, Request{Type: TypeGit, URL: url, Wants: []Want{seen}})[0]; !again.Unchanged || again.Listing != nil || again.Commit == got[1].Commit {
		t.Errorf("an unrelated commit: %+v", again)
	}
}
