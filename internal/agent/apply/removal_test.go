package apply

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/internal/agent/observe"
	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/atoll"
)

// leavingRecord is the record of an object that b1 removes.
func leavingRecord(it atoll.RenderedItem) ownership.Record {
	r := wantedRecord(it)
	r.Claims["b1"] = ownership.Claim{State: ownership.Leaving, Template: it.UID}
	return r
}

// A deletion is waited for, and the report names the finalizers that hold it.
func TestADeletionThatWaitsNamesItsFinalizers(t *testing.T) {
	want := Failure{Reason: atoll.ReasonTerminating, Waits: true, First: 500 * time.Millisecond, Most: 30 * time.Second, Message: "its deletion has begun and is not finished"}
	expectFailure(t, terminationFailure(observe.View{}), &want)
	want.Message = "its deletion waits for the finalizers a, b: their owner must finish, or remove them in the member; the hub removes those that it sent once its template lacks them"
	expectFailure(t, terminationFailure(observe.View{Finalizers: []string{"a", "b"}}), &want)
}

// A finalizer is released where Atoll applied it and the hub released it.
func TestOnlyAtollsFinalizersAreReleased(t *testing.T) {
	const own = `{"f:metadata":{"f:finalizers":{"v:\"a\"":{},"v:\"b\"":{}}}}`
	for name, c := range map[string]struct {
		fields   string
		released []string
		want     []string
	}{
		"none is released":        {own, nil, []string{"a", "b", "c"}},
		"one is released":         {own, []string{"b"}, []string{"a", "c"}},
		"one of another writer":   {own, []string{"c"}, []string{"a", "b", "c"}},
		"Atoll's are not known":   {`{`, []string{"a"}, []string{"a", "b", "c"}},
		"Atoll applied no others": {`{}`, []string{"a"}, []string{"a", "b", "c"}},
	} {
		v := observe.View{Finalizers: []string{"a", "b", "c"}, Fields: []byte(c.fields)}
		if got := finalizersWithoutReleased(v, c.released); !slices.Equal(got, c.want) || len(v.Finalizers) != 3 {
			t.Errorf("%s: left are %q, want %q", name, got, c.want)
		}
	}
}

