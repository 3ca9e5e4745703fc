package apply

import (
	"net/http"
	"path"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/atoll"
)

// A field that the member cannot own fails wherever it is to be left, and nothing is handed over.
func TestAFieldThatCannotBeLeftFails(t *testing.T) {
	e := newStubEngine(t, newMemoryMember(t), nil)
	obj := newUnstructured(decodeJSON(t, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"shop","managedFields":[{"manager":"`+atoll.HandoverManager+`"}]},"spec":{}}`))
	record := wantedRecord(webItem("2"))
	record.Left = []string{replicas}
	p := webWork(record, "spec")
	res, _ := e.resourceFor(t.Context(), p.Key, "apps/v1")
	f := e.removeFieldsFromHandoverManager(t.Context(), p, res, obj)
	if reasonOf(f) != atoll.ReasonInvalid || !strings.Contains(f.Message, "spec cannot belong to the member") {
		t.Errorf("it fails with %+v", f)
	}
	body, f := applyBody(p, applyParams{left: []string{"spec"}})
	if reasonOf(f) != atoll.ReasonInvalid || f.Message == "" || body != nil {
		t.Errorf("it is sent as %s, failure %+v", body, f)
	}
}

// A path that leads nowhere in the live object, or in the item's list, is no field of the member.
func TestPathsThatLeadNowhere(t *testing.T) {
	for name, c := range map[string]struct{ path, sent, live string }{
		"below a text":              {"/spec/a/b", `{"spec":{"a":"x"}}`, `{"spec":{"a":"x"}}`},
		"below a text of a text":    {"/spec/a/b/c", `{"spec":{"a":"x"}}`, `{"spec":{"a":"x"}}`},
		"an element that is absent": {"/spec/l/1/a", `{"spec":{"l":[{"k":1}]}}`, `{"spec":{"l":[{"k":1}]}}`},
		"an element that is no one": {"/spec/l/x/a", `{"spec":{"l":[{"k":1}]}}`, `{"spec":{"l":[{"k":1}]}}`},
		"an element as a whole":     {"/spec/l/0", `{"spec":{"l":[{"k":1}]}}`, `{"spec":{"l":[{"k":1}]}}`},
		"an element that went":      {"/spec/l/0/a", `{"spec":{"l":[{"k":1}]}}`, `{"spec":{"l":[{"k":2,"a":3}]}}`},
		"a list that is no list":    {"/spec/l/0/a", `{"spec":{"l":"x"}}`, `{"spec":{"l":[{"k":1}]}}`},
	} {
		live, to := newUnstructured(decodeJSON(t, c.live)), map[string]any{}
		live.SetManagedFields([]metav1.ManagedFieldsEntry{
			{Manager: atoll.FieldManager, Operation: metav1.ManagedFieldsOperationApply},
			{Manager: atoll.FieldManager, Operation: metav1.ManagedFieldsOperationApply, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:l":{"k:{\"k\":1}":{}}}}`)},
		})
		found, f := copyMemberFields(to, &atoll.RenderedItem{Object: []byte(c.sent)}, live, []string{c.path})
		if found || f != nil || len(to) > 0 {
			t.Errorf("%s: found %t, %v, failure %+v", name, found, to, f)
		}
	}
}

// The fields of Atoll's manager are those of its apply, where they can be read.
func TestAtollsOwnFields(t *testing.T) {
	entry := func(manager string, op metav1.ManagedFieldsOperationType, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: op, FieldsV1: metav1.NewFieldsV1(fields)}
	}
	for name, c := range map[string]struct {
		entries []metav1.ManagedFieldsEntry
		want    bool
	}{
		"applied":        {[]metav1.ManagedFieldsEntry{entry("kubectl", "Apply", `{"f:other":{}}`), entry(atoll.FieldManager, "Apply", `{"f:spec":{}}`)}, true},
		"updated":        {[]metav1.ManagedFieldsEntry{entry(atoll.FieldManager, "Update", `{"f:spec":{}}`)}, false},
		"not readable":   {[]metav1.ManagedFieldsEntry{entry(atoll.FieldManager, "Apply", `{`)}, false},
		"without fields": {[]metav1.ManagedFieldsEntry{{Manager: atoll.FieldManager, Operation: "Apply"}}, false},
		"none":           {nil, false},
	} {
		obj := newUnstructured(map[string]any{})
		obj.SetManagedFields(c.entries)
		if got := ownFields(obj); (got["f:spec"] != nil) != c.want || len(got) > 1 {
			t.Errorf("%s: they are %v", name, got)
		}
	}
}

// A comparison fails where a script fails that keeps fields of the member.
func TestAComparisonFailsWithItsScript(t *testing.T) {
	item := observeAs(shellItem(`{"seed":"hub"}`), atoll.ObserveDrift)
	for cel, want := range map[string]atoll.Reason{`{'spec': {'seed': observed.spec.seed}}`: "", `{'spec': {'seed': observed.spec.absent}}`: atoll.ReasonInterpreterFailed} {
		m := newManifest("b1", 1, item)
		m.Interpreters = newRetainers(cel)
		api := newMemoryMember(t, "apiVersion: example.io/v1\nkind: Shell\nmetadata: {name: conch}\nspec: {seed: live}")
		e := newStubEngine(t, api, nil, m)
		if f := e.workOnKey(t.Context(), shellKey); reasonOf(f) != want {
			t.Errorf("it fails with %+v, want %q", f, want)
		}
		if o := e.observed[shellKey]; o.drift != nil || o.stale != (want != "") {
			t.Errorf("the observation is %+v", o)
		}
		api.expectWrites(t)
	}
}

