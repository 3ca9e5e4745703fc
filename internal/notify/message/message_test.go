package message

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"mime"
	"mime/quotedprintable"
	"net/mail"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/notify/happening"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func failedEvent(name string) happening.Event {
	return happening.Event{
		Type: v1alpha1.EventSourceFailed, ID: "id of " + name, Time: noon, Kind: "Source", Namespace: "shop", Name: name, UID: "uid of " + name,
		Details: happening.Details{Reason: "ContentInvalid", Message: "deploy/web.yaml:3: no object", Commit: "1f0c9d2e7ab4", Actor: "the application's owner"},
	}
}

func newNotification(template string) *v1alpha1.Notification {
	return &v1alpha1.Notification{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "chat", UID: "n"}, Spec: v1alpha1.NotificationSpec{Template: template}}
}

func TestDefaultText(t *testing.T) {
	m := New(newNotification(""), []happening.Event{failedEvent("web")})
	want := "Source failed: Source shop/web\nContentInvalid: deploy/web.yaml:3: no object\nCommit 1f0c9d2e7ab4. Since 2026-01-02T12:00:00Z. Must act: the application's owner."
	if m.Text != want || m.Subject != "Source failed: Source shop/web (ContentInvalid)" || m.Source != "/apis/atoll.dev/v1alpha1/namespaces/shop/sources/web" {
		t.Errorf("%+v", m)
	}
	e := happening.Event{Type: v1alpha1.EventClusterReady, Time: noon, Kind: "Cluster", Name: "tokyo"}
	if m := New(newNotification(""), []happening.Event{e}); m.Text != "Cluster ready: Cluster tokyo\nSince 2026-01-02T12:00:00Z." || m.Source != "/apis/atoll.dev/v1alpha1/clusters/tokyo" {
		t.Errorf("%+v", m)
	}
	if err := CheckTemplate(DefaultTemplate); err != nil {
		t.Errorf("the default template is refused: %v", err)
	}
}

