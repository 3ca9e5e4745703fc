// Package happening decides which events of objects are sent to the targets of Notifications.
//
// Contract: functions are pure, and values are not shared. An event has an ID that follows from its object alone, so that a hub that
// starts makes the same one. No text of an event is escaped here.
package happening

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// The kinds of subjects.
const (
	KindSource        = "Source"
	KindBundle        = "Bundle"
	KindClusterBundle = "ClusterBundle"
	KindCluster       = "Cluster"
)

// Subject is an object whose events are sent. One of Source, Bundle and Cluster is set.
type Subject struct {
	Kind    string
	Meta    metav1.ObjectMeta
	Source  *v1alpha1.SourceStatus
	Bundle  *BundleState
	Cluster *v1alpha1.ClusterStatus
	// IsSuspended is true for a Source that is suspended.
	IsSuspended bool
}

// BundleState is what of a Bundle decides its events.
type BundleState struct {
	Spec   *v1alpha1.BundleSpec
	Status *v1alpha1.BundleStatus
}

// Details of an event, which messages show. Empty where they are not known.
type Details struct {
	// Reason in the words of docs/reasons.md, and Message, a text that users and members may have written.
	Reason, Message string
	// Commit of a Source, and Revision, Stage and Cluster of a Bundle.
	Commit, Revision, Stage, Cluster string
	// By is the user that acted, and Actor the person or component that must act.
	By, Actor string
}

// Event is one event of an object.
type Event struct {
	Type v1alpha1.NotificationEvent
	// ID is the same for the same event of the object, whichever hub finds it.
	ID string
	// Ends is the ID of the event that this one ends; empty for none.
	Ends string
	// Time at which it began.
	Time time.Time
	// Kind, Namespace, Name and UID are the object's.
	Kind, Namespace, Name, UID string
	Details
}

// MessageID returns an ID that is the event's own, also for one that comes again with the same ID, such as a recovery.
func (e *Event) MessageID() string { return hashTexts(e.ID, e.Ends, formatKey(e.Time)) }

// finding is an event that stands.
type finding struct {
	// key distinguishes it from other events of the type and the object.
	key string
	// since is when it began; zero where the object does not state it.
	since time.Time
	Details
}

// eventType is one type of events.
type eventType struct {
	name v1alpha1.NotificationEvent
	// kind of the objects: Source, Bundle, which stands for ClusterBundle too, or Cluster.
	kind string
	// title begins a message, and meaning is its sentence in docs/notifications.md.
	title, meaning string
	// ends is the type of the events that an event of this type ends. isOnlyEnd is true for a type that is news after them alone.
	ends      v1alpha1.NotificationEvent
	isOnlyEnd bool
	// isHidden is true for a type that Notifications do not state.
	isHidden bool
	// find returns the event that stands; nil for none.
	find func(s *Subject) *finding
}

// Info describes one type of events.
type Info struct {
	Event          v1alpha1.NotificationEvent
	Kind           string
	Title, Meaning string
}

// ListTypes lists the types of events that Notifications state, in the order of the table.
func ListTypes() (out []Info) {
	for _, t := range eventTypes {
		if !t.isHidden {
			out = append(out, Info{t.name, t.kind, t.title, t.meaning})
		}
	}
	return out
}

// KindOf returns the kind of the objects of a type of events; empty for one that Notifications do not state.
func KindOf(name v1alpha1.NotificationEvent) string {
	if t := findType(name); t != nil && !t.isHidden {
		return t.kind
	}
	return ""
}

// TitleOf returns the title of a type of events.
func TitleOf(name v1alpha1.NotificationEvent) string {
	if t := findType(name); t != nil {
		return t.title
	}
	return string(name)
}

func findType(name v1alpha1.NotificationEvent) *eventType {
	for i := range eventTypes {
		if eventTypes[i].name == name {
			return &eventTypes[i]
		}
	}
	return nil
}

// isOfKind reports whether objects of a kind have events of the type.
func (t *eventType) isOfKind(kind string) bool {
	return t.kind == kind || t.kind == KindBundle && kind == KindClusterBundle
}

// MatchesObjects reports whether a selection has an object; nil has all.
func MatchesObjects(o *v1alpha1.NotificationObjects, m *metav1.ObjectMeta) bool {
	if o == nil {
		return true
	}
	if len(o.Names) > 0 && !slices.ContainsFunc(o.Names, func(pattern string) bool { return matchesPattern(pattern, m.Name) }) {
		return false
	}
	return o.LabelSelector == nil || matchesLabels(o.LabelSelector, m.Labels)
}

// matchesPattern reports whether a name is of a pattern, in which * stands for any characters.
func matchesPattern(pattern, name string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == name
	}
	first, last := parts[0], parts[len(parts)-1]
	if !strings.HasPrefix(name, first) || len(name) < len(first)+len(last) || !strings.HasSuffix(name, last) {
		return false
	}
	rest := name[len(first) : len(name)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		at := strings.Index(rest, part)
		if at < 0 {
			return false
		}
		rest = rest[at+len(part):]
	}
	return true
}

func matchesLabels(selector *metav1.LabelSelector, set map[string]string) bool {
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && s.Matches(labels.Set(set)) // admission refuses others
}

// hashTexts returns a hash of texts.
func hashTexts(texts ...string) string {
	parts := make([][]byte, len(texts))
	for i, text := range texts {
		parts[i] = []byte(text)
	}
	return atoll.HashParts(parts...)[:24]
}

// conditionIs returns a condition of a type with a status; nil: there is none.
func conditionIs(conditions []metav1.Condition, kind string, status metav1.ConditionStatus) *metav1.Condition {
	if c := meta.FindStatusCondition(conditions, kind); c != nil && c.Status == status && c.Reason != string(atoll.ReasonNotDetermined) {
		return c
	}
	return nil
}

// findingOf returns the finding that a condition has its status since a time.
func findingOf(c *metav1.Condition) *finding {
	if c == nil {
		return nil
	}
	return &finding{
		key: formatKey(c.LastTransitionTime.Time), since: c.LastTransitionTime.Time,
		Details: Details{Reason: c.Reason, Message: c.Message, Actor: actorOf(c.Reason)},
	}
}

func formatKey(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// actorOf returns the person or component that must act before a reason ends; empty for none.
func actorOf(reason string) string {
	if actor := atoll.ActorOf(atoll.Reason(reason)); actor != atoll.ActorNone {
		return string(actor)
	}
	return ""
}
