package apply

import (
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"testing"

	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/agent/store"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/objectdiff"
)

// interposed is an API between whose requests something happens. at gets each request that is no dry run, as VERB NAME
// MANAGER, and answers in place of the API if it returns true.
type interposed struct {
	http.Handler
	at func(request string, w http.ResponseWriter, r *http.Request) (answered bool)
}

func (i *interposed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	request := r.Method + " " + path.Base(r.URL.Path)
	if manager := r.URL.Query().Get("fieldManager"); manager != "" {
		request += " " + manager
	}
	if i.at != nil && r.URL.Query().Get("dryRun") == "" && i.at(request, w, r) {
		return
	}
	i.Handler.ServeHTTP(w, r)
}

// putByHand sets an object under another resource version, as another writer does.
func (m *memoryMember) putByHand(t *testing.T, text, version string) {
	t.Helper()
	var obj map[string]any
	if err := yaml.Unmarshal([]byte(text), &obj); err != nil {
		t.Fatal(err)
	}
	meta := obj["metadata"].(map[string]any)
	meta["uid"], meta["resourceVersion"] = "live", version
	m.mu.Lock()
	defer m.mu.Unlock()
	m.objects[pathOfObject(obj)] = obj
}

func failWith(w http.ResponseWriter, code int) bool {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	reason := map[int]string{403: "Forbidden", 500: "InternalError", 503: "ServiceUnavailable"}[code]
	_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"` + reason + `","code":` + map[int]string{403: "403", 500: "500", 503: "503"}[code] + `}`))
	return true
}

const (
	getConf   = "GET conf"
	patchConf = "PATCH conf " + atoll.FieldManager
	applyConf = "APPLY conf " + atoll.FieldManager
	leftConf  = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: conf, namespace: shop, annotations: {" + ownership.AnnotationLeftBehind + ": t}}\ndata: {a: foreign}"
)

// A correction writes the object that was compared. An object that changed or appeared since is compared again: the same
// drift is corrected then, and other drift needs another approval.
func TestACorrectionWritesWhatWasCompared(t *testing.T) {
	for name, c := range map[string]struct {
		live    []string
		before  string // the request before which the object changes, and how often it came before
		nth     int
		changed string
		later   []string // the writes of the next turn
	}{
		"it is edited":              {[]string{liveConf("live")}, patchConf, 1, liveConf("foreign"), nil},
		"it is touched":             {[]string{liveConf("live")}, patchConf, 1, liveConf("live"), []string{applyConf}},
		"it appears, left behind":   {nil, getConf, 2, leftConf, nil},
		"it appears as Atoll's own": {nil, getConf, 2, liveConf("foreign"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			api := newMemoryMember(t, c.live...)
			between := &interposed{Handler: api}
			item := observeAs(confItem("x"), atoll.ObserveForApproval)
			e, id := newApprovedEngine(t, between, item, []ownership.Record{shopNamespace, wantedRecord(item)}, nil)
			seen := 0
			between.at = func(request string, _ http.ResponseWriter, _ *http.Request) bool {
				if request == c.before {
					if seen++; seen == c.nth {
						api.putByHand(t, c.changed, "2")
					}
				}
				return false
			}
			expectFailure(t, e.workOnKey(t.Context(), confKey), changedSinceComparison())
			api.expectWrites(t)
			expectFailure(t, e.workOnKey(t.Context(), confKey), nil)
			api.expectWrites(t, c.later...)
			if now := e.recordOf(confKey).DriftID; now == id {
				t.Errorf("the approval of %s is still good", id)
			}
		})
	}
}

// An approval is used when a write may have taken place, and only then.
func TestAnApprovalIsUsedByItsWriteAlone(t *testing.T) {
	handedOver := wantedRecord(observeAs(confItem("x"), atoll.ObserveForApproval))
	handedOver.Left = []string{"/data/b"}
	recorded := wantedRecord(observeAs(confItem("x"), atoll.ObserveForApproval))
	heldByHandover := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: conf, namespace: shop, managedFields: [{manager: " + atoll.HandoverManager +
		", operation: Apply, apiVersion: v1, fieldsType: FieldsV1, fieldsV1: {}}]}\ndata: {a: live}"
	for name, c := range map[string]struct {
		record ownership.Record
		live   []string
		fails  string // the request that fails
		nth    int
		code   int
		isDone bool // the API carries the request out
		writes []string
		isKept bool
	}{
		"the answer is an error after the write":  {recorded, []string{liveConf("live")}, patchConf, 1, 500, true, []string{applyConf}, false},
		"no answer":                               {recorded, []string{liveConf("live")}, patchConf, 1, 503, false, nil, false},
		"a refusal":                               {recorded, []string{liveConf("live")}, patchConf, 1, 403, false, nil, true},
		"a missing object is not read once more":  {recorded, nil, getConf, 2, 503, false, nil, true},
		"a step after the write":                  {handedOver, []string{heldByHandover}, "PATCH conf " + atoll.HandoverManager, 1, 403, false, []string{applyConf}, false},
		"a missing object is created, and unread": {recorded, nil, patchConf, 1, 500, true, []string{applyConf}, false},
	} {
		t.Run(name, func(t *testing.T) {
			api := newMemoryMember(t, c.live...)
			between := &interposed{Handler: api}
			item := observeAs(confItem("x"), atoll.ObserveForApproval)
			e, id := newApprovedEngine(t, between, item, []ownership.Record{shopNamespace, c.record}, nil)
			seen := 0
			between.at = func(request string, w http.ResponseWriter, r *http.Request) bool {
				if request == c.fails {
					seen++
				}
				if request != c.fails || seen != c.nth {
					return false
				}
				if c.isDone {
					api.ServeHTTP(httptest.NewRecorder(), r)
				}
				return failWith(w, c.code)
			}
			if failure := e.workOnKey(t.Context(), confKey); failure == nil {
				t.Error("the correction does not fail")
			}
			if api.expectWrites(t, c.writes...); seen < c.nth {
				t.Fatalf("%s came %d times", c.fails, seen)
			}
			if now := e.recordOf(confKey).DriftID; (now == id) != c.isKept {
				t.Errorf("the ID of the drift is %q, and was %q", now, id)
			}
		})
	}
}

// A correction may write twice: the fields that the member owns are handed over first.
func TestACorrectionHandsFieldsOver(t *testing.T) {
	api := newMemoryMember(t, liveConf("live, b: kept"))
	api.countsVersions = true
	item := observeAs(confItem("x"), atoll.ObserveForApproval)
	item.Object = []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"conf","namespace":"shop"},"data":{"a":"x","b":"first"}}`)
	item.MemberOwned = []string{"/data/b"}
	e, _ := newApprovedEngine(t, api, item, []ownership.Record{shopNamespace, wantedRecord(item)}, nil)
	expectFailure(t, e.workOnKey(t.Context(), confKey), nil)
	api.expectWrites(t, "APPLY conf "+atoll.HandoverManager, applyConf)
}

