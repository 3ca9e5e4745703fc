package apply

import (
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"atoll.dev/atoll/internal/agent/observe"
	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/atoll"
)

// The flags of a task lead to work only where the object exists, and a correction only where nothing else is to be done.
func TestTheWorkThatIsPending(t *testing.T) {
	unmade := unmadeRecord(confItem("x"))
	unmade.Ran = "other"
	observed := observeAs(confItem("x"), atoll.ObserveHealth)
	type flags struct{ check, judge, weigh, correct, begun bool }
	all := flags{true, true, true, true, false}
	for name, c := range map[string]struct {
		record  ownership.Record
		item    atoll.RenderedItem
		failure *Failure
		verb    ownership.Verb
		want    flags
	}{
		"it is applied":              {wantedRecord(confItem("x")), confItem("x"), nil, ownership.Nothing, all},
		"it is not made":             {unmade, confItem("x"), nil, ownership.Apply, flags{}},
		"it has other content":       {wantedRecord(confItem("y")), confItem("x"), nil, ownership.Apply, flags{true, true, true, false, false}},
		"it is observed":             {wantedRecord(confItem("x")), observed, nil, observeItem, flags{true, true, true, false, false}},
		"its deletion was asked for": {wantedRecord(confItem("x")), confItem("x"), &Failure{Reason: atoll.ReasonTerminating}, ownership.Nothing, flags{true, true, true, true, true}},
		"it fails otherwise":         {wantedRecord(confItem("x")), confItem("x"), &Failure{Reason: atoll.ReasonInvalid}, ownership.Nothing, all},
	} {
		t.Run(name, func(t *testing.T) {
			e := newStubEngine(t, newMemoryMember(t), []ownership.Record{shopNamespace, c.record}, newManifest("b1", 1, c.item))
			e.tasks[confKey] = &task{check: true, judge: true, weigh: true, correct: true, failure: c.failure}
			p := e.pendingWorkFor(confKey)
			if got := (flags{p.check, p.judge, p.weigh, p.correct, p.begun}); got != c.want || p.Verb != c.verb {
				t.Errorf("the work is %s %+v, want %s %+v", p.Verb, got, c.verb, c.want)
			}
		})
	}
}

// Work is weighed first: the other flags stay for after it.
func TestTheFlagsOfATaskAreTakenInTheirOrder(t *testing.T) {
	e := newStubEngine(t, newMemoryMember(t), []ownership.Record{wantedRecord(confItem("x"))}, newManifest("b1", 1, confItem("x")))
	e.tasks[confKey] = &task{check: true, judge: true, correct: true, weigh: true, intended: true}
	if p := e.takePendingWork(confKey); !p.weigh || !p.check || !p.intended || !reflect.DeepEqual(*e.tasks[confKey], task{check: true, judge: true, correct: true, weigh: true, intended: true}) {
		t.Errorf("the work is %+v, left is %+v", p, e.tasks[confKey])
	}
	e.tasks[confKey].weigh = false
	if p := e.takePendingWork(confKey); !p.check || !p.judge || !p.correct || !reflect.DeepEqual(*e.tasks[confKey], task{intended: true}) {
		t.Errorf("the work is %+v, left is %+v", p, e.tasks[confKey])
	}
}

// A key has work by its verb or by any of its flags. Deletions run in the opposite order.
func TestVerbsAndFlagsAreWork(t *testing.T) {
	nothing := pendingWork{Step: ownership.Step{Verb: ownership.Nothing}}
	for name, edit := range map[string]func(*pendingWork){
		"check": func(p *pendingWork) { p.check = true }, "judge": func(p *pendingWork) { p.judge = true },
		"correct": func(p *pendingWork) { p.correct = true }, "weigh": func(p *pendingWork) { p.weigh = true },
		"a verb": func(p *pendingWork) { p.Verb = ownership.Apply },
	} {
		p := nothing
		if edit(&p); !p.hasAction() || nothing.hasAction() {
			t.Errorf("%s is no work, or nothing is", name)
		}
	}
	for verb, want := range map[ownership.Verb]bool{
		ownership.Delete: true, ownership.Release: true, ownership.Search: true, ownership.DeleteNamespace: true,
		ownership.Apply: false, ownership.Replace: false, ownership.Nothing: false, keepNamespace: false, observeItem: false,
	} {
		p := pendingWork{Step: ownership.Step{Verb: verb}}
		if p.isDeletion() != want {
			t.Errorf("%s is a deletion: %t", verb, !want)
		}
	}
}

