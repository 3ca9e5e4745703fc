package apply

import (
	"strings"
	"testing"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rowcodec"
)

// waitForReason waits until an item of the bundle has the reason.
func (w *world) waitForReason(bundle string, reason atoll.Reason) atoll.ItemStatus {
	w.t.Helper()
	var found atoll.ItemStatus
	w.waitForStatus(bundle, func(s atoll.RowStatus) bool {
		for _, it := range s.Items {
			if it.Reason == reason {
				found = it
				return true
			}
		}
		return false
	})
	return found
}

func remove(bundle string, generation int64) atoll.Manifest {
	m := newManifest(bundle, generation)
	m.Remove = true
	return m
}

func (w *world) waitForRemoval(bundle string) {
	w.t.Helper()
	w.waitForStatus(bundle, func(s atoll.RowStatus) bool { return s.State == atoll.RowRemoved })
}

func TestConflicts(t *testing.T) {
	for _, c := range []struct {
		name    string
		how     v1alpha1.ConflictResolution
		own     v1alpha1.ConflictResolution // of the item
		theirs  string
		adopted bool
		want    string
	}{
		{"abort", v1alpha1.ConflictAbort, "", `{a: "1"}`, false, "1"},
		{"same", v1alpha1.ConflictAdoptIfSame, "", `{a: "1", extra: x}`, true, "1"},
		{"different", v1alpha1.ConflictAdoptIfSame, "", `{a: "2"}`, false, "2"},
		{"overwrite", v1alpha1.ConflictOverwrite, "", `{a: "2"}`, true, "1"},
		{"abort for the item", v1alpha1.ConflictOverwrite, v1alpha1.ConflictAbort, `{a: "2"}`, false, "2"},
		{"overwrite for the item", v1alpha1.ConflictAbort, v1alpha1.ConflictOverwrite, `{a: "2"}`, true, "1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.makeNamespace()
			uid := w.createObject("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: conf}\ndata: " + c.theirs).GetUID()
			conf := w.newItem("t-conf", configMap)
			conf.ConflictResolution = c.own
			m := newManifest("b1", 1, conf, w.newItem("t-web", deployment))
			m.ConflictResolution = c.how
			w.storeManifest(m)
			if c.adopted {
				w.waitForReady("b1", 1)
			} else {
				it := w.waitForReason("b1", atoll.ReasonConflict)
				if !it.Error || !strings.Contains(it.Message, "some-controller") || !strings.Contains(it.Message, "conflictResolution") {
					t.Fatalf("item %+v", it)
				}
				s := w.waitForStatus("b1", func(s atoll.RowStatus) bool { return s.Ready == 1 })
				if s.State != atoll.RowFailed || s.Applied {
					t.Fatalf("status %s", rowcodec.EncodeStatus(s, nil))
				}
			}
			live := w.expectExists(conf.Key)
			if got := live.Object["data"].(map[string]any)["a"]; got != c.want || live.GetUID() != uid {
				t.Fatalf("a is %v", got)
			}
			w.storeManifest(remove("b1", 2))
			w.waitForRemoval("b1")
			live = w.expectExists(conf.Key)
			if live.GetLabels()[atoll.LabelBundleUID] != "" || live.GetUID() != uid {
				t.Fatalf("labels %v", live.GetLabels())
			}
			for _, f := range live.GetManagedFields() {
				if f.Manager == atoll.FieldManager {
					t.Fatal("we still own fields")
				}
			}
			if live.Object["data"].(map[string]any)["a"] != c.want {
				t.Fatalf("letting go changed data to %v", live.Object["data"])
			}
		})
	}
}

func TestConflictEnds(t *testing.T) {
	w := newWorld(t)
	w.makeNamespace()
	w.createObject("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: conf}\ndata: {a: \"9\"}")
	conf := w.newItem("t-conf", configMap)
	w.storeManifest(newManifest("b1", 1, conf))
	w.waitForReason("b1", atoll.ReasonConflict)
	w.deleteByHand(conf.Key)
	w.waitForReady("b1", 1)
}

func TestOrphan(t *testing.T) {
	w := newWorld(t)
	conf := w.newItem("t-conf", configMap)
	w.storeManifest(newManifest("b1", 1, conf))
	w.waitForReady("b1", 1)
	uid := w.expectExists(conf.Key).GetUID()
	m := remove("b1", 2)
	m.Removal = v1alpha1.RemoveOrphan
	w.storeManifest(m)
	w.waitForRemoval("b1")
	live := w.expectExists(conf.Key)
	if live.GetUID() != uid || len(live.GetLabels()) != 0 || live.Object["data"].(map[string]any)["a"] != "1" {
		t.Fatalf("%v", live)
	}
}

func TestRenderErrorsKeepTheLastGood(t *testing.T) {
	w := newWorld(t)
	conf := w.newItem("t-conf", configMap)
	w.storeManifest(newManifest("b1", 1, conf))
	w.waitForReady("b1", 1)
	bad := conf
	bad.Object, bad.Hash, bad.Error = nil, "other", "patch /data/x does not apply"
	w.storeManifest(newManifest("b1", 2, bad))
	it := w.waitForReason("b1", "RenderFailed")
	if !it.Error || it.Message != bad.Error {
		t.Fatalf("%+v", it)
	}
	w.patchObject(conf.Key, `{"data":{"a":"2"}}`)
	w.waitUntil("the last good content is kept up", func() (bool, string) {
		return w.expectExists(conf.Key).Object["data"].(map[string]any)["a"] == "1", ""
	})
}

func TestFenceStopsDeletions(t *testing.T) {
	w := newWorld(t)
	conf := w.newItem("t-conf", configMap)
	w.storeManifest(newManifest("b1", 1, conf))
	w.waitForReady("b1", 1)
	w.holdFence(false)
	w.storeManifest(remove("b1", 2))
	w.waitForReason("b1", atoll.ReasonNotLeaseHolder)
	w.expectHolds("nothing is deleted", 300*time.Millisecond, func() (bool, string) { return w.get(conf.Key) != nil, "it is gone" })
	w.holdFence(true)
	w.waitForRemoval("b1")
}

func TestRefusedObjectsHoldUpNothing(t *testing.T) {
	w := newWorld(t)
	bad := w.newItem("t-bad", "apiVersion: v1\nkind: Service\nmetadata: {name: bad}\nspec: {ports: [{port: 99999999}]}")
	none := w.newItem("t-none", "apiVersion: example.com/v1\nkind: Nothing\nmetadata: {name: none}")
	secret := w.newItem("t-secret", "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: {password: 'hunter2!!'}")
	web := w.newItem("t-web", deployment)
	w.storeManifest(newManifest("b1", 1, bad, none, secret, web))
	if it := w.waitForReason("b1", atoll.ReasonInvalid); !it.Error {
		t.Fatalf("%+v", it)
	}
	if it := w.waitForReason("b1", atoll.ReasonNotServed); !strings.Contains(it.Message, "CustomResourceDefinition") {
		t.Fatalf("%+v", it)
	}
	s := w.waitForStatus("b1", func(s atoll.RowStatus) bool { return s.Ready == 1 && len(s.Items) == 4 })
	if strings.Contains(rowcodec.EncodeStatus(s, nil), "hunter2") {
		t.Fatal("a secret's value is in the report")
	}
}
