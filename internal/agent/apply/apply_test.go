package apply

import (
	"slices"
	"testing"

	"atoll.dev/atoll/internal/agent/claims"
	"atoll.dev/atoll/internal/atoll"
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

func tombstone(it atoll.Rendered) atoll.Tombstone {
	return atoll.Tombstone{Key: it.Key, UID: it.UID, Cause: atoll.CauseDeleted}
}

func TestApplyReportRemove(t *testing.T) {
	w := newWorld(t)
	web, conf := w.item("t-web", deployment), w.item("t-conf", configMap)
	m := manifest("b1", 1, web, conf)
	m.Namespaces = map[string]atoll.NamespaceMeta{w.ns: {Labels: map[string]string{"team": "x"}}}
	w.upsert(m)
	s := w.ready("b1", 1)
	if s.Total != 2 || s.Ready != 2 {
		t.Fatalf("status %s", s.Encode())
	}
	obj := w.exists(web.Key)
	if obj.GetLabels()[atoll.LabelBundleUID] != "b1" {
		t.Fatalf("labels %v", obj.GetLabels())
	}
	if ns := w.exists(claims.Namespace(w.ns)); ns.GetLabels()["team"] != "x" {
		t.Fatalf("namespace labels %v", ns.GetLabels())
	}

	next := manifest("b1", 2, web)
	next.Tombstones = []atoll.Tombstone{tombstone(conf)}
	w.upsert(next)
	w.absent(conf.Key)
	s = w.status("b1", func(s atoll.RowStatus) bool { return len(s.Gone) == 1 })
	if s.Gone[0] != claims.TombstoneID(tombstone(conf)) {
		t.Fatalf("gone %v", s.Gone)
	}
	if again := w.exists(web.Key); again.GetUID() != obj.GetUID() || again.GetGeneration() != obj.GetGeneration() {
		t.Fatal("the deployment was touched")
	}

	last := manifest("b1", 3)
	last.Remove, last.DeletedNamespaces = true, []string{w.ns}
	w.upsert(last)
	w.status("b1", func(s atoll.RowStatus) bool { return s.State == atoll.RowRemoved })
	w.absent(web.Key)
	w.absent(claims.Namespace(w.ns))
}

// A namespace outlives what was in it until the hub's is deleted, whoever says so.
func TestANamespaceGoesByItsOwnTombstone(t *testing.T) {
	w := newWorld(t)
	w.upsert(manifest("b1", 1, w.item("t-conf", configMap)))
	w.ready("b1", 1)
	last := manifest("b1", 2)
	last.Remove, last.Namespace = true, w.ns
	w.upsert(last)
	w.status("b1", func(s atoll.RowStatus) bool { return s.State == atoll.RowRemoved && s.Vacant })
	w.exists(claims.Namespace(w.ns))

	gone := manifest("uid-of-the-namespace", 1)
	gone.Remove, gone.Namespace, gone.DeletedNamespaces = true, w.ns, []string{w.ns}
	w.upsert(gone)
	w.status("uid-of-the-namespace", func(s atoll.RowStatus) bool { return s.State == atoll.RowRemoved && !s.Vacant })
	w.absent(claims.Namespace(w.ns))
}

func TestMissingItemsAreKept(t *testing.T) {
	w := newWorld(t)
	conf := w.item("t-conf", configMap)
	w.upsert(manifest("b1", 1, conf))
	w.ready("b1", 1)
	w.upsert(manifest("b1", 2))
	s := w.status("b1", func(s atoll.RowStatus) bool { return s.Generation == 2 && len(s.Items) == 1 })
	if s.Items[0].Reason != "Unaccounted" || s.State != atoll.RowReady {
		t.Fatalf("status %s", s.Encode())
	}
	w.deleteByHand(conf.Key)
	w.exists(conf.Key)
}

func TestDrift(t *testing.T) {
	w := newWorld(t)
	web, conf := w.item("t-web", deployment), w.item("t-conf", configMap)
	w.upsert(manifest("b1", 1, web, conf))
	w.ready("b1", 1)

	t.Run("field", func(t *testing.T) {
		w.edit(conf.Key, `{"data":{"a":"2","b":"theirs"}}`)
		w.eventually("the field is set back", func() (bool, string) {
			data := w.exists(conf.Key).Object["data"].(map[string]any)
			return data["a"] == "1" && data["b"] == "theirs", ""
		})
	})
	t.Run("label", func(t *testing.T) {
		w.edit(conf.Key, `{"metadata":{"labels":{"atoll.dev/bundle-uid":null}}}`)
		w.eventually("the label is set back", func() (bool, string) {
			return w.exists(conf.Key).GetLabels()[atoll.LabelBundleUID] == "b1", ""
		})
	})
	t.Run("deletion", func(t *testing.T) {
		old := w.exists(web.Key).GetUID()
		w.deleteByHand(web.Key)
		w.eventually("it is made again", func() (bool, string) {
			obj := w.get(web.Key)
			return obj != nil && obj.GetUID() != old, ""
		})
		w.ready("b1", 1)
	})
	t.Run("fight", func(t *testing.T) {
		w.eventually("the fight is seen", func() (bool, string) {
			if w.exists(conf.Key).Object["data"].(map[string]any)["a"] == "1" {
				w.edit(conf.Key, `{"data":{"a":"theirs"}}`)
			}
			s, _ := w.Status("b1", nil, testNow)
			return slices.ContainsFunc(s.Items, func(i atoll.ItemStatus) bool {
				return i.Reason == ReasonDriftFight && i.Message != ""
			}), s.Encode()
		})
	})
}

func TestRestartsFromTheStore(t *testing.T) {
	w := newWorld(t)
	web, conf := w.item("t-web", deployment), w.item("t-conf", configMap)
	w.upsert(manifest("b1", 1, web, conf))
	w.ready("b1", 1)
	uid := w.exists(web.Key).GetUID()
	w.stop()
	w.deleteByHand(conf.Key)
	w.start()
	w.exists(conf.Key)
	w.ready("b1", 1)
	if w.exists(web.Key).GetUID() != uid {
		t.Fatal("the deployment was made again")
	}
}