// An item is applied again for other fields of the member, and created again where that was decided for its content.
func TestTheWorkOfAnItem(t *testing.T) {
	for name, c := range map[string]struct {
		applied  string
		left     []string // in the record
		owned    []string // by the hub's word
		recreate string
		uid      string
		want     ownership.Verb
	}{
		"nothing changed":                   {"hx", nil, nil, "", "live", ownership.Nothing},
		"another field is the member's":     {"hx", nil, []string{"/data/a"}, "", "live", ownership.Apply},
		"a field is no longer the member's": {"hx", []string{"/data/a"}, nil, "", "live", ownership.Apply},
		"the same field":                    {"hx", []string{"/data/a"}, []string{"/data/a"}, "", "live", ownership.Nothing},
		"it is to be created again":         {"hy", nil, nil, "hx", "live", ownership.Replace},
		"other content was":                 {"hy", nil, nil, "hz", "live", ownership.Apply},
		"it is applied since":               {"hx", nil, nil, "hx", "live", ownership.Nothing},
		"it is deleted since":               {"hy", nil, nil, "hx", "", ownership.Apply},
	} {
		t.Run(name, func(t *testing.T) {
			item, record := confItem("x"), wantedRecord(confItem("x"))
			item.MemberOwned, record.Applied, record.Left, record.UID = c.owned, c.applied, c.left, c.uid
			e := newStubEngine(t, newMemoryMember(t), []ownership.Record{record}, newManifest("b1", 1, item))
			e.tasks[confKey] = &task{recreate: c.recreate}
			if p := e.pendingWorkFor(confKey); p.Verb != c.want || !slices.Equal(p.left, c.owned) {
				t.Errorf("the work is %s with %q, want %s", p.Verb, p.left, c.want)
			}
		})
	}
}

// An object is made in a pass that stored the intent. Before, it waits for the next pass.
func TestAnObjectWaitsForThePassThatStoresItsIntent(t *testing.T) {
	api := newMemoryMember(t)
	e := newStubEngine(t, api, []ownership.Record{shopNamespace}, newManifest("b1", 1, confItem("x")))
	e.holdTask(confKey)
	for range 2 {
		expectFailure(t, e.workOnKey(t.Context(), confKey), nil)
		if due := e.listDue(); !slices.Equal(due, []string{"ConfigMap/conf"}) {
			t.Errorf("%v is due", due)
		}
	}
	api.expectWrites(t)
}

// A kind that is not served is asked for again, at most once in five seconds.
func TestAKindThatIsMissingIsDiscoveredAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, fails := 0, false
		member := newMemoryMember(t)
		e := newStubEngine(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/apis" {
				if asked++; fails {
					refuseRequest(w, http.StatusForbidden)
					return
				}
			}
			member.ServeHTTP(w, r)
		}), nil)
		key := atoll.ItemKey{Group: "gadgets.io", Kind: "Gadget", Namespace: "shop", Name: "g"}
		asked = 0
		for _, c := range []struct {
			after time.Duration
			asks  int
		}{{0, 1}, {rediscoverAfter - 1, 1}, {1, 2}, {0, 2}} {
			time.Sleep(c.after)
			_, f := e.resourceFor(t.Context(), key, "gadgets.io/v1")
			expectFailure(t, f, &Failure{
				Reason: atoll.ReasonNotServed, First: 5 * time.Second, Most: 5 * time.Minute,
				Message: "the member does not serve gadgets.io/v1 Gadget: install its CustomResourceDefinition or API service there, or place it with this bundle; tried again when the member's APIs change",
			})
			if asked != c.asks {
				t.Errorf("%s later it asked %d times, want %d", c.after, asked, c.asks)
			}
		}
		time.Sleep(rediscoverAfter)
		fails = true
		if _, f := e.resourceFor(t.Context(), key, "gadgets.io/v1"); reasonOf(f) != atoll.ReasonForbidden {
			t.Errorf("without discovery it fails with %+v", f)
		}
	})
}

