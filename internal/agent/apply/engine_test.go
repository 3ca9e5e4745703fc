package apply

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/agent/policy"
	"atoll.dev/atoll/internal/agent/store"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/kinds/script"
)

// A manifest is stored before it is worked on. Its Bundle, and others whose claims changed, are reported.
func TestAManifestIsStoredAndWorkedOn(t *testing.T) {
	position := store.Position{Chain: "c", Revision: 7}
	taken := withTombstones(newManifest("b1", 2), movedTombstone(confItem("x"), "b2"))
	e := newStubEngine(t, newMemoryMember(t), []ownership.Record{shopNamespace, wantedRecord(confItem("x"))}, taken)
	if err := e.UpsertManifest(t.Context(), newManifest("b2", 1, confItem("y")), position); err != nil {
		t.Fatal(err)
	}
	if got := e.takeCalls(); !slices.Equal(got, []string{"put b2"}) {
		t.Errorf("the calls are %q", got)
	}
	if b := e.bundles[0]; b.Position.Chain != "c" || b.Position.Revision != 7 || b.Holding.Manifest.Bundle != "b2" || len(b.Holding.Manifest.Items) != 1 {
		t.Errorf("stored is %+v", b)
	}
	if due := e.listDue(); !slices.Equal(due, []string{"ConfigMap/conf"}) || !e.isAwake() {
		t.Errorf("%v is due", due)
	}
	if got := e.takeChanged(); !slices.Equal(got, []string{"b1", "b2"}) {
		t.Errorf("reported are %q, want the Bundle and the one that the object moved from", got)
	}
}

// A manifest that is older than the stored one, or that cannot be stored, changes nothing.
func TestAManifestThatIsOldOrNotStoredChangesNothing(t *testing.T) {
	refused := errors.New("refused")
	for name, c := range map[string]struct {
		generation int64
		refuses    error
		want       error
		calls      int
	}{
		"older":      {1, nil, nil, 0},
		"not stored": {3, refused, refused, 1},
	} {
		t.Run(name, func(t *testing.T) {
			e := newStubEngine(t, newMemoryMember(t), []ownership.Record{shopNamespace}, newManifest("b1", 2))
			e.refuses = c.refuses
			for range 2 { // the second call waits for no lock of the first
				if err := e.UpsertManifest(t.Context(), newManifest("b1", c.generation, confItem("y")), store.Position{}); !errors.Is(err, c.want) {
					t.Errorf("it fails with %v, want %v", err, c.want)
				}
			}
			if got := e.takeCalls(); len(got) != 2*c.calls {
				t.Errorf("the calls are %q", got)
			}
			if due := e.listDue(); len(due) > 0 || e.isAwake() || len(e.takeChanged()) > 0 || e.ReceivedManifests()[0].Generation != 2 {
				t.Errorf("%v is due, held is %+v", due, e.ReceivedManifests())
			}
		})
	}
}

// A manifest of the stored generation is taken again: a hub that was restored may have other content for it.
func TestAManifestOfTheSameGenerationIsTaken(t *testing.T) {
	e := newStubEngine(t, newMemoryMember(t), []ownership.Record{shopNamespace}, newManifest("b1", 2))
	if err := e.UpsertManifest(t.Context(), newManifest("b1", 2, confItem("y")), store.Position{}); err != nil {
		t.Fatal(err)
	}
	if due := e.listDue(); !slices.Equal(due, []string{"ConfigMap/conf"}) {
		t.Errorf("%v is due", due)
	}
}

