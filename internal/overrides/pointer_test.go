package overrides

import (
	"encoding/json"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/jsonpointer"
)

func TestPatch(t *testing.T) {
	const doc = `{"a":{"b":1},"l":[1,2,3],"m":[{"x":1}],"n":null}`
	for _, tc := range []struct{ op, path, value, want string }{
		{"add", "/a/c", `2`, `{"a":{"b":1,"c":2},"l":[1,2,3],"m":[{"x":1}],"n":null}`},
		{"add", "/l/1", `9`, `{"a":{"b":1},"l":[1,9,2,3],"m":[{"x":1}],"n":null}`},
		{"add", "/l/-", `9`, `{"a":{"b":1},"l":[1,2,3,9],"m":[{"x":1}],"n":null}`},
		{"add", "/l/3", `9`, `{"a":{"b":1},"l":[1,2,3,9],"m":[{"x":1}],"n":null}`},
		{"replace", "/m/0/x", `{"y":2}`, `{"a":{"b":1},"l":[1,2,3],"m":[{"x":{"y":2}}],"n":null}`},
		{"remove", "/l/0", ``, `{"a":{"b":1},"l":[2,3],"m":[{"x":1}],"n":null}`},
		{"remove", "/a/b", ``, `{"a":{},"l":[1,2,3],"m":[{"x":1}],"n":null}`},
		{"add", "/m/0/z/y", `1`, ``},
		{"add", "/l/4", `1`, ``},
		{"replace", "/l/-", `1`, ``},
		{"replace", "/l/3", `1`, ``},
		{"replace", "/l/01", `1`, ``},
		{"remove", "/l/-1", ``, ``},
		{"remove", "/x", ``, ``},
		{"replace", "/a/x", `1`, ``},
		{"add", "/a/b/c", `1`, ``},
		{"add", "/n/c", `1`, ``},
	} {
		got, err := applyPatch(t, doc, tc.op, tc.path, tc.value)
		if tc.want == "" {
			if err == nil {
				t.Errorf("%s %s gave %s, want an error", tc.op, tc.path, got)
			}
			continue
		}
		if err != nil || got != tc.want {
			t.Errorf("%s %s = %s, %v; want %s", tc.op, tc.path, got, err, tc.want)
		}
	}
}

func applyPatch(t *testing.T, doc, op, path, value string) (string, error) {
	t.Helper()
	var d, v any
	if err := json.Unmarshal([]byte(doc), &d); err != nil {
		t.Fatal(err)
	}
	if value != "" {
		if err := json.Unmarshal([]byte(value), &v); err != nil {
			t.Fatal(err)
		}
	}
	parts, err := jsonpointer.ParsePointer(path)
	if err != nil {
		return "", err
	}
	d, err = patchJSONValue(d, v1alpha1.OverriderOperator(op), parts, v)
	if err != nil {
		return "", err
	}
	out, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	return string(out), nil
}

// FuzzPatch compares with another implementation of RFC 6902 wherever both apply.
func FuzzPatch(f *testing.F) {
	docs := []string{`{"a":{"b":1,"c~/d":[]},"l":[1,{"x":null},[3]],"":{"":0}}`}
	for _, path := range []string{"/a/b", "/l/1/x", "/l/-", "/l/0", "/a/c~0~1d/0", "/", "//", "/l/2/0"} {
		for _, op := range []string{"add", "remove", "replace"} {
			f.Add(docs[0], op, path, `{"v":1}`)
		}
	}
	f.Fuzz(func(t *testing.T, doc, op, path, value string) {
		var d map[string]any
		var v any
		if json.Unmarshal([]byte(doc), &d) != nil || d == nil || json.Unmarshal([]byte(value), &v) != nil {
			return
		}
		if op != "add" && op != "remove" && op != "replace" {
			return
		}
		got, err := applyPatch(t, doc, op, path, value)
		if err != nil {
			return
		}
		operation, err := json.Marshal([]map[string]any{{"op": op, "path": path, "value": v}})
		if err != nil {
			t.Fatal(err)
		}
		other, err := jsonpatch.DecodePatch(operation)
		if err != nil {
			return
		}
		want, err := other.Apply([]byte(doc))
		if err != nil {
			return
		}
		if !jsonpatch.Equal([]byte(got), want) {
			t.Fatalf("%s %s %s of %s gave %s, the other implementation %s", op, path, value, doc, got, want)
		}
	})
}

// The error of a patch names the part of the path that is missing.
func TestPatchNamesWhatIsMissing(t *testing.T) {
	const doc = `{"a":{"b":1},"l":[1]}`
	for _, tc := range []struct{ op, path, want string }{
		{"replace", "/x/y", `there is no "x"`},
		{"replace", "/a/x/y", `there is no "x"`},
		{"replace", "/a/x", `there is no "x" to replace`},
		{"remove", "/x", `there is no "x" to remove`},
		{"add", "/a/b/c", `there is no "c": the value above it`},
		{"replace", "/l/7", `7`},
	} {
		if _, err := applyPatch(t, doc, tc.op, tc.path, "1"); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s %s: %v, want %q", tc.op, tc.path, err, tc.want)
		}
	}
}
