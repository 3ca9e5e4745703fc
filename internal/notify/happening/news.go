package happening

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
)

// maxHandled is how many handled events a History has.
const maxHandled = 32

// History is which events of a Notification were sent or dropped.
type History struct {
	// Before: a hub that starts does not send events that began up to this time.
	Before time.Time
	// Handled are the last events, in the order in which they were handled. Those that began first give way to others, and move Before.
	Handled []v1alpha1.HandledEvent
}

// Add adds an event that is sent or dropped.
func (h *History) Add(e *Event) {
	if h.Has(e.ID) && e.Ends == "" {
		return
	}
	h.Handled = append(h.Handled, v1alpha1.HandledEvent{ID: e.ID, Event: string(e.Type), UID: e.UID, Time: metav1.NewTime(e.Time)})
	for len(h.Handled) > maxHandled {
		first := 0
		for i := range h.Handled {
			if h.Handled[i].Time.Time.Before(h.Handled[first].Time.Time) {
				first = i
			}
		}
		if at := h.Handled[first].Time.Time; at.After(h.Before) {
			h.Before = at
		}
		h.Handled = append(h.Handled[:first:first], h.Handled[first+1:]...)
	}
}

// Has reports whether an event is among the last ones.
func (h *History) Has(id string) bool {
	for i := range h.Handled {
		if h.Handled[i].ID == id {
			return true
		}
	}
	return false
}

// findOpen returns the ID of the last event of a type of an object, unless an event that ends it came later; empty for none.
func (h *History) findOpen(uid string, begins v1alpha1.NotificationEvent) (id string) {
	for i := range h.Handled {
		is := &h.Handled[i]
		if is.UID != uid {
			continue
		}
		if is.Event == string(begins) {
			id = is.ID
		} else if t := findType(v1alpha1.NotificationEvent(is.Event)); t != nil && t.ends == begins {
			id = ""
		}
	}
	return id
}

// standing is the last event of a type that was found for an object.
type standing struct {
	id string
	// isOpen is true from when it was found until an event ends it.
	isOpen bool
}

// Memory is what was found of one object for one Notification. nil: the object was not looked at.
type Memory map[v1alpha1.NotificationEvent]standing

// Look is how objects are looked at for a Notification.
type Look struct {
	// Events are the types that the Notification states.
	Events map[v1alpha1.NotificationEvent]bool
	// History has the events that were handled, and those that wait.
	History *History
	// Floor: events that began up to this time are not sent when their object is looked at first. It is History.Before of the time at which the
	// first object was looked at: events that are handled later are of no account for objects that come later.
	Floor time.Time
	Now   time.Time
}

// ListNews returns the events of an object that are to be sent, and what to keep of it. Events of an object that was looked at before are
// those that begin. At the first look they are those that began after Floor and are not in the History.
func (l *Look) ListNews(was Memory, s *Subject) (news []Event, is Memory) {
	is = Memory{}
	for i := range eventTypes {
		t := &eventTypes[i]
		if !t.isOfKind(s.Kind) || !l.needsType(t) {
			continue
		}
		before, now := was[t.name], was[t.name]
		if was == nil {
			open := l.History.findOpen(string(s.Meta.UID), t.name)
			before, now = standing{open, open != ""}, standing{open, open != ""}
		}
		f := t.find(s)
		if f != nil {
			e := l.newEvent(t, s, f, was == nil)
			isNews := !t.isOnlyEnd && l.isFresh(&e, before, lookKind{isFirst: was == nil, isTimed: !f.since.IsZero()})
			if begun := is[t.ends]; t.ends != "" && begun.isOpen {
				e.Ends, isNews = begun.id, true
				is[t.ends] = standing{id: begun.id}
			}
			if isNews && l.Events[t.name] {
				news = append(news, e)
			}
			now = standing{e.ID, true}
		}
		if now != (standing{}) {
			is[t.name] = now
		}
	}
	return news, is
}

// needsType reports whether the events of a type are sent, or decide about those that are sent.
func (l *Look) needsType(t *eventType) bool {
	if l.Events[t.name] {
		return true
	}
	for i := range eventTypes {
		if eventTypes[i].ends == t.name && l.Events[eventTypes[i].name] {
			return true
		}
	}
	return false
}

// lookKind is how an event was found.
type lookKind struct {
	// isFirst is true at the first look at the object, and isTimed for an event whose object states since when it stands.
	isFirst, isTimed bool
}

// isFresh reports whether an event was not sent before. An event without a time can come again with the same ID, such as a commit to which
// a branch returns.
func (l *Look) isFresh(e *Event, before standing, kind lookKind) bool {
	switch {
	case kind.isFirst:
		return e.Time.After(l.Floor) && !l.History.Has(e.ID)
	case kind.isTimed && l.History.Has(e.ID):
		return false
	}
	return e.ID != before.id
}

// newEvent returns an event of a finding. An event without a time began with its object at the first look, and now at any other.
func (l *Look) newEvent(t *eventType, s *Subject, f *finding, isFirst bool) Event {
	at := f.since
	switch {
	case !at.IsZero():
	case isFirst:
		at = s.Meta.CreationTimestamp.Time
	default:
		at = l.Now
	}
	return Event{
		Type: t.name, ID: hashTexts(string(s.Meta.UID), string(t.name), f.key), Time: at.Truncate(time.Second),
		Kind: s.Kind, Namespace: s.Meta.Namespace, Name: s.Meta.Name, UID: string(s.Meta.UID), Details: f.Details,
	}
}