// The namespace that a manifest changes is brought up to date; one of the same metadata or of another owner is not.
func TestChangedMetadataOfANamespaceIsApplied(t *testing.T) {
	manifest := func(generation int64, team string) atoll.Manifest {
		m := newManifest("b1", generation, confItem("x"))
		m.Namespaces = map[string]atoll.NamespaceMeta{"shop": {Labels: map[string]string{"team": team}}}
		return m
	}
	foreign, unmade := shopNamespace, shopNamespace
	foreign.Implicit, unmade.UID = false, ""
	for name, c := range map[string]struct {
		namespace ownership.Record
		team      string
		want      bool
	}{
		"other labels":                     {shopNamespace, "blue", true},
		"the same labels":                  {shopNamespace, "red", false},
		"a namespace that is not Atoll's":  {foreign, "blue", false},
		"a namespace that is not made yet": {unmade, "blue", false},
	} {
		t.Run(name, func(t *testing.T) {
			prev, now := ownership.BundleHolding{Manifest: manifest(1, "red")}, manifest(2, c.team)
			e := newStubEngine(t, newMemoryMember(t), []ownership.Record{c.namespace}, prev.Manifest)
			e.mu.Lock()
			e.markChangedNamespacesDue(&prev, &now)
			e.mu.Unlock()
			if due := e.listDue(); slices.Contains(due, "Namespace/shop") != c.want {
				t.Errorf("%v is due", due)
			}
		})
	}
	stored := newStubEngine(t, newMemoryMember(t), []ownership.Record{shopNamespace, wantedRecord(confItem("x"))}, manifest(1, "red"))
	if err := stored.UpsertManifest(t.Context(), manifest(2, "blue"), store.Position{}); err != nil {
		t.Fatal(err)
	}
	if due := stored.listDue(); !slices.Contains(due, "Namespace/shop") {
		t.Errorf("after a manifest with other labels %v is due", due)
	}
	e, now := newStubEngine(t, newMemoryMember(t), []ownership.Record{shopNamespace}), manifest(1, "red")
	e.markChangedNamespacesDue(nil, &now)
	if due := e.listDue(); !slices.Contains(due, "Namespace/shop") {
		t.Errorf("for the first manifest %v is due", due)
	}
}

// A Bundle is forgotten only after its removal. Moves that waited for it go on.
func TestARemovedBundleIsForgotten(t *testing.T) {
	scaled := ownership.BundleHolding{Manifest: remove("b2", 1)}
	moved := withTombstones(newManifest("b1", 2), movedTombstone(confItem("x"), "b2"))
	e := newStubEngine(t, newMemoryMember(t), []ownership.Record{shopNamespace, wantedRecord(confItem("x"))}, moved, scaled.Manifest)
	e.scaled["b2"], e.interpreters["b2"] = map[atoll.ItemKey]bool{confKey: true}, script.Interpreters{}
	refused := errors.New("refused")
	e.refuses = refused
	for range 2 {
		if err := e.ForgetRemovedBundle(t.Context(), "b2", testNow); !errors.Is(err, refused) || len(e.ReceivedManifests()) != 2 {
			t.Errorf("the store refuses, and it fails with %v", err)
		}
	}
	e.refuses = nil
	e.takeCalls()
	e.takeChanged()
	for range 2 {
		if err := e.ForgetRemovedBundle(t.Context(), "b2", testNow); err != nil {
			t.Fatal(err)
		}
	}
	if got := e.takeCalls(); !slices.Equal(got, []string{"drop b2"}) {
		t.Errorf("the calls are %q", got)
	}
	if due := e.listDue(); !slices.Equal(due, []string{"ConfigMap/conf"}) || !e.isAwake() {
		t.Errorf("%v is due", due)
	}
	if got := e.takeChanged(); !slices.Contains(got, "b1") {
		t.Errorf("reported are %q", got)
	}
	if len(e.scaled) != 0 || len(e.interpreters) != 0 || len(e.ReceivedManifests()) != 1 {
		t.Errorf("left are %v, %v", e.scaled, e.interpreters)
	}
	if err := e.ForgetRemovedBundle(t.Context(), "b1", testNow); err != nil || len(e.ReceivedManifests()) != 1 || len(e.takeCalls()) > 0 {
		t.Errorf("a Bundle that is not removed is forgotten, %v", err)
	}
}

// After a start everything that is recorded is looked at, and nothing is reported by itself.
func TestAnEngineStartsFromWhatIsStored(t *testing.T) {
	gone := store.Reports{Gone: map[string]store.Gone{"b2": {At: testNow.Unix()}}}
	moved := withTombstones(newManifest("b1", 2), movedTombstone(confItem("x"), "b2"))
	taken := newManifest("b3", 1)
	taken.Namespaces = map[string]atoll.NamespaceMeta{"shop": {}}
	going := remove("b4", 1)
	going.DeletedNamespaces = []string{"shop"}
	var changed []string
	e := New(Options{
		Store: memory{}, Watch: memory{}, Policy: func() *policy.Policy { return nil }, Changed: func(b string) { changed = append(changed, b) },
	}, store.StoredContents{
		Records: []ownership.Record{shopNamespace, wantedRecord(confItem("x"))}, Reports: gone,
		Bundles: []store.Bundle{{Holding: ownership.BundleHolding{Manifest: taken}}, {Holding: ownership.BundleHolding{Manifest: moved}}, {Holding: ownership.BundleHolding{Manifest: going}}},
	})
	for _, key := range []atoll.ItemKey{shopNamespace.Key, confKey} {
		if task := e.tasks[key]; task == nil || !task.weigh || !task.due {
			t.Errorf("%s has the task %+v", key, task)
		}
	}
	if got := e.book.TakeChangedBundles(); len(changed)+len(got) > 0 {
		t.Errorf("reported are %q and %q", changed, got)
	}
	if step := e.book.Next(confKey); step.Verb != ownership.Delete {
		t.Errorf("an object that moved to a Bundle that was removed: %s", step.Verb)
	}
	if r, _ := e.book.Record(shopNamespace.Key); r.Doomed {
		t.Error("a namespace that a Bundle wants is to go, because another Bundle goes")
	}
	if cap(e.slots) != maxParallel || cap(e.wake) != 1 {
		t.Errorf("%d slots, %d wakes", cap(e.slots), cap(e.wake))
	}
}

