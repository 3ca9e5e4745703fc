package apply

import (
	"errors"
	"maps"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/atoll"
)

// withApproval returns the item with the approval of a drift.
func withApproval(item atoll.RenderedItem, id string) atoll.RenderedItem {
	item.Approval = id
	return item
}

// waitForID waits until a drift is as wanted under another ID than those, and returns its ID.
func (w *world) waitForID(key atoll.ItemKey, want func(*atoll.Drift) bool, not ...string) string {
	w.t.Helper()
	it := w.waitForDrift("b1", key, func(d *atoll.Drift) bool {
		if !want(d) {
			return false
		}
		for _, id := range not {
			if d.ID == id {
				return false
			}
		}
		return true
	})
	if !atoll.IsDriftID(it.Drift.ID) {
		w.t.Fatalf("the drift has the ID %q", it.Drift.ID)
	}
	return it.Drift.ID
}

func (w *world) expectData(key atoll.ItemKey, want string) {
	w.t.Helper()
	if data := w.get(key).Object["data"].(map[string]any); data["a"] != want {
		w.t.Errorf("data %v, want a: %s", data, want)
	}
}

// waitForCorrection waits until a manifest of the generation is compared without drift.
func (w *world) waitForCorrection(key atoll.ItemKey, generation int64) {
	w.t.Helper()
	w.waitForStatus("b1", func(s atoll.RowStatus) bool {
		it, _ := saidOf(s, key)
		return s.Generation == generation && s.Applied && s.Drifted == 0 && it.Drift == nil
	})
}

