package console

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

const (
	patchType  = "application/merge-patch+json"
	bundlePath = "/apis/atoll.dev/v1alpha1/namespaces/shop/bundles/web"
)

// Writes of the page reach the API as the person, with their body and nothing else of the browser.
func TestWritesReachTheAPI(t *testing.T) {
	for name, c := range map[string]struct{ method, path, contentType string }{
		"a patch":                   {"PATCH", bundlePath + "?dryRun=All&fieldManager=atoll-plan", patchType},
		"a patch of a template":     {"PATCH", "/apis/apps/v1/namespaces/shop/deployments/web", patchType},
		"a custom kind of a name":   {"PATCH", "/apis/example.com/v1/namespaces/shop/secrets/web", patchType},
		"a decision on an agent":    {"PUT", "/apis/certificates.k8s.io/v1/certificatesigningrequests/a/approval", "application/json"},
		"the question for a right":  {"POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "application/json; charset=utf-8"},
		"the question for the plan": {"POST", "/atoll/v1alpha1/plan", "application/json"},
		"the question for an undo":  {"POST", "/atoll/v1alpha1/undo?kind=ConfigMap&name=a&revision=1", "application/json"},
	} {
		h := newTestHub(t, 1)
		r := pageRequest(c.method, apiPath+c.path, `{"a":1}`)
		r.Header.Set("Content-Type", c.contentType)
		r.Header.Set("Authorization", "Bearer other")
		r.Header.Set("Impersonate-User", "root")
		r.AddCookie(h.signIn())
		if answer := h.serve(r); answer.StatusCode != http.StatusOK || len(h.api.reached) != 1 {
			t.Errorf("%s: %d", name, answer.StatusCode)
			continue
		}
		got := h.api.reached[0]
		body, err := io.ReadAll(got.Body)
		kind, _, _ := strings.Cut(c.contentType, ";")
		if err != nil || string(body) != `{"a":1}` || got.ContentLength != 7 || got.Method != c.method || got.Header.Get("Content-Type") != kind ||
			got.Header.Get("Authorization") != "Bearer "+goodToken || len(got.Header) != 2 || got.RequestURI != c.path {
			t.Errorf("%s: %s %s %v %q %v", name, got.Method, got.RequestURI, got.Header, body, err)
		}
	}
}

func TestWritesThatDoNotReachTheAPI(t *testing.T) {
	h := newTestHub(t, 1)
	cookie := h.signIn()
	for name, c := range map[string]struct {
		method, path string
		change       func(*http.Request)
		want         int
	}{
		"another site's origin":     {path: bundlePath, change: func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }, want: 403},
		"no origin":                 {path: bundlePath, change: func(r *http.Request) { r.Header.Del("Origin") }, want: 403},
		"no header of the page":     {path: bundlePath, change: func(r *http.Request) { r.Header.Del(pageHeader) }, want: 403},
		"another site":              {path: bundlePath, change: func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") }, want: 403},
		"no session":                {path: bundlePath, change: func(r *http.Request) { r.Header.Del("Cookie") }, want: 401},
		"a page of another sign-in": {path: bundlePath, change: func(r *http.Request) { r.Header.Set(sessionHeader, "1767225600") }, want: 401},
		"a page without a sign-in":  {path: bundlePath, change: func(r *http.Request) { r.Header.Del(sessionHeader) }, want: 401},
		"a form":                    {path: bundlePath, change: func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }, want: 415},
		"an apply":                  {path: bundlePath, change: func(r *http.Request) { r.Header.Set("Content-Type", "application/apply-patch+yaml") }, want: 415},
		"no content type":           {path: bundlePath, change: func(r *http.Request) { r.Header.Del("Content-Type") }, want: 415},
		"an unknown length":         {path: bundlePath, change: func(r *http.Request) { r.ContentLength = -1 }, want: 411},
		"no body":                   {path: bundlePath, change: func(r *http.Request) { r.ContentLength = 0 }, want: 411},
		"a large body":              {path: bundlePath, change: func(r *http.Request) { r.ContentLength = maxWriteBody + 1 }, want: 413},
		"a method of its own":       {method: "CONNECT", path: bundlePath, want: 405},
		"a deletion":                {method: "DELETE", path: bundlePath, want: 405},
		"a creation":                {method: "POST", path: "/apis/apps/v1/namespaces/shop/deployments", want: 403},
		"a token":                   {method: "POST", path: "/api/v1/namespaces/shop/serviceaccounts/a/token", want: 403},
		"another person's rights":   {method: "POST", path: "/apis/authorization.k8s.io/v1/subjectaccessreviews", want: 403},
		"a token's review":          {method: "POST", path: "/apis/authentication.k8s.io/v1/tokenreviews", want: 403},
		"an eviction":               {method: "POST", path: "/api/v1/namespaces/shop/pods/a/eviction", want: 403},
		"exec":                      {method: "POST", path: "/api/v1/namespaces/shop/pods/a/exec?command=ls", want: 403},
		"a rebalance":               {method: "POST", path: "/atoll/v1alpha1/rebalance", want: 403},
		"a plan below the plan":     {method: "POST", path: "/atoll/v1alpha1/plan/x", want: 403},
		"a whole object":            {method: "PUT", path: bundlePath, want: 403},
		"a certificate":             {method: "PUT", path: "/apis/certificates.k8s.io/v1/certificatesigningrequests/a/status", want: 403},
		"a status":                  {path: bundlePath + "/status", want: 403},
		"a Secret":                  {path: "/api/v1/namespaces/shop/secrets/a", want: 403},
		"a ServiceAccount":          {path: "/api/v1/namespaces/shop/serviceaccounts/a", want: 403},
		"a member's API":            {path: "/apis/atoll.dev/v1alpha1/clusters/a/proxy/api/v1/pods/b", want: 403},
		"a Service":                 {path: "/api/v1/namespaces/a/services/b/proxy/x", want: 403},
		"a path outside of the API": {path: "/debug/flags/v", want: 403},
		"a path that climbs":        {path: "/api/../debug/flags/v", want: 403},
	} {
		method := c.method
		if method == "" {
			method = "PATCH"
		}
		r := pageRequest(method, apiPath+c.path, `{}`)
		if method == "PATCH" {
			r.Header.Set("Content-Type", patchType)
		}
		r.AddCookie(cookie)
		if c.change != nil {
			c.change(r)
		}
		if answer := h.serve(r); answer.StatusCode != c.want {
			t.Errorf("%s: %d, want %d", name, answer.StatusCode, c.want)
		}
	}
	if len(h.api.reached) > 0 {
		t.Errorf("%s %s reached the API", h.api.reached[0].Method, h.api.reached[0].URL)
	}
}