// A kind that the member serves since the last discovery is found by another one.
func TestAKindThatIsServedSinceThenIsFound(t *testing.T) {
	api := &partial{versions: map[string]bool{}}
	e := newStubEngine(t, api, nil)
	api.versions["v1"] = true
	res, f := e.resourceFor(t.Context(), atoll.ItemKey{Group: "example.io", Kind: "Sprocket", Namespace: "shop", Name: "s"}, "example.io/v1")
	if f != nil || res.Resource != "sprockets" {
		t.Errorf("it is %+v, %+v", res, f)
	}
}

// A key whose work never ends gives way to others after six steps.
func TestAKeyGivesWayAfterSomeSteps(t *testing.T) {
	var e *stubEngine
	reads, member := 0, newMemoryMember(t, liveConf("x"))
	e = newStubEngine(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if reads++; e != nil {
			e.scheduleRecheck(confKey)
		}
		member.ServeHTTP(w, r)
	}), []ownership.Record{wantedRecord(confItem("x"))}, newManifest("b1", 1, confItem("x")))
	reads = 0
	e.holdTask(confKey).check = true
	expectFailure(t, e.workOnKey(t.Context(), confKey), nil)
	if reads != 6 {
		t.Errorf("it is read %d times", reads)
	}
}

// A kind is found by its version, or in any version where none is known.
func TestTheResourceOfAKind(t *testing.T) {
	e := newStubEngine(t, newMemoryMember(t), nil)
	for version, want := range map[string]string{"apps/v1": "deployments", "": "deployments"} {
		res, f := e.resourceFor(t.Context(), webItem("1").Key, version)
		if f != nil || res.Resource != want || !res.Namespaced {
			t.Errorf("of version %q it is %+v, %+v", version, res, f)
		}
	}
	e = newStubEngine(t, &partial{versions: map[string]bool{"v1": false}}, nil)
	_, f := e.resourceFor(t.Context(), atoll.ItemKey{Group: "example.io", Kind: "Sprocket", Namespace: "shop", Name: "s"}, "example.io/v1")
	expectFailure(t, f, &Failure{
		Reason: atoll.ReasonAPISilent, Transport: true, Most: 30 * time.Second,
		Message: "the member does not list what it serves in the API group example.io: what serves that there does not answer",
	})
}

