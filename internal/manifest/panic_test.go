package manifest

import (
	"strings"
	"testing"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/overrides"
)

// An object whose rendering panics has an error in place of an object, and its hash differs from
// that of the rendered object.
func TestAPanicIsTheObjectsError(t *testing.T) {
	item := &atoll.Item{Key: atoll.ItemKey{Kind: "ConfigMap", Name: "broken"}, APIVersion: "v1", Object: []byte(`{"kind":"ConfigMap"}`)}
	good := (&sharedItem{item: item}).mustRender(t)
	atomic := &overrides.CompiledRule{Rule: &atoll.Rule{Policy: "p", Atomic: true}}
	r, notes, failed := (&sharedItem{item: item, rules: []*overrides.CompiledRule{nil, atomic}, sharedRules: 1}).renderForCluster(RenderInput{})
	if r.ErrorReason != atoll.ReasonRenderPanicked || !strings.Contains(r.Error, "nil pointer") || !strings.Contains(r.Error, ".go:") || r.Object != nil {
		t.Errorf("rendered: %+v", r)
	}
	if notes != nil || failed != atomic.Rule {
		t.Errorf("notes %v and rule %v of an object that is not rendered; want none, and the atomic rule, which then fails for all", notes, failed)
	}
	if r.Key != item.Key || r.Hash == "" || r.Hash == good.Hash {
		t.Errorf("the key is %v, the hash %q", r.Key, r.Hash)
	}
}

func (it *sharedItem) mustRender(t *testing.T) atoll.RenderedItem {
	t.Helper()
	r, _, _ := it.renderForCluster(RenderInput{})
	if r.Error != "" || string(r.Object) != string(it.item.Object) {
		t.Fatalf("rendered: %+v", r)
	}
	return r
}
