package apply

import (
	"net/http"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/agent/observe"
	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/agent/report"
	"atoll.dev/atoll/internal/agent/store"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/objectdiff"
)

const foreignConf = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: conf, namespace: shop}\ndata: {a: live}"

// newObserver is an engine whose Bundle b1 observes a ConfigMap.
func newObserver(t *testing.T, api http.Handler, as atoll.Observation, records ...ownership.Record) *stubEngine {
	t.Helper()
	return newStubEngine(t, api, append([]ownership.Record{shopNamespace}, records...), newManifest("b1", 1, observeAs(confItem("x"), as)))
}

// An object is compared by its item and the fields of the member, and again once it may have changed.
func TestAnObservationIsRepeatedWhenItMayDiffer(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*observation)
		want ownership.Verb
	}{
		"as it was":               {func(*observation) {}, ownership.Nothing},
		"it may have changed":     {func(o *observation) { o.stale = true }, observeItem},
		"another item":            {func(o *observation) { o.hash = "other" }, observeItem},
		"other fields are left":   {func(o *observation) { o.left = []string{"/data/a"} }, observeItem},
		"it was never compared":   {func(o *observation) { *o = observation{} }, observeItem},
		"it was never looked for": {nil, observeItem},
	} {
		e := newObserver(t, newMemoryMember(t), atoll.ObserveDrift)
		if c.edit != nil {
			o := &observation{hash: "hx-Drift"}
			c.edit(o)
			e.observed[confKey] = o
		}
		if p := e.pendingWorkFor(confKey); p.Verb != c.want {
			t.Errorf("%s: the work is %s, want %s", name, p.Verb, c.want)
		}
	}
}

// An event of a watch counts at once. It leads to another comparison where more than the status changed, not too soon.
func TestAnEventOfAnObservedObject(t *testing.T) {
	began := testNow
	for name, c := range map[string]struct {
		edit       func(*observe.View)
		left       bool
		stale, due bool // before
		unknown    bool
		wantStale  bool
		wantAt     time.Time
		wantView   string // health
	}{
		"only its status":             {edit: func(v *observe.View) { v.Health = atoll.Degraded }, wantView: "Degraded"},
		"an event without edits":      {edit: func(v *observe.View) { v.Edit = "" }, wantView: "Healthy"},
		"an edit":                     {edit: func(v *observe.View) { v.Edit = "2" }, wantStale: true, wantAt: began.Add(5 * time.Second), wantView: "Healthy"},
		"another object":              {edit: func(v *observe.View) { v.UID = "other" }, wantStale: true, wantAt: began.Add(5 * time.Second), wantView: "Healthy"},
		"it went":                     {edit: func(v *observe.View) { v.Health = "gone" }, left: true, wantStale: true, wantAt: began.Add(5 * time.Second), wantView: "Healthy"},
		"an edit, and it is due":      {edit: func(v *observe.View) { v.Edit = "2" }, due: true, wantStale: true, wantView: "Healthy"},
		"an edit, and it is stale":    {edit: func(v *observe.View) { v.Edit, v.Health = "2", atoll.Degraded }, stale: true, wantStale: true, wantView: "Degraded"},
		"before the first comparison": {edit: func(*observe.View) {}, unknown: true},
	} {
		t.Run(name, func(t *testing.T) {
			e := newObserver(t, newMemoryMember(t), atoll.ObserveDrift)
			v := seenConf()
			v.Edit = "1"
			o := &observation{hash: "hx-Drift", view: v, at: began, stale: c.stale}
			if !c.unknown {
				e.observed[confKey] = o
			}
			task := e.holdTask(confKey)
			task.due = c.due
			c.edit(&v)
			if c.left {
				e.ObjectLeft(v)
			} else {
				e.ObjectSeen(v)
			}
			if c.unknown {
				if task.due || len(e.observed) > 0 {
					t.Errorf("the task is %+v", task)
				}
				return
			}
			if o.stale != c.wantStale || string(o.view.Health) != c.wantView || !task.at.Equal(c.wantAt) || task.due != (c.due || !c.wantAt.IsZero()) {
				t.Errorf("it is %+v, and the task %+v", o, task)
			}
			if o.view.Edit == "" {
				t.Error("its edit is forgotten")
			}
			if _, kept := e.views[confKey]; kept {
				t.Error("an object that was never written has a view")
			}
		})
	}
}

