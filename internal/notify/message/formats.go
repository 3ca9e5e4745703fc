package message

import (
	"bytes"
	"encoding/json"
	"errors"
	"mime"
	"mime/quotedprintable"
	"net/mail"
	"regexp"
	"strings"
	"time"

	"atoll.dev/atoll/internal/phrase"
)

// The types of content of the bodies.
const (
	TypeJSON       = "application/json"
	TypeCloudEvent = "application/cloudevents+json"
)

// eventTypePrefix begins the types of CloudEvents.
const eventTypePrefix = "dev.atoll."

// mentionOf and linkTo are markup that some servers read although the text is plain: the @ of a mention, and the middle of a link or an
// image.
var (
	mentionOf = regexp.MustCompile(`@([\pL\pN_])`)
	linkTo    = strings.NewReplacer("](", "]\u200b(", "][", "]\u200b[")
)

// escapeSlack returns a text without control sequences of Slack, without mentions, and without links of servers that take the same
// messages.
func escapeSlack(text string) string {
	text = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(text)
	return linkTo.Replace(mentionOf.ReplaceAllString(text, "@\u200b$1"))
}

// EncodeSlack returns the body for an incoming webhook of Slack.
func EncodeSlack(m *Message) ([]byte, error) {
	return json.Marshal(map[string]any{
		"text": escapeSlack(m.Text), "mrkdwn": false, "parse": "none", "link_names": false, "unfurl_links": false, "unfurl_media": false,
	})
}

// EncodeTeams returns the body for a workflow of Microsoft Teams: an Adaptive Card of text runs, in which Teams reads no markup. A card
// without entities mentions no person.
func EncodeTeams(m *Message) ([]byte, error) {
	var blocks []any
	for i, line := range strings.Split(m.Text, "\n") {
		run := map[string]any{"type": "TextRun", "text": line}
		if i == 0 {
			run["weight"] = "Bolder"
		}
		blocks = append(blocks, map[string]any{"type": "RichTextBlock", "inlines": []any{run}})
	}
	return json.Marshal(map[string]any{
		"type": "message",
		"attachments": []any{map[string]any{
			"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": nil,
			"content": map[string]any{
				"$schema": "http://adaptivecards.io/schemas/adaptive-card.json", "type": "AdaptiveCard", "version": "1.2", "body": blocks,
				"fallbackText": "A message of Atoll", "msteams": map[string]any{"width": "Full"},
			},
		}},
	})
}

// cloudEvent is a CloudEvent 1.0 in JSON.
type cloudEvent struct {
	SpecVersion     string    `json:"specversion"`
	ID              string    `json:"id"`
	Source          string    `json:"source"`
	Type            string    `json:"type"`
	Subject         string    `json:"subject,omitempty"`
	Time            time.Time `json:"time"`
	DataContentType string    `json:"datacontenttype"`
	Data            eventData `json:"data"`
}

// eventData is the data of a CloudEvent. A digest has items, and the number of all.
type eventData struct {
	Text  string      `json:"text"`
	Event *eventItem  `json:"event,omitempty"`
	Count int         `json:"count,omitempty"`
	Items []eventItem `json:"items,omitempty"`
}

// eventItem is one event.
type eventItem struct {
	Type      string `json:"type"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	Since     string `json:"since"`
	Reason    string `json:"reason,omitempty"`
	Message   string `json:"message,omitempty"`
	Commit    string `json:"commit,omitempty"`
	Revision  string `json:"revision,omitempty"`
	Stage     string `json:"stage,omitempty"`
	Cluster   string `json:"cluster,omitempty"`
	By        string `json:"by,omitempty"`
	Actor     string `json:"actor,omitempty"`
}

// EncodeCloudEvent returns a message as a CloudEvent in structured JSON.
func EncodeCloudEvent(m *Message) ([]byte, error) {
	e := cloudEvent{
		SpecVersion: "1.0", ID: m.ID, Source: m.Source, Type: eventTypePrefix + m.Type, Time: m.Time.UTC(), DataContentType: TypeJSON, Data: eventData{Text: m.Text},
	}
	var items []eventItem
	for i := range m.Events[:min(len(m.Events), maxListed)] {
		f, uid := newFields(&m.Events[i]), m.Events[i].UID
		items = append(items, eventItem{
			Type: f.Event, Kind: f.Kind, Namespace: f.Namespace, Name: f.Name, UID: uid, Since: f.Since, Reason: f.Reason, Message: f.Message,
			Commit: f.Commit, Revision: f.Revision, Stage: f.Stage, Cluster: f.Cluster, By: f.By, Actor: f.Actor,
		})
	}
	switch {
	case len(m.Events) == 1:
		e.Subject, e.Data.Event = items[0].Kind+"/"+items[0].Name, &items[0]
	case len(m.Events) > 1:
		e.Data.Items, e.Data.Count = items, len(m.Events)
	}
	return json.Marshal(e)
}

// EncodeMail returns a message as a mail. The addresses are those that ParseAddress returned.
func EncodeMail(m *Message, from *mail.Address, to []*mail.Address, now time.Time) ([]byte, error) {
	var names []string
	for _, a := range to {
		names = append(names, a.String())
	}
	_, domain, _ := strings.Cut(from.Address, "@")
	var b bytes.Buffer
	for _, h := range [][2]string{
		{"From", from.String()}, {"To", strings.Join(names, ",\r\n ")}, {"Subject", mime.QEncoding.Encode("utf-8", phrase.EscapeLine("[Atoll] "+m.Subject))},
		{"Date", now.UTC().Format(time.RFC1123Z)}, {"Message-ID", "<" + m.ID + "@" + domain + ">"}, {"Auto-Submitted", "auto-generated"},
		{"MIME-Version", "1.0"}, {"Content-Type", "text/plain; charset=utf-8"}, {"Content-Transfer-Encoding", "quoted-printable"},
	} {
		b.WriteString(h[0] + ": " + h[1] + "\r\n")
	}
	b.WriteString("\r\n")
	w := quotedprintable.NewWriter(&b)
	if _, err := w.Write([]byte(strings.ReplaceAll(m.Text, "\n", "\r\n") + "\r\n")); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// errAddress is the error for an address that is more than one.
var errAddress = errors.New("it must be an address such as team@example.com, without a name")

// ParseAddress parses an address of mail, without a name of a person.
func ParseAddress(text string) (*mail.Address, error) {
	a, err := mail.ParseAddress(text)
	if err != nil || a.Address != text || strings.ContainsFunc(text, phrase.IsSpaceOrControl) {
		return nil, errAddress
	}
	return a, nil
}
