package apply

import (
	"slices"
	"testing"
	"time"

	"atoll.dev/atoll/internal/agent/observe"
	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/atoll"
)

// A watch's event of an object decides what is done about the object.
func TestWhatAWatchTellsDecides(t *testing.T) {
	change := func(edit func(*observe.View)) observe.View {
		v := seenConf()
		v.Owned = "owned"
		edit(&v)
		return v
	}
	later := testNow.Add(time.Hour)
	for name, c := range map[string]struct {
		view    observe.View
		left    bool
		busy    bool
		unowned bool // nothing of the object's fields is recorded
		want    task
	}{
		"it is as it was":                        {view: change(func(*observe.View) {})},
		"another object has its name":            {view: change(func(v *observe.View) { v.UID = "other" }), want: task{check: true, due: true}},
		"another object, and a task works on it": {view: change(func(v *observe.View) { v.UID = "other" }), busy: true, want: task{busy: true}},
		"another object went":                    {view: change(func(v *observe.View) { v.UID = "other" }), left: true},
		"it went":                                {view: change(func(*observe.View) {}), left: true, want: task{check: true, due: true}},
		"it went, and a task works on it":        {view: change(func(*observe.View) {}), left: true, busy: true, want: task{check: true, due: true, busy: true}},
		"it is being deleted":                    {view: change(func(v *observe.View) { v.Deleting = true }), want: task{due: true}},
		"a field was taken":                      {view: change(func(v *observe.View) { v.Owned = "less" }), want: task{correct: true, due: true}},
		"its label was changed":                  {view: change(func(v *observe.View) { v.Label = "b9" }), want: task{correct: true, due: true}},
		"a field, but none is recorded":          {view: change(func(v *observe.View) { v.Owned, v.Label = "less", "b9" }), unowned: true},
	} {
		t.Run(name, func(t *testing.T) {
			record := wantedRecord(confItem("x"))
			if record.Owned = "owned"; c.unowned {
				record.Owned = ""
			}
			e := newStubEngine(t, newMemoryMember(t), []ownership.Record{record}, newManifest("b1", 1, confItem("x")))
			e.holdTask(confKey).busy = c.busy
			tell := e.ObjectSeen
			if c.left {
				tell = e.ObjectLeft
			}
			tell(c.view)
			if got := e.holdTask(confKey); got.check != c.want.check || got.due != c.want.due || got.correct != c.want.correct || got.busy != c.want.busy {
				t.Errorf("the task is %+v, want %+v", got, c.want)
			}
			if got := e.takeChanged(); !slices.Equal(got, []string{"b1"}) || !e.isAwake() {
				t.Errorf("reported are %q", got)
			}
			if got := e.views[confKey]; got.left != c.left || got.UID != c.view.UID {
				t.Errorf("kept is %+v", got)
			}
			waiting := &task{due: true, at: later, failure: &Failure{}, busy: c.busy}
			e.tasks[confKey] = waiting
			tell(c.view)
			waits, went := waiting.at == later, c.left && c.view.UID == "live"
			if waits == went {
				t.Errorf("a key that waits for its next try is due at %s", waiting.at)
			}
		})
	}
}

// A view of an object without a record is not kept.
func TestAnUnknownObjectIsNotKept(t *testing.T) {
	e := newStubEngine(t, newMemoryMember(t), nil)
	for range 2 {
		e.ObjectSeen(seenConf())
		e.ObjectLeft(seenConf())
	}
	if len(e.views) > 0 || len(e.tasks) > 0 || len(e.takeChanged()) > 0 || e.isAwake() {
		t.Errorf("kept are %v and %v", e.views, e.tasks)
	}
}

// The reply to an apply counts unless the watch has reported a newer view, which then decides.
func TestTheNewestViewCounts(t *testing.T) {
	for name, c := range map[string]struct {
		heard, replied string // versions
		want           string
		decides        bool
	}{
		"nothing was heard":          {"", "5", "5", false},
		"the watch was earlier":      {"4", "5", "5", false},
		"the watch reported it":      {"5", "5", "5", false},
		"the watch was later":        {"6", "5", "6", true},
		"versions are not countable": {"b", "a", "a", false},
	} {
		t.Run(name, func(t *testing.T) {
			record := wantedRecord(confItem("x"))
			record.Owned = "owned"
			e := newStubEngine(t, newMemoryMember(t), []ownership.Record{record}, newManifest("b1", 1, confItem("x")))
			if c.heard != "" {
				v := seenConf()
				v.Version, v.Owned = c.heard, "less"
				e.views[confKey] = view{View: v}
			}
			reply := seenConf()
			reply.Version = c.replied
			e.mu.Lock()
			e.recordAppliedView(reply)
			e.mu.Unlock()
			if got := e.views[confKey].Version; got != c.want {
				t.Errorf("version %s counts, want %s", got, c.want)
			}
			if got := e.holdTask(confKey).correct; got != c.decides {
				t.Errorf("the watch's view decides: %t", got)
			}
		})
	}
}

// A view counts only for the object that is recorded.
func TestAViewIsOfTheRecordedObject(t *testing.T) {
	for uid, want := range map[string]bool{"live": true, "other": false, "": false} {
		e := newStubEngine(t, newMemoryMember(t), []ownership.Record{wantedRecord(confItem("x"))}, newManifest("b1", 1, confItem("x")))
		v := seenConf()
		v.UID = uid
		e.views[confKey] = view{View: v}
		if got, seen := e.viewOf(confKey); seen != want || got.UID != uid {
			t.Errorf("the view of %q counts: %t", uid, seen)
		}
	}
	unmade := wantedRecord(confItem("x"))
	unmade.UID = ""
	e := newStubEngine(t, newMemoryMember(t), []ownership.Record{unmade}, newManifest("b1", 1, confItem("x")))
	if _, seen := e.viewOf(confKey); seen {
		t.Error("an object that is not made is seen")
	}
	e.views[confKey] = view{View: observe.View{Key: confKey}}
	if _, seen := e.viewOf(confKey); seen {
		t.Error("a view without a UID is of the object that is to be made")
	}
	if _, seen := e.viewOf(atoll.NamespaceKey("none")); seen {
		t.Error("an unknown object is seen")
	}
}
