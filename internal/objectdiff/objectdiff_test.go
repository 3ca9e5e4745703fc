package objectdiff

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func parseMap(t *testing.T, text string) (out map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// Each path names the smallest part that differs.
func TestCompare(t *testing.T) {
	for name, c := range map[string]struct {
		before, after string
		want          []string
	}{
		"equal":                      {`{"a":{"b":[1,{"c":2}]}}`, `{"a":{"b":[1,{"c":2}]}}`, nil},
		"a field":                    {`{"a":{"b":1,"c":2}}`, `{"a":{"b":1,"c":3}}`, []string{"/a/c"}},
		"a key with a slash":         {`{"a":{"b/c~d":1}}`, `{"a":{"b/c~d":2}}`, []string{"/a/b~1c~0d"}},
		"a field that is added":      {`{"a":{}}`, `{"a":{"b":1}}`, []string{"/a/b"}},
		"a field that is removed":    {`{"a":{"b":1}}`, `{"a":{}}`, []string{"/a/b"}},
		"an element of a list":       {`{"l":[1,{"b":1,"c":1},3]}`, `{"l":[1,{"b":2,"c":1},3]}`, []string{"/l/1/b"}},
		"two elements":               {`{"l":[1,2,3]}`, `{"l":[4,2,5]}`, []string{"/l/0", "/l/2"}},
		"elements by their names":    {`{"l":[{"name":"a","x":1},{"name":"b"}]}`, `{"l":[{"name":"b"},{"name":"a","x":2}]}`, []string{"/l/name=a/x"}},
		"an element with a new name": {`{"l":[{"name":"a"}]}`, `{"l":[{"name":"a"},{"name":"b"}]}`, []string{"/l/name=b"}},
		"the length of a list":       {`{"l":[1,2]}`, `{"l":[1]}`, []string{"/l"}},
		"a list in place of a map":   {`{"l":{"a":1}}`, `{"l":[1]}`, []string{"/l"}},
		"a value in place of a list": {`{"l":[1]}`, `{"l":1}`, []string{"/l"}},
	} {
		var got []string
		for _, d := range Compare(parseMap(t, c.before), parseMap(t, c.after)) {
			got = append(got, d.Path)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestWithoutServerFields(t *testing.T) {
	obj := &unstructured.Unstructured{Object: parseMap(t, `{"metadata":{"name":"a","uid":"u","resourceVersion":"1","generation":2,"creationTimestamp":"t","managedFields":[],"labels":{"app":"a","atoll.dev/adopted":"true"}},"spec":{"x":1},"status":{"y":1}}`)}
	want := parseMap(t, `{"metadata":{"name":"a","labels":{"app":"a"}},"spec":{"x":1}}`)
	got := WithoutServerFields(obj)
	text, err := json.Marshal(got)
	if err != nil || !reflect.DeepEqual(parseMap(t, string(text)), want) {
		t.Errorf("%s, %v", text, err)
	}
	if obj.GetUID() != "u" || obj.GetLabels()["atoll.dev/adopted"] == "" {
		t.Error("the object itself changed")
	}
	obj.SetLabels(map[string]string{"atoll.dev/bundle": "b"})
	if meta := WithoutServerFields(obj)["metadata"].(map[string]any); meta["labels"] != nil {
		t.Errorf("labels %v", meta["labels"])
	}
}
