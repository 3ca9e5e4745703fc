package issuer

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

// An issuer that fails after it answered is stated as such, since the first failure; its document still counts. It
// is requested again after an hour, and after a failure in five seconds at the earliest.
func TestAnIssuerThatFailsLater(t *testing.T) {
	var fails atomic.Bool
	var requests atomic.Int32
	var server *httptest.Server
	server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		if fails.Load() {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"issuer":"` + server.URL + `","authorization_endpoint":"https://a.example/a","token_endpoint":"https://a.example/t","jwks_uri":"https://a.example/k"}`))
	}))
	defer server.Close()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	start := now
	c := &Client{settings: settings{url: server.URL, clientID: "atoll"}, http: &http.Client{Transport: &boundedTransport{base: server.Client().Transport}}, now: func() time.Time { return now }}
	check := func(wantState string, wantSince time.Time, wantRequests int32) {
		t.Helper()
		_ = c.CheckStatus(t.Context()) // it may begin an attempt
		c.mu.Lock()
		attempt := c.inFlight
		c.mu.Unlock()
		if attempt != nil {
			<-attempt
		}
		if s := c.CheckStatus(t.Context()); s.State != wantState || !s.Since.Equal(wantSince) || requests.Load() != wantRequests {
			t.Errorf("%+v after %d requests, want %s since %s after %d", s, requests.Load(), wantState, wantSince, wantRequests)
		}
	}
	check("Ready", start, 1)
	fails.Store(true)
	now = start.Add(59 * time.Minute)
	check("Ready", start, 1)
	now = start.Add(61 * time.Minute)
	failed := now
	check("Unreachable", failed, 2)
	now = now.Add(4 * time.Second)
	check("Unreachable", failed, 2)
	now = now.Add(2 * time.Second)
	check("Unreachable", failed, 3)
	if _, err := c.AuthorizeURL(context.Background(), NewSignIn("hub.example")); err != nil {
		t.Errorf("the known document does not count: %v", err)
	}
	fails.Store(false)
	now = now.Add(6 * time.Second)
	recovered := now
	check("Ready", recovered, 4)
}