// A recorded object is compared with what exists: one that went is made again, and one of other fields is corrected.
func TestARecordedObjectIsCompared(t *testing.T) {
	owned := observe.ViewOf(newUnstructured(decodeJSON(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"managedFields":[{"manager":"`+atoll.FieldManager+`","operation":"Apply","fieldsV1":{}}]}}`)), observe.Judges{}).Owned
	for name, c := range map[string]struct {
		live           string
		refused        refusals
		owned, label   string
		judge          bool
		want           *Failure
		gone, corrects bool
		rechecks       bool
	}{
		"it is as it was":           {live: liveConf("x"), owned: owned},
		"it is judged again":        {live: liveConf("x"), owned: owned, judge: true},
		"nothing is recorded of it": {live: liveConf("x")},
		"a field was taken":         {live: liveConf("x"), owned: "more", corrects: true},
		"its label was changed":     {live: liveConf("x"), owned: owned, label: "b0", corrects: true},
		"it went":                   {gone: true},
		"it went, to be judged":     {gone: true, judge: true},
		"another one has its name":  {live: strings.Replace(liveConf("x"), "name: conf", "name: conf, uid: other", 1), owned: owned, gone: true},
		"another one, to be judged": {live: strings.Replace(liveConf("x"), "name: conf", "name: conf, uid: other", 1), owned: owned, judge: true, gone: true},
		"the member is busy":        {live: liveConf("x"), refused: refusals{"GET conf": memberBusy()}, want: busyFailure, rechecks: true},
		"busy, to be judged":        {live: liveConf("x"), refused: refusals{"GET conf": memberBusy()}, judge: true, want: busyFailure, rechecks: true},
	} {
		t.Run(name, func(t *testing.T) {
			var objects []string
			if c.live != "" {
				objects = []string{c.live}
			}
			record := wantedRecord(confItem("x"))
			if record.Owned = c.owned; c.label != "" {
				record.Label = c.label
			}
			e := newStubEngine(t, refuseSome(newMemoryMember(t, objects...), c.refused), []ownership.Record{shopNamespace, record}, newManifest("b1", 1, confItem("x")))
			p := e.pendingWorkFor(confKey)
			p.check, p.judge = !c.judge, c.judge
			expectFailure(t, e.checkRecorded(t.Context(), p), c.want)
			task := e.holdTask(confKey)
			if gone := e.recordOf(confKey).UID == ""; gone != c.gone || task.correct != c.corrects || task.check != c.rechecks || task.judge != (c.judge && c.want != nil) {
				t.Errorf("it went: %t, and the task is %+v", gone, task)
			}
			if v, seen := e.views[confKey]; seen != (c.judge && !c.gone && c.want == nil) || seen && v.Health != atoll.Healthy {
				t.Errorf("its view is kept: %+v, %t", v, seen)
			}
		})
	}
}

// An object whose kind is no longer served went with the kind.
func TestAnObjectGoesWithItsKind(t *testing.T) {
	record := wantedRecord(confItem("x"))
	record.Key.Group, record.Key.Kind, record.APIVersion = "gadgets.io", "Gadget", "gadgets.io/v1"
	e := newStubEngine(t, newMemoryMember(t), []ownership.Record{record})
	expectFailure(t, e.checkRecorded(t.Context(), e.pendingWorkFor(record.Key)), notServed("gadgets.io/v1", record.Key))
	if got := e.recordOf(record.Key); got.UID != "" {
		t.Errorf("the record is %+v", got)
	}
	silent := record
	silent.Key.Group, silent.APIVersion = "example.io", "example.io/v1"
	e = newStubEngine(t, &partial{versions: map[string]bool{"v1": false}}, []ownership.Record{silent})
	expectFailure(t, e.checkRecorded(t.Context(), e.pendingWorkFor(silent.Key)), discoveryFailure("example.io"))
	if got := e.recordOf(silent.Key); got.UID != "live" {
		t.Errorf("the record of a silent group is %+v", got)
	}
}

// The last report of an object that ran and went is kept. One that was deleted early did not finish.
func TestTheLastReportOfARunIsKept(t *testing.T) {
	pod := atoll.RenderedItem{Key: atoll.ItemKey{Kind: "Pod", Namespace: "shop", Name: "once"}, APIVersion: "v1", UID: "t", Hash: "h"}
	ended := observe.View{Key: pod.Key, UID: "live", Health: atoll.Healthy, Reason: "Completed", Message: "so", Reflected: json.RawMessage(`{}`), Finished: true}
	early := ended
	early.Finished = false
	for name, c := range map[string]struct {
		view *observe.View
		want *atoll.ItemStatus
	}{
		"it finished":       {&ended, &atoll.ItemStatus{Key: pod.Key, Health: atoll.Healthy, Reason: "Completed", Message: "so", ReflectedStatus: json.RawMessage(`{}`)}},
		"it did not finish": {&early, &atoll.ItemStatus{Key: pod.Key, Health: atoll.Degraded, Reason: atoll.ReasonDeletedInMember, Message: "it was deleted in the member before it finished and is not run again: delete its template and create it again to run it", ReflectedStatus: json.RawMessage(`{}`)}},
		"it was not seen":   {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			record := wantedRecord(pod)
			record.Ran, record.RanHash = "t", "h"
			e := newStubEngine(t, newMemoryMember(t), []ownership.Record{shopNamespace, record}, newManifest("b1", 1, pod))
			if c.view != nil {
				e.views[pod.Key] = view{View: *c.view}
			}
			e.recordGone(e.pendingWorkFor(pod.Key))
			if got := e.recordOf(pod.Key).Last; !reflect.DeepEqual(got, c.want) {
				t.Errorf("kept is %+v, want %+v", got, c.want)
			}
			if _, seen := e.views[pod.Key]; seen || !slices.Equal(e.listDue(), []string{"Namespace/shop"}) {
				t.Error("its view is kept, or its namespace is not due")
			}
		})
	}
}

// An object that an interrupted apply may have made is searched for, and is Atoll's where its labels say so.
func TestAnInterruptedApplyIsSearchedFor(t *testing.T) {
	gadget := atoll.ItemKey{Group: "gadgets.io", Kind: "Gadget", Namespace: "shop", Name: "g"}
	labelled := func(bundle, template, more string) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: conf, namespace: shop, labels: {" + atoll.LabelBundleUID + ": " + bundle + ", " + ownership.LabelTemplateUID + ": " + template + "}" + more + "}"
	}
	controlled := ", ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: r, uid: r1, controller: true}]"
	for name, c := range map[string]struct {
		live    string
		key     atoll.ItemKey
		version string
		refused refusals
		want    *Failure
		found   bool
	}{
		"it was made":                     {live: labelled("b1", "t", ""), key: confKey, version: "v1", found: true},
		"it was made, version unknown":    {live: labelled("b1", "t", ""), key: confKey, found: true},
		"it was not made":                 {key: confKey, version: "v1"},
		"it is another Bundle's":          {live: labelled("b9", "t", ""), key: confKey, version: "v1"},
		"it is the owner's":               {live: labelled("b2", "t", ""), key: confKey, version: "v1", found: true},
		"it has no template":              {live: labelled("b1", "''", ""), key: confKey, version: "v1"},
		"it has no Bundle":                {live: labelled("''", "t", ""), key: confKey, version: "v1"},
		"another object controls it":      {live: labelled("b1", "t", controlled), key: confKey, version: "v1"},
		"the member is busy":              {live: labelled("b1", "t", ""), key: confKey, version: "v1", refused: refusals{"GET conf": memberBusy()}, want: busyFailure},
		"its kind is not served":          {key: gadget, version: "gadgets.io/v1"},
		"its kind is in no version":       {key: gadget},
		"its version is of another group": {key: confKey, version: "apps/v1", want: &Failure{Reason: atoll.ReasonInvalid, Message: truncateText("the hub names it " + confKey.String() + ", and sent an object of apps/v1")}},
	} {
		t.Run(name, func(t *testing.T) {
			var objects []string
			if c.live != "" {
				objects = []string{c.live}
			}
			record := leavingRecord(confItem("x"))
			record.Key, record.APIVersion, record.UID, record.Owner = c.key, c.version, "", "b2"
			e := newStubEngine(t, refuseSome(newMemoryMember(t, objects...), c.refused), []ownership.Record{record})
			p := e.pendingWorkFor(c.key)
			if p.Verb != ownership.Search {
				t.Fatalf("the verb is %s", p.Verb)
			}
			expectFailure(t, e.searchInterruptedApply(t.Context(), p), c.want)
			r, known := e.book.Record(c.key)
			if known != (c.found || c.want != nil) || (r.UID == "live") != c.found {
				t.Errorf("the record is %+v, %t", r, known)
			}
		})
	}
}

// A kind is unserved only where the member states it.
func TestAKindIsUnservedWhereTheMemberSaysSo(t *testing.T) {
	sprocket := atoll.ItemKey{Group: "example.io", Kind: "Sprocket"}
	for name, c := range map[string]struct {
		versions map[string]bool
		want     bool
	}{"served": {map[string]bool{"v1": true}, false}, "silent": {map[string]bool{"v1": false}, false}, "gone": {nil, true}} {
		e := newStubEngine(t, &partial{versions: c.versions}, nil)
		if got := e.isKindUnserved(sprocket); got != c.want {
			t.Errorf("%s: unserved is %t", name, got)
		}
	}
	e := newStubEngine(t, newMemoryMember(t), nil)
	e.o.Client = newStubClient(t, newMemoryMember(t))
	if e.isKindUnserved(sprocket) {
		t.Error("before the first discovery a kind counts as unserved")
	}
}
