package apply

import (
	"encoding/json"
	"reflect"
	"testing"

	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/atoll"
)

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
		s       applyParams
		want    map[string]any // metadata
		spec    any
	}{
		{"created", `{"spec":{"replicas":2}}`, false, applyParams{}, labels(nil), map[string]any{"replicas": 2.0}},
		{"with labels of its own", `{"metadata":{"labels":{"app":"web"}}}`, false, applyParams{}, labels(map[string]any{"app": "web"}), nil},
		{"taken over", `{}`, false, applyParams{adopt: true}, labels(map[string]any{ownership.LabelAdopted: "true"}), nil},
		{"taken over earlier", `{}`, true, applyParams{}, labels(map[string]any{ownership.LabelAdopted: "true"}), nil},
		{"without the member's fields", `{"spec":{"replicas":2,"x":[{"a":1,"b":2}]}}`, false,
			applyParams{left: []string{"/spec/replicas", "/spec/x/0/b", "/spec/x/1/b", "/spec/none/b"}}, labels(nil), map[string]any{"x": []any{map[string]any{"a": 1.0}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := pendingWork{Step: ownership.Step{Key: key, Owner: "b1", Item: item(c.object), Record: ownership.Record{Adopted: c.adopted}}}
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
	p := pendingWork{Step: ownership.Step{Key: key, Owner: "b1", Item: item(`{}`)}}
	body, _ := applyBody(p, applyParams{uid: "u"})
	if got := parseJSON(t, string(body)).(map[string]any)["metadata"].(map[string]any)["uid"]; got != "u" {
		t.Errorf("an apply to an object with a UID has the UID %v", got)
	}
	for _, bad := range []string{"", "null", "[]", "{"} {
		p.Item = item(bad)
		if body, failure := applyBody(p, applyParams{}); failure == nil || failure.Reason != atoll.ReasonInvalid || body != nil {
			t.Errorf("%q is applied as %s, failure %+v", bad, body, failure)
		}
	}
}