// The engine knows the objects, their UIDs and their namespaces by what is recorded.
func TestWhatIsRecordedCanBeAsked(t *testing.T) {
	item := confItem("x")
	e := newStubEngine(t, newMemoryMember(t), []ownership.Record{shopNamespace, wantedRecord(item)}, newManifest("b1", 3, item))
	for range 2 {
		if got, ok := e.ObjectByHash(item.Hash); !ok || string(got) != string(item.Object) {
			t.Errorf("the object of the hash is %s", got)
		}
		if uid, ok := e.AppliedUID(confKey); uid != "live" || !ok {
			t.Errorf("the UID is %q, %t", uid, ok)
		}
		if got := e.NamespacesWithRecords(); !slices.Equal(got, []string{"shop"}) {
			t.Errorf("the namespaces are %q", got)
		}
		if got := e.ReceivedManifests(); len(got) != 1 || got[0] != (ReceivedManifest{Bundle: "b1", Generation: 3}) {
			t.Errorf("received are %+v", got)
		}
		if got := e.ObserverOf(confKey); got != "" {
			t.Errorf("the written object is observed by %q", got)
		}
		if got := e.CarriedOut("b9"); got != nil {
			t.Errorf("of an unknown Bundle is carried out %v", got)
		}
	}
	if _, ok := e.ObjectByHash("none"); ok {
		t.Error("an unknown hash has an object")
	}
	if _, ok := e.AppliedUID(webItem("1").Key); ok {
		t.Error("an object without a record has a UID")
	}
}

// A manifest that an older agent stored without its observations is received as incomplete.
func TestAnIncompleteManifestIsReceivedAsSuch(t *testing.T) {
	m := newManifest("b1", 1, observeAs(confItem("x"), ""))
	m.Content = "c"
	whole := newManifest("b2", 1, observeAs(webItem("2"), atoll.ObserveDrift))
	whole.Content = "d"
	e := newStubEngine(t, newMemoryMember(t), nil, m, whole)
	want := []ReceivedManifest{{"b1", 1, incompleteContent}, {"b2", 1, "d"}}
	if got := e.ReceivedManifests(); !slices.Equal(got, want) {
		t.Errorf("received are %+v, want %+v", got, want)
	}
	if got := e.ObserverOf(webItem("2").Key); got != "b2" {
		t.Errorf("it is observed by %q", got)
	}
}

// The tombstones that are carried out are listed in the manifest's order.
func TestCarriedOutTombstonesAreListed(t *testing.T) {
	tombstone := func(name string) atoll.Tombstone {
		key := confKey
		key.Name = name
		return atoll.Tombstone{Key: key, UID: "t", Cause: atoll.CauseDeleted}
	}
	waiting := wantedRecord(confItem("x"))
	m := withTombstones(newManifest("b1", 2), tombstone("z"), tombstone("conf"), tombstone("a"))
	e := newStubEngine(t, newMemoryMember(t), []ownership.Record{shopNamespace, waiting}, m)
	got := e.CarriedOut("b1")
	if len(got) != 2 || got[0].Key.Name != "z" || got[1].Key.Name != "a" {
		t.Errorf("carried out are %+v", got)
	}
}

