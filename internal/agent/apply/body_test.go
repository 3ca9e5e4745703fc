package apply

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"

	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/atoll"
)

// The differences between two objects are paths, of which each names the smallest part that
// differs.
func TestDifferencesAreTheSmallestPaths(t *testing.T) {
	for _, c := range []struct {
		name        string
		live, after string
		want        []string
	}{
		{"equal", `{"a":{"b":[1,{"c":2}]}}`, `{"a":{"b":[1,{"c":2}]}}`, nil},
		{"a field", `{"a":{"b":1,"c":2}}`, `{"a":{"b":1,"c":3}}`, []string{"a.c"}},
		{"a field that is added", `{"a":{}}`, `{"a":{"b":1}}`, []string{"a.b"}},
		{"a field that is removed", `{"a":{"b":1}}`, `{"a":{}}`, []string{"a.b"}},
		{"an element of a list", `{"l":[1,{"b":1,"c":1},3]}`, `{"l":[1,{"b":2,"c":1},3]}`, []string{"l[1].b"}},
		{"two elements", `{"l":[1,2,3]}`, `{"l":[4,2,5]}`, []string{"l[0]", "l[2]"}},
		{"the length of a list", `{"l":[1,2]}`, `{"l":[1]}`, []string{"l"}},
		{"a list in place of a map", `{"l":{"a":1}}`, `{"l":[1]}`, []string{"l"}},
		{"a value in place of a list", `{"l":[1]}`, `{"l":1}`, []string{"l"}},
	} {
		var got []string
		collectDifferences(parseJSON(t, c.live), parseJSON(t, c.after), "", &got)
		slices.Sort(got)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func parseJSON(t *testing.T, text string) (v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// The body of an apply is the item with its identity and labels, without the fields that the
// member owns.
func TestBodyOfAnApply(t *testing.T) {
	key := atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}
	item := func(object string) *atoll.RenderedItem {
		return &atoll.RenderedItem{Key: key, APIVersion: "apps/v1", UID: "t", Object: []byte(object)}
	}
	labels := func(more map[string]any) map[string]any {
		all := map[string]any{atoll.LabelBundleUID: "b1", ownership.LabelTemplateUID: "t"}
		for k, v := range more {
			all[k] = v
		}
		return map[string]any{"name": "web", "namespace": "shop", "labels": all}
	}
	for _, c := range []struct {
		name    string
		object  string
		adopted bool
		s       sending
		want    map[string]any // metadata
		spec    any
	}{
		{"created", `{"spec":{"replicas":2}}`, false, sending{}, labels(nil), map[string]any{"replicas": 2.0}},
		{"with labels of its own", `{"metadata":{"labels":{"app":"web"}}}`, false, sending{}, labels(map[string]any{"app": "web"}), nil},
		{"taken over", `{}`, false, sending{adopt: true}, labels(map[string]any{ownership.LabelAdopted: "true"}), nil},
		{"taken over earlier", `{}`, true, sending{}, labels(map[string]any{ownership.LabelAdopted: "true"}), nil},
		{"without the member's fields", `{"spec":{"replicas":2,"x":[{"a":1,"b":2}]}}`, false,
			sending{left: []string{"/spec/replicas", "/spec/x/0/b", "/spec/x/1/b", "/spec/none/b"}}, labels(nil), map[string]any{"x": []any{map[string]any{"a": 1.0}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := plan{Step: ownership.Step{Key: key, Owner: "b1", Item: item(c.object), Record: ownership.Record{Adopted: c.adopted}}}
			body, failure := applyBody(p, c.s)
			if failure != nil {
				t.Fatalf("%+v", failure)
			}
			want := map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": c.want}
			if c.spec != nil {
				want["spec"] = c.spec
			}
			if got := parseJSON(t, string(body)); !reflect.DeepEqual(got, any(want)) {
				t.Errorf("the body is %v, want %v", got, want)
			}
		})
	}
	p := plan{Step: ownership.Step{Key: key, Owner: "b1", Item: item(`{}`)}}
	body, _ := applyBody(p, sending{uid: "u"})
	if got := parseJSON(t, string(body)).(map[string]any)["metadata"].(map[string]any)["uid"]; got != "u" {
		t.Errorf("an apply to an object with a UID has the UID %v", got)
	}
	for _, bad := range []string{"", "null", "[]", "{"} {
		p.Item = item(bad)
		if body, failure := applyBody(p, sending{}); failure == nil || failure.Reason != atoll.ReasonInvalid || body != nil {
			t.Errorf("%q is applied as %s, failure %+v", bad, body, failure)
		}
	}
}
