package apply

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/agent/observe"
	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/atoll"
)

// observeAs returns the item as a hub sends it that members observe.
func observeAs(item atoll.RenderedItem, as atoll.Observation) atoll.RenderedItem {
	item.Observe, item.Error = as, atoll.UnknownObservation
	item.Hash += "-" + string(as)
	return item
}

// waitForDrift waits until the drift of an item is as wanted; want gets nil where the report has none.
func (w *world) waitForDrift(bundle string, key atoll.ItemKey, want func(*atoll.Drift) bool) atoll.ItemStatus {
	w.t.Helper()
	var last atoll.ItemStatus
	w.waitForStatus(bundle, func(s atoll.RowStatus) bool {
		if !s.Applied {
			return false
		}
		last, _ = saidOf(s, key)
		return want(last.Drift)
	})
	return last
}

// isDriftAt reports whether a drift is of one field with these values.
func isDriftAt(path, live, wanted string) func(*atoll.Drift) bool {
	return func(d *atoll.Drift) bool {
		return d != nil && d.Total == 1 && len(d.Fields) == 1 && d.Fields[0].Path == path && d.Fields[0].Live == live && d.Fields[0].Wanted == wanted
	}
}

func isMissing(d *atoll.Drift) bool { return d != nil && d.Missing }

// An observed object of another owner is never written, and the report follows each of its changes.
func TestAnObservedObjectIsReportedAndNotWritten(t *testing.T) {
	w := newWorld(t)
	w.makeNamespace()
	key := w.configMap("a", "x").Key
	made := w.createObject("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, labels: {team: blue}}\ndata: {a: live, more: stays}")
	w.createObject("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: other}")
	m := newManifest("b1", 1, observeAs(w.configMap("a", "x"), atoll.ObserveDrift))
	w.storeManifest(m)
	it := w.waitForDrift("b1", key, isDriftAt("/data/a", `"live"`, `"x"`))
	if f := it.Drift.Fields[0]; it.Health != atoll.Healthy || it.Reason != atoll.ReasonDrifted || it.Message != "1 field differs: /data/a" ||
		!slices.Equal(f.Managers, []string{"some-controller"}) || f.Since == 0 {
		t.Errorf("item %+v, drift %+v", it, it.Drift)
	}
	if s, _ := w.lastStatus("b1"); s.State != atoll.RowReady || s.Drifted != 1 || s.Ready != 1 {
		t.Errorf("row %+v", s)
	}
	if live := w.get(key); live.GetResourceVersion() != made.GetResourceVersion() {
		t.Errorf("the object was written: %v", live)
	}

	w.patchObject(key, `{"data":{"a":"other"}}`)
	w.waitForDrift("b1", key, isDriftAt("/data/a", `"other"`, `"x"`))
	w.patchObject(key, `{"data":{"a":"x"}}`)
	w.waitForDrift("b1", key, func(d *atoll.Drift) bool { return d == nil })
	w.deleteByHand(key)
	missing := w.waitForDrift("b1", key, isMissing)
	if missing.Health != atoll.Unknown || missing.Reason != atoll.ReasonMissing || missing.Error {
		t.Errorf("a missing object: %+v", missing)
	}
	w.createObject("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: again}")
	w.waitForDrift("b1", key, isDriftAt("/data/a", `"again"`, `"x"`))

	w.stop()
	w.patchObject(key, `{"data":{"a":"unseen"}}`)
	w.start()
	w.waitForDrift("b1", key, isDriftAt("/data/a", `"unseen"`, `"x"`))
	if labels := w.get(key).GetLabels(); len(labels) != 0 {
		t.Errorf("labels %v", labels)
	}

	// A hub that is to write it decides first about the object of another owner.
	m.Generation, m.Items = 2, []atoll.RenderedItem{w.configMap("a", "x")}
	w.storeManifest(m)
	w.waitForReason("b1", atoll.ReasonConflict)
	m.Generation, m.ConflictResolution = 3, v1alpha1.ConflictOverwrite
	w.storeManifest(m)
	w.waitForReady("b1", 3)
	if data := w.get(key).Object["data"].(map[string]any); data["a"] != "x" {
		t.Errorf("data %v", data)
	}
}