// The namespace of an approved correction needs the rights of the same ServiceAccount. Without them nothing makes it.
func TestTheNamespaceOfACorrectionNeedsTheServiceAccount(t *testing.T) {
	api := newMemoryMember(t)
	item := namedItem(observeAs(confItem("x"), atoll.ObserveForApproval))
	item.Key.Namespace = "blog"
	item.Object = []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"conf","namespace":"blog"},"data":{"a":"x"}}`)
	a := &authorizer{Handler: api, allowed: []string{"get configmaps blog/conf", "create configmaps blog/conf", "patch configmaps blog/conf"}}
	e, id := newApprovedEngine(t, a, item, nil, func(m *atoll.Manifest) { m.Namespaces = map[string]atoll.NamespaceMeta{"blog": {}} })
	blog := atoll.NamespaceKey("blog")
	failure := e.workOnKey(t.Context(), item.Key)
	if failure == nil || failure.Reason != atoll.ReasonServiceAccountForbidden {
		t.Errorf("the failure is %+v", failure)
	}
	expectFailure(t, e.workOnKey(t.Context(), blog), nil)
	api.expectWrites(t)
	if r := e.recordOf(blog); r.Implicit || e.recordOf(item.Key).DriftID != id {
		t.Errorf("the namespace is to be made still: %+v", r)
	}
	a.allowed = append(a.allowed, "get namespaces /blog", "create namespaces /blog", "patch namespaces /blog")
	expectFailure(t, e.workOnKey(t.Context(), item.Key), nil)
	api.expectWrites(t, "APPLY blog "+atoll.FieldManager, applyConf)
	if got := e.recordOf(blog).Account; got != deployerAccount {
		t.Errorf("the namespace is removed by %q", got)
	}
}

// An observed object is removed by the rights of its ServiceAccount, also after its last item could not be rendered, and
// after a restart that only the stored records survive.
func TestTheRemovalOfAnObservedObjectWhoseItemFailed(t *testing.T) {
	for _, as := range []atoll.Observation{atoll.ObserveHealth, atoll.ObserveDrift, atoll.ObserveForApproval} {
		api := newMemoryMember(t, liveConf("live"))
		a := &authorizer{Handler: api, allowed: slices.Clone(allRights)}
		item := namedItem(observeAs(confItem("x"), as))
		record := wantedRecord(item)
		e := newStubEngine(t, a, []ownership.Record{shopNamespace, record}, newManifest("b1", 1, item))
		e.access.age = 0
		e.takeCalls()
		failed := atoll.RenderedItem{Key: confKey, APIVersion: "v1", UID: "t", Hash: "e", Error: "a rule does not apply"}
		if err := e.UpsertManifest(t.Context(), newManifest("b1", 2, failed), store.Position{}); err != nil {
			t.Fatal(err)
		}
		if calls := e.takeCalls(); len(calls) < 2 || !slices.Contains(calls[:slices.Index(calls, "put b1")], "store ConfigMap/conf") {
			t.Errorf("%s: the record is not stored before the manifest: %q", as, calls)
		}
		expectFailure(t, e.workOnKey(t.Context(), confKey), nil)
		again := newStubEngine(t, a, []ownership.Record{shopNamespace, e.recordOf(confKey)}, newManifest("b1", 2, failed))
		again.access.age = 0
		gone := newManifest("b1", 3)
		gone.Tombstones = []atoll.Tombstone{{Key: confKey, UID: "t"}}
		if err := again.UpsertManifest(t.Context(), gone, store.Position{}); err != nil {
			t.Fatal(err)
		}
		a.allowed = nil
		failure := again.workOnKey(t.Context(), confKey)
		if api.expectWrites(t); failure == nil || failure.Reason != atoll.ReasonServiceAccountForbidden {
			t.Errorf("%s: the failure is %+v", as, failure)
		}
		a.allowed = allRights
		expectFailure(t, again.workOnKey(t.Context(), confKey), nil)
		api.expectWrites(t, "DELETE conf")
	}
}

// An approval is of one content over the differences in one object. Another revision, template or UID is other drift.
func TestTheDriftThatAnApprovalNames(t *testing.T) {
	item := observeAs(confItem("x"), atoll.ObserveForApproval)
	edited, recreated, reported := item, item, observeAs(confItem("x"), atoll.ObserveDrift)
	edited.Hash, recreated.UID = "another", "another"
	first := []objectdiff.Difference{{Path: "/data/a", Before: "live", After: "x"}}
	other := []objectdiff.Difference{{Path: "/data/a", Before: "edited", After: "x"}}
	seen := map[string]string{}
	for name, hash := range map[string]string{
		"drift": hashDrift(&item, "u1", first), "other values": hashDrift(&item, "u1", other), "another object": hashDrift(&item, "u2", first),
		"another revision": hashDrift(&edited, "u1", first), "another template": hashDrift(&recreated, "u1", first),
		"missing": hashDrift(&item, "", nil), "missing at another revision": hashDrift(&edited, "", nil),
	} {
		if seen[hash] != "" || hash == "" {
			t.Errorf("%s is the same drift as %s: %q", name, seen[hash], hash)
		}
		seen[hash] = name
	}
	again := item
	if hashDrift(&reported, "u1", first) != "" || seen[hashDrift(&again, "u1", slices.Clone(first))] != "drift" {
		t.Error("reported drift has a hash, or equal drift has two")
	}
}
