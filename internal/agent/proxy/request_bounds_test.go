package proxy

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/internal/agent/policy"
)

func TestWhichRequestsAreShort(t *testing.T) {
	for path, want := range map[string]bool{
		"/api/v1/pods": true, "/api/v1/pods?watch=false": true, "/api/v1/pods?watch=0": true, "/api/v1/namespaces/a/pods/b/log": true,
		"/api/v1/pods?watch=true": false, "/api/v1/pods?watch=1": false, "/api/v1/pods?watch": false, "/api/v1/watch/pods": false, "/api/v1/namespaces/a/pods/b/log?follow=true": false,
	} {
		if got := isShortRequest(httptest.NewRequest(http.MethodGet, path, nil)); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
	upgraded := httptest.NewRequest(http.MethodPost, "/api/v1/namespaces/a/pods/b/exec", nil)
	upgraded.Header.Set("Upgrade", "websocket")
	if isShortRequest(upgraded) {
		t.Error("an upgraded connection is short")
	}
}

// A hub has at most 256 short requests under way in a member, and 1,024 in all. Further ones are
// answered with 429, and a request that ends makes room.
func TestRequestsOfAHubAreBounded(t *testing.T) {
	g := requestGuard{policy: func() *policy.Policy { return nil }, inside: map[*guardedRequest]bool{}}
	release, reached := make(chan struct{}), make(chan struct{})
	h := g.limitByPolicy(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		reached <- struct{}{}
		<-release
	}), true)
	left := make(chan int)
	send := func(path string) {
		answer := httptest.NewRecorder()
		h.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
		left <- answer.Code
	}
	for range 256 {
		go send("/api/v1/pods")
		<-reached
	}
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil))
	var status metav1.Status
	if err := json.Unmarshal(answer.Body.Bytes(), &status); err != nil || answer.Code != 429 || status.Reason != metav1.StatusReasonTooManyRequests || answer.Header().Get("Retry-After") != "1" {
		t.Errorf("short request 257 is answered with %d %s", answer.Code, answer.Body)
	}
	for range 1024 - 256 {
		go send("/api/v1/pods?watch=1")
		<-reached
	}
	go send("/api/v1/pods?watch=1")
	if code := <-left; code != 429 {
		t.Errorf("request 1,025 is answered with %d", code)
	}
	release <- struct{}{}
	<-left
	go send("/api/v1/pods?watch=1")
	<-reached
	close(release)
	for range 1024 {
		if code := <-left; code != 200 {
			t.Errorf("an admitted request is answered with %d", code)
		}
	}
	if g.short != 0 || len(g.inside) != 0 {
		t.Errorf("%d short requests of %d are left", g.short, len(g.inside))
	}
}

// A request has a header of 32 KiB, as a thousand tunnels hold one each.
func TestTheHeaderOfARequestIsBounded(t *testing.T) {
	w := newWorld(t, func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusOK) })
	for size, code := range map[int]int{30 << 10: http.StatusOK, 40 << 10: http.StatusRequestHeaderFieldsTooLarge} {
		answer := w.sendRequest(t, t.Context(), "/api/v1/pods", map[string]string{"X-Long": strings.Repeat("x", size)})
		if answer.StatusCode != code {
			t.Errorf("a header of %d bytes is answered with %d", size, answer.StatusCode)
		}
	}
}