// Atoll does not correct its own object while it observes the object. It takes up again what it wrote.
func TestAnObjectThatIsObservedForAWhile(t *testing.T) {
	w := newWorld(t)
	item := w.configMap("a", "x")
	w.storeManifest(newManifest("b1", 1, item))
	w.waitForReady("b1", 1)
	w.storeManifest(newManifest("b1", 2, observeAs(w.configMap("a", "second"), atoll.ObserveDrift)))
	w.waitForDrift("b1", item.Key, isDriftAt("/data/a", `"x"`, `"second"`))
	w.patchObject(item.Key, `{"data":{"a":"by hand"}}`)
	w.waitForDrift("b1", item.Key, isDriftAt("/data/a", `"by hand"`, `"second"`))
	w.storeManifest(newManifest("b1", 3, w.configMap("a", "second")))
	w.waitForReady("b1", 3)
	if data := w.get(item.Key).Object["data"].(map[string]any); data["a"] != "second" {
		t.Errorf("data %v", data)
	}
	w.storeManifest(newManifest("b1", 4, observeAs(w.configMap("a", "third"), atoll.ObserveDrift)))
	w.waitForDrift("b1", item.Key, isDriftAt("/data/a", `"second"`, `"third"`))
	w.deleteByHand(item.Key)
	w.waitForDrift("b1", item.Key, isMissing)
	w.storeManifest(newManifest("b1", 5, w.configMap("a", "third")))
	w.waitForReady("b1", 5)
	w.storeManifest(newManifest("b1", 6, observeAs(w.configMap("a", "third"), atoll.ObserveDrift)))
	w.waitForStatus("b1", func(s atoll.RowStatus) bool { return s.Generation == 6 && s.Applied })
	gone := newManifest("b1", 7)
	gone.Tombstones = []atoll.Tombstone{{Key: item.Key, UID: item.UID}}
	w.storeManifest(gone)
	w.expectAbsent(item.Key)
}

// A tombstone of an observed object that Atoll never wrote removes nothing.
func TestATombstoneOfAnObservedObject(t *testing.T) {
	w := newWorld(t)
	w.makeNamespace()
	made := w.createObject("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: live}")
	item := w.configMap("a", "x")
	w.storeManifest(newManifest("b1", 1, observeAs(item, atoll.ObserveDrift)))
	w.waitForDrift("b1", item.Key, isDriftAt("/data/a", `"live"`, `"x"`))
	gone := newManifest("b1", 2)
	gone.Tombstones = []atoll.Tombstone{{Key: item.Key, UID: item.UID}}
	w.storeManifest(gone)
	w.waitForStatus("b1", func(s atoll.RowStatus) bool { return s.Generation == 2 && len(s.DoneTombstones) == 1 })
	if live := w.get(item.Key); live == nil || live.GetResourceVersion() != made.GetResourceVersion() {
		t.Errorf("the object was touched: %v", live)
	}
}

// No value of a Secret leaves the member, and an item of which only the health counts has no drift.
func TestWhatAnObservationReports(t *testing.T) {
	w := newWorld(t)
	w.makeNamespace()
	w.createObject("apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {password: of-the-member}")
	w.createObject("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: live}")
	secret := w.newItem("t-s", "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: {password: b2YtdGhlLWh1Yg==}")
	health, absent := w.configMap("a", "x"), w.configMap("absent", "x")
	w.storeManifest(newManifest("b1", 1, observeAs(secret, atoll.ObserveDrift), observeAs(health, atoll.ObserveHealth), observeAs(absent, atoll.ObserveHealth)))
	it := w.waitForDrift("b1", secret.Key, isDriftAt("/data/password", "", ""))
	if text, err := json.Marshal(it); err != nil || strings.Contains(string(text), "b2Y") {
		t.Errorf("%s, %v", text, err)
	}
	s := w.waitForStatus("b1", func(s atoll.RowStatus) bool { _, ok := saidOf(s, absent.Key); return ok && s.Applied })
	if it, listed := saidOf(s, health.Key); listed {
		t.Errorf("an object whose health alone is observed: %+v", it)
	}
	if it, _ := saidOf(s, absent.Key); it.Reason != atoll.ReasonMissing || it.Drift != nil {
		t.Errorf("a missing object: %+v", it)
	}
	if s.Drifted != 1 {
		t.Errorf("%d drifted objects, want 1", s.Drifted)
	}
}

