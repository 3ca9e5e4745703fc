package notify

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
)

// Each answer has its reason. A text that a target refuses again and again is dropped.
func TestAnswersOfTargets(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(h *hub, x *target)
		want  string
	}{
		"a redirect":     {func(_ *hub, x *target) { x.setAnswer(302, http.Header{"Location": {x.URL + "/elsewhere"}}, "") }, "False TargetRefused 302: the target answers with status 302: it redirects"},
		"no right":       {func(_ *hub, x *target) { x.setAnswer(403, nil, "") }, "False TargetRefused 403"},
		"too many":       {func(_ *hub, x *target) { x.setAnswer(429, http.Header{"Retry-After": {"300"}}, "") }, "False TargetBusy 429"},
		"a refused text": {func(_ *hub, x *target) { x.setAnswer(400, nil, "invalid_payload") }, "False TargetRefused 400: the target answers with status 400: it refuses the message"},
		"a connector":    {func(_ *hub, x *target) { x.setAnswer(200, nil, "Webhook message delivery failed with error: 429") }, "False TargetBusy 200"},
		"accepted":       {func(_ *hub, x *target) { x.setAnswer(202, nil, "") }, "True NothingUnsent"},
		"a large answer": {func(_ *hub, x *target) { x.setAnswer(200, nil, strings.Repeat("x", 1<<20)) }, "True NothingUnsent"},
		"loopback":       {func(h *hub, _ *target) { h.n.AllowedNetworks = nil }, "False TargetAddressRefused 0: the hub does not dial the loopback address 127.0.0.1; the hub's operator allows it by --notification-allowed-cidrs"},
		"no Secret":      {func(h *hub, _ *target) { h.setSecret(nil) }, "False TargetSecretInvalid 0: the Secret chat does not exist"},
		"no URL":         {func(h *hub, _ *target) { h.setSecret(map[string]string{"token": "x"}) }, "False TargetSecretInvalid 0: the Secret chat has no key url"},
		"http": {func(h *hub, x *target) {
			h.setSecret(map[string]string{"url": "http://" + x.Listener.Addr().String() + "/hush"})
		}, "False TargetSecretInvalid 0: the key url of the Secret chat is no URL"},
		"a user in it": {func(h *hub, x *target) {
			h.setSecret(map[string]string{"url": "https://ann:hush@" + x.Listener.Addr().String()})
		}, "False TargetSecretInvalid 0: the key url"},
		"another CA":      {func(h *hub, x *target) { h.setSecret(map[string]string{"url": x.URL + "/hush"}) }, "False TargetNotVerified 0: the server's certificate cannot be verified"},
		"no certificate":  {func(h *hub, x *target) { h.setSecret(map[string]string{"url": x.URL + "/hush", "ca.crt": "none"}) }, "False TargetSecretInvalid 0: ca.crt of the Secret has no certificate in PEM"},
		"nothing listens": {func(_ *hub, x *target) { x.Close() }, "False TargetUnreachable 0: the connection fails"},
		"no supported one": {func(h *hub, _ *target) {
			h.editSpec(func(spec *v1alpha1.NotificationSpec) { spec.Target = v1alpha1.NotificationTarget{} })
		}, "False TargetRefused 0"},
	} {
		t.Run(name, func(t *testing.T) {
			x := newTarget(t)
			h := newChat(t, x)
			c.spoil(h, x)
			h.failSource("web")
			h.runTurn()
			n := h.getStored()
			got := deliveredOf(n)
			if f := n.Status.Failure; f != nil {
				got += fmt.Sprintf(" %d: %s", f.Code, f.Message)
			}
			if !strings.HasPrefix(got, c.want) || strings.Contains(fmt.Sprint(n.Status, h.events), "hush") {
				t.Errorf("%s, want %s", got, c.want)
			}
			for _, request := range x.takeRequests() {
				if strings.Contains(request, "elsewhere") {
					t.Errorf("a redirect is followed: %s", request)
				}
			}
			switch name {
			case "too many":
				if again := h.runTurn(); again < 4*time.Minute {
					t.Errorf("the next try is after %s", again)
				}
			case "a refused text":
				for range maxRefusals - 1 {
					h.endWait()
					h.runTurn()
				}
				if n := h.getStored(); n.Status.Dropped != 1 || n.Status.Waiting != 0 || len(n.Status.Handled) != 1 {
					t.Errorf("a text that is refused %d times: %+v", maxRefusals, n.Status)
				}
			}
		})
	}
}

