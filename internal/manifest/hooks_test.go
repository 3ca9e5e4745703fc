package manifest

import (
	"fmt"
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

// hookContent returns a content of ConfigMaps, of which the first so many are hooks.
func hookContent(hooks, all int) *atoll.Content {
	c := &atoll.Content{}
	for i := range all {
		item := atoll.Item{Key: atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: fmt.Sprintf("c%05d", i)}, APIVersion: "v1", UID: "t", Object: []byte(`{"data":{"a":"b"}}`), Hash: "h"}
		if i < hooks {
			item.Treatment = &atoll.Treatment{Hook: &atoll.Hook{Events: []atoll.HookEvent{atoll.HookPreSync}}}
		}
		c.Items = append(c.Items, item)
	}
	return c
}

func runOf(items []atoll.RenderedItem, c *atoll.Content) string {
	return BuildManifest(ManifestInput{Items: items, Content: c, HashKey: []byte("k")}).HookRun
}

// All items of a Bundle with hooks have the error that agents without support for hooks report. Agents with it apply them, and
// their hashes are those without hooks.
func TestOlderAgentsApplyNothingOfABundleWithHooks(t *testing.T) {
	plain, _ := RenderItems(hookContent(0, 2), RenderInput{})
	items, _ := RenderItems(hookContent(1, 2), RenderInput{})
	for i, it := range items {
		if it.Error != atoll.UnknownHook || !it.Hooked || it.Failed() || !it.IsWritten() || it.HasLostField() || it.Hash != plain[i].Hash || (it.Hook != nil) != (i == 0) {
			t.Errorf("%+v", it)
		}
		it.Hook, it.Hooked = nil, false // as such an agent stores it
		if !it.HasLostField() || !it.Failed() || it.IsWritten() {
			t.Errorf("an upgraded agent applies %s without its hook", it.Key)
		}
	}
	for _, it := range plain {
		if it.Error != "" || it.Hooked {
			t.Errorf("without hooks: %+v", it)
		}
	}
}

// Hooks run for another content, and not for another share of replicas or another wave. An observed object is no hook.
func TestContentForWhichHooksRun(t *testing.T) {
	c := hookContent(1, 2)
	items, _ := RenderItems(c, RenderInput{})
	first := runOf(items, c)
	if !atoll.IsHookRun(first) {
		t.Fatalf("the content is %q", first)
	}
	for name, edit := range map[string]func(*atoll.RenderedItem){
		"another template": func(it *atoll.RenderedItem) { it.UID = "t2" },
		"another content":  func(it *atoll.RenderedItem) { it.SharedHash = "x" },
		"another object":   func(it *atoll.RenderedItem) { it.Key.Name = "x" },
	} {
		items, _ := RenderItems(c, RenderInput{})
		if edit(&items[1]); runOf(items, c) == first {
			t.Errorf("%s runs no hook", name)
		}
	}
	for name, edit := range map[string]func(*atoll.Item){
		"another wave": func(item *atoll.Item) { item.Treatment = &atoll.Treatment{Wave: 3} },
		"no edit":      func(*atoll.Item) {},
	} {
		other := hookContent(1, 2)
		edit(&other.Items[1])
		if items, _ := RenderItems(other, RenderInput{}); runOf(items, other) != first {
			t.Errorf("%s runs a hook", name)
		}
	}
	c.Items[0].Treatment.Drift = "Report"
	if items, _ := RenderItems(c, RenderInput{}); items[0].Hook != nil || runOf(items, c) != "" {
		t.Errorf("an observed hook runs: %+v", items[0])
	}

	divided := hookContent(1, 1)
	divided.Items = append(divided.Items, atoll.Item{
		Key: atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}, APIVersion: "apps/v1", UID: "t", Divided: true, Hash: "h",
		Object: []byte(`{"apiVersion":"apps/v1","kind":"Deployment","spec":{"replicas":4}}`),
	})
	runs := map[string]bool{}
	for share := range int64(3) {
		items, _ := RenderItems(divided, RenderInput{Assigned: map[string]int64{divided.Items[1].Key.String(): share}})
		runs[runOf(items, divided)] = true
	}
	if len(runs) != 1 || runs[""] {
		t.Errorf("shares of replicas run hooks: %v", runs)
	}
}

// Hooks and waves beyond the bounds are not sent, with a reason. All others are.
func TestBoundsOfHooksAndWaves(t *testing.T) {
	items, _ := RenderItems(hookContent(atoll.MaxHooks+1, atoll.MaxHooks+2), RenderInput{})
	for i, it := range items {
		if failed := i == atoll.MaxHooks; it.Failed() != failed || failed && (it.ErrorReason != atoll.ReasonTooManyHooks || it.Hook != nil) {
			t.Errorf("%d: %+v", i, it)
		}
	}
	c := hookContent(0, atoll.MaxWaves+3)
	for i := range c.Items {
		c.Items[i].Treatment = &atoll.Treatment{Wave: int32(i - 5)}
	}
	c.Items[1].Treatment = c.Items[0].Treatment
	items, _ = RenderItems(c, RenderInput{})
	for i, it := range items {
		if failed := i > atoll.MaxWaves; it.Failed() != failed || failed && (it.ErrorReason != atoll.ReasonTooManyWaves || it.Wave != int32(atoll.MaxWaves-5)) {
			t.Errorf("%d: wave %d, %s", i, it.Wave, it.Error)
		}
	}
}