// A deletion that cannot be done fails for its reason. An object whose kind is not served went with the kind.
func TestADeletionFailsForItsReason(t *testing.T) {
	forbidden := apierrors.NewForbidden(configMaps, "conf", errors.New("why"))
	unserved := confItem("x")
	unserved.Key.Group, unserved.Key.Kind, unserved.APIVersion = "gadgets.io", "Gadget", "gadgets.io/v1"
	misnamed := confItem("x")
	misnamed.APIVersion = "apps/v1"
	leaving := func(r ownership.Record, edit func(*ownership.Claim)) ownership.Record {
		c := r.Claims["b1"]
		edit(&c)
		r.Claims["b1"] = c
		return r
	}
	orphan := func(c *ownership.Claim) { c.Orphan = true }
	for name, c := range map[string]struct {
		record  ownership.Record
		refused refusals
		want    *Failure
		gone    bool
	}{
		"it is deleted":                      {record: leavingRecord(confItem("x")), gone: true},
		"the member refuses":                 {record: leavingRecord(confItem("x")), refused: refusals{"DELETE conf": forbidden}, want: &Failure{Reason: atoll.ReasonForbidden, Message: forbidden.Error()}},
		"it went before":                     {record: leavingRecord(confItem("x")), refused: refusals{"DELETE conf": apierrors.NewNotFound(configMaps, "conf")}, want: terminationFailure(observe.View{})},
		"another object has its name":        {record: leavingRecord(confItem("x")), refused: refusals{"DELETE conf": apierrors.NewConflict(configMaps, "conf", nil)}, want: terminationFailure(observe.View{})},
		"it cannot be confirmed":             {record: leavingRecord(confItem("x")), refused: refusals{"GET conf": memberBusy()}, want: busyFailure},
		"its kind is not served":             {record: leavingRecord(unserved), gone: true},
		"its kind is another one":            {record: leavingRecord(misnamed), want: &Failure{Reason: atoll.ReasonInvalid, Message: "the hub names it ConfigMap shop/conf, and sent an object of apps/v1"}},
		"it is released":                     {record: leaving(leavingRecord(confItem("x")), orphan), gone: true},
		"it is to be released and went":      {record: leaving(leavingRecord(confItem("x")), orphan), refused: refusals{"GET conf": apierrors.NewNotFound(configMaps, "conf")}, gone: true},
		"it is to be released and not read":  {record: leaving(leavingRecord(confItem("x")), orphan), refused: refusals{"GET conf": memberBusy()}, want: busyFailure},
		"its release is refused":             {record: leaving(leavingRecord(confItem("x")), orphan), refused: refusals{"PATCH conf": memberBusy()}, want: &Failure{Reason: atoll.ReasonMemberUnavailable, Transport: true, First: 200 * time.Millisecond, Most: 10 * time.Second, Message: "busy"}},
		"its kind is not served, to release": {record: leaving(leavingRecord(unserved), orphan), gone: true},
		"its kind is another, to release":    {record: leaving(leavingRecord(misnamed), orphan), want: &Failure{Reason: atoll.ReasonInvalid, Message: "the hub names it ConfigMap shop/conf, and sent an object of apps/v1"}},
	} {
		t.Run(name, func(t *testing.T) {
			e := newStubEngine(t, refuseSome(newMemoryMember(t, liveConf("x")), c.refused), []ownership.Record{c.record}, newManifest("b1", 2))
			e.mu.Lock()
			e.book.RestoreRecord(c.record)
			e.mu.Unlock()
			f := e.workOnKey(t.Context(), c.record.Key)
			if f != nil && c.want != nil && c.want.Reason == atoll.ReasonInvalid {
				c.want.Message = f.Message
			}
			expectFailure(t, f, c.want)
			if _, known := e.book.Record(c.record.Key); known == c.gone {
				t.Errorf("it is recorded: %t", known)
			}
			if got := testutil.ToFloat64(e.o.Metrics.writes.WithLabelValues(verbDelete, "ok")); name == "it is deleted" && got != 1 {
				t.Errorf("%v deletions are counted", got)
			}
		})
	}
}

// An object that another one of its name replaced is not released.
func TestAnotherObjectOfItsNameIsNotReleased(t *testing.T) {
	record := leavingRecord(confItem("x"))
	record.UID, record.Adopted = "before", true
	api := newMemoryMember(t, liveConf("x"))
	e := newStubEngine(t, api, []ownership.Record{shopNamespace, record})
	e.views[confKey] = view{View: seenConf()}
	e.holdTask(confKey)
	expectFailure(t, e.workOnKey(t.Context(), confKey), nil)
	api.expectWrites(t)
	if _, seen := e.views[confKey]; seen {
		t.Error("its view is kept")
	}
	if due := e.listDue(); !slices.Equal(due, []string{"Namespace/shop"}) {
		t.Errorf("%v is due", due)
	}
}

// A released object makes its namespace due, and is seen no more.
func TestAReleaseMakesTheNamespaceDue(t *testing.T) {
	record := leavingRecord(confItem("x"))
	record.Adopted = true
	e := newStubEngine(t, newMemoryMember(t, liveConf("x")), []ownership.Record{shopNamespace, record})
	e.views[confKey] = view{View: seenConf()}
	expectFailure(t, e.workOnKey(t.Context(), confKey), nil)
	if _, seen := e.views[confKey]; seen || !slices.Equal(e.listDue(), []string{"Namespace/shop"}) {
		t.Errorf("its view is kept: %t", seen)
	}
}

