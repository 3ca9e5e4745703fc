package overrides_test

import (
	"strings"
	"testing"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/manifest"
)

// A Rollout that is divided gets its share, stated or not; one that is not is overridden as
// it was before it was known: where it states its replicas.
func TestReplicasOfARollout(t *testing.T) {
	key := atoll.ItemKey{Group: "argoproj.io", Kind: "Rollout", Namespace: "shop", Name: "web"}
	for _, c := range []struct {
		spec, over string
		divided    bool
		want       string
	}{
		{`{"replicas":9}`, `{labelsOverrider: [{operator: add, value: {a: b}}]}`, true, `"replicas":2`},
		{`{"paused":true}`, `{labelsOverrider: [{operator: add, value: {a: b}}]}`, true, `"replicas":2`},
		{`{"replicas":9}`, `{replicas: 5}`, true, "divides"},
		{`{"replicas":9}`, `{replicas: 5}`, false, `"replicas":5`},
		{`{"paused":true}`, `{replicas: 5}`, false, `{"paused":true}`},
	} {
		content := newContent(newRule("ClusterOverridePolicy/p", parseOverriders(t, c.over), key))
		rollout := newItem(key, `{"apiVersion":"argoproj.io/v1alpha1","kind":"Rollout","metadata":{"name":"web","namespace":"shop"},"spec":`+c.spec+`}`)
		rollout.Divided = c.divided
		content.Items = append(content.Items, rollout)
		r, _ := renderedItem(t, content, manifest.RenderInput{Rules: []int{0}, Assigned: map[string]int64{key.String(): 2}}, key)
		if got := string(r.Object) + r.Error; !strings.Contains(got, c.want) {
			t.Errorf("%s with %s, divided %v: %s, want %s", c.spec, c.over, c.divided, got, c.want)
		}
	}
}
