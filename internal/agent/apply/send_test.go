package apply

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/atoll"
)

// unmadeRecord is the record of an object that is to be made.
func unmadeRecord(it atoll.RenderedItem) ownership.Record {
	r := wantedRecord(it)
	r.UID, r.Template, r.Applied, r.Label = "", "", "", ""
	return r
}

// newConfEngine is an engine that holds one ConfigMap, with a policy about conflicts, on an API with refusals.
func newConfEngine(t *testing.T, api *memoryMember, refused refusals, record ownership.Record, how v1alpha1.ConflictResolution) *stubEngine {
	t.Helper()
	m := newManifest("b1", 2, confItem("x"))
	m.ConflictResolution = how
	return newStubEngine(t, refuseSome(api, refused), []ownership.Record{shopNamespace, record}, m)
}

// An applied object is recorded, watched, seen and counted. Earlier reasons against it end.
func TestAnAppliedObjectIsRecorded(t *testing.T) {
	api := newMemoryMember(t, liveConf("y"))
	record := wantedRecord(confItem("y"))
	e := newConfEngine(t, api, nil, record, v1alpha1.ConflictAbort)
	e.forbidden[confKey] = "denied"
	task := e.holdTask(confKey)
	task.recreate = "hx"
	p := e.takePendingWork(confKey)
	p.Verb, p.left = ownership.Apply, []string{"/data/b"}
	p.Record.Left = []string{"/data/b"}
	expectFailure(t, e.put(t.Context(), p), nil)
	api.expectWrites(t, "APPLY conf "+atoll.FieldManager)
	r := e.recordOf(confKey)
	if r.UID != "live" || r.APIVersion != "v1" || r.Template != "t" || r.Applied != "hx" || r.Label != "b1" || r.Owned == "" || r.Adopted || !slices.Equal(r.Left, []string{"/data/b"}) {
		t.Errorf("the record is %+v", r)
	}
	if v, seen := e.viewOf(confKey); !seen || v.Health != atoll.Healthy || v.Owned != r.Owned {
		t.Errorf("it is seen as %+v, %t", v, seen)
	}
	if task.recreate != "" || e.forbidden[confKey] != "" || !slices.Equal(e.takeCalls(), []string{"watch ConfigMap"}) {
		t.Errorf("the task is %+v, forbidden %q", task, e.forbidden[confKey])
	}
	if got := testutil.ToFloat64(e.o.Metrics.writes.WithLabelValues(verbApply, "ok")); got != 1 {
		t.Errorf("%v writes are counted", got)
	}
	if got := testutil.ToFloat64(e.o.Metrics.applies.WithLabelValues("ok")); got != 1 {
		t.Errorf("%v applies are counted", got)
	}
}

// An apply is counted by its outcome, and a deletion is no apply.
func TestWritesAreCountedByTheirOutcome(t *testing.T) {
	m := newStubEngine(t, newMemoryMember(t), nil).o.Metrics
	m.countWrite(verbDelete, time.Now(), nil)
	m.countWrite(verbApply, time.Now(), errors.New("refused"))
	for got, want := range map[float64]float64{
		testutil.ToFloat64(m.applies.WithLabelValues("error")):           1,
		testutil.ToFloat64(m.writes.WithLabelValues(verbDelete, "ok")):   1,
		testutil.ToFloat64(m.writes.WithLabelValues(verbApply, "error")): 1,
	} {
		if got != want {
			t.Errorf("%v are counted, want %v", got, want)
		}
	}
	if testutil.ToFloat64(m.applies.WithLabelValues("ok")) != 0 || testutil.CollectAndCount(m.writeSeconds) != 2 {
		t.Error("a deletion counts as an apply, or no time is observed")
	}
}

