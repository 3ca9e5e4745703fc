package apply

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"atoll.dev/atoll/internal/agent/observe"
	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/atoll"
)

// Two sources report on an object: the watch, and the reply to an apply. Either may come first.
// The watch always counts. A reply that is older than the watch's last event is dropped: no later
// event might follow, and the object would be reported forever as it was when it was made.

// ObjectSeen takes the view of an object that carries our label.
func (e *MemberApplier) ObjectSeen(v observe.View) {
	e.handleView(v, false)
}

// ObjectLeft takes the last view of an object that left the watch: it is deleted, or lost Atoll's
// label.
func (e *MemberApplier) ObjectLeft(v observe.View) {
	e.handleView(v, true)
}

func (e *MemberApplier) handleView(v observe.View, left bool) {
	e.mu.Lock()
	r, known := e.book.Record(v.Key)
	if !known {
		e.mu.Unlock()
		return
	}
	_, observed := e.book.ObservedItem(v.Key)
	if observed != nil {
		e.noteObserved(v, left)
	}
	if observed == nil || r.UID != "" {
		e.views[v.Key] = view{View: v, left: left}
		e.recordCompletion(v, left)
		e.recordFinish(v, left)
		e.recordHookOutcome(v)
		// While it is not known which object a task makes, took weighs what was received.
		if r.UID == v.UID || !left && !e.ensureTask(v.Key).busy {
			e.decideWork(r, e.views[v.Key])
		}
	}
	bundles := slices.Collect(maps.Keys(r.Claims))
	e.openWaves(bundles...)
	e.mu.Unlock()
	e.reportChanged(bundles)
	e.wakeRun()
}

// recordAppliedView keeps the view from an apply's reply, unless the watch has reported something newer.
// The caller holds mu.
func (e *MemberApplier) recordAppliedView(v observe.View) {
	heard, ok := e.views[v.Key]
	if !ok || !heard.isNewerThan(v) {
		e.views[v.Key] = view{View: v}
		e.recordCompletion(v, false)
		e.recordFinish(v, false)
		e.recordHookOutcome(v)
		return
	}
	e.recordHookOutcome(heard.View) // it was reported before the object was known for that of the run
	if r, known := e.book.Record(v.Key); known {
		e.decideWork(r, heard)
	}
}

// recordCompletion records whether the object of a view has run to completion, where a rule defines
// it. A view that other rules judged changes nothing. The record outlives the object and the agent.
// The caller holds mu.
func (e *MemberApplier) recordCompletion(v observe.View, left bool) {
	r, known := e.book.Record(v.Key)
	rules := e.rulesOf(r.Owner, v.Key)
	if known && !left && !v.CompletionUnknown && rules.StatesCompletion() && v.RulesID == rules.ID() {
		e.book.RecordCompletion(v.Key, v.UID, v.Finished)
	}
}

// decideWork decides what must be done about an object in this state. The caller holds mu.
func (e *MemberApplier) decideWork(r ownership.Record, v view) {
	switch {
	case r.UID != v.UID:
		e.ensureTask(v.Key).check = true
		e.markDueUnlessBackingOff(v.Key)
	case v.left:
		e.ensureTask(v.Key).check = true
		e.markDue(v.Key)
	case v.Deleting:
		e.markDueUnlessBackingOff(v.Key)
	case r.Owned != "" && (v.Owned != r.Owned || v.Label != r.Label):
		e.ensureTask(v.Key).correct = true
		e.markDueUnlessBackingOff(v.Key)
	}
}

// view of an object, and whether it left the watch like this.
type view struct {
	observe.View
	left bool
}

// isNewerThan reports whether the view is of a later time than the other. Versions of API
// servers that do not count upwards are not compared: what came last counts.
func (v view) isNewerThan(other observe.View) bool {
	order, err := resourceversion.CompareResourceVersion(v.Version, other.Version)
	return err == nil && order > 0
}

// viewOf returns the view of the object that is recorded. The caller holds mu.
func (e *MemberApplier) viewOf(key atoll.ItemKey) (observe.View, bool) {
	v, ok := e.views[key]
	r, _ := e.book.Record(key)
	return v.View, ok && r.UID != "" && v.UID == r.UID
}