// An object that is wanted again at the last moment is not deleted, and neither is one while another agent took over.
func TestADeletionIsCheckedAtTheLastMoment(t *testing.T) {
	api := newMemoryMember(t, liveConf("x"))
	e := newStubEngine(t, api, []ownership.Record{shopNamespace, leavingRecord(confItem("x"))})
	p := e.takePendingWork(confKey)
	res, _ := e.resourceFor(t.Context(), confKey, "v1")
	e.o.Lease = heldLease(func() bool { return false })
	expectFailure(t, e.beginDelete(t.Context(), p, res), &Failure{Reason: atoll.ReasonNotLeaseHolder, Waits: true, Message: "another agent took over this member; nothing is deleted by this one"})
	e.o.Lease = heldLease(func() bool {
		e.foldHolding(ownership.BundleHolding{Manifest: newManifest("b1", 2, confItem("x"))}, nil)
		return true
	})
	expectFailure(t, e.beginDelete(t.Context(), p, res), &Failure{Reason: atoll.ReasonWaitsForObjects, Waits: true, First: 10 * time.Millisecond, Message: "it is wanted again"})
	api.expectWrites(t)
}

// The deletion of an object that runs once is stored first, so that the object may run again after a crash.
func TestTheDeletionOfARunIsStoredFirst(t *testing.T) {
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: once, namespace: shop}"
	item := atoll.RenderedItem{Key: atoll.ItemKey{Kind: "Pod", Namespace: "shop", Name: "once"}, APIVersion: "v1", UID: "t", Hash: "h"}
	for name, c := range map[string]struct {
		refuses error
		want    *Failure
		writes  []string
	}{
		"it is stored":     {nil, nil, []string{"DELETE once"}},
		"it is not stored": {errors.New("refused"), &Failure{Reason: atoll.ReasonApplyFailed, Message: "refused"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			api, record := newMemoryMember(t, pod), leavingRecord(item)
			record.Ran = "t"
			e := newStubEngine(t, api, []ownership.Record{shopNamespace, record})
			e.refuses = c.refuses
			expectFailure(t, e.workOnKey(t.Context(), item.Key), c.want)
			api.expectWrites(t, c.writes...)
			if got := e.takeCalls(); !slices.Equal(got, []string{"store Pod/once"}) {
				t.Errorf("the calls are %q", got)
			}
		})
	}
}

// A definition is kept while it is not known which objects would go with it.
func TestADefinitionIsKeptWhileItsObjectsAreNotKnown(t *testing.T) {
	item := gadgetItem(t)
	forbidden := apierrors.NewForbidden(configMaps, "gadgets", errors.New("why"))
	unseen := func(m string) *Failure {
		return &Failure{Reason: atoll.ReasonForeignObjects, Waits: true, First: 2 * time.Second, Most: 2 * time.Minute, Message: m}
	}
	for name, c := range map[string]struct {
		definition string
		refused    refusals
		want       *Failure
	}{
		"no object is left":      {gadgetDefinition, nil, nil},
		"it went":                {gadgetDefinition, refusals{"GET gadgets.example.io": apierrors.NewNotFound(configMaps, "x")}, nil},
		"it is not readable":     {gadgetDefinition, refusals{"GET gadgets.example.io": memberBusy()}, busyFailure},
		"it serves no version":   {strings.Replace(gadgetDefinition, "name: v1, served: true", "name: v1, served: false", 1), nil, unseen("CustomResourceDefinition gadgets.example.io is kept: it serves no version, so the stored objects of its kind cannot be read: serve one, or delete it in the member")},
		"they may not be listed": {gadgetDefinition, refusals{"GET gadgets": forbidden}, unseen("CustomResourceDefinition gadgets.example.io is kept: the agent may not list gadgets.example.io, so foreign objects there cannot be seen: allow that in a ClusterRole labelled rbac.atoll.dev/aggregate-to-agent=true")},
		"they cannot be listed":  {gadgetDefinition, refusals{"GET gadgets": memberBusy()}, busyFailure},
		"listing is not offered": {gadgetDefinition, refusals{"GET gadgets": apierrors.NewMethodNotSupported(configMaps, "list")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			api := newMemoryMember(t, c.definition)
			record := leavingRecord(item)
			e := newStubEngine(t, refuseSome(api, c.refused), []ownership.Record{record})
			expectFailure(t, e.guardDeletion(t.Context(), pendingWork{Step: ownership.Step{Key: item.Key, Record: record}}), c.want)
		})
	}
	unserved := leavingRecord(item)
	unserved.APIVersion = "apiextensions.k8s.io/v9"
	e := newStubEngine(t, newMemoryMember(t), nil)
	expectFailure(t, e.guardDeletion(t.Context(), pendingWork{Step: ownership.Step{Key: item.Key, Record: unserved}}), notServed(unserved.APIVersion, item.Key))
	expectFailure(t, e.guardDeletion(t.Context(), pendingWork{Step: ownership.Step{Key: confKey}}), nil)
}

