package apply

import (
	"strings"
	"testing"
	"time"

	"atoll.dev/atoll/internal/agent/claims"
	"atoll.dev/atoll/internal/atoll"
)

// shells is a CRD whose group is the test's own.
func (w *world) shells(uid string) (crd atoll.Rendered, group string) {
	group = w.ns + ".example"
	return w.cluster(uid, strings.ReplaceAll(`
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

func (w *world) shell(uid, group string) atoll.Rendered {
	return w.item(uid, "apiVersion: "+group+"/v1\nkind: Shell\nmetadata: {name: conch}\nspec: {size: 3}")
}

func TestRemovalWithADefinitionAsDependencyIsReported(t *testing.T) {
	w := newWorld(t)
	crd, group := w.shells("t-crd")
	crd.Dependency = true
	conch := w.shell("t-conch", group)
	w.upsert(manifest("b1", 1, crd, conch))
	w.ready("b1", 1)
	uid := w.exists(crd.Key).GetUID()

	w.upsert(remove("b1", 2))
	w.removed("b1")
	w.absent(conch.Key)
	if live := w.exists(crd.Key); live.GetUID() != uid || live.GetLabels()[atoll.LabelBundleUID] != "" {
		t.Fatalf("the definition was to be let go and to stay: %v", live.GetLabels())
	}

	// The hub's is made anew, and means the same kind.
	crd.UID = "t-crd-2"
	w.upsert(manifest("b2", 1, crd, conch))
	w.ready("b2", 1)
	if live := w.exists(crd.Key); live.GetUID() != uid {
		t.Fatal("the definition was made anew")
	}
}

// The last act for a Bundle may come long after all else was reported.
func TestTheLastActIsReported(t *testing.T) {
	for name, release := range map[string]bool{"deleted": false, "let-go": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			crd, group := w.shells("t-crd")
			crd.Dependency = release
			conch := w.shell("t-conch", group)
			w.upsert(manifest("b1", 1, crd, conch))
			w.ready("b1", 1)
			w.fence(false)
			w.upsert(remove("b1", 2))
			w.reason("b1", ReasonNotHolder)
			w.fence(true)
			w.removed("b1")
		})
	}
}

// A Bundle whose claim ends because another Bundle takes the object on, and one
// that waits for a Bundle which never comes, are reported too.
func TestClaimsThatEndByOthersAreReported(t *testing.T) {
	w := newWorld(t)
	conf := w.item("t-conf", configMap)
	w.upsert(manifest("b1", 1, conf))
	w.ready("b1", 1)
	w.upsert(withTombstones(manifest("b1", 2), moved(conf, "b2")))
	w.status("b1", func(s atoll.RowStatus) bool { return s.Generation == 2 && len(s.Gone) == 0 })
	w.upsert(remove("b2", 1))
	w.removed("b2")
	if err := w.Forget(t.Context(), "b2", time.Now()); err != nil {
		t.Fatal(err)
	}
	w.status("b1", func(s atoll.RowStatus) bool { return len(s.Gone) == 1 && s.Gone[0] == claims.TombstoneID(moved(conf)) })
	w.absent(conf.Key)
}

// A definition goes only when nothing would go along that Atoll did not apply.
func TestDefinitionsOfForeignObjectsStay(t *testing.T) {
	w := newWorld(t)
	w.makeNamespace()
	crd, group := w.shells("t-crd")
	conch := w.shell("t-conch", group)
	w.upsert(manifest("b1", 1, crd, conch))
	w.ready("b1", 1)
	theirs := w.make("apiVersion: " + group + "/v1\nkind: Shell\nmetadata: {name: theirs}")
	w.upsert(remove("b1", 2))
	it := w.reason("b1", ReasonForeign)
	if it.Error || !strings.Contains(it.Message, "theirs") {
		t.Fatalf("%+v", it)
	}
	w.absent(conch.Key)
	key := conch.Key
	key.Name = theirs.GetName()
	w.holds("definition and object stay", time.Second, func() (bool, string) {
		return w.get(crd.Key) != nil && w.get(key) != nil, "one is gone"
	})
	w.deleteByHand(key)
	w.removed("b1")
	w.absent(crd.Key)
}

// A definition that somebody deletes in the member takes its objects along; both
// are made again, and until then nothing counts as removed.
func TestDefinitionDeletedByHand(t *testing.T) {
	w := newWorld(t)
	crd, group := w.shells("t-crd")
	conch, conf := w.shell("t-conch", group), w.item("t-conf", configMap)
	w.upsert(manifest("b1", 1, crd, conch, conf))
	w.ready("b1", 1)
	before, beside := w.exists(conch.Key).GetUID(), w.exists(conf.Key).GetUID()
	w.edit(conch.Key, `{"metadata":{"finalizers":["example.com/hold"]}}`)
	w.deleteByHand(crd.Key)
	it := w.status("b1", func(s atoll.RowStatus) bool { return s.Ready < 3 })
	if it.State == atoll.RowRemoved || len(it.Gone) > 0 || len(it.Items) == 0 || it.Items[0].Reason == "" || it.Items[0].Message == "" {
		t.Fatalf("status while it is missing: %s", it.Encode())
	}
	w.edit(conch.Key, `{"metadata":{"finalizers":null}}`)
	s := w.ready("b1", 1)
	if len(s.Gone) > 0 || s.Total != 3 {
		t.Fatalf("status %s", s.Encode())
	}
	if w.exists(conch.Key).GetUID() == before || w.exists(conf.Key).GetUID() != beside {
		t.Fatal("the shell was to be made anew, and the other object to be left alone")
	}

	w.upsert(withTombstones(manifest("b1", 2, crd, conf), tombstone(conch)))
	w.status("b1", func(s atoll.RowStatus) bool { return len(s.Gone) == 1 })
	w.absent(conch.Key)
}

// Without its state the agent knows its objects by their labels, and what the hub
// says again makes it whole.
func TestStateDeletedByHand(t *testing.T) {
	w := newWorld(t)
	conf, web := w.item("t-conf", configMap), w.item("t-web", deployment)
	m := manifest("b1", 1, conf, web)
	w.upsert(m)
	w.ready("b1", 1)
	before := w.exists(web.Key)
	t.Run("while it runs", func(t *testing.T) {
		w.forgetState()
		next := manifest("b1", 2, w.item("t-conf", strings.ReplaceAll(configMap, `"1"`, `"2"`)), web)
		w.upsert(next)
		w.ready("b1", 2)
	})
	t.Run("while it is down", func(t *testing.T) {
		w.stop()
		w.forgetState()
		w.start()
		w.holds("nothing is deleted", 300*time.Millisecond, func() (bool, string) { return w.get(conf.Key) != nil, "it is gone" })
		w.upsert(withTombstones(manifest("b1", 3, web), tombstone(conf)))
		w.ready("b1", 3)
		w.absent(conf.Key)
		if after := w.exists(web.Key); after.GetUID() != before.GetUID() || after.GetGeneration() != before.GetGeneration() {
			t.Fatal("the deployment was touched")
		}
	})
	t.Run("before the removal", func(t *testing.T) {
		w.stop()
		w.forgetState()
		w.start()
		w.upsert(remove("b1", 4))
		w.removed("b1")
		w.absent(web.Key)
	})
}