// A watch that starts tells which observed objects exist. The others are read again.
func TestObservedObjectsThatAWatchDidNotFindAreReadAgain(t *testing.T) {
	key := func(group, kind, name string) atoll.ItemKey {
		return atoll.ItemKey{Group: group, Kind: kind, Namespace: "shop", Name: name}
	}
	e := newStubEngine(t, newMemoryMember(t), nil)
	there := observe.View{UID: "u"}
	e.observed = map[atoll.ItemKey]*observation{
		key("", "ConfigMap", "found"): {view: there}, key("", "ConfigMap", "lost"): {view: there}, key("", "ConfigMap", "missing"): {},
		key("", "Secret", "kind"): {view: there}, key("x.io", "ConfigMap", "group"): {view: there},
	}
	for range 2 {
		e.ObservedListed("", "ConfigMap", map[atoll.ItemKey]bool{key("", "ConfigMap", "found"): true})
		if due := e.listDue(); !slices.Equal(due, []string{"ConfigMap/lost"}) || !e.isAwake() {
			t.Errorf("%v is due", due)
		}
	}
	for k, o := range e.observed {
		if o.stale != (k.Name == "lost") {
			t.Errorf("%s is stale: %t", k.Name, o.stale)
		}
	}
}

// An object that is observed no longer is forgotten, its watch ends, and what Atoll wrote of it is checked.
func TestWhatIsNotObservedAnyMoreIsForgotten(t *testing.T) {
	other := observeAs(confItem("x"), atoll.ObserveDrift)
	other.Key.Name = "other"
	written := wantedRecord(confItem("x"))
	for name, c := range map[string]struct {
		records []ownership.Record
		before  bool // it was compared
		next    atoll.Manifest
		calls   []string
		check   bool
		left    int
	}{
		"it is written now":              {[]ownership.Record{written}, true, newManifest("b1", 2, confItem("x")), []string{"stop all ConfigMap"}, true, 0},
		"it is written, never compared":  {[]ownership.Record{written}, false, newManifest("b1", 2, confItem("x")), nil, true, 0},
		"it was never written":           {nil, true, newManifest("b1", 2, confItem("x")), []string{"stop all ConfigMap"}, false, 0},
		"it is observed still":           {[]ownership.Record{written}, true, newManifest("b1", 2, observeAs(confItem("y"), atoll.ObserveDrift)), nil, false, 1},
		"another one is observed of it":  {nil, true, newManifest("b1", 2, other), nil, false, 1},
		"nothing was or is observed now": {nil, false, newManifest("b1", 2), nil, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			first := newManifest("b1", 1, observeAs(confItem("x"), atoll.ObserveDrift))
			if name == "another one is observed of it" {
				first.Items = append(first.Items, other)
			}
			e := newStubEngine(t, newMemoryMember(t), append([]ownership.Record{shopNamespace}, c.records...), first)
			if c.before {
				e.setObservation(confKey, &observation{drift: &atoll.Drift{}})
			}
			if name == "another one is observed of it" {
				e.setObservation(other.Key, &observation{})
			}
			if err := e.UpsertManifest(t.Context(), c.next, store.Position{}); err != nil {
				t.Fatal(err)
			}
			calls := slices.DeleteFunc(e.takeCalls(), func(s string) bool { return s == "put b1" })
			if !slices.Equal(calls, c.calls) || e.holdTask(confKey).check != c.check || len(e.observed) != c.left {
				t.Errorf("the calls are %q, checked: %t, observed: %v", calls, e.holdTask(confKey).check, e.observed)
			}
			if got := testutil.ToFloat64(e.o.Metrics.drifted); c.left == 0 && got != 0 {
				t.Errorf("%v drifted objects are counted", got)
			}
		})
	}
}