// Nothing is made for an observed object, not even its namespace.
func TestTheNamespaceOfAnObservedObject(t *testing.T) {
	w := newWorld(t)
	item := w.configMap("a", "x")
	w.storeManifest(newManifest("b1", 1, observeAs(item, atoll.ObserveDrift)))
	w.waitForDrift("b1", item.Key, isMissing)
	if w.get(atoll.NamespaceKey(w.ns)) != nil {
		t.Error("the namespace was made")
	}
}

// The member's administrator decides what the agent observes, as what it writes.
func TestAnObservationThatThePolicyForbids(t *testing.T) {
	w := newWorld(t)
	w.makeNamespace()
	w.createObject("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: live}")
	item := w.configMap("a", "x")
	w.storeManifest(newManifest("b1", 1, observeAs(item, atoll.ObserveDrift)))
	w.waitForDrift("b1", item.Key, isDriftAt("/data/a", `"live"`, `"x"`))
	w.limitAgent(`{kinds: {denied: [{group: "", kinds: [ConfigMap]}]}}`)
	w.expectDenied("b1", item.Key, "does not allow kind ConfigMap")
	w.limitAgent("")
	w.waitForDrift("b1", item.Key, isDriftAt("/data/a", `"live"`, `"x"`))
}

// The replicas that an HPA sets are no drift.
func TestTheReplicasOfAnObservedObject(t *testing.T) {
	w := newWorld(t)
	w.makeNamespace()
	w.createObject(deployment)
	web, hpa := w.webWith(9, 2), w.newItem("t-hpa", autoscaler)
	w.storeManifest(newManifest("b1", 1, observeAs(web, atoll.ObserveDrift), hpa))
	w.waitForDrift("b1", web.Key, func(d *atoll.Drift) bool {
		return d != nil && d.Total == 1 && strings.HasSuffix(d.Fields[0].Path, "/image") && d.Fields[0].Wanted == `"nginx:2"`
	})
}

// A manifest that an older agent stored lacks which items are observed, so the hub sends it again.
func TestAStoredManifestWithoutObservations(t *testing.T) {
	w := newWorld(t)
	item := observeAs(w.configMap("a", "x"), "")
	w.storeManifest(newManifest("b1", 1, item))
	if held := w.ReceivedManifests(); len(held) != 1 || held[0].Content != incompleteContent || held[0].Generation != 1 {
		t.Errorf("held: %+v", held)
	}
	w.storeManifest(newManifest("b1", 1, observeAs(w.configMap("a", "x"), atoll.ObserveDrift)))
	if held := w.ReceivedManifests(); len(held) != 1 || held[0].Content == incompleteContent {
		t.Errorf("held after the hub sent the manifest again: %+v", held)
	}
	w.waitForDrift("b1", item.Key, isMissing)
}

