package jsonpointer

import (
	"encoding/json"
	"slices"
	"testing"
)

func TestParse(t *testing.T) {
	for path, want := range map[string][]string{
		"/a/b":       {"a", "b"},
		"/a~1b/c~0d": {"a/b", "c~d"},
		"/~01":       {"~1"},
		"/":          {""},
		"/a//b":      {"a", "", "b"},
	} {
		got, err := ParsePointer(path)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("Parse(%q) = %q, %v; want %q", path, got, err, want)
		}
		if back := FormatPointer(got...); back != path {
			t.Errorf("%q came back as %q", path, back)
		}
	}
	for _, path := range []string{"", "a", "/a~", "/a~2"} {
		if got, err := ParsePointer(path); err == nil {
			t.Errorf("Parse(%q) = %q, want an error", path, got)
		}
	}
}

func TestLookupAndRemove(t *testing.T) {
	const doc = `{"a":{"b":1},"l":[{"x":1,"y":2},[3]],"n":null}`
	for path, want := range map[string]string{
		"/a": `{"l":[{"x":1,"y":2},[3]],"n":null}`, "/a/b": `{"a":{},"l":[{"x":1,"y":2},[3]],"n":null}`,
		"/l/0/x": `{"a":{"b":1},"l":[{"y":2},[3]],"n":null}`, "/n": `{"a":{"b":1},"l":[{"x":1,"y":2},[3]]}`,
		"/l/0": doc, "/l/1/0": doc, // elements stay
		"/c": "", "/a/c": "", "/a/b/c": "", "/l/2": "", "/l/x": "", "/l/-1": "", "/n/a": "",
	} {
		var got any
		if err := json.Unmarshal([]byte(doc), &got); err != nil {
			t.Fatal(err)
		}
		parts, err := ParsePointer(path)
		if err != nil {
			t.Fatal(err)
		}
		_, has := LookupParent(got, parts)
		RemoveMapField(got, parts)
		text, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		if want == "" && (has || string(text) != doc) || want != "" && (!has || string(text) != want) {
			t.Errorf("%s: found %v, left %s; want %s", path, has, text, want)
		}
	}
}