// The number of objects that differ follows their observations.
func TestObjectsThatDifferAreCounted(t *testing.T) {
	e := newStubEngine(t, newMemoryMember(t), nil)
	differs, same := &observation{drift: &atoll.Drift{}}, &observation{}
	for i, c := range []struct {
		o    *observation
		want float64
	}{{same, 0}, {differs, 1}, {differs, 1}, {same, 0}, {differs, 1}, {nil, 0}, {nil, 0}} {
		e.setObservation(confKey, c.o)
		if got := testutil.ToFloat64(e.o.Metrics.drifted); got != c.want || e.observed[confKey] != c.o {
			t.Errorf("step %d: %v are counted, want %v; kept is %v", i, got, c.want, e.observed[confKey])
		}
	}
	if len(e.observed) != 0 {
		t.Errorf("left are %v", e.observed)
	}
}

// The watches of kinds end of which nothing is observed.
func TestWatchesOfKindsThatAreNotObservedEnd(t *testing.T) {
	e := newStubEngine(t, newMemoryMember(t), nil)
	e.observed[confKey] = &observation{}
	e.stopUnneededWatches(map[schema.GroupKind]bool{{Kind: "ConfigMap"}: true, {Kind: "Secret"}: true})
	if got := e.takeCalls(); !slices.Equal(got, []string{"stop all Secret"}) {
		t.Errorf("the calls are %q", got)
	}
}

// A comparison tells the health of the object and where it differs, or that it is missing.
func TestAComparisonOfAnObservedObject(t *testing.T) {
	drifted := &atoll.Drift{Total: 1, Fields: []atoll.DriftField{{Path: "/data/a", Live: `"live"`, Wanted: `"x"`}}}
	for name, c := range map[string]struct {
		live    string
		as      atoll.Observation
		refused refusals
		want    *Failure
		drift   *atoll.Drift
	}{
		"it differs":               {foreignConf, atoll.ObserveDrift, nil, nil, drifted},
		"only its health counts":   {foreignConf, atoll.ObserveHealth, nil, nil, nil},
		"it is the same":           {strings.Replace(foreignConf, "a: live", "a: x", 1), atoll.ObserveDrift, nil, nil, nil},
		"it is missing":            {"", atoll.ObserveDrift, nil, nil, &atoll.Drift{Missing: true}},
		"missing, and its health":  {"", atoll.ObserveHealth, nil, nil, nil},
		"it cannot be read":        {foreignConf, atoll.ObserveDrift, refusals{"GET conf": memberBusy()}, busyFailure, nil},
		"it cannot be compared":    {foreignConf, atoll.ObserveDrift, refusals{"DRYRUN conf": memberBusy()}, busyFailure, nil},
		"its health, not compared": {foreignConf, atoll.ObserveHealth, refusals{"DRYRUN conf": memberBusy()}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var objects []string
				if c.live != "" {
					objects = []string{c.live}
				}
				api := newMemoryMember(t, objects...)
				e := newObserver(t, refuseSome(api, c.refused), c.as)
				expectFailure(t, e.workOnKey(t.Context(), confKey), c.want)
				api.expectWrites(t)
				o := e.observed[confKey]
				if o == nil || !o.at.Equal(time.Now()) || o.stale != (c.want != nil) || (o.hash == "hx-"+string(c.as)) != (c.want == nil) {
					t.Fatalf("the observation is %+v", o)
				}
				if !reflect.DeepEqual(o.drift, c.drift) {
					t.Errorf("the drift is %+v, want %+v", o.drift, c.drift)
				}
				if seen := c.live != "" && c.want == nil; (o.view.UID == "live") != seen || (o.view.Edit == "1") != seen || (o.view.Health == atoll.Healthy) != seen {
					t.Errorf("the view is %+v", o.view)
				}
				if got := e.takeCalls(); !slices.Equal(got, []string{"watch all ConfigMap"}) {
					t.Errorf("the calls are %q", got)
				}
			})
		})
	}
	unserved := observeAs(confItem("x"), atoll.ObserveDrift)
	unserved.Key.Kind = "Gadget"
	e := newStubEngine(t, newMemoryMember(t), nil, newManifest("b1", 1, unserved))
	expectFailure(t, e.workOnKey(t.Context(), unserved.Key), notServed("v1", unserved.Key))
}