// restartAfterStore restarts the engine once its records are stored: a pass reports each object, and stores the records at its
// end.
func (w *world) restartAfterStore() {
	w.t.Helper()
	if err := w.storeChangedRecords(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	w.stop()
	w.start()
}

// An approval lets the agent apply an object once. The agent corrects neither other drift nor the same drift later.
func TestAnApprovalIsUsedOnce(t *testing.T) {
	w := newWorld(t)
	w.makeNamespace()
	made := w.createObject("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: live, more: stays}")
	item := observeAs(w.configMap("a", "x"), atoll.ObserveForApproval)
	key := item.Key
	send := func(generation int64, it atoll.RenderedItem) {
		m := newManifest("b1", generation, it)
		m.ConflictResolution = v1alpha1.ConflictOverwrite
		w.storeManifest(m)
	}
	send(1, item)
	first := w.waitForID(key, isDriftAt("/data/a", `"live"`, `"x"`))
	send(2, withApproval(item, "0123456789abcdef"))
	w.waitForStatus("b1", func(s atoll.RowStatus) bool { return s.Generation == 2 && s.Drifted == 1 })
	if live := w.get(key); live.GetResourceVersion() != made.GetResourceVersion() {
		t.Fatalf("an approval of other drift wrote the object: %v", live)
	}

	w.patchObject(key, `{"data":{"a":"changed"}}`)
	second := w.waitForID(key, isDriftAt("/data/a", `"changed"`, `"x"`), first)
	send(3, withApproval(item, first))
	w.waitForStatus("b1", func(s atoll.RowStatus) bool { return s.Generation == 3 && s.Drifted == 1 })
	w.expectData(key, "changed")

	w.restartAfterStore()
	send(4, withApproval(item, second)) // stored IDs survive a restart
	w.waitForCorrection(key, 4)
	w.expectData(key, "x")
	if data := w.get(key).Object["data"].(map[string]any); data["more"] != "stays" {
		t.Errorf("a field that the item does not state: %v", data)
	}

	w.patchObject(key, `{"data":{"a":"changed"}}`)
	third := w.waitForID(key, isDriftAt("/data/a", `"changed"`, `"x"`), first, second)
	w.restartAfterStore()
	if again := w.waitForID(key, isDriftAt("/data/a", `"changed"`, `"x"`)); again != third {
		t.Errorf("a restart gave the drift the ID %s in place of %s", again, third)
	}
	w.expectData(key, "changed")
	edited := observeAs(w.configMap("a", "second"), atoll.ObserveForApproval)
	send(5, edited)
	fourth := w.waitForID(key, isDriftAt("/data/a", `"changed"`, `"second"`), third)
	send(6, withApproval(edited, fourth))
	w.waitForCorrection(key, 6)
	w.expectData(key, "second")
}

// An approval creates a missing object and the namespace that the manifest has for it.
func TestAnApprovalCreatesAMissingObject(t *testing.T) {
	w := newWorld(t)
	item := observeAs(w.configMap("a", "x"), atoll.ObserveForApproval)
	w.storeManifest(newManifest("b1", 1, item))
	id := w.waitForID(item.Key, isMissing)
	if s, _ := w.lastStatus("b1"); s.Items[0].Message != "the member does not have the object: `atoll drift correct` lets Atoll create it" {
		t.Errorf("the message is %q", s.Items[0].Message)
	}
	w.expectAbsent(atoll.NamespaceKey(w.ns))
	m := newManifest("b1", 2, withApproval(item, id))
	m.Namespaces = map[string]atoll.NamespaceMeta{w.ns: {Labels: map[string]string{"team": "blue"}}}
	w.storeManifest(m)
	w.waitForCorrection(item.Key, 2)
	w.expectData(item.Key, "x")
	if ns := w.get(atoll.NamespaceKey(w.ns)); ns.GetLabels()["team"] != "blue" {
		t.Errorf("the namespace has the labels %v", ns.GetLabels())
	}
	w.deleteByHand(item.Key)
	if next := w.waitForID(item.Key, isMissing); next == id {
		t.Errorf("the object is missing again under the ID %s", id)
	}
	w.expectAbsent(item.Key)

	// The object is Atoll's: its removal on the hub removes it.
	edited := observeAs(w.configMap("a", "second"), atoll.ObserveForApproval)
	w.storeManifest(newManifest("b1", 3, edited))
	w.waitForStatus("b1", func(s atoll.RowStatus) bool { return s.Generation == 3 && s.Applied })
	id = w.waitForID(item.Key, isMissing, id)
	w.storeManifest(newManifest("b1", 4, withApproval(edited, id)))
	w.waitForCorrection(item.Key, 4)
	w.expectData(item.Key, "second")
	gone := newManifest("b1", 5)
	gone.Tombstones = []atoll.Tombstone{{Key: item.Key, UID: item.UID}}
	w.storeManifest(gone)
	w.expectAbsent(item.Key)
}

// The conflict resolution decides first about an object that is not Atoll's. The report keeps the drift.
func TestAnApprovalOfAForeignObject(t *testing.T) {
	w := newWorld(t)
	w.makeNamespace()
	w.createObject("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: live}")
	item := observeAs(w.configMap("a", "x"), atoll.ObserveForApproval)
	w.storeManifest(newManifest("b1", 1, item))
	id := w.waitForID(item.Key, isDriftAt("/data/a", `"live"`, `"x"`))
	m := newManifest("b1", 2, withApproval(item, id))
	w.storeManifest(m)
	w.waitForReason("b1", atoll.ReasonConflict)
	s, _ := w.lastStatus("b1")
	if it, _ := saidOf(s, item.Key); s.State != atoll.RowFailed || !it.Error || it.Drift == nil || it.Drift.ID != id {
		t.Errorf("row %+v", s)
	}
	w.expectData(item.Key, "live")
	m.Generation, m.ConflictResolution = 3, v1alpha1.ConflictOverwrite
	w.storeManifest(m)
	w.waitForCorrection(item.Key, 3)
	w.expectData(item.Key, "x")
}

// The use of an approval is stored before the apply. An apply that changed nothing keeps the approval, and one with an
// unknown result ends the approval.
func TestAnApprovalWhoseApplyFails(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "conf", errors.New("no"))
	for name, c := range map[string]struct {
		refused  refusals
		store    error
		writes   []string
		isKept   bool
		isFailed bool
	}{
		"it succeeds":            {nil, nil, []string{"APPLY conf atoll"}, false, false},
		"the store refuses":      {nil, memberBusy(), nil, true, true},
		"the member refuses":     {refusals{"PATCH conf": forbidden}, nil, nil, true, true},
		"the result is unknown":  {refusals{"PATCH conf": memberBusy()}, nil, nil, false, true},
		"it cannot be compared":  {refusals{"DRYRUN conf": memberBusy()}, nil, nil, true, true},
		"the object is not read": {refusals{"GET conf": memberBusy()}, nil, nil, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			api := newMemoryMember(t, liveConf("live"))
			item := observeAs(confItem("x"), atoll.ObserveForApproval)
			refused := refusals{}
			e, id := newApprovedEngine(t, refuseSome(api, refused), item, []ownership.Record{shopNamespace, wantedRecord(item)}, nil)
			maps.Copy(refused, c.refused)
			e.refuses = c.store
			failure := e.workOnKey(t.Context(), confKey)
			if api.expectWrites(t, c.writes...); (failure != nil) != c.isFailed {
				t.Errorf("the failure is %+v", failure)
			}
			if now := e.recordOf(confKey).DriftID; (now == id) != c.isKept {
				t.Errorf("the ID of the drift is %q, and was %q", now, id)
			}
			if e.refuses = nil; !c.isFailed {
				if calls := e.takeCalls(); len(calls) < 2 || !strings.HasPrefix(calls[1], "store ConfigMap") {
					t.Errorf("the calls are %q: the use of the approval is not stored before the apply", calls)
				}
			}
			// Later drift is corrected only while the approval is kept.
			clear(refused)
			again := e.workOnKey(t.Context(), confKey)
			if c.writes = nil; c.isKept {
				c.writes = []string{"APPLY conf atoll"}
			}
			if api.expectWrites(t, c.writes...); again != nil {
				t.Errorf("the next turn: %+v", again)
			}
		})
	}
}

// Bundles that observe the object of another owner, and Bundles that only report, have no ID to approve.
func TestTheReportedIDOfADrift(t *testing.T) {
	o := &observation{drift: &atoll.Drift{Missing: true, ID: "0123456789abcdef"}}
	item := observeAs(confItem("x"), atoll.ObserveForApproval)
	reported := observeAs(confItem("x"), atoll.ObserveDrift)
	for name, c := range map[string]struct {
		got  *atoll.Drift
		want string
	}{
		"the owner":       {o.driftFor(&item, true), "0123456789abcdef"},
		"another Bundle":  {o.driftFor(&item, false), ""},
		"a reported item": {o.driftFor(&reported, true), ""},
	} {
		if c.got == nil || c.got.ID != c.want || !c.got.Missing {
			t.Errorf("%s: %+v", name, c.got)
		}
	}
	if (&observation{}).driftFor(&item, true) != nil {
		t.Error("no drift is reported as one")
	}
}