// An item that cannot be sent is not applied.
func TestAnItemThatCannotBeSentFails(t *testing.T) {
	broken, unserved := confItem("x"), confItem("x")
	broken.Object = []byte("[]")
	unserved.Key.Kind = "Gadget"
	for name, c := range map[string]struct {
		item atoll.RenderedItem
		want atoll.Reason
	}{"no object": {broken, atoll.ReasonInvalid}, "not served": {unserved, atoll.ReasonNotServed}} {
		for _, record := range []ownership.Record{unmadeRecord(c.item), wantedRecord(c.item)} {
			record.Applied = ""
			api := newMemoryMember(t)
			e := newStubEngine(t, api, []ownership.Record{shopNamespace, record}, newManifest("b1", 1, c.item))
			if f := settleKey(t, e.MemberApplier, c.item.Key); reasonOf(f) != c.want {
				t.Errorf("%s: it fails with %+v, want %q", name, f, c.want)
			}
			api.expectWrites(t)
		}
	}
}

// A note that the member does not let the agent remove stays, and the object is Atoll's.
func TestANoteThatCannotBeRemovedIsNoFailure(t *testing.T) {
	member := newMemoryMember(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: conf, namespace: shop, annotations: {"+ownership.AnnotationLeftBehind+": t}}")
	e := newStubEngine(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Content-Type"), "merge-patch") {
			refuseRequest(w, http.StatusForbidden)
			return
		}
		member.ServeHTTP(w, r)
	}), []ownership.Record{shopNamespace}, newManifest("b1", 1, confItem("x")))
	expectFailure(t, settleKey(t, e.MemberApplier, confKey), nil)
	if r := e.recordOf(confKey); r.Applied != "hx" || r.Adopted {
		t.Errorf("the record is %+v", r)
	}
}

// A finalizer that cannot be removed is tried again soon. An object that went is no failure.
func TestAFinalizerThatCannotBeRemovedIsTriedAgainSoon(t *testing.T) {
	live := &metav1.PartialObjectMetadata{}
	live.DeletionTimestamp = &metav1.Time{Time: testNow}
	soon := *busyFailure
	soon.First = 200 * time.Millisecond
	for name, c := range map[string]struct {
		err  *apierrors.StatusError
		want *Failure
	}{"busy": {memberBusy(), &soon}, "gone": {apierrors.NewNotFound(configMaps, "conf"), nil}} {
		e := newStubEngine(t, refuseSome(newMemoryMember(t, liveConf("x")), refusals{"PATCH conf": c.err}), nil)
		p := pendingWork{Step: ownership.Step{Key: confKey, Record: wantedRecord(confItem("x"))}}
		res, _ := e.resourceFor(t.Context(), confKey, "v1")
		t.Run(name, func(t *testing.T) {
			expectFailure(t, e.releaseFinalizers(t.Context(), p, res, live, nil), c.want)
		})
	}
}

// The new object that is asked for has a name of its own in its body, too: an API server refuses another one.
func TestTheNewObjectThatIsAskedForHasItsName(t *testing.T) {
	member, named := newMemoryMember(t), ""
	e := newStubEngine(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPatch {
			meta := decodeRequest(t, r).(map[string]any)["metadata"].(map[string]any)
			if named, _ = meta["name"].(string); named != path.Base(r.URL.Path) || meta["uid"] != nil {
				t.Errorf("%s is sent to %s", meta, r.URL.Path)
			}
		}
		member.ServeHTTP(w, r)
	}), nil)
	item := confItem("x")
	p := pendingWork{Step: ownership.Step{Key: confKey, Owner: "b1", Item: &item, Record: wantedRecord(item)}}
	res, _ := e.resourceFor(t.Context(), confKey, "v1")
	accepted, f := e.isAcceptedAsNew(t.Context(), p, res)
	if !accepted || f != nil || !strings.HasPrefix(named, "conf-") {
		t.Errorf("accepted is %t, as %q, failure %+v", accepted, named, f)
	}
}

// A namespace that has to be made or brought up to date is one step of work, in the name of the policy.
func TestTheWorkOnANamespace(t *testing.T) {
	api := newMemoryMember(t)
	e := newStubEngine(t, api, []ownership.Record{shopNamespace}, shopManifest(confItem("x")))
	expectFailure(t, e.workOnKey(t.Context(), shopNamespace.Key), nil)
	api.expectWrites(t, "APPLY shop "+atoll.FieldManager)
	expectFailure(t, e.workOnKey(t.Context(), shopNamespace.Key), nil)
	api.expectWrites(t)
	if f := e.failureOf(shellKey); f != nil {
		t.Errorf("a key without a task has the failure %+v", f)
	}
}
