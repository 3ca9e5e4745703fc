package render_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/sources/render"
)

// listTree returns what a want lists of files, as text.
func listTree(t *testing.T, files map[string]string, w render.ListingWant) string {
	t.Helper()
	listing, problems, err := render.List(newTree(files), w)
	var failure *render.Failure
	if errors.As(err, &failure) {
		return "failure " + string(failure.Reason)
	}
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, p := range problems {
		out = append(out, "problem "+p.Format())
	}
	if (listing == nil) != (len(problems) > 0) {
		t.Errorf("a listing %v beside %d problems", listing, len(problems))
	}
	if listing != nil {
		for _, e := range listing.Entries {
			out = append(out, strings.TrimSuffix(fmt.Sprintf("%s:%d %s", e.Path, e.Line, e.Values), ":0 "))
		}
	}
	return strings.Join(out, "\n")
}

func TestListDirectories(t *testing.T) {
	files := map[string]string{
		"apps/web/a.yaml": "x", "apps/db/a.yaml": "x", "apps/db/sub/a.yaml": "x", "apps/.hidden/a.yaml": "x", "apps/README.md": "x", "other/web/a.yaml": "x", "a.yaml": "x",
	}
	with := func(name, text string) map[string]string {
		out := map[string]string{name: text}
		for k, v := range files {
			out[k] = v
		}
		return out
	}
	for name, c := range map[string]struct {
		files   map[string]string
		paths   []string
		exclude []string
		want    string
	}{
		"one level":               {files, []string{"apps/*"}, nil, "apps/db\napps/web"},
		"any depth":               {files, []string{"apps/**"}, nil, "apps\napps/db\napps/db/sub\napps/web"},
		"two patterns, one entry": {files, []string{"apps/w*", "*/web"}, nil, "apps/web\nother/web"},
		"the root's":              {files, []string{"*"}, nil, "apps\nother"},
		"one path":                {files, []string{"apps/db/"}, nil, "apps/db"},
		"below any":               {files, []string{"**/sub"}, nil, "apps/db/sub"},
		"excluded":                {files, []string{"apps/*", "apps/*/*"}, []string{"apps/db"}, "apps/web"},
		"excluded by name":        {files, []string{"*/*"}, []string{"web"}, "apps/db"},
		"nothing":                 {files, []string{"gone/*"}, nil, ""},
		"no directory":            {files, []string{"apps/README.md"}, nil, ""},
		"a link to a directory":   {with("apps/new", "-> ../other/web"), []string{"apps/*"}, nil, "problem apps/new: the directory is a symbolic link, which is not followed; exclude it or commit the files"},
		"a link out":              {with("apps/new", "-> /etc"), []string{"apps/*"}, nil, "problem apps/new: the directory is a symbolic link, which is not followed; exclude it or commit the files"},
		"an excluded link":        {with("apps/new", "-> ../other/web"), []string{"apps/*"}, []string{"apps/new"}, "apps/db\napps/web"},
		"a link to a file":        {with("apps/new", "-> ../a.yaml"), []string{"apps/*"}, nil, "apps/db\napps/web"},
		"a link on the way":       {with("links", "-> other"), []string{"*/web"}, nil, "problem links: the directory is a symbolic link, which is not followed; exclude it or commit the files"},
		"a link beside":           {with("other/new", "-> ../apps"), []string{"apps/*"}, nil, "apps/db\napps/web"},
	} {
		if got := listTree(t, c.files, render.ListingWant{Paths: c.paths, Exclude: c.exclude}); got != c.want {
			t.Errorf("%s:\n%s\nwant:\n%s", name, got, c.want)
		}
	}
}