// A Bundle that writes an object comes before one that observes it, whichever came first. Two that observe it
// report the same.
func TestAnObservedObjectThatAnotherBundleWrites(t *testing.T) {
	w := newWorld(t)
	w.makeNamespace()
	w.createObject("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: live}")
	item := w.configMap("a", "x")
	w.storeManifest(newManifest("b1", 1, observeAs(item, atoll.ObserveDrift)))
	w.storeManifest(newManifest("b2", 1, observeAs(item, atoll.ObserveDrift)))
	for _, bundle := range []string{"b1", "b2"} {
		w.waitForDrift(bundle, item.Key, isDriftAt("/data/a", `"live"`, `"x"`))
	}
	writes := newManifest("b2", 2, item)
	writes.ConflictResolution = v1alpha1.ConflictOverwrite
	w.storeManifest(writes)
	w.waitForReady("b2", 2)
	w.waitForReady("b1", 1)
	if live := w.get(item.Key); live.Object["data"].(map[string]any)["a"] != "x" || live.GetLabels()[atoll.LabelBundleUID] != "b2" {
		t.Errorf("%v", live)
	}
	w.storeManifest(newManifest("b2", 3, observeAs(item, atoll.ObserveDrift)))
	w.waitForStatus("b2", func(s atoll.RowStatus) bool { return s.Generation == 3 && s.Applied })
	w.patchObject(item.Key, `{"data":{"a":"by hand"}}`)
	for _, bundle := range []string{"b1", "b2"} {
		w.waitForDrift(bundle, item.Key, isDriftAt("/data/a", `"by hand"`, `"x"`))
	}
}

// A namespace that the agent made is not brought up to date for objects that it only observes now.
func TestTheNamespaceOfAnObjectThatIsObservedNow(t *testing.T) {
	w := newWorld(t)
	item := w.configMap("a", "x")
	m := newManifest("b1", 1, item)
	m.Namespaces = map[string]atoll.NamespaceMeta{w.ns: {Labels: map[string]string{"team": "blue"}}}
	w.storeManifest(m)
	w.waitForReady("b1", 1)
	w.storeManifest(newManifest("b1", 2, observeAs(item, atoll.ObserveDrift)))
	w.waitForStatus("b1", func(s atoll.RowStatus) bool { return s.Generation == 2 && s.Applied })
	w.stop()
	w.start()
	w.waitForDrift("b1", item.Key, func(d *atoll.Drift) bool { return d == nil })
	w.limitAgent("")
	w.patchObject(item.Key, `{"data":{"a":"by hand"}}`)
	w.waitForDrift("b1", item.Key, isDriftAt("/data/a", `"by hand"`, `"x"`))
	if labels := w.expectExists(atoll.NamespaceKey(w.ns)).GetLabels(); labels["team"] != "blue" {
		t.Errorf("labels %v", labels)
	}
}

// An HPA that is observed scales what other Bundles write.
func TestAnObservedAutoscaler(t *testing.T) {
	w := newWorld(t)
	web, hpa := w.webWith(2, 1), w.newItem("t-hpa", autoscaler)
	w.storeManifest(newManifest("b1", 1, web))
	w.storeManifest(newManifest("b2", 1, hpa))
	w.waitForApplied("b1", 1)
	w.waitForApplied("b2", 1)
	w.handedOver(web.Key)
	w.scaleObject(web.Key, 9)
	w.storeManifest(newManifest("b2", 2, observeAs(hpa, atoll.ObserveDrift)))
	w.waitForStatus("b2", func(s atoll.RowStatus) bool { return s.Generation == 2 && s.Applied })
	w.storeManifest(newManifest("b1", 2, w.webWith(2, 2)))
	w.waitForApplied("b1", 2)
	w.hasReplicas(web.Key, 9)
}

// A removal of one Bundle ends while another one observes the object.
func TestARemovalBesideAnObserver(t *testing.T) {
	w := newWorld(t)
	w.makeNamespace()
	w.createObject("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: live}")
	item := w.configMap("a", "x")
	w.storeManifest(newManifest("b1", 1, item))
	w.waitForReason("b1", atoll.ReasonConflict)
	w.storeManifest(newManifest("b2", 1, observeAs(item, atoll.ObserveDrift)))
	w.waitForStatus("b2", func(s atoll.RowStatus) bool { return len(s.Items) == 1 })
	gone := newManifest("b1", 2)
	gone.Remove = true
	w.storeManifest(gone)
	w.waitForRemoval("b1")
	w.waitForDrift("b2", item.Key, isDriftAt("/data/a", `"live"`, `"x"`))
}