// A field that belongs to the member is no difference.
func TestAFieldOfTheMemberIsNoDifference(t *testing.T) {
	item := observeAs(confItem("x"), atoll.ObserveDrift)
	item.MemberOwned = []string{"/data/a"}
	e := newStubEngine(t, newMemoryMember(t, foreignConf), nil, newManifest("b1", 1, item))
	expectFailure(t, e.workOnKey(t.Context(), confKey), nil)
	if o := e.observed[confKey]; o.drift != nil || !slices.Equal(o.left, item.MemberOwned) {
		t.Errorf("the observation is %+v", o)
	}
}

// An edit of a kind without a status is its version, as its watch reports it. An edit of other kinds is their content.
func TestTheEditOfAnObservedObject(t *testing.T) {
	shell := observeAs(shellItem("{}"), atoll.ObserveHealth)
	conf := observeAs(confItem("x"), atoll.ObserveHealth)
	for name, c := range map[string]struct {
		item        atoll.RenderedItem
		interpreted bool
		version     bool
	}{"without a status": {conf, false, true}, "that scripts judge": {conf, true, false}, "with a status": {shell, false, false}} {
		m := newManifest("b1", 1, c.item)
		if c.interpreted {
			m.Interpreters = newInterpreters(v1alpha1.InterpreterTarget{Kinds: []string{"ConfigMap"}}, "so")
		}
		e := newStubEngine(t, newMemoryMember(t, foreignConf, "apiVersion: example.io/v1\nkind: Shell\nmetadata: {name: conch}"), nil, m)
		expectFailure(t, e.workOnKey(t.Context(), c.item.Key), nil)
		if got := e.observed[c.item.Key].view.Edit; (got == "1") != c.version || got == "" {
			t.Errorf("%s: the edit is %q", name, got)
		}
	}
}

// An object that ran to completion and is gone is not missing.
func TestAnObservedRunThatIsGoneIsNotMissing(t *testing.T) {
	pod := observeAs(atoll.RenderedItem{Key: atoll.ItemKey{Kind: "Pod", Namespace: "shop", Name: "once"}, APIVersion: "v1", UID: "t", Hash: "h", Object: []byte("{}")}, atoll.ObserveDrift)
	for ran, missing := range map[string]bool{"t": false, "t0": true} {
		record := wantedRecord(pod)
		record.UID, record.Ran = "", ran
		e := newStubEngine(t, newMemoryMember(t), []ownership.Record{record}, newManifest("b1", 1, pod))
		expectFailure(t, e.workOnKey(t.Context(), pod.Key), nil)
		if o := e.observed[pod.Key]; o.ran == missing || (o.drift != nil) != missing {
			t.Errorf("it ran as %s: %+v", ran, o)
		}
		s, _ := e.StatusOf("b1", nil, testNow)
		if (len(s.Items) == 1 && s.Items[0].Reason == atoll.ReasonMissing) != missing {
			t.Errorf("it ran as %s: the status is %+v", ran, s)
		}
	}
}

// An event during a comparison counts: the newer view stays, and an edit leads to another comparison.
func TestAnEventDuringAComparison(t *testing.T) {
	for name, c := range map[string]struct {
		during  func(*stubEngine)
		version string
		stale   bool
		calls   []string
		kept    bool
	}{
		"none":                   {func(*stubEngine) {}, "1", false, []string{"watch all ConfigMap"}, true},
		"an edit":                {func(e *stubEngine) { tellConf(e, "live", "2") }, "2", true, []string{"watch all ConfigMap"}, true},
		"an older event":         {func(e *stubEngine) { tellConf(e, "live", "0") }, "1", true, []string{"watch all ConfigMap"}, true},
		"one of another object":  {func(e *stubEngine) { tellConf(e, "other", "2") }, "1", true, []string{"watch all ConfigMap"}, true},
		"it is observed no more": {func(e *stubEngine) { e.setObservation(confKey, nil) }, "", false, []string{"watch all ConfigMap", "stop all ConfigMap"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var e *stubEngine
				member := newMemoryMember(t, foreignConf)
				e = newObserver(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					member.ServeHTTP(w, r)
					if path.Base(r.URL.Path) == "conf" && r.Method == http.MethodGet {
						c.during(e)
					}
				}), atoll.ObserveDrift)
				task := e.holdTask(confKey)
				expectFailure(t, e.workOnKey(t.Context(), confKey), nil)
				if got := e.takeCalls(); !slices.Equal(got, c.calls) {
					t.Errorf("the calls are %q", got)
				}
				o, kept := e.observed[confKey]
				if kept != c.kept || kept && (o.view.Version != c.version || o.stale != c.stale || o.drift == nil) {
					t.Fatalf("the observation is %+v", o)
				}
				if task.due != c.stale || c.stale && !task.at.Equal(time.Now().Add(observeInterval)) {
					t.Errorf("the next comparison is %+v", task)
				}
			})
		})
	}
}

