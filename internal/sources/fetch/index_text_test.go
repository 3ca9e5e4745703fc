package fetch

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// An index of Helm's form is divided, and one of another form is decoded as a whole. Both have the same versions.
func TestFormsOfAnIndex(t *testing.T) {
	const item = "  - version: 1.0.0\n    urls: [a]\n    digest: \"01\"\n"
	for name, c := range map[string]struct {
		text      string
		isDivided bool
		want      string
	}{
		"as Helm writes it":              {"apiVersion: v1\nentries:\n  a:\n" + item + item + "  b.c-d:\n" + item + "generated: \"x\"\n", true, "a 2, b.c-d 1"},
		"fields in another order":        {"generated: x\nentries:\n  a:\n" + item + "apiVersion: v1\n", true, "a 1"},
		"Windows ends its lines":         {strings.ReplaceAll("apiVersion: v1\nentries:\n  a:\n"+item, "\n", "\r\n"), true, "a 1"},
		"no end of the last line":        {"apiVersion: v1\nentries:\n  a:\n  - version: 1.0.0", true, "a 1"},
		"a text that looks like a chart": {"apiVersion: v1\nentries:\n  a:\n  - description: |\n      entries:\n        b:\n\n    version: 1.0.0\n", true, "a 1"},
		"deeper items":                   {"apiVersion: v1\nentries:\n  a:\n    - version: 1.0.0\n", true, "a 1"},
		"deeper charts":                  {"apiVersion: v1\nentries:\n    a:\n    - version: 1.0.0\n", false, "a 1"},
		"JSON":                           {`{"apiVersion": "v1", "entries": {"a": [{"version": "1.0.0"}]}}`, false, "a 1"},
		"a flow":                         {"apiVersion: v1\nentries: {a: [{version: 1.0.0}]}\n", false, "a 1"},
		"a quoted chart":                 {"apiVersion: v1\nentries:\n  \"a\":\n" + item, false, "a 1"},
		"a comment in front":             {"# made by hand\napiVersion: v1\nentries:\n  a:\n" + item, false, "a 1"},
		"no chart":                       {"apiVersion: v1\nentries: {}\n", false, ""},
		"no version of the API":          {"entries:\n  a:\n" + item, false, "error"},
		"a page":                         {"<html>\n", false, "error"},
		"nothing":                        {"", false, "error"},
	} {
		index, err := readIndex([]byte(c.text))
		got := "error"
		if err == nil {
			names := slices.Collect(maps.Keys(index.entries))
			names = slices.Sorted(slices.Values(append(names, slices.Collect(maps.Keys(index.parts))...)))
			var found []string
			for _, chart := range names {
				versions, ok, err := index.findVersions(chart)
				if !ok || err != nil || versions[0].Version != "1.0.0" {
					t.Errorf("%s: %v, %v", name, versions, err)
				}
				found = append(found, fmt.Sprintf("%s %d", chart, len(versions)))
			}
			got = strings.Join(found, ", ")
			if (index.parts != nil) != c.isDivided {
				t.Errorf("%s: divided %v", name, !c.isDivided)
			}
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// FuzzIndex compares the divided index with the whole one.
func FuzzIndex(f *testing.F) {
	f.Add("apiVersion: v1\nentries:\n  a:\n  - version: 1.0.0\n  b:\n  - version: 2.0.0\ngenerated: x\n")
	f.Add("apiVersion: v1\nentries:\n  a:\n  - description: |\n      b:\n    version: 1.0.0\n")
	f.Fuzz(func(t *testing.T, text string) {
		parts, ok := divideIndex([]byte(text))
		whole, err := decodeIndex([]byte(text))
		if !ok || err != nil {
			return
		}
		divided := &indexText{parts: parts, decoded: map[string]decodedChart{}}
		for chart, versions := range whole {
			found, _, err := divided.findVersions(chart)
			if err == nil && fmt.Sprint(found) != fmt.Sprint(versions) {
				t.Errorf("%q: %v, as a whole %v", chart, found, versions)
			}
		}
	})
}