// The tombstone of an earlier template is void where the new one is observed: nothing is written.
func TestATombstoneBesideAnObservedTemplate(t *testing.T) {
	w := newWorld(t)
	first, second := w.configMap("a", "x"), w.configMap("a", "x")
	second.UID = "another"
	w.storeManifest(newManifest("b1", 1, first))
	w.waitForReady("b1", 1)
	uid := w.get(first.Key).GetUID()
	m := newManifest("b1", 2, observeAs(second, atoll.ObserveDrift))
	m.Tombstones = []atoll.Tombstone{{Key: first.Key, UID: first.UID}}
	w.storeManifest(m)
	w.waitForStatus("b1", func(s atoll.RowStatus) bool { return s.Generation == 2 && s.Applied && len(s.DoneTombstones) == 1 })
	if now := w.get(first.Key); now == nil || now.GetUID() != uid {
		t.Errorf("the object was replaced: %v", now)
	}
}

// Fields that belong to the member from now on are no drift, and leave the dry run a valid object.
func TestNewlyLeftFieldsOfAnObservedObject(t *testing.T) {
	w := newWorld(t)
	conf, web := w.configMap("a", "x"), w.webWith(2, 1)
	w.storeManifest(newManifest("b1", 1, conf, web))
	w.waitForApplied("b1", 1)
	conf, web = observeAs(conf, atoll.ObserveDrift), observeAs(web, atoll.ObserveDrift)
	conf.MemberOwned, web.MemberOwned = []string{"/data/a"}, []string{"/spec"}
	w.storeManifest(newManifest("b1", 2, conf, web))
	w.waitForStatus("b1", func(s atoll.RowStatus) bool { return s.Generation == 2 && s.Applied && s.Drifted == 0 })
}

// A Job that ran and is gone is neither missing nor drift.
func TestAnObservedJobThatRan(t *testing.T) {
	w := newWorld(t)
	job := w.newItem("t-job", "apiVersion: batch/v1\nkind: Job\nmetadata: {name: once}\nspec: {suspend: true, template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}")
	w.storeManifest(newManifest("b1", 1, job))
	w.waitForApplied("b1", 1)
	w.deleteByHand(job.Key)
	w.expectAbsent(job.Key)
	w.storeManifest(newManifest("b1", 2, observeAs(job, atoll.ObserveDrift)))
	s := w.waitForStatus("b1", func(s atoll.RowStatus) bool { return s.Generation == 2 && s.Applied })
	if it, _ := saidOf(s, job.Key); it.Reason == atoll.ReasonMissing || s.Drifted != 0 {
		t.Errorf("%+v", it)
	}
}

// An HPA of another Bundle that comes later is no reason to edit the object: its replicas are compared again.
func TestAnAutoscalerThatComesLater(t *testing.T) {
	w := newWorld(t)
	w.makeNamespace()
	w.createObject(deployment)
	web := w.webWith(9, 1)
	w.storeManifest(newManifest("b1", 1, observeAs(web, atoll.ObserveDrift)))
	w.waitForDrift("b1", web.Key, func(d *atoll.Drift) bool { return d != nil && d.Fields[0].Path == "/spec/replicas" })
	w.storeManifest(newManifest("b2", 1, w.newItem("t-hpa", autoscaler)))
	w.waitForDrift("b1", web.Key, func(d *atoll.Drift) bool { return d == nil })
}

// A status that the watch reports during a comparison is not replaced by the older one that was compared.
func TestAStatusThatComesDuringAComparison(t *testing.T) {
	key := atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}
	begun := &observation{view: observe.View{Key: key, UID: "u", Version: "12", Edit: "1", Health: atoll.Healthy}}
	compared := observe.View{Key: key, UID: "u", Version: "11", Edit: "1", Health: atoll.Progressing}
	if got := newerView(begun, compared); got.Health != atoll.Healthy {
		t.Errorf("%+v", got)
	}
	begun.view.Version = "9"
	if got := newerView(begun, compared); got.Version != "11" {
		t.Errorf("%+v", got)
	}
	begun.view.UID, begun.view.Version = "other", "13"
	if got := newerView(begun, compared); got.Version != "11" {
		t.Errorf("of another object: %+v", got)
	}
}