// tellConf tells an engine of an observed object, as its watch does.
func tellConf(e *stubEngine, uid, version string) {
	v := seenConf()
	v.UID, v.Version, v.Edit = uid, version, version
	e.ObjectSeen(v)
}

// A drift reports so many fields as fit, with their values and managers, and counts them all.
func TestADriftIsReportedInBounds(t *testing.T) {
	live := newUnstructured(decodeJSON(t, `{"metadata":{"managedFields":[{"manager":"kubectl","operation":"Update","fieldsV1":{"f:data":{"f:a":{}}}}]}}`))
	if got := driftOf(confKey, live, nil); got != nil {
		t.Errorf("without a difference it is %+v", got)
	}
	many := make([]objectdiff.Difference, atoll.MaxDriftFields+2)
	for i := range many {
		many[i] = objectdiff.Difference{Path: "/data/a", Before: "b", After: nil}
	}
	got := driftOf(confKey, live, many)
	want := atoll.DriftField{Path: "/data/a", Live: `"b"`, Managers: []string{"kubectl"}}
	if got.Total != int32(len(many)) || len(got.Fields) != atoll.MaxDriftFields || !reflect.DeepEqual(got.Fields[0], want) {
		t.Errorf("it is %+v, want fields like %+v", got, want)
	}
	one := driftOf(confKey, live, []objectdiff.Difference{{Path: "/data/b", Before: nil, After: int64(2)}})
	if !reflect.DeepEqual(one, &atoll.Drift{Total: 1, Fields: []atoll.DriftField{{Path: "/data/b", Wanted: "2"}}}) {
		t.Errorf("one field is %+v", one)
	}
	for want, v := range map[string]any{"": nil, `"a"`: "a", `{"b":1}`: map[string]any{"b": 1}} {
		if got := formatValue(v); got != want {
			t.Errorf("%v is %s", v, got)
		}
	}
	if got := formatValue(func() {}); got != "" {
		t.Errorf("what is no JSON is %q", got)
	}
}

// The status of an observed item is its last comparison, of the item's content where the Bundle is the observer.
func TestTheStatusOfAnObservedItem(t *testing.T) {
	item := observeAs(confItem("x"), atoll.ObserveDrift)
	drifted := &atoll.Drift{Total: 1, Fields: []atoll.DriftField{{Path: "/data/a"}}}
	degraded := seenConf()
	degraded.Health, degraded.Reason, degraded.Message, degraded.Reflected = atoll.Degraded, "Why", "so", []byte("{}")
	pending := report.Item{Key: confKey, Reason: atoll.ReasonPending, Message: "the member's object is not compared yet"}
	healthy := report.Item{Key: confKey, Observed: true, Applied: true, Health: atoll.Healthy}
	with := func(edit func(*report.Item)) report.Item { it := healthy; edit(&it); return it }
	for name, c := range map[string]struct {
		o       *observation
		owner   bool
		failure *Failure
		want    report.Item
	}{
		"not looked for":      {nil, true, nil, pending},
		"not compared":        {&observation{view: seenConf()}, true, nil, pending},
		"not as the observer": {&observation{view: seenConf()}, false, nil, pending},
		"other content":       {&observation{hash: "other", view: seenConf()}, true, nil, pending},
		"another's content":   {&observation{hash: "other", view: seenConf()}, false, nil, healthy},
		"it is the same":      {&observation{hash: item.Hash, view: seenConf()}, true, nil, healthy},
		"it differs": {&observation{hash: item.Hash, view: seenConf(), drift: drifted}, true, nil, with(func(it *report.Item) {
			it.Drift, it.Why, it.Text = drifted, atoll.ReasonDrifted, "1 field differs: /data/a"
		})},
		"degraded, differs": {&observation{hash: item.Hash, view: degraded, drift: drifted}, true, nil, with(func(it *report.Item) {
			it.Drift, it.Health, it.Why, it.Text, it.Reflected = drifted, atoll.Degraded, "Why", "so", []byte("{}")
		})},
		"it is missing": {&observation{hash: item.Hash}, true, nil, with(func(it *report.Item) {
			it.Health, it.Why, it.Text = atoll.Unknown, atoll.ReasonMissing, "the member does not have the object, and Atoll only observes it: create it there, or let Atoll write it"
		})},
		"it ran":   {&observation{hash: item.Hash, ran: true}, true, nil, healthy},
		"it fails": {&observation{hash: item.Hash, view: seenConf()}, true, &Failure{Reason: atoll.ReasonForbidden, Message: "no"}, report.Item{Key: confKey, Reason: atoll.ReasonForbidden, Message: "no", Error: true}},
	} {
		t.Run(name, func(t *testing.T) {
			e := newStubEngine(t, newMemoryMember(t), nil)
			e.holdTask(confKey).failure = c.failure
			expectEqualItem(t, e.observedStatus(&item, c.o, c.owner, nil), c.want)
		})
	}
}