// A template has the fields of an event. One that cannot be rendered gives way to the default text.
func TestTemplates(t *testing.T) {
	for text, want := range map[string]string{
		"{{.Event}} {{.Title}} {{.Kind}} {{.Namespace}} {{.Name}} {{.Reason}} {{.Message}} {{.Since}} {{.Commit}}{{.Revision}}{{.Stage}}{{.Cluster}}{{.By}} {{.Actor}}": "SourceFailed Source failed Source shop web ContentInvalid deploy/web.yaml:3: no object 2026-01-02T12:00:00Z 1f0c9d2e7ab4 the application's owner",
		`{{if eq .Kind "Source"}}a Source{{else if eq .Kind "Bundle"}}a Bundle{{else}}another{{end}}`:                                                                   "a Source",
		`{{if and .Commit (not .Stage) (ne .Reason "x")}}{{.Commit}}{{end}}{{/* a comment */}}{{or .Stage .Name}}`:                                                      "1f0c9d2e7ab4web",
		"no fields":  "no fields",
		"{{.Stage}}": "Source failed: Source shop/web",
		"{{.Other}}": "Source failed: Source shop/web",
	} {
		if got := New(newNotification(text), []happening.Event{failedEvent("web")}).Text; got != want && !strings.HasPrefix(got, want+"\n") {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

func TestTemplatesThatAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"{{.Name}":                                 "bad character",
		"{{.name}}":                                "there is no field .name",
		"{{.Name.Other}}":                          "there is no field .Name.Other",
		"{{.}}":                                    "texts, fields, if and else alone",
		"{{range .Name}}x{{end}}":                  "texts, fields, if and else alone",
		"{{range 1000000000}}{{end}}":              "texts, fields, if and else alone",
		"{{with .Name}}x{{end}}":                   "texts, fields, if and else alone",
		"{{$x := .Name}}{{$x}}":                    "variables",
		"{{if $.Name}}x{{end}}":                    "texts, fields, if and else alone",
		`{{printf "%1000000d" 1}}`:                 "the function printf is none of eq, ne, and, or, not",
		"{{if .Name}}{{html .Name}}{{end}}":        "the function html",
		"{{if .Name}}{{else}}{{len .Name}}{{end}}": "the function len",
		"{{if (index .Name 0)}}x{{end}}":           "the function index",
		`{{define "x"}}{{end}}{{template "x"}}`:    "define templates",
		`{{template "template"}}`:                  "texts, fields, if and else alone",
		`{{define "x"}}x{{end}}`:                   "define templates",
		"{{call .Name}}":                           "the function call",
		"{{eq .Name 1}}":                           "incompatible types",
		"{{if .Name}}{{eq .Name}}{{end}}":          "missing argument",
		"{{nosuch .Name}}":                         "not defined",
	} {
		if err := CheckTemplate(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// Texts of users and members are plain text in each target, and bounded.
func TestHostileTexts(t *testing.T) {
	e := failedEvent("web")
	e.Message = "<!channel> <@U123> @here @channel <https://evil|click> [click](https://evil) ![x][y] *bold* & \r\nBcc: evil@example.com\r\n\r\n.\r\nQUIT \x1b[31m\u202e {{.Name}}" + strings.Repeat("long ", 400)
	e.By, e.Name = "a\r\nSubject: other", "web\nX-Evil: yes"
	m := New(newNotification(""), []happening.Event{e})
	if len(m.Text) > maxTextBytes || strings.ContainsAny(m.Text+m.Subject, "\r\x1b\u202e") || strings.Contains(m.Subject, "\n") || strings.Count(m.Text, "\n") != 2 {
		t.Fatalf("the text %q of %q", m.Text, m.Subject)
	}
	if !strings.Contains(m.Text, "{{.Name}}") {
		t.Error("a text of a user is read as a template")
	}
	slack, err := EncodeSlack(&m)
	if err != nil {
		t.Fatal(err)
	}
	var sent struct {
		Text      string
		Mrkdwn    bool
		LinkNames bool `json:"link_names"`
	}
	if err := json.Unmarshal(slack, &sent); err != nil || sent.Mrkdwn || sent.LinkNames || strings.ContainsAny(sent.Text, "<>") || !strings.Contains(sent.Text, "&lt;!channel&gt; &lt;@\u200bU123&gt; @\u200bhere") || !strings.Contains(sent.Text, "[click]\u200b(https") || !strings.Contains(sent.Text, "*bold* &amp; ") {
		t.Errorf("%v: %s", err, slack)
	}
	teams, err := EncodeTeams(&m)
	if err != nil || !strings.Contains(string(teams), `"type":"TextRun"`) || strings.Contains(string(teams), `"TextBlock"`) || strings.Contains(string(teams), "entities") || len(teams) > 28<<10 {
		t.Errorf("%v: %s", err, teams)
	}
	from, to := &mail.Address{Address: "hub@example.com"}, []*mail.Address{{Address: "team@example.com"}, {Address: "boss@example.com"}}
	text, err := EncodeMail(&m, from, to, noon)
	if err != nil {
		t.Fatal(err)
	}
	read, err := mail.ReadMessage(strings.NewReader(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if names := slices.Sorted(maps.Keys(read.Header)); strings.Join(names, " ") != "Auto-Submitted Content-Transfer-Encoding Content-Type Date From Message-Id Mime-Version Subject To" {
		t.Errorf("headers %q", names)
	}
	body, err := io.ReadAll(quotedprintable.NewReader(read.Body))
	if err != nil || strings.ReplaceAll(string(body), "\r\n", "\n") != m.Text+"\n" {
		t.Errorf("%v: the body %q", err, body)
	}
	if subject, err := new(mime.WordDecoder).DecodeHeader(read.Header.Get("Subject")); err != nil || subject != "[Atoll] "+m.Subject || read.Header.Get("To") != "<team@example.com>, <boss@example.com>" {
		t.Errorf("%v: subject %q to %q", err, subject, read.Header.Get("To"))
	}
}

// Many lines of a template make no card that is too large for Teams.
func TestLinesAreBounded(t *testing.T) {
	m := New(newNotification("x"+strings.Repeat("\nx", 2000)), []happening.Event{failedEvent("web")})
	if n := strings.Count(m.Text, "\n") + 1; n != maxLines {
		t.Errorf("%d lines", n)
	}
}

func TestCloudEvent(t *testing.T) {
	e := failedEvent("web")
	m := New(newNotification(""), []happening.Event{e})
	body, err := EncodeCloudEvent(&m)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"specversion":"1.0","id":"` + e.MessageID() + `","source":"/apis/atoll.dev/v1alpha1/namespaces/shop/sources/web","type":"dev.atoll.SourceFailed","subject":"Source/web","time":"2026-01-02T12:00:00Z","datacontenttype":"application/json",` +
		`"data":{"text":"Source failed: Source shop/web\nContentInvalid: deploy/web.yaml:3: no object\nCommit 1f0c9d2e7ab4. Since 2026-01-02T12:00:00Z. Must act: the application's owner.",` +
		`"event":{"type":"SourceFailed","kind":"Source","namespace":"shop","name":"web","uid":"uid of web","since":"2026-01-02T12:00:00Z","reason":"ContentInvalid","message":"deploy/web.yaml:3: no object","commit":"1f0c9d2e7ab4","actor":"the application's owner"}}}`
	if string(body) != want {
		t.Errorf("%s\nwant\n%s", body, want)
	}
}

// A digest lists the first events, and counts the others.
func TestDigest(t *testing.T) {
	var events []happening.Event
	for i := range 47 {
		events = append(events, failedEvent(fmt.Sprint("web-", i)))
	}
	m := New(newNotification("a template"), events)
	if m.Type != "Digest" || m.Subject != "47 events of shop/chat" || !strings.HasPrefix(m.Text, "47 events of shop/chat:\nSource failed: Source shop/web-0 (ContentInvalid)\n") || !strings.HasSuffix(m.Text, "web-9 (ContentInvalid)\nand 37 more") {
		t.Errorf("%+v", m)
	}
	if other := New(newNotification(""), events[1:]); other.ID == m.ID {
		t.Error("digests of other events have the same ID")
	}
	var sent struct {
		Type, Source string
		Data         struct {
			Count int
			Items []struct{ Name string }
			Event *struct{}
		}
	}
	body, err := EncodeCloudEvent(&m)
	if err != nil || json.Unmarshal(body, &sent) != nil || sent.Type != "dev.atoll.Digest" || sent.Source != "/apis/atoll.dev/v1alpha1/namespaces/shop/notifications/chat" || sent.Data.Count != 47 || len(sent.Data.Items) != maxListed || sent.Data.Event != nil {
		t.Errorf("%v: %s", err, body)
	}
}

func TestMessageOfATest(t *testing.T) {
	m := NewTest(newNotification("a template"), noon)
	if m.Type != "Test" || m.Text != "Test of the Notification shop/chat.\nMessages about its events come here." || m.ID == NewTest(newNotification(""), noon.Add(time.Second)).ID {
		t.Errorf("%+v", m)
	}
	if body, err := EncodeCloudEvent(&m); err != nil || strings.Contains(string(body), `"event"`) || !strings.Contains(string(body), `"type":"dev.atoll.Test"`) {
		t.Errorf("%v: %s", err, body)
	}
}

func TestAddresses(t *testing.T) {
	for text, want := range map[string]bool{
		"team@example.com": true, "a.b+c@example.com": true, "Team <team@example.com>": false, "team": false, "team@example.com, b@example.com": false, "team@example.com\r\nBcc: x": false, " team@example.com": false, "<team@example.com>": false, `"a b"@example.com`: false, "": false,
	} {
		if a, err := ParseAddress(text); (err == nil) != want || err == nil && a.Address != text {
			t.Errorf("%q: %v, %v", text, a, err)
		}
	}
}