// An observed object has a reason before it is compared for the first time, and after an edit on the hub. Then its
// differences are reported, and nothing is written.
func TestAnObservedObjectIsPendingUntilItIsCompared(t *testing.T) {
	api := newMemoryMember(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: conf, namespace: shop}\ndata: {a: live}")
	e := engineOn(t, api, shopNamespace, newManifest("b1", 1, observeAs(confItem("x"), atoll.ObserveDrift)))
	expectPending := func(when string) {
		t.Helper()
		s, _ := e.StatusOf("b1", nil, testNow)
		if it, _ := saidOf(s, confKey); it.Reason != atoll.ReasonPending || it.Message != "the member's object is not compared yet" || it.Drift != nil || s.Applied {
			t.Errorf("%s: item %+v, applied %t", when, it, s.Applied)
		}
	}
	expectDrift := func(when, wanted string) {
		t.Helper()
		if f := e.workOnKey(t.Context(), confKey); f != nil {
			t.Fatalf("%s: %+v", when, f)
		}
		s, _ := e.StatusOf("b1", nil, testNow)
		if it, _ := saidOf(s, confKey); it.Reason != atoll.ReasonDrifted || !isDriftAt("/data/a", `"live"`, wanted)(it.Drift) || !s.Applied {
			t.Errorf("%s: item %+v, drift %+v, applied %t", when, it, it.Drift, s.Applied)
		}
		api.expectWrites(t)
	}
	expectPending("at first")
	expectDrift("compared", `"x"`)
	e.foldHolding(ownership.BundleHolding{Manifest: newManifest("b1", 2, observeAs(confItem("y"), atoll.ObserveDrift))}, nil)
	expectPending("edited on the hub")
	expectDrift("compared again", `"y"`)
}

// An observed object is compared again when the watch reports an edit of it. A watch that reports no edits, of
// Atoll's label, leads to no comparison.
func TestAnEditLeadsToAnotherComparison(t *testing.T) {
	api := newMemoryMember(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: conf, namespace: shop}\ndata: {a: live}")
	e := engineOn(t, api, shopNamespace, newManifest("b1", 1, observeAs(confItem("x"), atoll.ObserveDrift)))
	workOnDueKeys := func() []atoll.ItemKey {
		keys, _ := e.takeDueKeys(time.Now().Add(time.Hour))
		for _, key := range keys {
			e.finishWork(t.Context(), key, e.workOnKey(t.Context(), key))
		}
		return keys
	}
	expectDrift := func(when, live string) {
		t.Helper()
		s, _ := e.StatusOf("b1", nil, testNow)
		if it, _ := saidOf(s, confKey); !isDriftAt("/data/a", live, `"x"`)(it.Drift) {
			t.Errorf("%s: drift %+v", when, it.Drift)
		}
	}
	live := api.objects["/api/v1/namespaces/shop/configmaps/conf"]
	watched := func(withEdits bool) observe.View {
		u := &unstructured.Unstructured{Object: live}
		v := observe.ViewOf(u, observe.Judges{})
		if withEdits {
			v.Edit = observe.EditFingerprintOfMetadata(u) // as the watch of a kind whose health is its existence
		}
		return v
	}
	workOnDueKeys()
	expectDrift("at first", `"live"`)
	for _, withEdits := range []bool{false, true} {
		e.ObjectSeen(watched(withEdits))
		if keys := workOnDueKeys(); len(keys) > 0 {
			t.Errorf("without an edit, reported %t, there is work on %v", withEdits, keys)
		}
	}
	live["data"], live["metadata"].(map[string]any)["resourceVersion"] = map[string]any{"a": "edited"}, "2"
	e.ObjectSeen(watched(false))
	expectDrift("before the edit is reported", `"live"`)
	e.ObjectSeen(watched(true))
	if keys := workOnDueKeys(); !slices.Equal(keys, []atoll.ItemKey{confKey}) {
		t.Errorf("after an edit there is work on %v", keys)
	}
	expectDrift("after the edit is reported", `"edited"`)
	api.expectWrites(t)
}
