package apply

import (
	"strings"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

func (w *world) webSelecting(tier string, recreate bool) atoll.RenderedItem {
	w.t.Helper()
	item := w.newItem("t-web", `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 1
  selector: {matchLabels: {tier: `+tier+`}}
  template:
    metadata: {labels: {tier: `+tier+`}}
    spec: {containers: [{name: web, image: "registry.example/web:1"}]}`)
	item.Recreate = recreate
	return item
}

// An edit of a field that cannot change deletes the object and creates it again, where the item says so.
func TestAnObjectIsCreatedAgainForAnEdit(t *testing.T) {
	w := newWorld(t)
	first := w.webSelecting("front", false)
	w.storeManifest(newManifest("b1", 1, first))
	w.waitForApplied("b1", 1)
	before := w.get(first.Key).GetUID()

	w.storeManifest(newManifest("b1", 2, w.webSelecting("back", false)))
	w.waitForReason("b1", atoll.ReasonInvalid)
	if uid := w.get(first.Key).GetUID(); uid != before {
		t.Fatalf("UID %s, before %s: it was created again without a statement", uid, before)
	}
	w.storeManifest(newManifest("b1", 3, w.webSelecting("back", true)))
	w.waitForApplied("b1", 3)
	live := w.get(first.Key)
	labels := live.Object["spec"].(map[string]any)["selector"].(map[string]any)["matchLabels"].(map[string]any)
	if live.GetUID() == before || labels["tier"] != "back" {
		t.Errorf("UID %s, before %s, selector %v", live.GetUID(), before, labels)
	}
	again := live.GetUID()
	edited := w.webSelecting("back", true)
	edited.Object = []byte(strings.Replace(string(edited.Object), "web:1", "web:2", 1))
	edited.Hash = atoll.HashParts(edited.Object)
	w.storeManifest(newManifest("b1", 4, edited))
	w.waitForApplied("b1", 4)
	if uid := w.get(first.Key).GetUID(); uid != again {
		t.Error("an edit that the member accepts created the object again")
	}
}

// An edit that is wrong in a new object, too, deletes nothing.
func TestAnInvalidEditDeletesNothing(t *testing.T) {
	w := newWorld(t)
	first := w.webSelecting("front", true)
	w.storeManifest(newManifest("b1", 1, first))
	w.waitForApplied("b1", 1)
	before := w.get(first.Key).GetUID()
	wrong := w.webSelecting("back", true)
	wrong.Object = []byte(strings.Replace(string(wrong.Object), `"replicas":1`, `"replicas":-1`, 1))
	wrong.Hash = atoll.HashParts(wrong.Object)
	w.storeManifest(newManifest("b1", 2, wrong))
	w.waitForReason("b1", atoll.ReasonInvalid)
	if live := w.get(first.Key); live == nil || live.GetUID() != before {
		t.Errorf("%v", live)
	}
}

// Objects that Atoll did not create stay, whatever the item says.
func TestAnAdoptedObjectIsNotCreatedAgain(t *testing.T) {
	w := newWorld(t)
	w.makeNamespace()
	before := w.createObject(deployment).GetUID()
	m := newManifest("b1", 1, w.webSelecting("front", true))
	m.ConflictResolution = v1alpha1.ConflictOverwrite
	w.storeManifest(m)
	w.waitForReason("b1", atoll.ReasonInvalid)
	m.Generation, m.Items = 2, []atoll.RenderedItem{w.webWith(2, 1)}
	w.storeManifest(m)
	w.waitForApplied("b1", 2)
	m.Generation, m.Items = 3, []atoll.RenderedItem{w.webSelecting("front", true)}
	w.storeManifest(m)
	it := w.waitForReason("b1", atoll.ReasonInvalid)
	if live := w.get(it.Key); live.GetUID() != before || !strings.Contains(it.Message, "was not made by Atoll") {
		t.Errorf("UID %s, before %s: %s", live.GetUID(), before, it.Message)
	}
}
