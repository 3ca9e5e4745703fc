package fetch

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

// A ref that did not move starts no child. A moved one, a long list of refs and a first read start one.
func TestSeenCommitsStartNoChild(t *testing.T) {
	r := newRepository(t)
	commit := r.commit(t, map[string]string{"a.yaml": configMap})
	url := r.serve(t)
	f := &Fetcher{Executable: []string{"/bin/sh", "-c", `cat > /dev/null; echo '{"contents": [{"id": "child"}]}'`}, AllowedNetworks: loopback}
	read := func(url string, change func(*Want)) string {
		t.Helper()
		a, err := f.Fetch(t.Context(), Request{Type: TypeGit, URL: url, Wants: wantMain(func(w *Want) { w.SeenCommit, w.SeenDigest = commit, "d" }, change)})
		var failure *Failure
		if errors.As(err, &failure) {
			return string(failure.Reason)
		}
		if err != nil {
			t.Fatal(err)
		}
		return a.Contents[0].ID + " " + describe(a.Contents[0]) + " " + a.Contents[0].Digest
	}
	long := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "001e# service=git-upload-pack\n0000")
		capabilities := "\x00shallow"
		for i := range 10_000 {
			line := fmt.Sprintf("%040d refs/heads/branch-%d%s\n", i+1, i, capabilities)
			capabilities = ""
			fmt.Fprintf(w, "%04x%s", len(line)+4, line)
		}
		fmt.Fprint(w, "0000")
	}))
	t.Cleanup(long.Close)
	for name, c := range map[string]struct {
		url    string
		change func(*Want)
		want   string
	}{
		"the same":          {url, func(*Want) {}, "s unchanged d"},
		"a stated commit":   {url, func(w *Want) { w.Ref = commit }, "s unchanged d"},
		"another commit":    {url, func(w *Want) { w.SeenCommit = strings.Repeat("a", 40) }, "child  "},
		"a ref that is not": {url, func(w *Want) { w.Ref = "refs/heads/gone" }, "child  "},
		"a first read":      {url, func(w *Want) { w.SeenCommit = "" }, "child  "},
		"a long list":       {long.URL, func(*Want) {}, "child  "},
		"no repository":     {strings.TrimSuffix(url, "a.git") + "b.git", func(*Want) {}, string(atoll.ReasonRepositoryMissing)},
	} {
		if got := read(c.url, c.change); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// BenchmarkIdleCheck is a check of a Repository whose refs did not move.
func BenchmarkIdleCheck(b *testing.B) {
	commit := strings.Repeat("a", 40)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		line := commit + " refs/heads/main\x00side-band-64k shallow\n"
		fmt.Fprintf(w, "001e# service=git-upload-pack\n0000%04x%s0000", len(line)+4, line)
	}))
	b.Cleanup(server.Close)
	f := &Fetcher{AllowedNetworks: loopback}
	for b.Loop() {
		a, err := f.Fetch(b.Context(), Request{Type: TypeGit, URL: server.URL, Wants: wantMain(func(w *Want) { w.SeenCommit = commit })})
		if err != nil || !a.Contents[0].Unchanged {
			b.Fatal(a, err)
		}
	}
}

// A decoder that panics on an answer of a registry ends in a child, and not the hub.
func TestDecodersOfRefsMayPanic(t *testing.T) {
	same, err := confirmWants(t.Context(), panickingRepository{}, []Want{{Ref: "a", SeenCommit: "b"}})
	if same || err != nil {
		t.Errorf("%v, %v", same, err)
	}
}

// panickingRepository panics when it resolves a ref.
type panickingRepository struct{ repository }

func (panickingRepository) readRefs(context.Context) error { return nil }

func (panickingRepository) resolveRef(context.Context, string) (string, error) { panic("no") }
