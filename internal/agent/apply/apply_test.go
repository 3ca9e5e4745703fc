package apply

import (
	"slices"
	"testing"

	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rowcodec"
)

const deployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: "nginx:1"}]}
`

const configMap = `
apiVersion: v1
kind: ConfigMap
metadata: {name: conf}
data: {a: "1"}
`

func tombstoneOf(it atoll.RenderedItem) atoll.Tombstone {
	return atoll.Tombstone{Key: it.Key, UID: it.UID, Cause: atoll.CauseDeleted}
}

func TestApplyReportRemove(t *testing.T) {
	w := newWorld(t)
	web, conf := w.newItem("t-web", deployment), w.newItem("t-conf", configMap)
	m := newManifest("b1", 1, web, conf)
	m.Namespaces = map[string]atoll.NamespaceMeta{w.ns: {Labels: map[string]string{"team": "x"}}}
	w.storeManifest(m)
	s := w.waitForReady("b1", 1)
	if s.Total != 2 || s.Ready != 2 {
		t.Fatalf("status %s", rowcodec.EncodeStatus(s, nil))
	}
	obj := w.expectExists(web.Key)
	if obj.GetLabels()[atoll.LabelBundleUID] != "b1" {
		t.Fatalf("labels %v", obj.GetLabels())
	}
	if ns := w.expectExists(atoll.NamespaceKey(w.ns)); ns.GetLabels()["team"] != "x" {
		t.Fatalf("namespace labels %v", ns.GetLabels())
	}

	next := newManifest("b1", 2, web)
	next.Tombstones = []atoll.Tombstone{tombstoneOf(conf)}
	w.storeManifest(next)
	w.expectAbsent(conf.Key)
	s = w.waitForStatus("b1", func(s atoll.RowStatus) bool { return len(s.DoneTombstones) == 1 })
	if s.DoneTombstones[0] != ownership.TombstoneID(tombstoneOf(conf)) {
		t.Fatalf("gone %v", s.DoneTombstones)
	}
	if again := w.expectExists(web.Key); again.GetUID() != obj.GetUID() || again.GetGeneration() != obj.GetGeneration() {
		t.Fatal("the deployment was touched")
	}

	last := newManifest("b1", 3)
	last.Remove, last.DeletedNamespaces = true, []string{w.ns}
	w.storeManifest(last)
	w.waitForStatus("b1", func(s atoll.RowStatus) bool { return s.State == atoll.RowRemoved })
	w.expectAbsent(web.Key)
	w.expectAbsent(atoll.NamespaceKey(w.ns))
}

// A namespace outlives its content until the hub's namespace is deleted, whichever Bundle orders
// it.
func TestANamespaceGoesByItsOwnTombstone(t *testing.T) {
	w := newWorld(t)
	w.storeManifest(newManifest("b1", 1, w.newItem("t-conf", configMap)))
	w.waitForReady("b1", 1)
	last := newManifest("b1", 2)
	last.Remove, last.Namespace = true, w.ns
	w.storeManifest(last)
	w.waitForStatus("b1", func(s atoll.RowStatus) bool { return s.State == atoll.RowRemoved && s.NamespaceKept })
	w.expectExists(atoll.NamespaceKey(w.ns))

	gone := newManifest("uid-of-the-namespace", 1)
	gone.Remove, gone.Namespace, gone.DeletedNamespaces = true, w.ns, []string{w.ns}
	w.storeManifest(gone)
	w.waitForStatus("uid-of-the-namespace", func(s atoll.RowStatus) bool { return s.State == atoll.RowRemoved && !s.NamespaceKept })
	w.expectAbsent(atoll.NamespaceKey(w.ns))
}

func TestMissingItemsAreKept(t *testing.T) {
	w := newWorld(t)
	conf := w.newItem("t-conf", configMap)
	w.storeManifest(newManifest("b1", 1, conf))
	w.waitForReady("b1", 1)
	w.storeManifest(newManifest("b1", 2))
	s := w.waitForStatus("b1", func(s atoll.RowStatus) bool { return s.Generation == 2 && len(s.Items) == 1 })
	if s.Items[0].Reason != "Unaccounted" || s.State != atoll.RowReady {
		t.Fatalf("status %s", rowcodec.EncodeStatus(s, nil))
	}
	w.deleteByHand(conf.Key)
	w.expectExists(conf.Key)
}

func TestDrift(t *testing.T) {
	w := newWorld(t)
	web, conf := w.newItem("t-web", deployment), w.newItem("t-conf", configMap)
	w.storeManifest(newManifest("b1", 1, web, conf))
	w.waitForReady("b1", 1)

	t.Run("field", func(t *testing.T) {
		w.patchObject(conf.Key, `{"data":{"a":"2","b":"theirs"}}`)
		w.waitUntil("the field is set back", func() (bool, string) {
			data := w.expectExists(conf.Key).Object["data"].(map[string]any)
			return data["a"] == "1" && data["b"] == "theirs", ""
		})
	})
	t.Run("label", func(t *testing.T) {
		w.patchObject(conf.Key, `{"metadata":{"labels":{"atoll.dev/bundle-uid":null}}}`)
		w.waitUntil("the label is set back", func() (bool, string) {
			return w.expectExists(conf.Key).GetLabels()[atoll.LabelBundleUID] == "b1", ""
		})
	})
	t.Run("deletion", func(t *testing.T) {
		old := w.expectExists(web.Key).GetUID()
		w.deleteByHand(web.Key)
		w.waitUntil("it is made again", func() (bool, string) {
			obj := w.get(web.Key)
			return obj != nil && obj.GetUID() != old, ""
		})
		w.waitForReady("b1", 1)
	})
	t.Run("fight", func(t *testing.T) {
		w.waitUntil("the fight is seen", func() (bool, string) {
			if w.expectExists(conf.Key).Object["data"].(map[string]any)["a"] == "1" {
				w.patchObject(conf.Key, `{"data":{"a":"theirs"}}`)
			}
			s, _ := w.StatusOf("b1", nil, testNow)
			return slices.ContainsFunc(s.Items, func(i atoll.ItemStatus) bool {
				return i.Reason == atoll.ReasonDriftFight && i.Message != ""
			}), rowcodec.EncodeStatus(s, nil)
		})
	})
}

func TestRestartsFromTheStore(t *testing.T) {
	w := newWorld(t)
	web, conf := w.newItem("t-web", deployment), w.newItem("t-conf", configMap)
	w.storeManifest(newManifest("b1", 1, web, conf))
	w.waitForReady("b1", 1)
	uid := w.expectExists(web.Key).GetUID()
	w.stop()
	w.deleteByHand(conf.Key)
	w.start()
	w.expectExists(conf.Key)
	w.waitForReady("b1", 1)
	if w.expectExists(web.Key).GetUID() != uid {
		t.Fatal("the deployment was made again")
	}
}
