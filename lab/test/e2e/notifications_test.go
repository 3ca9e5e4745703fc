package e2e

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"atoll.dev/atoll/internal/testwait"
)

const notifiedPolicy = stagedPolicy + `
      gatesAfter:
      - {name: owner, approval: {validFor: 1h}}
`

// eventTarget takes CloudEvents, and keeps the type and the subject of each.
type eventTarget struct {
	*httptest.Server
	mu       sync.Mutex
	events   []string
	problems []string
}

func newEventTarget(t *testing.T, key string) *eventTarget {
	x := &eventTarget{}
	x.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		x.mu.Lock()
		defer x.mu.Unlock()
		mac := hmac.New(sha256.New, []byte(key))
		mac.Write([]byte(r.Header.Get("webhook-id") + "." + r.Header.Get("webhook-timestamp") + "." + string(body)))
		if got := r.Header.Get("webhook-signature"); got != "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)) || r.Header.Get("Content-Type") != "application/cloudevents+json" {
			x.problems = append(x.problems, "the signature is "+got)
		}
		var event struct{ ID, Type, Subject string }
		if err := json.Unmarshal(body, &event); err != nil || event.ID != r.Header.Get("webhook-id") {
			x.problems = append(x.problems, string(body))
		}
		x.events = append(x.events, strings.TrimSpace(strings.TrimPrefix(event.Type, "dev.atoll.")+" "+event.Subject))
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(x.Close)
	return x
}

// hasEvents returns a check of all events that came.
func (x *eventTarget) hasEvents(want ...string) func(context.Context) error {
	return func(context.Context) error {
		x.mu.Lock()
		defer x.mu.Unlock()
		if len(x.problems) > 0 {
			return errors.New(strings.Join(x.problems, "\n"))
		}
		if !slices.Equal(x.events, want) {
			return fmt.Errorf("the target has %q, want %q", x.events, want)
		}
		return nil
	}
}

// A Source that fails and is mended makes exactly two messages, and a rollout that waits for an approval makes one.
func TestEventsReachTheirTarget(t *testing.T) {
	ns := createNamespace(t, "notified")
	const key = "0123456789abcdef"
	x := newEventTarget(t, key)
	g := newGitServer(t)
	g.commit(t, "the shop opens", map[string]string{"deploy/old.yaml": oldSettings})
	expectOutput(t, "the Source", runCLI(t, "source", "create", "git", g.URL+"/shop.git", "--name", "shop", "-n", ns, "--path", "deploy", "--clusters", "region in (eu,us)", "--yes"), "made; follow it with")
	testwait.UntilNil(t, "the commit runs", existsIn("v1", "ConfigMap", ns, "old", "member1", "member2"))

	certificate := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: x.Certificate().Raw}))
	mustKubectl(t, fmt.Sprintf("{apiVersion: v1, kind: Secret, metadata: {name: hook, namespace: %s}, stringData: {hmac: %q, ca.crt: %q}}", ns, key, certificate), "create -f -")
	mustKubectl(t, fmt.Sprintf("{apiVersion: atoll.dev/v1alpha1, kind: Notification, metadata: {name: hook, namespace: %s}, spec: {target: {webhook: {url: '%s/events', secretRef: {name: hook}}}, events: [SourceFailed, SourceApplied, RolloutWaitsForApproval, RolloutCompleted]}}", ns, x.URL), "create -f -")
	expectOutput(t, "a test", runCLI(t, "notify", "test", "hook", "-n", ns), "the Webhook target of hook took the message")
	testwait.UntilNil(t, "the test", x.hasEvents("Test"))

	g.commit(t, "a mistake", map[string]string{"deploy/old.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: old\n"})
	runCLI(t, "source", "sync", "shop", "-n", ns)
	testwait.UntilNil(t, "the failure", x.hasEvents("Test", "SourceFailed Source/shop"))
	runCLI(t, "source", "sync", "shop", "-n", ns)
	staysTrue(t, "one message of one failure", x.hasEvents("Test", "SourceFailed Source/shop"))
	g.commit(t, "mended", map[string]string{"deploy/old.yaml": strings.ReplaceAll(oldSettings, "blue", "red")})
	runCLI(t, "source", "sync", "shop", "-n", ns)
	testwait.UntilNil(t, "the end of the failure", x.hasEvents("Test", "SourceFailed Source/shop", "SourceApplied Source/shop"))

	apply(t, ns, notifiedPolicy+"---"+strings.Replace(slowDeployment, "replicas: 3", "replicas: 1", 1))
	testwait.UntilNil(t, "a wait for an approval", func(ctx context.Context) error {
		return x.hasEventsOf("RolloutWaitsForApproval", 1)(ctx)
	})
	staysTrue(t, "one message of one wait", x.hasEventsOf("RolloutWaitsForApproval", 1))
	expectOutput(t, "the approval", runCLI(t, "rollout", "approve", "deployment/web", "-n", ns), "is approved for stage canary")
	testwait.UntilNil(t, "the end of the rollout", x.hasEventsOf("RolloutCompleted", 1))
	if err := allChecks(x.hasEventsOf("RolloutWaitsForApproval", 1), x.hasEventsOf("SourceFailed", 1), x.hasEventsOf("SourceApplied", 1), x.hasEventsOf("Digest", 0))(t.Context()); err != nil {
		t.Error(err)
	}
	if out := mustKubectl(t, "", "get notification hook -n "+ns); !strings.Contains(out, "NothingUnsent") || !strings.Contains(out, "Webhook") {
		t.Errorf("kubectl shows\n%s", out)
	}
}

// hasEventsOf returns a check of the number of events of a type that came.
func (x *eventTarget) hasEventsOf(kind string, want int) func(context.Context) error {
	return func(context.Context) error {
		x.mu.Lock()
		defer x.mu.Unlock()
		n := 0
		for _, e := range x.events {
			if name, _, _ := strings.Cut(e, " "); name == kind {
				n++
			}
		}
		if n != want || len(x.problems) > 0 {
			return fmt.Errorf("the target has %q, want %d of %s; %q", x.events, want, kind, x.problems)
		}
		return nil
	}
}