// A guard counts Atoll's objects and names up to three others.
func TestAGuardNamesForeignObjects(t *testing.T) {
	shell := func(name, more string) string {
		return "apiVersion: example.io/v1\nkind: Shell\nmetadata: {name: " + name + ", uid: " + name + more + "}"
	}
	going := ", deletionTimestamp: 2026-01-01T00:00:00Z"
	guarded := gadgetItem(t).Key
	for name, c := range map[string]struct {
		objects []string
		want    *Failure
	}{
		"none":                                  {nil, nil},
		"Atoll's and one that is being deleted": {[]string{shell("ours", ""), shell("going", going)}, &Failure{Reason: atoll.ReasonWaitsForObjects, Waits: true, First: 300 * time.Millisecond, Most: 15 * time.Second, Message: "CustomResourceDefinition gadgets.example.io goes after 2 objects that depend on it"}},
		"four foreign ones":                     {[]string{shell("a", ""), shell("b", ""), shell("c", ""), shell("d", ""), shell("ours", "")}, &Failure{Reason: atoll.ReasonForeignObjects, Waits: true, First: 2 * time.Second, Most: 2 * time.Minute, Message: "CustomResourceDefinition gadgets.example.io is kept: deleting it would take along 4 objects that Atoll did not apply (Shell a, Shell b, Shell c): delete those in the member first"}},
		"one that Atoll adopted":                {[]string{shell("adopted", "")}, &Failure{Reason: atoll.ReasonForeignObjects, Waits: true, First: 2 * time.Second, Most: 2 * time.Minute, Message: "CustomResourceDefinition gadgets.example.io is kept: deleting it would take along 1 objects that Atoll did not apply (Shell adopted): delete those in the member first"}},
		"one of the name of Atoll's":            {[]string{shell("renewed", "")}, &Failure{Reason: atoll.ReasonForeignObjects, Waits: true, First: 2 * time.Second, Most: 2 * time.Minute, Message: "CustomResourceDefinition gadgets.example.io is kept: deleting it would take along 1 objects that Atoll did not apply (Shell renewed): delete those in the member first"}},
	} {
		t.Run(name, func(t *testing.T) {
			record := func(name, uid string, adopted bool) ownership.Record {
				r := wantedRecord(shellItem("{}"))
				r.Key.Name, r.UID, r.Adopted = name, uid, adopted
				return r
			}
			e := newStubEngine(t, newMemoryMember(t, c.objects...), []ownership.Record{record("ours", "ours", false), record("adopted", "adopted", true), record("renewed", "before", false)})
			res, _ := e.resourceFor(t.Context(), shellKey, "example.io/v1")
			expectFailure(t, e.guardAgainstObjectsOfKind(t.Context(), res, "", guarded), c.want)
		})
	}
}

