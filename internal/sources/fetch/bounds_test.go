package fetch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/sources/renderchild"
)

// A link or a submodule in the place of a directory does not drop its files in silence.
func TestSkippedDirectoriesAreProblems(t *testing.T) {
	r := newRepository(t)
	url := r.serve(t)
	r.commit(t, map[string]string{"real/a.yaml": configMap, "LICENSE": "x", "apps/README.md": "x", "apps/COPYING": "-> ../LICENSE"})
	read := func(change func(*Want)) string {
		t.Helper()
		return describe(mustFetch(t, Request{Type: TypeGit, URL: url, Wants: wantMain(change)})[0])
	}
	all := func(*Want) {}
	if got := read(all); got != "real/a.yaml:1" {
		t.Errorf("a link to a file of no content: %s", got)
	}
	commits := r.runGit(t, r.work, "rev-parse", "HEAD")
	for name, add := range map[string]func(){
		"a link to a directory":    func() { r.commit(t, map[string]string{"apps/linked": "-> ../real"}) },
		"a link to nothing":        func() { r.commit(t, map[string]string{"apps/linked": "-> gone"}) },
		"a link to a link":         func() { r.commit(t, map[string]string{"apps/linked": "-> COPYING"}) },
		"a link out of the commit": func() { r.commit(t, map[string]string{"apps/linked": "-> /etc"}) },
		"a link above the commit":  func() { r.commit(t, map[string]string{"apps/linked": "-> ../../x"}) },
		"a submodule": func() {
			r.runGit(t, r.work, "update-index", "--add", "--cacheinfo", "160000,"+commits+",apps/linked")
			r.runGit(t, r.work, "commit", "--quiet", "-m", "a submodule")
			r.runGit(t, r.work, "push", "--quiet", "--force", "origin", "HEAD:main")
		},
	} {
		r.runGit(t, r.work, "reset", "--quiet", "--hard", commits)
		add()
		if got := read(all); got != "problem apps/linked" {
			t.Errorf("%s: %s", name, got)
		}
		for how, change := range map[string]func(*Want){
			"excluded": func(w *Want) { w.Exclude = []string{"apps/linked"} }, "in other paths": func(w *Want) { w.Paths = []string{"real"} },
		} {
			if got := read(change); got != "real/a.yaml:1" {
				t.Errorf("%s, %s: %s", name, how, got)
			}
		}
		if got := read(func(w *Want) { w.Paths = []string{"apps/linked/sub"} }); got != "problem apps/linked" {
			t.Errorf("%s, above the path: %s", name, got)
		}
	}
}

// The bytes of all commits of a child have one bound. A commit that others leave no bytes for is read by the next child.
func TestPacksShareOneBound(t *testing.T) {
	r := newRepository(t)
	var wants []Want
	for _, name := range []string{"one", "two", "three"} {
		r.commit(t, map[string]string{"a.yaml": configMap + "data: {v: " + name + "}\n"})
		r.runGit(t, r.work, "push", "--quiet", "origin", "HEAD:refs/heads/"+name)
		wants = append(wants, Want{ID: name, Ref: "refs/heads/" + name})
	}
	url := r.serve(t)
	spent := int64(0)
	read := func(left int64) string {
		t.Helper()
		of, err := openGit(Request{URL: url, AllowedNetworks: loopback}, place{maxText: maxTextBytes, dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		*of.(*gitRepository).packLeft = left
		contents, err := newContentReader(of, renderchild.Runner{}).readContents(t.Context(), wants)
		if err != nil {
			t.Fatal(err)
		}
		spent = left - *of.(*gitRepository).packLeft
		var out []string
		for _, c := range contents {
			out = append(out, describe(c)+map[bool]string{true: "postponed"}[c.Postponed])
		}
		return strings.Join(out, "; ")
	}
	if got := read(maxPackBytes); got != "a.yaml:1; a.yaml:1; a.yaml:1" {
		t.Fatal(got)
	}
	one := spent / 3
	if got := read(one * 3 / 2); got != "a.yaml:1; postponed; postponed" {
		t.Errorf("bytes for one of three commits: %s", got)
	}
}

// A process that was killed leaves its directory to the next one. The directory of a running process stays.
func TestLeftDirectoriesAreRemoved(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	left, used, other := filepath.Join(os.TempDir(), dirPrefix+"1"), filepath.Join(os.TempDir(), dirPrefix+"2"), filepath.Join(os.TempDir(), "other")
	for _, dir := range []string{left, used, other} {
		if err := os.MkdirAll(filepath.Join(dir, "pack"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	release, locked := lockDirectory(used)
	if !locked {
		t.Fatal("a directory cannot be locked")
	}
	defer release()
	f := &Fetcher{Executable: []string{"/bin/sh", "-c", "cat > /dev/null; echo '{}'"}}
	if _, err := f.Fetch(t.Context(), Request{}); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]bool{left: false, used: true, other: true} {
		if _, err := os.Stat(dir); (err == nil) != want {
			t.Errorf("%s: %v", filepath.Base(dir), err)
		}
	}
}