// A test is sent by the same way, once, and its result is in the status.
func TestATestMessage(t *testing.T) {
	x := newTarget(t)
	h := newChat(t, x)
	at := metav1.NewTime(time.Now().Truncate(time.Second))
	h.editSpec(func(spec *v1alpha1.NotificationSpec) { spec.TestRequest = &at })
	h.runTurn()
	h.runTurn()
	if got, n := x.takeRequests(), h.getStored(); len(got) != 1 || !strings.Contains(got[0], "Test of the Notification shop/chat") || !n.Status.TestRequest.Equal(&at) || deliveredOf(n) != "True NothingUnsent" || n.Status.Sent != 0 {
		t.Errorf("sent %q, the status %+v", got, n.Status)
	}
	x.setAnswer(http.StatusNotFound, nil, "no_service")
	later := metav1.NewTime(at.Add(time.Second))
	h.editSpec(func(spec *v1alpha1.NotificationSpec) { spec.TestRequest = &later })
	h.runTurn()
	if n := h.getStored(); n.Status.Failure == nil || n.Status.Failure.Code != 404 || !n.Status.TestRequest.Equal(&later) {
		t.Errorf("the status %+v", n.Status)
	}
	x.takeRequests()
	if again := h.runTurn(); again != 0 || len(x.takeRequests()) != 0 {
		t.Errorf("a test is repeated after %s", again)
	}
	// Its failure delays no event.
	x.setAnswer(http.StatusOK, nil, "")
	h.failSource("web")
	h.runTurn()
	if got := x.takeRequests(); len(got) != 1 {
		t.Errorf("sent %q", got)
	}
}

// Teams and webhooks get their own forms; the request of a webhook is signed, with the same ID at each try.
func TestOtherForms(t *testing.T) {
	x := newTarget(t)
	h := newHub(t, newNotification(t, "{target: {teams: {secretRef: {name: chat}}}, events: [SourceFailed], template: 'seen: {{.Name}}'}"), secretOf("chat", map[string]string{"url": x.URL, "ca.crt": string(x.certificatePEM()), "hmac": "0123456789abcdef"}))
	h.runTurn()
	h.failSource("web")
	h.runTurn()
	if got := x.takeRequests(); len(got) != 1 || !strings.Contains(got[0], "AdaptiveCard") || !strings.Contains(got[0], "seen: web") {
		t.Errorf("Teams gets %q", got)
	}
	h.editSpec(func(spec *v1alpha1.NotificationSpec) {
		spec.Target = v1alpha1.NotificationTarget{Webhook: &v1alpha1.WebhookTarget{URL: x.URL + "/events?x=y", SecretRef: v1alpha1.NotificationSecretRef{Name: "chat"}}}
	})
	h.runTurn()
	var ids []string
	x.setAnswer(http.StatusInternalServerError, nil, "")
	h.failSource("api")
	for range 2 {
		h.runTurn()
		h.endWait()
		x.mu.Lock()
		for i, header := range x.headers {
			id, at := header.Get("webhook-id"), header.Get("webhook-timestamp")
			body := strings.TrimPrefix(x.requests[i], "POST /events ")
			var event struct{ ID, Type string }
			if err := json.Unmarshal([]byte(body), &event); err != nil || event.ID != id || event.Type != "dev.atoll.SourceFailed" || header.Get("Content-Type") != "application/cloudevents+json" {
				t.Errorf("%v: the body %s of %s", err, body, id)
			}
			if header.Get("webhook-signature") != signatureOf("0123456789abcdef", id, at, body) {
				t.Errorf("the signature is %s", header.Get("webhook-signature"))
			}
			ids = append(ids, id)
		}
		x.mu.Unlock()
		x.takeRequests()
	}
	if len(ids) != 2 || ids[0] != ids[1] {
		t.Errorf("two tries have the IDs %q", ids)
	}
	h.setSecret(map[string]string{"hmac": "short"})
	h.runTurn()
	if f := h.getStored().Status.Failure; f == nil || f.Reason != "TargetSecretInvalid" || !strings.Contains(f.Message, "no key hmac of at least 16 bytes") {
		t.Errorf("a short key: %+v", f)
	}
}
