package apply

import (
	"strings"
	"testing"
	"time"

	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rowcodec"
)

// newShellDefinition is a CRD whose group is the test's own.
func (w *world) newShellDefinition(uid string) (crd atoll.RenderedItem, group string) {
	group = w.ns + ".example"
	return w.newClusterItem(uid, strings.ReplaceAll(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: shells.GROUP}
spec:
  group: GROUP
  scope: Namespaced
  names: {kind: Shell, plural: shells, singular: shell}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties: {spec: {type: object, properties: {size: {type: integer}}}}
`, "GROUP", group)), group
}

func (w *world) newShell(uid, group string) atoll.RenderedItem {
	return w.newItem(uid, "apiVersion: "+group+"/v1\nkind: Shell\nmetadata: {name: conch}\nspec: {size: 3}")
}

func TestRemovalWithADefinitionAsDependencyIsReported(t *testing.T) {
	w := newWorld(t)
	crd, group := w.newShellDefinition("t-crd")
	crd.Dependency = true
	conch := w.newShell("t-conch", group)
	w.storeManifest(newManifest("b1", 1, crd, conch))
	w.waitForReady("b1", 1)
	uid := w.expectExists(crd.Key).GetUID()

	w.storeManifest(remove("b1", 2))
	w.waitForRemoval("b1")
	w.expectAbsent(conch.Key)
	if live := w.expectExists(crd.Key); live.GetUID() != uid || live.GetLabels()[atoll.LabelBundleUID] != "" {
		t.Fatalf("the definition was to be let go and to stay: %v", live.GetLabels())
	}

	// The hub's definition is created again, and means the same kind.
	crd.UID = "t-crd-2"
	w.storeManifest(newManifest("b2", 1, crd, conch))
	w.waitForReady("b2", 1)
	if live := w.expectExists(crd.Key); live.GetUID() != uid {
		t.Fatal("the definition was created again")
	}
}

// The last act for a Bundle may come long after all else was reported.
func TestTheLastActIsReported(t *testing.T) {
	for name, release := range map[string]bool{"deleted": false, "let-go": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			crd, group := w.newShellDefinition("t-crd")
			crd.Dependency = release
			conch := w.newShell("t-conch", group)
			w.storeManifest(newManifest("b1", 1, crd, conch))
			w.waitForReady("b1", 1)
			w.holdFence(false)
			w.storeManifest(remove("b1", 2))
			w.waitForReason("b1", atoll.ReasonNotLeaseHolder)
			w.holdFence(true)
			w.waitForRemoval("b1")
		})
	}
}

// A Bundle whose claim ends because another Bundle takes the object on, and one
// that waits for a Bundle which never comes, are reported too.
func TestClaimsThatEndByOthersAreReported(t *testing.T) {
	w := newWorld(t)
	conf := w.newItem("t-conf", configMap)
	w.storeManifest(newManifest("b1", 1, conf))
	w.waitForReady("b1", 1)
	w.storeManifest(withTombstones(newManifest("b1", 2), movedTombstone(conf, "b2")))
	w.waitForStatus("b1", func(s atoll.RowStatus) bool { return s.Generation == 2 && len(s.DoneTombstones) == 0 })
	w.storeManifest(remove("b2", 1))
	w.waitForRemoval("b2")
	if err := w.ForgetRemovedBundle(t.Context(), "b2", time.Now()); err != nil {
		t.Fatal(err)
	}
	w.waitForStatus("b1", func(s atoll.RowStatus) bool {
		return len(s.DoneTombstones) == 1 && s.DoneTombstones[0] == ownership.TombstoneID(movedTombstone(conf))
	})
	w.expectAbsent(conf.Key)
}

// A definition goes only when nothing would go along that Atoll did not apply.
func TestDefinitionsOfForeignObjectsStay(t *testing.T) {
	w := newWorld(t)
	w.makeNamespace()
	crd, group := w.newShellDefinition("t-crd")
	conch := w.newShell("t-conch", group)
	w.storeManifest(newManifest("b1", 1, crd, conch))
	w.waitForReady("b1", 1)
	theirs := w.createObject("apiVersion: " + group + "/v1\nkind: Shell\nmetadata: {name: theirs}")
	w.storeManifest(remove("b1", 2))
	it := w.waitForReason("b1", atoll.ReasonForeignObjects)
	if it.Error || !strings.Contains(it.Message, "theirs") {
		t.Fatalf("%+v", it)
	}
	w.expectAbsent(conch.Key)
	key := conch.Key
	key.Name = theirs.GetName()
	w.expectHolds("definition and object stay", time.Second, func() (bool, string) {
		return w.get(crd.Key) != nil && w.get(key) != nil, "one is gone"
	})
	w.deleteByHand(key)
	w.waitForRemoval("b1")
	w.expectAbsent(crd.Key)
}

// A definition that a user deletes in the member takes its objects along. Both are created again,
// and until then nothing counts as removed.
func TestDefinitionDeletedByHand(t *testing.T) {
	w := newWorld(t)
	crd, group := w.newShellDefinition("t-crd")
	conch, conf := w.newShell("t-conch", group), w.newItem("t-conf", configMap)
	w.storeManifest(newManifest("b1", 1, crd, conch, conf))
	w.waitForReady("b1", 1)
	before, beside := w.expectExists(conch.Key).GetUID(), w.expectExists(conf.Key).GetUID()
	w.patchObject(conch.Key, `{"metadata":{"finalizers":["example.com/hold"]}}`)
	w.deleteByHand(crd.Key)
	it := w.waitForStatus("b1", func(s atoll.RowStatus) bool { return s.Ready < 3 })
	if it.State == atoll.RowRemoved || len(it.DoneTombstones) > 0 || len(it.Items) == 0 || it.Items[0].Reason == "" || it.Items[0].Message == "" {
		t.Fatalf("status while it is missing: %s", rowcodec.EncodeStatus(it, nil))
	}
	w.patchObject(conch.Key, `{"metadata":{"finalizers":null}}`)
	s := w.waitForReady("b1", 1)
	if len(s.DoneTombstones) > 0 || s.Total != 3 {
		t.Fatalf("status %s", rowcodec.EncodeStatus(s, nil))
	}
	if w.expectExists(conch.Key).GetUID() == before || w.expectExists(conf.Key).GetUID() != beside {
		t.Fatal("the shell was to be created again, and the other object to be left alone")
	}

	w.storeManifest(withTombstones(newManifest("b1", 2, crd, conf), tombstoneOf(conch)))
	w.waitForStatus("b1", func(s atoll.RowStatus) bool { return len(s.DoneTombstones) == 1 })
	w.expectAbsent(conch.Key)
}

// Without its state the agent knows its objects by their labels, and what the hub
// says again makes it whole.
func TestStateDeletedByHand(t *testing.T) {
	w := newWorld(t)
	conf, web := w.newItem("t-conf", configMap), w.newItem("t-web", deployment)
	m := newManifest("b1", 1, conf, web)
	w.storeManifest(m)
	w.waitForReady("b1", 1)
	before := w.expectExists(web.Key)
	t.Run("while it runs", func(t *testing.T) {
		w.forgetState()
		next := newManifest("b1", 2, w.newItem("t-conf", strings.ReplaceAll(configMap, `"1"`, `"2"`)), web)
		w.storeManifest(next)
		w.waitForReady("b1", 2)
	})
	t.Run("while it is down", func(t *testing.T) {
		w.stop()
		w.forgetState()
		w.start()
		w.expectHolds("nothing is deleted", 300*time.Millisecond, func() (bool, string) { return w.get(conf.Key) != nil, "it is gone" })
		w.storeManifest(withTombstones(newManifest("b1", 3, web), tombstoneOf(conf)))
		w.waitForReady("b1", 3)
		w.expectAbsent(conf.Key)
		if after := w.expectExists(web.Key); after.GetUID() != before.GetUID() || after.GetGeneration() != before.GetGeneration() {
			t.Fatal("the deployment was touched")
		}
	})
	t.Run("before the removal", func(t *testing.T) {
		w.stop()
		w.forgetState()
		w.start()
		w.storeManifest(remove("b1", 4))
		w.waitForRemoval("b1")
		w.expectAbsent(web.Key)
	})
}