// A comparison of Atoll's own object states the live values of fields that will be left to the member.
func TestAComparisonStatesFieldsThatAreNewlyLeft(t *testing.T) {
	record := wantedRecord(webItem("2"))
	for name, c := range map[string]struct {
		uid    string
		left   []string // before
		paths  []string // now
		states any
		want   *Failure
	}{
		"newly left":         {"live", nil, []string{replicas}, 7.0, nil},
		"left before":        {"live", []string{replicas}, []string{replicas}, nil, nil},
		"another's object":   {"other", nil, []string{replicas}, nil, nil},
		"nothing is left":    {"live", nil, nil, 2.0, nil},
		"it cannot be left":  {"live", nil, []string{"/spec/replicas", "spec"}, nil, &Failure{Reason: atoll.ReasonInvalid}},
		"the item is broken": {"live", nil, []string{replicas}, nil, &Failure{Reason: atoll.ReasonInvalid}},
	} {
		t.Run(name, func(t *testing.T) {
			var sent any
			api := newMemoryMember(t, "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: shop}\nspec: {replicas: 7}")
			e := newStubEngine(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPatch {
					sent = decodeRequest(t, r)
				}
				api.ServeHTTP(w, r)
			}), nil)
			record.UID, record.Left = c.uid, c.left
			p := webWork(record)
			if name == "the item is broken" {
				p.Item = &atoll.RenderedItem{Object: []byte("{")}
			}
			res, _ := e.resourceFor(t.Context(), p.Key, "apps/v1")
			live, err := e.o.Client.Get(t.Context(), res, "shop", "web")
			if err != nil {
				t.Fatal(err)
			}
			_, f := e.compareWithLive(t.Context(), p, res, live, c.paths)
			if f != nil && c.want != nil {
				c.want.Message = f.Message
			}
			expectFailure(t, f, c.want)
			if f == nil {
				spec, _ := sent.(map[string]any)["spec"].(map[string]any)
				if spec["replicas"] != c.states {
					t.Errorf("sent are %v replicas, want %v", spec["replicas"], c.states)
				}
			}
		})
	}
}

// At most three paths of a difference are named, in their order.
func TestTheFirstDifferingPathsAreNamed(t *testing.T) {
	item := confItem("x")
	item.Object = []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"conf","namespace":"shop"},"data":{"d":"1","c":"1","b":"1","a":"1"}}`)
	e := newStubEngine(t, newMemoryMember(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: conf, namespace: shop}\ndata: {a: '0', b: '0', c: '0', d: '0'}"), nil)
	p := pendingWork{Step: ownership.Step{Key: confKey, Owner: "b1", Item: &item}}
	res, _ := e.resourceFor(t.Context(), confKey, "v1")
	live, err := e.o.Client.Get(t.Context(), res, "shop", "conf")
	if err != nil {
		t.Fatal(err)
	}
	got, f := e.listFirstDifferingPaths(t.Context(), p, res, live)
	if f != nil || !slices.Equal(got, []string{"/data/a", "/data/b", "/data/c"}) {
		t.Errorf("they are %q, %+v", got, f)
	}
}