// An object that cannot be made or taken over fails for its reason, and is not written.
func TestAnObjectThatCannotBeMadeFails(t *testing.T) {
	note := strings.Replace(liveConf("y"), "labels: {", "annotations: {"+ownership.AnnotationLeftBehind+": t0}, labels: {", 1)
	other := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: conf, namespace: shop, managedFields: [{manager: kubectl, operation: Update}, {manager: helm, operation: Update}, {manager: kubectl, operation: Update}]}\ndata: {a: y}"
	foreignLabel := strings.Replace(other, "namespace: shop,", "namespace: shop, labels: {"+atoll.LabelBundleUID+": b9},", 1)
	conflict := func(text string) *Failure {
		return &Failure{Reason: atoll.ReasonConflict, First: 5 * time.Second, Most: 45 * time.Second, Message: text}
	}
	const advice = "delete it in the member, or set conflictResolution: AdoptIfSame or Overwrite"
	for name, c := range map[string]struct {
		live    string
		how     v1alpha1.ConflictResolution
		refused refusals
		want    *Failure
	}{
		"it cannot be read":              {other, v1alpha1.ConflictOverwrite, refusals{"GET conf": memberBusy()}, busyFailure},
		"it cannot be made":              {"", v1alpha1.ConflictAbort, refusals{"PATCH conf": memberBusy()}, busyFailure},
		"it cannot be compared":          {other, v1alpha1.ConflictAdoptIfSame, refusals{"DRYRUN conf": memberBusy()}, busyFailure},
		"it was left, and not compared":  {note, v1alpha1.ConflictAbort, refusals{"DRYRUN conf": memberBusy()}, busyFailure},
		"it was left, and not taken":     {strings.Replace(note, "t0", "t", 1), v1alpha1.ConflictAbort, refusals{"PATCH conf": memberBusy()}, busyFailure},
		"it is managed by others":        {other, v1alpha1.ConflictAbort, nil, conflict("ConfigMap shop/conf exists, was not made by Atoll and is left alone; it is managed by helm, kubectl; " + advice)},
		"it is managed by another Atoll": {foreignLabel, v1alpha1.ConflictAbort, nil, conflict("ConfigMap shop/conf exists, was not made by Atoll and is left alone; it is managed by helm, kubectl, and by another Atoll (bundle b9); " + advice)},
		"one manages it":                 {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: conf, namespace: shop, managedFields: [{manager: kubectl, operation: Update}]}", v1alpha1.ConflictAbort, nil, conflict("ConfigMap shop/conf exists, was not made by Atoll and is left alone; it is managed by kubectl; " + advice)},
		"no manager is known":            {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: conf, namespace: shop}", v1alpha1.ConflictAbort, nil, conflict("ConfigMap shop/conf exists, was not made by Atoll and is left alone; it is managed by another-controller; " + advice)},
		"it differs":                     {other, v1alpha1.ConflictAdoptIfSame, nil, conflict("ConfigMap shop/conf exists, was not made by Atoll and is left alone; it is managed by helm, kubectl; it differs at /data/a: make it equal in the member, delete it there, or set conflictResolution: Overwrite")},
	} {
		t.Run(name, func(t *testing.T) {
			var objects []string
			if c.live != "" {
				objects = []string{strings.ReplaceAll(c.live, atoll.LabelBundleUID+": b1", "app: a")}
			}
			api := newMemoryMember(t, objects...)
			e := newConfEngine(t, api, c.refused, unmadeRecord(confItem("x")), c.how)
			expectFailure(t, settleKey(t, e.MemberApplier, confKey), c.want)
			api.expectWrites(t)
		})
	}
}

