package notify_test

import (
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/internal/command/clienttest"
	"atoll.dev/atoll/internal/command/notify"
)

const chat = "atoll.dev/namespaces/shop/notifications/chat"

var kinds = []metav1.APIResourceList{{GroupVersion: "atoll.dev/v1alpha1", APIResources: []metav1.APIResource{{Name: "notifications", SingularName: "notification", Kind: "Notification", Namespaced: true}}}}

// The command sets one field, waits for the hub, and shows the result.
func TestNotifyTest(t *testing.T) {
	for name, c := range map[string]struct {
		object, answer string
		args           []string
		want, err      string
		writes         int
	}{
		"taken":          {"{metadata: {generation: 1}, spec: {target: {slack: {secretRef: {name: s}}}, events: [SourceFailed]}}", "target: Slack", nil, "the Slack target of chat took the message\n", "", 1},
		"a second later": {"{metadata: {generation: 1}, spec: {testRequest: '2999-01-01T00:00:00Z', target: {slack: {secretRef: {name: s}}}, events: [SourceFailed]}}", "target: Slack", nil, "took the message", "", 1},
		"not taken":      {"{metadata: {generation: 1}, spec: {target: {slack: {secretRef: {name: s}}}, events: [SourceFailed]}}", "target: Slack, failure: {reason: TargetRefused, message: 'status 404', since: '2026-01-02T03:04:05Z'}", nil, "", "the Slack target of chat did not take the message: TargetRefused: status 404", 1},
		"no hub":         {"{metadata: {generation: 1}, spec: {target: {slack: {secretRef: {name: s}}}, events: [SourceFailed]}}", "", []string{"--timeout", "1ms"}, "", "has not sent the test", 1},
		"suspended":      {"{metadata: {generation: 1}, spec: {suspend: true, target: {slack: {secretRef: {name: s}}}, events: [SourceFailed]}}", "", nil, "", "is suspended", 0},
		"none":           {"", "", nil, "", "not found", 0},
	} {
		t.Run(name, func(t *testing.T) {
			objects := map[string]string{}
			if c.object != "" {
				objects[chat] = c.object
			}
			h := clienttest.NewFakeHub(t, objects)
			handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if clienttest.ServeDiscovery(w, r, kinds...) {
					return
				}
				// The hub answers a request as soon as it is there.
				if spec, _ := h.Object(chat)["spec"].(map[string]any); c.answer != "" && len(h.Writes()) > 0 {
					at, _ := spec["testRequest"].(string)
					h.Put(t, chat, strings.Replace(strings.Replace(c.object, "testRequest: '2999-01-01T00:00:00Z', ", "", 1), "spec: {", "status: {observedGeneration: 1, testRequest: '"+at+"', "+c.answer+"}, spec: {testRequest: '"+at+"', ", 1))
				}
				h.ServeHTTP(w, r)
			})
			out, err := clienttest.RunForOutput(t, handler, notify.NewCommand, append([]string{"test", "chat"}, c.args...)...)
			if c.err == "" && (err != nil || !strings.Contains(out, c.want)) || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Errorf("%q, %v", out, err)
			}
			if got := len(h.Writes()); got != c.writes {
				t.Errorf("%d writes", got)
			}
		})
	}
}
