package e2e

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"atoll.dev/atoll/internal/testwait"
)

const measuredPolicy = stagedPolicy + `
      gatesAfter:
      - {name: errors, prometheus: {server: $SERVER, query: error_rate, successCondition: result < 0.01, interval: 10s}}
      - {name: tests, webhook: {url: $SERVER/gate, secretRef: {name: ci}, interval: 10s}}
`

// gateServer is a Prometheus server and a webhook. It answers as a test states.
type gateServer struct {
	*httptest.Server
	mu       sync.Mutex
	value    string
	verdict  string
	problems []string
}

func newGateServer(t *testing.T, key string) *gateServer {
	g := &gateServer{}
	handler := http.NewServeMux()
	handler.HandleFunc("/api/v1/query", func(w http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		defer g.mu.Unlock()
		series := ""
		if g.value != "" {
			series = `{"metric":{},"value":[1,"` + g.value + `"]}`
		}
		if query := r.FormValue("query"); query != "error_rate" {
			g.problems = append(g.problems, "the query is "+query)
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"status":"success","data":{"resultType":"vector","result":[%s]}}`, series)
	})
	handler.HandleFunc("/gate", func(w http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		defer g.mu.Unlock()
		body, _ := io.ReadAll(r.Body)
		mac := hmac.New(sha256.New, []byte(key))
		mac.Write([]byte(r.Header.Get("webhook-id") + "." + r.Header.Get("webhook-timestamp") + "." + string(body)))
		if got := r.Header.Get("webhook-signature"); got != "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)) {
			g.problems = append(g.problems, "the signature is "+got)
		}
		var q struct{ Bundle, Stage, Gate string }
		if err := json.Unmarshal(body, &q); err != nil || q.Bundle == "" || q.Stage != "canary" || q.Gate != "tests" {
			g.problems = append(g.problems, "the body is "+string(body))
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"verdict":%q,"message":"3 of 5 suites"}`, g.verdict)
	})
	g.Server = httptest.NewServer(handler)
	t.Cleanup(g.Close)
	return g
}

func (g *gateServer) setAnswer(value, verdict string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.value, g.verdict = value, verdict
}

// TestGatesThatMeasure checks that a rollout waits while a query has no data and a webhook waits, and stops at a bad result. After a
// person resumed, a good result and the verdict Pass let it go on.
func TestGatesThatMeasure(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "measured")
	const old, next, key = "registry.example/web:1", "registry.example/web:2", "a key of the webhook"
	g := newGateServer(t, key)
	g.setAnswer("", "Wait")
	web := strings.Replace(slowDeployment, "spec:\n  replicas: 3", "spec:\n  replicas: 1", 1)
	apply(t, ns, stagedPolicy+"---"+web)
	testwait.UntilNil(t, "the first installation", allChecks(imageIn("member1", ns, old), imageIn("member2", ns, old), rolloutShows(t, ns, `^complete: `)))
	mustKubectl(t, "apiVersion: v1\nkind: Secret\nmetadata: {name: ci, namespace: "+ns+"}\nstringData: {hmac: "+key+"}\n", "create -f -")
	apply(t, ns, strings.ReplaceAll(measuredPolicy, "$SERVER", g.URL))
	testwait.UntilNil(t, "the Bundle has the gates", func(context.Context) error {
		if out := runCLI(t, "get", "bundles", "-n", ns, "-o", "yaml"); !strings.Contains(out, "gatesAfter") {
			return errors.New(out)
		}
		return nil
	})
	edited := writeManifest(t, "web.yaml", ns, strings.Replace(web, old, next, 1))
	expectOutput(t, "the plan of another image", runCLI(t, "plan", "-f", edited), "Before it, gate errors of stage canary: measurements of prometheus 127.0.0.1:", "with result < 0.01.", "gate tests of stage canary: the answer Pass of webhook 127.0.0.1:")

	setImage(t, ns, next, "1s")
	testwait.UntilNil(t, "no data holds the stage", rolloutShows(t, ns, `^canary +1 +1 +0 +0 +0 +0$`, `^rest \* +1 +0 +0 +0 +1 +0$`,
		`^gate errors of stage canary: Waiting since .*\(no data since .*: the query finds no series\)$`, `^gate tests of stage canary: Waiting since .*\(the service answers Wait: 3 of 5 suites\)$`, `^GateHasNoData: .*the application's owner must act$`))
	testwait.UntilNil(t, "explain says so", explanationMatches("deployment/web -n "+ns, `gate errors of stage canary: measurements of prometheus .*no data since .*; for .*; to act: the application's owner$`))

	g.setAnswer("0.2", "Wait")
	testwait.UntilNil(t, "the gate fails", rolloutShows(t, ns, `^gate errors of stage canary: Failed since .*\(0.2 is no success at .*; failures: 1, and 0 may fail\)$`, `^GateFailed: .*atoll rollout resume.*the application's owner must act$`))
	if err := imageIn("member2", ns, old)(t.Context()); err != nil {
		t.Errorf("the stage has begun after its gate failed: %v", err)
	}

	g.setAnswer("0.001", "Pass")
	if out := runCLI(t, "rollout", "resume", "deployment/web", "-n", ns); !strings.Contains(out, "is resumed") {
		t.Fatalf("resume: %s", out)
	}
	testwait.UntilNil(t, "both gates pass", allChecks(imageIn("member2", ns, next), rolloutShows(t, ns, `^gate errors of stage canary: Passed since .*\(0.001 at .*: 1 measurement in a row succeeded\)$`, `^gate tests of stage canary: Passed since .*the service answers Pass`, `^complete: `)))
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.problems) > 0 {
		t.Error(g.problems)
	}
}
