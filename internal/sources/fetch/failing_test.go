package fetch

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	repo "helm.sh/helm/v4/pkg/repo/v1"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/sources/chartstest"
)

// A registry that cannot be read for any Source fails the fetch, so that the Repository has the reason. One chart that fails does not.
func TestARegistryThatFailsForAllSources(t *testing.T) {
	closed := false
	server, ca := chartstest.NewRegistry(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if closed || strings.Contains(r.URL.Path, "/hidden/") {
				w.WriteHeader(http.StatusForbidden)
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	chartstest.PushChart(t, server, chartstest.NewChart(t, "shop", "1.0.0"), "shop", "1.0.0")
	r := Request{
		Type: TypeHelm, URL: strings.Replace(server.URL, "https://", "oci://", 1) + "/charts", Username: chartstest.Username, Password: chartstest.Password, CABundle: ca,
		Wants: []Want{wantChart("shop@1.x"), wantChart("hidden@1.0.0")},
	}
	a, err := runFetch(t, r)
	if err != nil || versionOf(a.Contents[0]) != "1.0.0" || a.Contents[1].Failure == nil || a.Contents[1].Failure.Reason != atoll.ReasonCredentialsRefused {
		t.Fatalf("%+v, %v", a, err)
	}
	r.Wants[1] = wantChart("shop@2.x")
	if a, err = runFetch(t, r); err != nil || a.Contents[1].Failure == nil || a.Contents[1].Failure.Reason != atoll.ReasonVersionMissing {
		t.Errorf("%+v, %v", a, err)
	}
	closed = true
	var failure *Failure
	if _, err = runFetch(t, r); !errors.As(err, &failure) || failure.Reason != atoll.ReasonCredentialsRefused {
		t.Errorf("a registry that refuses all: %v", err)
	}
	closed = false
	r.Wants = []Want{wantChart("absent@1.x"), wantChart("absent@2.x")}
	if a, err = runFetch(t, r); err != nil || len(a.Contents) != 2 {
		t.Errorf("charts that are missing are of their Sources: %v", err)
	}
}

// Two Repositories of one public index keep each other's note.
func TestTwoRepositoriesOfAnIndexShareItsNote(t *testing.T) {
	s := newChartServer(t, map[string][]byte{"shop-1.0.0.tgz": chartstest.NewChart(t, "shop", "1.0.0"), "other-1.0.0.tgz": chartstest.NewChart(t, "other", "1.0.0")})
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f := &Fetcher{Executable: []string{own, ChildCommand}, AllowedNetworks: loopback}
	seen := map[string]string{}
	read := func(ref string) Content {
		t.Helper()
		w := wantChart(ref)
		if w.SeenCommit = seen[ref]; w.SeenCommit != "" {
			w.SeenDigest = "d"
		}
		a, err := f.Fetch(t.Context(), s.newRequest(w))
		if err != nil {
			t.Fatalf("%s: %v", ref, err)
		}
		return a.Contents[0]
	}
	refs := []string{"shop@1.x", "other@1.x"}
	for _, ref := range refs {
		seen[ref] = read(ref).Commit
	}
	f.Executable = []string{"/bin/false"}
	for _, ref := range refs {
		if c := read(ref); !c.Unchanged || c.Commit != seen[ref] {
			t.Errorf("%s: %+v", ref, c)
		}
	}
}

// Notes of an index are bounded, and are of one text of it.
func TestNotesOfAnIndex(t *testing.T) {
	var c checkpoints
	r := Request{Type: TypeHelm, URL: "https://h"}
	note := func(digest, ref string) {
		c.replaceNote(r, &Checkpoint{Digest: digest, Revisions: map[string]string{ref: ref + digest}})
	}
	note("1", "a")
	note("1", "b")
	if got := c.findNote(r).Revisions; len(got) != 2 || got["a"] != "a1" || got["b"] != "b1" {
		t.Errorf("%v", got)
	}
	note("2", "b")
	if got := c.findNote(r).Revisions; len(got) != 1 || got["b"] != "b2" {
		t.Errorf("another text: %v", got)
	}
	for n := range maxNotedRefs + 10 {
		note("2", fmt.Sprint(n))
	}
	if got := len(c.findNote(r).Revisions); got > maxNotedRefs {
		t.Errorf("%d refs", got)
	}
}

// The versions of a chart are decoded once, however many refs of it there are.
func TestVersionsOfAChartAreDecodedOnce(t *testing.T) {
	index, err := readIndex([]byte("apiVersion: v1\nentries:\n  a:\n  - version: 1.0.0\n  b:\n  - version: [\n"))
	if err != nil || index.parts == nil {
		t.Fatal(err)
	}
	for _, chart := range []string{"a", "b"} {
		before, _, beforeErr := index.findVersions(chart)
		index.parts[chart] = []byte("  a:\n  - version: 2.0.0\n") // what is decoded already is not read again
		after, ok, err := index.findVersions(chart)
		if !ok || fmt.Sprint(before) != fmt.Sprint(after) || (beforeErr == nil) != (err == nil) || (err == nil) != (chart == "a") {
			t.Errorf("%s: %v, %v; then %v, %v", chart, before, beforeErr, after, err)
		}
	}
}

// Archives that must be read to identify them take the bytes of a child. Those beyond are of the next child, and not too large.
func TestArchivesWithoutDigestsArePostponed(t *testing.T) {
	archives, large := map[string][]byte{}, strings.Repeat("x", maxChartBytes-1<<20)
	var wants []Want
	for n := range 10 {
		name := fmt.Sprint("shop", n)
		archives[name+"-1.0.0.tgz"] = chartstest.NewChart(t, name, "1.0.0")
		wants = append(wants, wantChart(name+"@*"))
	}
	s := newChartServer(t, archives)
	s.writeIndex(t, func(x *repo.IndexFile) {
		for _, versions := range x.Entries {
			versions[0].Digest = ""
		}
	})
	for name := range archives {
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte(large), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := s.newRequest(wants...)
	r.AllowedNetworks = loopback
	a := runRequest(t.Context(), r, t.TempDir())
	if a.Failure != nil {
		t.Fatal(a.Failure)
	}
	read, postponed := 0, 0
	for _, c := range a.Contents {
		switch {
		case c.Postponed:
			postponed++
		case c.Failure != nil && c.Failure.Reason == atoll.ReasonContentInvalid:
			read++
		default:
			t.Errorf("%+v", c.Failure)
		}
	}
	if read == 0 || postponed == 0 {
		t.Errorf("%d are read, %d are postponed", read, postponed)
	}
}