func TestListFiles(t *testing.T) {
	large := "a: " + strings.Repeat("x", render.MaxListedFileBytes)
	for name, c := range map[string]struct {
		text string
		want string
	}{
		"a map":             {"# a city\nname: oslo\nport: 80\n", `c/a.yaml:2 {"name":"oslo","port":80}`},
		"two documents":     {"a: 1\n---\nb: 2\n", "c/a.yaml:1 {\"a\":1}\nc/a.yaml:3 {\"b\":2}"},
		"a list":            {"- a: 1\n- a: 2\n", "c/a.yaml:1 {\"a\":1}\nc/a.yaml:1 {\"a\":2}"},
		"json":              {`{"a": {"b": [1]}}`, `c/a.yaml:1 {"a":{"b":[1]}}`},
		"with a mark":       {"\ufeffa: 1\r\n", `c/a.yaml:1 {"a":1}`},
		"empty":             {"# nothing\n", "problem c/a.yaml: the file has no parameters; exclude it, or give it a map"},
		"an empty list":     {"[]", "problem c/a.yaml: the file has no parameters; exclude it, or give it a map"},
		"a scalar":          {"just text", "problem c/a.yaml:1: it is no map of parameters, and no list of such maps"},
		"a list of scalars": {"- a\n", "problem c/a.yaml:1: it is no map of parameters, and no list of such maps"},
		"not YAML":          {"a: 1\nb: [\n", "problem c/a.yaml:"},
		"a key twice":       {"a: 1\na: 2\n", "problem c/a.yaml:2:"},
		"large":             {large, "problem c/a.yaml: the file has more than 65536 bytes"},
		"a link":            {"-> b.txt", "problem c/a.yaml: the file is a symbolic link, which is not followed; exclude it or commit the file"},
	} {
		got := listTree(t, map[string]string{"c/a.yaml": c.text, "c/b.txt": "x", "d/a.yaml": "["}, render.ListingWant{Files: true, Paths: []string{"c/*.yaml"}})
		if isWhole := !strings.HasSuffix(c.want, ":"); isWhole && got != c.want || !strings.HasPrefix(got, c.want) {
			t.Errorf("%s:\n%s\nwant:\n%s", name, got, c.want)
		}
	}
}

// More than a bound is a failure of the whole listing, and never a part of it.
func TestListingsHaveBounds(t *testing.T) {
	many, big, one := map[string]string{}, map[string]string{}, "a: "+strings.Repeat("x", render.MaxListedFileBytes-10)
	for i := range render.MaxListedEntries + 1 {
		many[fmt.Sprintf("apps/%04d/a.yaml", i)] = "a: 1"
	}
	for i := range render.MaxListedBytes/render.MaxListedFileBytes + 1 {
		big[fmt.Sprintf("c/%02d.yaml", i)] = one
	}
	for name, c := range map[string]struct {
		files map[string]string
		want  render.ListingWant
	}{
		"directories": {many, render.ListingWant{Paths: []string{"apps/*"}}},
		"files":       {many, render.ListingWant{Files: true, Paths: []string{"apps/**"}}},
		"bytes":       {big, render.ListingWant{Files: true, Paths: []string{"c/*"}}},
	} {
		if got := listTree(t, c.files, c.want); got != "failure ContentTooLarge" {
			t.Errorf("%s: %.80s", name, got)
		}
	}
	delete(many, "apps/0000/a.yaml")
	if got := listTree(t, many, render.ListingWant{Paths: []string{"apps/*"}}); strings.Count(got, "\n") != render.MaxListedEntries-1 {
		t.Errorf("as many as allowed: %d", strings.Count(got, "\n"))
	}
}

// The digest changes with the entries, and with nothing else of the tree.
func TestDigestOfAListing(t *testing.T) {
	digest := func(files map[string]string, w render.ListingWant) string {
		l, problems, err := render.List(newTree(files), w)
		if err != nil || len(problems) > 0 {
			t.Fatal(err, problems)
		}
		return l.Digest()
	}
	directories, values := render.ListingWant{Paths: []string{"a/*"}}, render.ListingWant{Files: true, Paths: []string{"a/*/v.yaml"}}
	before := map[string]string{"a/b/v.yaml": "x: 1", "c": "1"}
	unrelated := map[string]string{"a/b/v.yaml": "x: 1 # the same", "c": "2", "a/b/w": "3"}
	changed := map[string]string{"a/b/v.yaml": "x: 2", "a/d/v": "1"}
	if digest(before, directories) != digest(unrelated, directories) || digest(before, values) != digest(unrelated, values) {
		t.Error("an unrelated file changes a listing")
	}
	if digest(before, directories) == digest(changed, directories) || digest(before, values) == digest(changed, values) {
		t.Error("another entry changes no listing")
	}
}

func TestMatchWhole(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		whole, below  bool
	}{
		{"apps/*", "apps", false, true}, {"apps/*", "apps/a", true, false}, {"apps/*", "apps/a/b", false, false}, {"apps/*", "other", false, false},
		{"**", "a", true, true}, {"**/b", "a", false, true}, {"**/b", "b", true, true}, {"**/b", "a/b", true, true}, {"a/**/b", "a/b", true, true},
		{"a/**/b", "c", false, false}, {"/a/", "a", true, false}, {"[", "a", false, false}, {"a?", "ab", true, false},
	} {
		if whole, below := render.MatchWhole(c.pattern, c.name); whole != c.whole || below != c.below {
			t.Errorf("%s of %s: %v, %v", c.pattern, c.name, whole, below)
		}
	}
}
