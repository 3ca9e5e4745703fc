package apply

import (
	"net/http"
	"strings"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/agent/ownership"
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

// An edit of a field that cannot change deletes the object and creates it again, where the item states it.
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

// Objects that Atoll did not create stay, whatever the item has.
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

// A refused edit deletes the object only if the item states it and the member would accept the content in a new object.
func TestARefusedEditRecreatesOnlyWhatIsAcceptedAsNew(t *testing.T) {
	for name, c := range map[string]struct {
		recreate bool
		asNew    int // status code of the dry run; 0: it succeeds
		want     atoll.Reason
		writes   []string
	}{
		"accepted as new":                    {true, 0, "", []string{"DELETE conf", "APPLY conf " + atoll.FieldManager}},
		"refused as new":                     {true, http.StatusUnprocessableEntity, atoll.ReasonInvalid, nil},
		"the dry run is forbidden":           {true, http.StatusForbidden, atoll.ReasonForbidden, nil},
		"the item does not state recreation": {false, 0, atoll.ReasonInvalid, nil},
	} {
		t.Run(name, func(t *testing.T) {
			api := newMemoryMember(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: conf, namespace: shop, uid: o1}\ndata: {a: x}")
			item := confItem("y")
			item.Recreate = c.recreate
			e := engineOn(t, refuseEdits(api, c.asNew), ownership.Record{
				Key: confKey, APIVersion: "v1", UID: "o1", Template: "t", Owner: "b1", Label: "b1", Applied: "hx", Chosen: true,
				Claims: map[string]ownership.Claim{"b1": {State: ownership.Wanted, Template: "t"}},
			}, newManifest("b1", 2, item))
			e.mu.Lock()
			e.ensureTask(confKey).weigh = false
			e.mu.Unlock()
			if f := settleKey(t, e, confKey); reasonOf(f) != c.want {
				t.Errorf("it fails with %+v, want %q", f, c.want)
			}
			api.expectWrites(t, c.writes...)
		})
	}
}

// refuseEdits answers an apply to an existing object as invalid, and a dry run with a status code; 0: it passes
// the dry run on.
func refuseEdits(api *memoryMember, asNew int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		api.mu.Lock()
		_, exists := api.objects[r.URL.Path]
		api.mu.Unlock()
		code := 0
		switch {
		case r.Method != http.MethodPatch:
		case exists:
			code = http.StatusUnprocessableEntity
		case r.URL.Query().Get("dryRun") != "":
			code = asNew
		}
		if code == 0 {
			api.ServeHTTP(w, r)
			return
		}
		refuseRequest(w, code)
	})
}
