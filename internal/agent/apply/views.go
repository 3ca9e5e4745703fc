package apply

import (
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"atoll.dev/atoll/internal/agent/claims"
	"atoll.dev/atoll/internal/agent/observe"
	"atoll.dev/atoll/internal/atoll"
)

// What is known of an object comes from two sides: the watch tells what it is, and the
// reply to an apply tells what that made of it. Either may come first. The watch is
// believed as it tells; a reply that is older than what the watch has told is not
// kept, since nothing might come after it: the object would be reported for ever as it
// was when it was made.

// Seen takes the view of an object that carries our label.
func (e *Engine) Seen(v observe.View) {
	e.heard(v, false)
}

// Left is told that an object left the watch: it is gone, or lost our label. v is the
// last that was seen of it.
func (e *Engine) Left(v observe.View) {
	e.heard(v, true)
}

func (e *Engine) heard(v observe.View, left bool) {
	e.mu.Lock()
	r, known := e.book.Record(v.Key)
	if !known {
		e.mu.Unlock()
		return
	}
	e.views[v.Key] = view{View: v, left: left}
	// While it is not known which object a task makes, took weighs what was heard.
	if r.UID == v.UID || !left && !e.task(v.Key).busy {
		e.weigh(r, e.views[v.Key])
	}
	e.mu.Unlock()
	e.changed(r)
	e.nudge()
}

// took keeps what a reply told of the object that is recorded now, unless the watch
// has told something newer since. The caller holds mu.
func (e *Engine) took(v observe.View) {
	heard, ok := e.views[v.Key]
	if !ok || !heard.after(v) {
		e.views[v.Key] = view{View: v}
		return
	}
	if r, known := e.book.Record(v.Key); known {
		e.weigh(r, heard)
	}
}

// weigh tells what has to be done about an object that is like this. The caller holds
// mu.
func (e *Engine) weigh(r claims.Record, v view) {
	switch {
	case r.UID != v.UID:
		e.task(v.Key).check = true
		e.soon(v.Key)
	case v.left:
		e.task(v.Key).check = true
		e.due(v.Key)
	case v.Deleting:
		e.soon(v.Key)
	case r.Owned != "" && (v.Owned != r.Owned || v.Label != r.Label):
		e.task(v.Key).correct = true
		e.soon(v.Key)
	}
}

// view of an object, and whether it left the watch like this.
type view struct {
	observe.View
	left bool
}

// after tells whether the view is of a later time than the other. Versions of API
// servers that do not count upwards are not compared: what came last counts.
func (v view) after(other observe.View) bool {
	order, err := resourceversion.CompareResourceVersion(v.Version, other.Version)
	return err == nil && order > 0
}

// viewOf the object that is recorded. The caller holds mu.
func (e *Engine) viewOf(key atoll.ItemKey) (observe.View, bool) {
	v, ok := e.views[key]
	r, _ := e.book.Record(key)
	return v.View, ok && r.UID != "" && v.UID == r.UID
}