// A body that is longer than it states is cut at the bound of a write.
func TestABodyEndsAtItsBound(t *testing.T) {
	r := pageRequest("PATCH", apiPath+bundlePath, "{}")
	r.Header.Set("Content-Type", patchType)
	r.Body = io.NopCloser(io.LimitReader(endlessReader{}, maxWriteBody+1))
	inner := newInnerRequest(r)
	if !takeBody(httptest.NewRecorder(), r, inner) {
		t.Fatal("the body is refused")
	}
	var tooLarge *http.MaxBytesError
	if n, err := io.Copy(io.Discard, inner.Body); n > maxWriteBody || !errors.As(err, &tooLarge) {
		t.Errorf("%d bytes, %v", n, err)
	}
}

type endlessReader struct{}

func (endlessReader) Read(b []byte) (int, error) { return len(b), nil }

// A page acts as the person that it names: not as one that signed in later, in another tab.
func TestAPageActsAsItsPerson(t *testing.T) {
	h := newTestHub(t, 1)
	first := h.serve(pageRequest("POST", sessionPath, `{"token":"`+goodToken+`"}`))
	var shown person
	if err := json.Unmarshal([]byte(readBody(t, first)), &shown); err != nil {
		t.Fatal(err)
	}
	write := func() int {
		r := pageRequest("PATCH", apiPath+bundlePath, "{}")
		r.Header.Set("Content-Type", patchType)
		r.Header.Set(sessionHeader, shown.Session)
		r.AddCookie(h.signIn())
		return h.serve(r).StatusCode
	}
	if got := write(); got != http.StatusOK {
		t.Errorf("a write of the page's own session: %d", got)
	}
	h.clock = h.clock.Add(time.Minute)
	if got := write(); got != http.StatusUnauthorized {
		t.Errorf("a write after another sign-in: %d", got)
	}
}