// A watch that starts tells which objects exist: all other recorded objects of its kind are checked.
func TestObjectsThatAStartingWatchDidNotFindAreChecked(t *testing.T) {
	named := func(name, kind, uid string) ownership.Record {
		r := wantedRecord(confItem("x"))
		r.Key.Name, r.Key.Kind, r.UID = name, kind, uid
		return r
	}
	e := newStubEngine(t, newMemoryMember(t), []ownership.Record{
		named("found", "ConfigMap", "live"), named("lost", "ConfigMap", "live"), named("unmade", "ConfigMap", ""), named("other", "Secret", "live"),
		{Key: atoll.ItemKey{Group: "example.io", Kind: "ConfigMap", Namespace: "shop", Name: "group"}, UID: "live"},
	})
	found := confKey
	found.Name = "found"
	for range 2 {
		e.ReconcileListed("", "ConfigMap", map[atoll.ItemKey]bool{found: true})
		if due := e.listDue(); !slices.Equal(due, []string{"ConfigMap/lost"}) || !e.isAwake() {
			t.Errorf("%v is due", due)
		}
	}
	lost := confKey
	if lost.Name = "lost"; !e.holdTask(lost).check {
		t.Error("the object is not checked")
	}
}

// A key that failed for a reason that ended is tried at once, and no other is.
func TestFailuresThatEndedAreTriedAtOnce(t *testing.T) {
	failures := map[string]*Failure{"fine": nil, "unserved": {Reason: atoll.ReasonNotServed}, "silent": {Reason: atoll.ReasonAPISilent, Transport: true}, "wrong": {Reason: atoll.ReasonInvalid}}
	for name, c := range map[string]struct {
		call func(*stubEngine)
		want string
	}{
		"other APIs are served": {func(e *stubEngine) { e.APIsChanged() }, "ConfigMap/unserved"},
		"the member is back":    {func(e *stubEngine) { e.RetryTransportFailures() }, "ConfigMap/silent"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newStubEngine(t, newMemoryMember(t), []ownership.Record{shopNamespace})
				for key, f := range failures {
					task := e.holdTask(atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: key})
					task.failure, task.failures = f, 5
				}
				for range 2 {
					c.call(e)
					if due := e.listDue(); !slices.Equal(due, []string{c.want}) || !e.isAwake() {
						t.Errorf("%v is due", due)
					}
				}
				for key, task := range e.tasks {
					if tried := "ConfigMap/"+key.Name == c.want; tried != (task.failures == 0) {
						t.Errorf("%s has %d failures", key, task.failures)
					}
				}
				if name == "other APIs are served" && (!slices.Equal(e.takeCalls(), []string{"watch Namespace", "watch Namespace"}) || e.discovered != time.Now()) {
					t.Error("the recorded kinds are not watched, or the APIs do not count as discovered now")
				}
			})
		})
	}
}

// A key that waits for its next try keeps waiting, and every other key becomes due at once.
func TestAKeyThatBacksOffKeepsWaiting(t *testing.T) {
	later := testNow.Add(time.Hour)
	for name, c := range map[string]struct {
		task task
		want time.Time
	}{
		"it waits for its next try":  {task{failure: &Failure{}, due: true, at: later}, later},
		"it failed and is not due":   {task{failure: &Failure{}}, time.Time{}},
		"it has not failed":          {task{due: true, at: later}, time.Time{}},
		"nothing was to be done":     {task{}, time.Time{}},
		"it is worked on and failed": {task{failure: &Failure{}, busy: true, at: later}, time.Time{}},
	} {
		e := newStubEngine(t, newMemoryMember(t), nil)
		e.tasks[confKey] = &c.task
		e.markDueUnlessBackingOff(confKey)
		if !c.task.due || !c.task.at.Equal(c.want) {
			t.Errorf("%s: it is %+v", name, c.task)
		}
	}
}

// The interpreters of a Bundle judge its objects until a manifest has none.
func TestTheInterpretersOfABundleAreThoseOfItsManifest(t *testing.T) {
	e := newStubEngine(t, newMemoryMember(t), nil)
	gk := schema.GroupKind{Group: "example.io", Kind: "Shell"}
	e.setInterpreters("b1", newInterpreters(v1alpha1.InterpreterTarget{Group: gk.Group, Kinds: []string{gk.Kind}}, "so"))
	for range 2 {
		if known := e.InterpretersOf("b1"); !known.AnswersGroupKind(gk) || !e.IsInterpreted(gk.Group, gk.Kind) || e.IsInterpreted("", "ConfigMap") {
			t.Error("the interpreters are not known")
		}
	}
	if e.isJudgedByOtherBundle(gk, "b1") || !e.isJudgedByOtherBundle(gk, "b2") {
		t.Error("another Bundle than b1 judges the kind")
	}
	e.setInterpreters("b1", nil)
	if len(e.interpreters) != 0 || e.IsInterpreted(gk.Group, gk.Kind) {
		t.Error("the interpreters are known still")
	}
}