// The conflict resolution of an item comes before that of its manifest. An unknown Bundle takes nothing over.
func TestTheConflictResolutionOfAnItemComesFirst(t *testing.T) {
	for name, c := range map[string]struct {
		item, manifest v1alpha1.ConflictResolution
		want           atoll.Reason
	}{
		"the manifest's":           {"", v1alpha1.ConflictOverwrite, ""},
		"the item's":               {v1alpha1.ConflictOverwrite, v1alpha1.ConflictAbort, ""},
		"the item's, which aborts": {v1alpha1.ConflictAbort, v1alpha1.ConflictOverwrite, atoll.ReasonConflict},
	} {
		item := confItem("x")
		item.ConflictResolution = c.item
		m := newManifest("b1", 1, item)
		m.ConflictResolution = c.manifest
		e := newStubEngine(t, newMemoryMember(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: conf, namespace: shop}"), []ownership.Record{shopNamespace}, m)
		for range 2 {
			if got := e.conflictResolution("b9"); got != v1alpha1.ConflictAbort {
				t.Errorf("an unknown Bundle resolves by %s", got)
			}
		}
		if f := settleKey(t, e.MemberApplier, confKey); reasonOf(f) != c.want {
			t.Errorf("%s: it fails with %+v, want %q", name, f, c.want)
		}
	}
}

// An object that another hub's agent made, whose Bundle is not known here, is taken up as one that was left behind.
func TestAnObjectOfAnUnknownBundleIsTakenUp(t *testing.T) {
	controlled := ", ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: r, uid: r1, controller: true}]"
	of := func(bundle, template, manager, more, value string) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: conf, namespace: shop, labels: {" + atoll.LabelBundleUID + ": " + bundle + ", " + ownership.LabelTemplateUID +
			": " + template + "}, managedFields: [{manager: " + manager + ", operation: Apply, apiVersion: v1, fieldsType: FieldsV1, fieldsV1: {}}]" + more + "}\ndata: {a: " + value + "}"
	}
	adopted := strings.Replace(of("b9", "t", atoll.FieldManager, "", "y"), "labels: {", "labels: {"+ownership.LabelAdopted+": 'true', ", 1)
	for name, c := range map[string]struct {
		live    string
		want    atoll.Reason
		adopted bool
	}{
		"of the template":                  {of("b9", "t", atoll.FieldManager, "", "y"), "", false},
		"of the template, and adopted":     {adopted, "", true},
		"of another template, and equal":   {of("b9", "t0", atoll.FieldManager, "", "x"), "", false},
		"of another template, and differs": {of("b9", "t0", atoll.FieldManager, "", "y"), atoll.ReasonConflict, false},
		"only its labels look so":          {of("b9", "t", "kubectl", "", "y"), atoll.ReasonConflict, false},
		"another object controls it":       {of("b9", "t", atoll.FieldManager, controlled, "y"), atoll.ReasonConflict, false},
		"of a Bundle that is held":         {of("b2", "t", atoll.FieldManager, "", "y"), atoll.ReasonConflict, false},
	} {
		t.Run(name, func(t *testing.T) {
			api := newMemoryMember(t, c.live)
			e := newStubEngine(t, api, []ownership.Record{shopNamespace}, newManifest("b1", 1, confItem("x")), newManifest("b2", 1))
			if f := settleKey(t, e.MemberApplier, confKey); reasonOf(f) != c.want {
				t.Fatalf("it fails with %+v, want %q", f, c.want)
			}
			if c.want == "" {
				api.expectWrites(t, "APPLY conf "+atoll.FieldManager) // without a note there is none to take off
			} else {
				api.expectWrites(t)
			}
			if r := e.recordOf(confKey); r.Adopted != c.adopted || (r.UID != "") != (c.want == "") {
				t.Errorf("the record is %+v", r)
			}
		})
	}
}

// A volume claim that was left behind for another template is never taken up by its content: its data are another's.
func TestAVolumeClaimOfAnotherTemplateIsNotTakenUp(t *testing.T) {
	key := atoll.ItemKey{Kind: "PersistentVolumeClaim", Namespace: "shop", Name: "data"}
	item := atoll.RenderedItem{Key: key, APIVersion: "v1", UID: "t", Hash: "h", Object: []byte(`{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"data","namespace":"shop"}}`)}
	for template, want := range map[string]atoll.Reason{"t": "", "t0": atoll.ReasonConflict} {
		api := newMemoryMember(t, "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data, namespace: shop, annotations: {"+ownership.AnnotationLeftBehind+": "+template+"}}")
		e := newStubEngine(t, api, []ownership.Record{shopNamespace}, newManifest("b1", 1, item))
		if f := settleKey(t, e.MemberApplier, key); reasonOf(f) != want {
			t.Errorf("of template %s, it fails with %+v, want %q", template, f, want)
		}
	}
}

// The note of an object that is taken up again is removed after the apply.
func TestTheNoteOfATakenUpObjectIsRemoved(t *testing.T) {
	api := newMemoryMember(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: conf, namespace: shop, annotations: {"+ownership.AnnotationLeftBehind+": t}}")
	e := newConfEngine(t, api, nil, unmadeRecord(confItem("x")), v1alpha1.ConflictAbort)
	p := e.takePendingWork(confKey)
	res, _ := e.resourceFor(t.Context(), confKey, "v1")
	live, err := e.o.Client.Get(t.Context(), res, "shop", "conf")
	if err != nil {
		t.Fatal(err)
	}
	expectFailure(t, e.adoptLeftBehind(t.Context(), p, res, live, "t"), nil)
	api.expectWrites(t, "APPLY conf "+atoll.FieldManager, "MERGE conf "+atoll.FieldManager)
	if body := api.bodies[1]; body["metadata"].(map[string]any)["annotations"].(map[string]any)[ownership.AnnotationLeftBehind] != nil {
		t.Errorf("the note is set by %v", body)
	}
}

// An item whose scope is another one in the member is invalid there.
func TestAnItemOfAnotherScopeIsInvalid(t *testing.T) {
	for name, edit := range map[string]func(*atoll.RenderedItem){
		"in no namespace": func(it *atoll.RenderedItem) { it.Key.Namespace = "" },
		"in a namespace":  func(it *atoll.RenderedItem) { *it = shellItem("{}"); it.Key.Namespace = "shop" },
	} {
		item := confItem("x")
		edit(&item)
		e := newStubEngine(t, newMemoryMember(t), []ownership.Record{shopNamespace}, newManifest("b1", 1, item))
		t.Run(name, func(t *testing.T) {
			expectFailure(t, settleKey(t, e.MemberApplier, item.Key), &Failure{Reason: atoll.ReasonInvalid, Message: "the member serves " + item.Key.Kind + " with another scope than the hub"})
		})
	}
}

// After a failed apply the agent looks where the object and its namespace are.
func TestAFailedApplyIsLookedInto(t *testing.T) {
	missing := apierrors.NewNotFound(configMaps, "conf")
	conflict := apierrors.NewConflict(configMaps, "conf", errors.New("why"))
	for name, c := range map[string]struct {
		err                *apierrors.StatusError
		s                  applyParams
		key                atoll.ItemKey
		denied             bool
		want               atoll.Reason
		checked, namespace bool
	}{
		"its namespace went":              {missing, applyParams{}, confKey, false, atoll.ReasonNotServed, false, true},
		"it went":                         {missing, applyParams{uid: "live"}, confKey, false, atoll.ReasonNotServed, true, true},
		"another object has its name":     {conflict, applyParams{uid: "live"}, confKey, false, atoll.ReasonConflict, true, false},
		"another object, to be adopted":   {conflict, applyParams{uid: "live", adopt: true}, confKey, false, atoll.ReasonConflict, false, false},
		"a conflict at the creation":      {conflict, applyParams{}, confKey, false, atoll.ReasonConflict, false, false},
		"the member is busy":              {memberBusy(), applyParams{uid: "live"}, confKey, false, atoll.ReasonMemberUnavailable, false, false},
		"an object without a namespace":   {missing, applyParams{}, shellKey, false, atoll.ReasonNotServed, false, false},
		"its namespace is not to be made": {missing, applyParams{}, confKey, true, atoll.ReasonDeniedByPolicy, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			item := confItem("x")
			e := newStubEngine(t, newMemoryMember(t), nil)
			e.foreign["shop"] = true
			if c.denied {
				e.holdTask(shopNamespace.Key).failure = deniedFailure("no")
			}
			p := pendingWork{Step: ownership.Step{Key: c.key, Item: &item, Record: wantedRecord(item)}}
			for range 2 {
				if f := e.handleApplyError(t.Context(), c.err, p, volumeClaims, c.s, false); reasonOf(f) != c.want {
					t.Errorf("it fails with %+v, want %q", f, c.want)
				}
			}
			space := e.holdTask(shopNamespace.Key)
			if e.holdTask(c.key).check != c.checked || space.check != c.namespace || space.due != c.namespace || e.foreign["shop"] == c.namespace {
				t.Errorf("the object is checked: %t, the namespace: %+v", e.holdTask(c.key).check, space)
			}
			if none := e.tasks[atoll.NamespaceKey("")]; none != nil {
				t.Errorf("a namespace without a name is checked: %+v", none)
			}
		})
	}
}