// A release states the UID and the version of the object, so that it touches no other one.
func TestAReleaseIsOfOneVersionOfTheObject(t *testing.T) {
	p := pendingWork{Step: ownership.Step{Record: ownership.Record{UID: "u", Template: "t"}}}
	live := &metav1.PartialObjectMetadata{}
	live.ResourceVersion = "7"
	labels := map[string]any{atoll.LabelBundleUID: nil, ownership.LabelTemplateUID: nil, ownership.LabelAdopted: nil, ownership.LabelHookRun: nil}
	expectEqualJSON(t, releasedMetadata(p, live), map[string]any{
		"uid": "u", "resourceVersion": "7", "managedFields": []any{map[string]any{}}, "labels": labels, "annotations": map[string]any{ownership.AnnotationLeftBehind: "t"},
	})
	live.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: atoll.FieldManager}, {Manager: "kubectl"}, {Manager: atoll.HandoverManager}}
	p.Record.Adopted = true
	expectEqualJSON(t, releasedMetadata(p, live), map[string]any{
		"uid": "u", "resourceVersion": "7", "managedFields": []any{map[string]any{"manager": "kubectl"}}, "labels": labels,
	})
}

// Finalizers are taken off only an object that is being deleted, as it was read.
func TestFinalizersAreTakenOffADeletedObjectOnly(t *testing.T) {
	api := newMemoryMember(t, liveConf("x"))
	e := newStubEngine(t, api, nil)
	p := pendingWork{Step: ownership.Step{Key: confKey, Record: wantedRecord(confItem("x"))}}
	res, _ := e.resourceFor(t.Context(), confKey, "v1")
	live := &metav1.PartialObjectMetadata{}
	live.ResourceVersion = "7"
	expectFailure(t, e.releaseFinalizers(t.Context(), p, res, live, []string{"a"}), nil)
	api.expectWrites(t)
	live.DeletionTimestamp = &metav1.Time{Time: testNow}
	expectFailure(t, e.releaseFinalizers(t.Context(), p, res, live, []string{"a"}), nil)
	expectEqualJSON(t, api.bodies[0], map[string]any{"metadata": map[string]any{"uid": "live", "resourceVersion": "7", "finalizers": []any{"a"}}})
}

// The version of a recorded namespace is v1, also where an older agent recorded none.
func TestTheVersionOfARecordedObject(t *testing.T) {
	for want, r := range map[string]ownership.Record{"v1": shopNamespace, "": {Key: confKey}, "v2": {Key: shopNamespace.Key, APIVersion: "v2"}} {
		if got := apiVersion(r); got != want {
			t.Errorf("it is %q, want %q", got, want)
		}
	}
}

// Lost records are searched for once some may be missing, and a kind that cannot be listed has none.
func TestRecordsAreSearchedForWhereSomeMayBeMissing(t *testing.T) {
	forbidden := apierrors.NewForbidden(configMaps, "x", nil)
	for name, c := range map[string]struct {
		refused *apierrors.StatusError
		want    string
		found   bool
	}{
		"they are listed":        {nil, "", true},
		"they may not be listed": {forbidden, "", false},
		"listing is not offered": {apierrors.NewMethodNotSupported(configMaps, "list"), "", false},
		"they are not found":     {apierrors.NewNotFound(configMaps, "x"), "", false},
		"the member is busy":     {memberBusy(), "look in the member for objects of kind ConfigMap that the agent applied: busy", false},
	} {
		t.Run(name, func(t *testing.T) {
			e := newStubEngine(t, refuseSome(newMemoryMember(t, liveConf("x")), refusals{"GET configmaps": c.refused}), nil)
			stored := storedItems()
			err := RecoverRecords(t.Context(), e.o.Client, &stored)
			if (err == nil) != (c.want == "") || err != nil && err.Error() != c.want {
				t.Errorf("it fails with %v, want %q", err, c.want)
			}
			if found := len(stored.Records) == 1; found != c.found {
				t.Errorf("the records are %+v", stored.Records)
			}
		})
	}
	none := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { panic(fmt.Sprint("asked for ", r.URL)) })
	e := newStubEngine(t, newMemoryMember(t), nil)
	stored := storedItems(wantedRecord(confItem("x")))
	e.o.Client = newStubClient(t, none)
	if err := RecoverRecords(context.Background(), e.o.Client, &stored); err != nil || len(stored.Records) != 1 {
		t.Errorf("without a missing record it asks the member, %v", err)
	}
}
