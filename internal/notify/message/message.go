package message

import (
	"fmt"
	"strings"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/notify/happening"
	"atoll.dev/atoll/internal/phrase"
)

const (
	// maxSubjectBytes is the longest subject, and maxListed the most events that a digest lists.
	maxSubjectBytes, maxListed = 150, 10
)

// Message is one message: of one event, of several, which is a digest, or of a test.
type Message struct {
	// ID is the same at each try.
	ID string
	// Type is the type of the event, Digest or Test.
	Type string
	// Source is the path of the object, or of the Notification, in the hub's API.
	Source string
	// Subject is one line, and Text is plain text of several lines.
	Subject, Text string
	Time          time.Time
	// Events are those of the message; none for a test.
	Events []happening.Event
}

// The types of messages that are of no single event.
const (
	typeDigest = "Digest"
	typeTest   = "Test"
)

// New returns the message of some events of a Notification, one at least.
func New(n *v1alpha1.Notification, events []happening.Event) Message {
	e := &events[0]
	if len(events) > 1 {
		return newDigest(n, events)
	}
	return Message{
		ID: e.MessageID(), Type: string(e.Type), Source: pathOf(e.Kind, e.Namespace, e.Name), Subject: describeEvent(e),
		Text: renderText(n.Spec.Template, e), Time: e.Time, Events: events,
	}
}

// newDigest returns one message of many events.
func newDigest(n *v1alpha1.Notification, events []happening.Event) Message {
	var lines, ids []string
	for i := range events {
		ids = append(ids, events[i].MessageID())
		if i < maxListed {
			lines = append(lines, describeEvent(&events[i]))
		}
	}
	subject := fmt.Sprintf("%s of %s", phrase.CountNoun(len(events), "event"), placeOf(n))
	text := subject + ":\n" + strings.Join(lines, "\n")
	if more := len(events) - len(lines); more > 0 {
		text += fmt.Sprintf("\nand %d more", more)
	}
	return Message{
		ID: hashIDs(ids), Type: typeDigest, Source: pathOf("Notification", n.Namespace, n.Name), Subject: phrase.TruncateText(subject, maxSubjectBytes),
		Text: phrase.TruncateText(text, maxTextBytes), Time: events[len(events)-1].Time, Events: events,
	}
}

// NewTest returns the message of a test.
func NewTest(n *v1alpha1.Notification, at time.Time) Message {
	subject := "Test of the Notification " + placeOf(n)
	return Message{
		ID: hashIDs([]string{string(n.UID), typeTest, phrase.FormatTime(at)}), Type: typeTest, Source: pathOf("Notification", n.Namespace, n.Name),
		Subject: phrase.TruncateText(subject, maxSubjectBytes), Text: subject + ".\nMessages about its events come here.", Time: at.Truncate(time.Second),
	}
}

// describeEvent returns one line about an event.
func describeEvent(e *happening.Event) string {
	f := newFields(e)
	name := f.Name
	if f.Namespace != "" {
		name = f.Namespace + "/" + f.Name
	}
	line := f.Title + ": " + f.Kind + " " + name
	if f.Reason != "" {
		line += " (" + f.Reason + ")"
	}
	return phrase.TruncateText(line, maxSubjectBytes)
}

func placeOf(n *v1alpha1.Notification) string { return n.Namespace + "/" + n.Name }

// resources are the resources of the kinds of subjects.
var resources = map[string]string{
	happening.KindSource: "sources", happening.KindBundle: "bundles", happening.KindClusterBundle: "clusterbundles", happening.KindCluster: "clusters", "Notification": "notifications",
}

// pathOf returns the path of an object in the hub's API.
func pathOf(kind, namespace, name string) string {
	path := "/apis/" + v1alpha1.GroupVersion.String()
	if namespace != "" {
		path += "/namespaces/" + namespace
	}
	return path + "/" + resources[kind] + "/" + name
}

func hashIDs(ids []string) string {
	parts := make([][]byte, len(ids))
	for i, id := range ids {
		parts[i] = []byte(id)
	}
	return atoll.HashParts(parts...)[:24]
}
