package console

import (
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
)

const (
	goodToken = "good.token_of-a-person"
	hubHost   = "hub.example:6443"
)

var testStart = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// fakeAPI authenticates goodToken, and records the other requests that reach it.
type fakeAPI struct {
	reached []*http.Request
	review  func(w http.ResponseWriter)
	// accepts decides on other tokens; nil: none is accepted.
	accepts func(token string) bool
	// acceptsChain decides on certificates; nil: none is accepted.
	acceptsChain func(chain []*x509.Certificate) bool
	// exec serves commands in containers; nil: as all else.
	exec http.HandlerFunc
}

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != reviewPath {
		f.reached = append(f.reached, r)
		if f.exec != nil && strings.HasSuffix(r.URL.Path, "/exec") {
			f.exec(w, r)
			return
		}
		fmt.Fprint(w, "the API")
		return
	}
	switch {
	case f.review != nil:
		f.review(w)
	case r.Method != http.MethodPost || r.Header.Get("Authorization") != "Bearer "+goodToken && !f.acceptsOther(r):
		w.WriteHeader(http.StatusUnauthorized)
	default:
		w.WriteHeader(http.StatusCreated)
		review := authenticationv1.SelfSubjectReview{}
		review.Status.UserInfo = authenticationv1.UserInfo{Username: "aiko", Groups: []string{"shop"}}
		_ = json.NewEncoder(w).Encode(review)
	}
}

func (f *fakeAPI) acceptsOther(r *http.Request) bool {
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 && f.acceptsChain != nil && f.acceptsChain(r.TLS.PeerCertificates) {
		return true
	}
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return ok && f.accepts != nil && f.accepts(token)
}

// testHub is a console over a fake API.
type testHub struct {
	t       *testing.T
	api     *fakeAPI
	console *console
	handler http.Handler
	clock   time.Time
}

func newTestHub(t *testing.T, key byte) *testHub { return newTestHubOf(t, key, Options{}) }

func newTestHubOf(t *testing.T, key byte, o Options) *testHub {
	t.Helper()
	o.Log = slog.New(slog.DiscardHandler)
	c, err := newConsole(bytes.Repeat([]byte{key}, 32), o)
	if err != nil {
		t.Fatal(err)
	}
	h := &testHub{t: t, api: &fakeAPI{}, console: c, clock: testStart}
	h.handler, c.now = c.wrapAPI(h.api), func() time.Time { return h.clock }
	return h
}

// pageRequest returns a request as the console's own page makes it.
func pageRequest(method, target, body string) *http.Request {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Host, r.RemoteAddr = hubHost, "192.0.2.1:999"
	r.Header.Set(pageHeader, "1")
	r.Header.Set(sessionHeader, strconv.FormatInt(testStart.Add(sessionTime).Unix(), 10))
	r.Header.Set("Origin", "https://"+hubHost)
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	return r
}

func (h *testHub) serve(r *http.Request) *http.Response {
	w := httptest.NewRecorder()
	h.handler.ServeHTTP(w, r)
	return w.Result()
}

func readBody(t *testing.T, r *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// signIn returns the cookie of goodToken.
func (h *testHub) signIn() *http.Cookie {
	h.t.Helper()
	r := h.serve(pageRequest("POST", sessionPath, `{"token":"`+goodToken+`"}`))
	if r.StatusCode != http.StatusOK || len(r.Cookies()) != 1 {
		h.t.Fatalf("sign-in: %d %s", r.StatusCode, readBody(h.t, r))
	}
	return r.Cookies()[0]
}

func TestSignInSealsTheTokenIntoACookie(t *testing.T) {
	h := newTestHub(t, 1)
	c := h.signIn()
	if !c.HttpOnly || !c.Secure || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.Domain != "" || !strings.HasPrefix(c.Name, "__Host-") || c.MaxAge != 12*60*60 {
		t.Errorf("the cookie is %s", c)
	}
	if strings.Contains(c.Value, goodToken) {
		t.Error("the cookie shows the token")
	}
	r := pageRequest("GET", sessionPath, "")
	r.AddCookie(c)
	answer := h.serve(r)
	if got := readBody(t, answer); answer.StatusCode != http.StatusOK || !strings.Contains(got, `"user":"aiko"`) || strings.Contains(got, goodToken) {
		t.Errorf("the person is %d %s", answer.StatusCode, got)
	}
	out := h.serve(pageRequest("DELETE", sessionPath, ""))
	if out.StatusCode != http.StatusNoContent || len(out.Cookies()) != 1 || out.Cookies()[0].MaxAge >= 0 {
		t.Errorf("sign-out: %d %v", out.StatusCode, out.Cookies())
	}
}

func TestRefusedSignIns(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*http.Request)
		body   string
		want   int
	}{
		"another token":           {body: `{"token":"forged"}`, want: 401},
		"no token":                {body: `{}`, want: 400},
		"not JSON":                {body: `token`, want: 400},
		"a token with a newline":  {body: `{"token":"a\nX-Remote-User: root"}`, want: 400},
		"a token with a space":    {body: `{"token":"a b"}`, want: 400},
		"a token that is no text": {body: `{"token":"ключ"}`, want: 400},
		"a long token":            {body: `{"token":"` + strings.Repeat("a", maxToken+1) + `"}`, want: 400},
		"an oversized body":       {body: `{"token":"` + goodToken + `","x":"` + strings.Repeat("a", maxSignInBody) + `"}`, want: 400},
		"another site's origin":   {body: `{"token":"` + goodToken + `"}`, change: func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }, want: 403},
		"no origin":               {body: `{"token":"` + goodToken + `"}`, change: func(r *http.Request) { r.Header.Del("Origin") }, want: 403},
		"the origin null":         {body: `{"token":"` + goodToken + `"}`, change: func(r *http.Request) { r.Header.Set("Origin", "null") }, want: 403},
		"an origin without TLS":   {body: `{"token":"` + goodToken + `"}`, change: func(r *http.Request) { r.Header.Set("Origin", "http://"+hubHost) }, want: 403},
		"another port":            {body: `{"token":"` + goodToken + `"}`, change: func(r *http.Request) { r.Header.Set("Origin", "https://hub.example:444") }, want: 403},
		"an empty host":           {body: `{"token":"` + goodToken + `"}`, change: func(r *http.Request) { r.Host = ""; r.Header.Set("Origin", "https://") }, want: 403},
		"no header of the page":   {body: `{"token":"` + goodToken + `"}`, change: func(r *http.Request) { r.Header.Del(pageHeader) }, want: 403},
		"a page of another site":  {body: `{"token":"` + goodToken + `"}`, change: func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, want: 403},
		"a form":                  {body: "token=" + goodToken, change: func(r *http.Request) { r.Header.Set("Content-Type", "application/x-www-form-urlencoded") }, want: 400},
		"another method":          {body: `{"token":"` + goodToken + `"}`, change: func(r *http.Request) { r.Method = "PUT" }, want: 405},
	} {
		h := newTestHub(t, 1)
		r := pageRequest("POST", sessionPath, c.body)
		if c.change != nil {
			c.change(r)
		}
		answer := h.serve(r)
		if got := readBody(t, answer); answer.StatusCode != c.want || len(answer.Cookies()) > 0 || strings.Contains(got, goodToken) {
			t.Errorf("%s: %d %s %v, want %d", name, answer.StatusCode, got, answer.Cookies(), c.want)
		}
	}
}

// An API that does not answer as expected lets no person sign in.
func TestSignInWhileTheAPIFails(t *testing.T) {
	for name, review := range map[string]func(http.ResponseWriter){
		"an error": func(w http.ResponseWriter) { w.WriteHeader(500) },
		"no JSON":  func(w http.ResponseWriter) { w.WriteHeader(201); fmt.Fprint(w, "<html>") },
		"no user":  func(w http.ResponseWriter) { w.WriteHeader(201); fmt.Fprint(w, "{}") },
		"an endless answer": func(w http.ResponseWriter) {
			w.WriteHeader(201)
			for range 100 {
				fmt.Fprint(w, strings.Repeat(" ", 10<<10))
			}
			fmt.Fprint(w, `{"status":{"userInfo":{"username":"root"}}}`)
		},
	} {
		h := newTestHub(t, 1)
		h.api.review = review
		r := h.serve(pageRequest("POST", sessionPath, `{"token":"`+goodToken+`"}`))
		if r.StatusCode != http.StatusServiceUnavailable || len(r.Cookies()) > 0 {
			t.Errorf("%s: %d %v", name, r.StatusCode, r.Cookies())
		}
	}
}

func TestCookiesThatOpenNothing(t *testing.T) {
	h, other := newTestHub(t, 1), newTestHub(t, 2)
	good := h.signIn()
	flipped := []byte(good.Value)
	flipped[len(flipped)/2] ^= 1
	seal := func(token string, until time.Time) string {
		return h.console.seal.sealSession(session{token: token, until: until})
	}
	for name, value := range map[string]string{
		"empty": "", "no base64": "***", "forged": strings.Repeat("A", 200), "changed": string(flipped), "cut": good.Value[:len(good.Value)-4], "of another hub": other.signIn().Value,
		"oversized": strings.Repeat("A", maxSealed+1), "over": seal(goodToken, testStart), "without a token": seal("", testStart.Add(time.Hour)), "with a header": seal("a\r\nX: y", testStart.Add(time.Hour)),
	} {
		for _, path := range []string{sessionPath, apiPath + "/api/v1/pods"} {
			r := pageRequest("GET", path, "")
			r.AddCookie(&http.Cookie{Name: good.Name, Value: value})
			if answer := h.serve(r); answer.StatusCode != http.StatusUnauthorized {
				t.Errorf("%s at %s: %d", name, path, answer.StatusCode)
			}
		}
	}
	if len(h.api.reached) > 0 {
		t.Errorf("%d requests reached the API", len(h.api.reached))
	}
	r := pageRequest("GET", sessionPath, "")
	r.AddCookie(good)
	h.clock = testStart.Add(12 * time.Hour)
	if answer := h.serve(r); answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("after 12 hours: %d", answer.StatusCode)
	}
}

// The API checks the token again: a revoked token ends the session.
func TestARevokedTokenEndsTheSession(t *testing.T) {
	h := newTestHub(t, 1)
	c := h.signIn()
	h.api.review = func(w http.ResponseWriter) { w.WriteHeader(http.StatusUnauthorized) }
	r := pageRequest("GET", sessionPath, "")
	r.AddCookie(c)
	answer := h.serve(r)
	if answer.StatusCode != http.StatusUnauthorized || len(answer.Cookies()) != 1 || answer.Cookies()[0].MaxAge >= 0 {
		t.Errorf("%d %v", answer.StatusCode, answer.Cookies())
	}
}

// Two hubs of one etcd have one key: a session of one is one of the other.
func TestHubsOfOneKeyShareSessions(t *testing.T) {
	r := pageRequest("GET", sessionPath, "")
	r.AddCookie(newTestHub(t, 1).signIn())
	if answer := newTestHub(t, 1).serve(r); answer.StatusCode != http.StatusOK {
		t.Errorf("%d", answer.StatusCode)
	}
}

func TestTheAPIIsReadAsThePerson(t *testing.T) {
	h := newTestHub(t, 1)
	r := pageRequest("GET", apiPath+"/api/v1/namespaces/a%2Fb/pods?watch=true&limit=5", "")
	r.AddCookie(h.signIn())
	for name, value := range map[string]string{
		"Authorization": "Bearer other", "Impersonate-User": "root", "Impersonate-Group": "system:masters", "X-Remote-User": "root", "X-Remote-Group": "system:masters",
		"Connection": "Upgrade", "Upgrade": "websocket", "Audit-ID": "x", "X-Forwarded-For": "203.0.113.9", "Accept": "application/json", "User-Agent": "browser",
	} {
		r.Header.Set(name, value)
	}
	r.TLS = &tls.ConnectionState{HandshakeComplete: true, PeerCertificates: []*x509.Certificate{{}}, VerifiedChains: [][]*x509.Certificate{{{}}}}
	answer := h.serve(r)
	if answer.StatusCode != http.StatusOK || len(h.api.reached) != 1 {
		t.Fatalf("%d, %d requests", answer.StatusCode, len(h.api.reached))
	}
	got := h.api.reached[0]
	want := http.Header{"Authorization": {"Bearer " + goodToken}, "Accept": {"application/json"}, "User-Agent": {"browser"}}
	if fmt.Sprint(got.Header) != fmt.Sprint(want) {
		t.Errorf("the headers are %v", got.Header)
	}
	if got.URL.EscapedPath() != "/api/v1/namespaces/a%2Fb/pods" || got.URL.RawQuery != "watch=true&limit=5" || got.RequestURI != got.URL.RequestURI() {
		t.Errorf("the address is %s, %s", got.URL, got.RequestURI)
	}
	if got.TLS == nil || len(got.TLS.PeerCertificates)+len(got.TLS.VerifiedChains) > 0 {
		t.Error("the certificate of the connection came along")
	}
	if csp := answer.Header.Get("Content-Security-Policy"); !strings.HasPrefix(csp, "default-src 'none'") || answer.Header.Get("X-Content-Type-Options") != "nosniff" || answer.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("the answer has %v", answer.Header)
	}
}

func TestRequestsThatDoNotReachTheAPI(t *testing.T) {
	h := newTestHub(t, 1)
	cookie := h.signIn()
	for name, c := range map[string]struct {
		method, path string
		change       func(*http.Request)
		want         int
	}{
		"a deletion":                  {method: "DELETE", path: "/api/v1/namespaces/a/pods/b", want: 405},
		"a HEAD":                      {method: "HEAD", path: "/api/v1/pods", want: 405},
		"another site":                {path: "/api/v1/pods", change: func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, want: 403},
		"a page that is opened":       {path: "/api/v1/pods", change: func(r *http.Request) { r.Header.Del(pageHeader) }, want: 403},
		"a Service's page":            {path: "/api/v1/namespaces/a/services/b/proxy/evil.html", want: 403},
		"a pod's page":                {path: "/api/v1/namespaces/a/pods/b/proxy", want: 403},
		"a member's API":              {path: "/apis/atoll.dev/v1alpha1/clusters/a/proxy/api", want: 403},
		"exec":                        {path: "/api/v1/namespaces/a/pods/b/exec?command=ls", want: 403},
		"attach":                      {path: "/api/v1/namespaces/a/pods/b/attach", want: 403},
		"port-forward":                {path: "/api/v1/namespaces/a/pods/b/portforward", want: 403},
		"the old way of proxy":        {path: "/api/v1/proxy/namespaces/a/services/b", want: 403},
		"metrics":                     {path: "/metrics", want: 403},
		"profiles":                    {path: "/debug/pprof/heap", want: 403},
		"a path that climbs":          {path: "/api/../metrics", want: 403},
		"an escaped path that climbs": {path: "/api/%2e%2e/metrics", want: 403},
		"a path with an empty part":   {path: "/api//v1/pods", want: 403},
		"the console within itself":   {path: "/console/api/api/v1/pods", want: 403},
	} {
		method := c.method
		if method == "" {
			method = "GET"
		}
		r := pageRequest(method, apiPath+c.path, "")
		r.AddCookie(cookie)
		if c.change != nil {
			c.change(r)
		}
		if answer := h.serve(r); answer.StatusCode != c.want {
			t.Errorf("%s: %d, want %d", name, answer.StatusCode, c.want)
		}
	}
	if len(h.api.reached) > 0 {
		t.Errorf("%s reached the API", h.api.reached[0].URL)
	}
}

func TestSignInsAreLimitedByNetwork(t *testing.T) {
	h := newTestHub(t, 1)
	attempt := func(address string) *http.Response {
		r := pageRequest("POST", sessionPath, `{"token":"forged"}`)
		r.RemoteAddr = address
		return h.serve(r)
	}
	for i := range networkSignIns.Burst {
		if r := attempt(fmt.Sprintf("[2001:db8:1::%d]:5", i)); r.StatusCode != http.StatusUnauthorized {
			t.Fatalf("attempt %d: %d", i+1, r.StatusCode)
		}
	}
	if r := attempt("[2001:db8:1:ffff::1]:5"); r.StatusCode != http.StatusTooManyRequests || r.Header.Get("Retry-After") != "6" {
		t.Errorf("one more: %d, retry after %q", r.StatusCode, r.Header.Get("Retry-After"))
	}
	if r := attempt("[2001:db8:2::1]:5"); r.StatusCode != http.StatusUnauthorized {
		t.Errorf("another network: %d", r.StatusCode)
	}
	h.clock = h.clock.Add(networkSignIns.Interval)
	if r := attempt("[2001:db8:1::1]:5"); r.StatusCode != http.StatusUnauthorized {
		t.Errorf("after a while: %d", r.StatusCode)
	}
}

func TestFilesAreServed(t *testing.T) {
	h := newTestHub(t, 1)
	page := h.serve(httptest.NewRequest("GET", "/console/", nil))
	text := readBody(t, page)
	if page.StatusCode != http.StatusOK || page.Header.Get("Content-Type") != "text/html; charset=utf-8" || page.Header.Get("Content-Encoding") != "" || !strings.Contains(text, `<div id="app">`) {
		t.Fatalf("%d %v %s", page.StatusCode, page.Header, text)
	}
	for name, a := range h.console.assets {
		r := httptest.NewRequest("GET", name, nil)
		r.Header.Set("Accept-Encoding", "br, gzip")
		answer := h.serve(r)
		z, err := gzip.NewReader(answer.Body)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		plain, err := io.ReadAll(z)
		if err != nil || len(plain) != len(a.plain) || answer.Header.Get("Content-Encoding") != "gzip" || answer.Header.Get("Vary") != "Accept-Encoding" {
			t.Errorf("%s: %d bytes, %v, %v", name, len(plain), err, answer.Header)
		}
		if immutable := strings.Contains(answer.Header.Get("Cache-Control"), "immutable"); immutable != strings.HasPrefix(name, rootPath+"app-") && !strings.HasPrefix(name, rootPath+"icon-") && !strings.HasPrefix(name, lazyPrefix) {
			t.Errorf("%s: cache control %s", name, answer.Header.Get("Cache-Control"))
		}
		again := httptest.NewRequest("GET", name, nil)
		again.Header.Set("Accept-Encoding", "gzip")
		again.Header.Set("If-None-Match", `"x", W/`+answer.Header.Get("ETag"))
		if r := h.serve(again); r.StatusCode != http.StatusNotModified || readBody(t, r) != "" {
			t.Errorf("%s is sent again: %d", name, r.StatusCode)
		}
		head := h.serve(httptest.NewRequest("HEAD", name, nil))
		if head.StatusCode != http.StatusOK || readBody(t, head) != "" || head.ContentLength != int64(len(a.plain)) {
			t.Errorf("HEAD %s: %d, %d bytes", name, head.StatusCode, head.ContentLength)
		}
	}
	part := httptest.NewRequest("GET", "/console/", nil)
	part.Header.Set("Range", "bytes=0-3")
	if r := h.serve(part); r.StatusCode != http.StatusOK || readBody(t, r) != text {
		t.Errorf("a range: %d", r.StatusCode)
	}
}

func TestEncodingsAreNegotiated(t *testing.T) {
	for header, want := range map[string]bool{
		"": false, "gzip": true, "GZIP": true, "br": false, "*": true, "identity": false, "gzip;q=0": false, "gzip; q=0.0": false, "gzip;q=0.5": true, "*;q=0": false,
		"br, gzip;q=0, *": false, "deflate, gzip;q=1.0, *;q=0.5": true, "gzip;q=x": false, "xgzip": false,
	} {
		if got := acceptsGzip([]string{header}); got != want {
			t.Errorf("%q: %t", header, got)
		}
	}
}

func TestPathsOfTheConsole(t *testing.T) {
	h := newTestHub(t, 1)
	for path, want := range map[string]int{
		"/console/": 200, "/console/fleet": 200, "/console/clusters/a.b": 200, "/console/applications/shop/web": 200, "/console/waiting": 200, "/console/reasons.json": 200,
		"/console": 308, "/console/app.js": 404, "/console/other": 404, "/console/../etc/passwd": 404, "/console/%2e%2e/%2e%2e/etc/passwd": 404, "/console/assets/index.html.gz": 404,
		"/console/index.html.gz": 404, "/console/api": 404, "/console/<script>": 404, "/console//fleet": 200,
	} {
		u, err := url.ParseRequestURI(path)
		if err != nil {
			t.Fatal(path, err)
		}
		r := httptest.NewRequest("GET", "/", nil)
		r.URL, r.RequestURI = u, path
		answer := h.serve(r)
		body := readBody(t, answer)
		if answer.StatusCode != want || strings.Contains(body, "<script>") || strings.Contains(body, "passwd") {
			t.Errorf("%s: %d %s", path, answer.StatusCode, body)
		}
	}
	if r := h.serve(pageRequest("POST", "/console/fleet", "")); r.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", r.StatusCode)
	}
	for _, path := range []string{"/", "/api/v1/pods", "/consoles", "/readyz"} {
		if r := h.serve(httptest.NewRequest("GET", path, nil)); readBody(t, r) != "the API" || r.Header.Get("Content-Security-Policy") != "" {
			t.Errorf("%s is not the API's", path)
		}
	}
}

// The API, and servers behind it, receive no session. Other cookies stay, and the request of the caller is not changed.
func TestTheAPIReceivesNoSession(t *testing.T) {
	var got []string
	handler := newTestHub(t, 1).console.wrapAPI(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header.Values("Cookie") }))
	for in, want := range map[string]string{
		"a=1; __Host-atoll-console-6443=x; b=2": "a=1; b=2", "__Host-atoll-console=x": "", "a=1": "a=1", "": "",
	} {
		r := httptest.NewRequest("GET", "/api/v1/pods", nil)
		if in != "" {
			r.Header.Set("Cookie", in)
		}
		handler.ServeHTTP(httptest.NewRecorder(), r)
		if strings.Join(got, "; ") != want || r.Header.Get("Cookie") != in {
			t.Errorf("%q: the API got %q, want %q; the request has %q", in, got, want, r.Header.Get("Cookie"))
		}
	}
}

// Every answer has the strict policy, which allows no inline script and no other site.
func TestSecurityHeaders(t *testing.T) {
	h := newTestHub(t, 1)
	for _, path := range []string{"/console/", "/console/none", sessionPath, codePath, "/console/codes", apiPath + "/api/v1/pods", reasonsPath} {
		header := h.serve(httptest.NewRequest("GET", path, nil)).Header
		csp := header.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"} {
			if !strings.Contains(csp, want) {
				t.Errorf("%s: no %s in %s", path, want, csp)
			}
		}
		if strings.Contains(csp, "unsafe") || strings.Contains(csp, "http") || strings.Contains(csp, "*") {
			t.Errorf("%s: %s", path, csp)
		}
		if header.Get("X-Content-Type-Options") != "nosniff" || header.Get("Referrer-Policy") != "same-origin" || header.Get("X-Frame-Options") != "DENY" || header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: %v", path, header)
		}
	}
}

// The page has nothing inline, and names files that are embedded.
func TestThePageKeepsItsPolicy(t *testing.T) {
	h := newTestHub(t, 1)
	page := readBody(t, h.serve(httptest.NewRequest("GET", "/console/", nil)))
	for _, forbidden := range []string{"style=", "onload", "onclick", "<style", "http:", "https:", "{{"} {
		if strings.Contains(page, forbidden) {
			t.Errorf("the page has %s", forbidden)
		}
	}
	named := 0
	for _, part := range strings.Split(page, `"`) {
		if strings.HasPrefix(part, rootPath) {
			named++
			if _, ok := h.console.assets[part]; !ok {
				t.Errorf("the page names %s, which is not embedded", part)
			}
		}
	}
	if named != 3 {
		t.Errorf("the page names %d files, want a script, a style and an icon", named)
	}
}

// maxFirstVisit is the budget of what a first visit loads, compressed, and maxLazy that of the file that the first terminal loads.
const (
	maxFirstVisit = 350 << 10
	maxLazy       = 120 << 10
	lazyPrefix    = rootPath + "terminal-"
)

func TestTheFirstVisitIsSmall(t *testing.T) {
	total, lazy := 0, 0
	for name, a := range newTestHub(t, 1).console.assets {
		if strings.HasPrefix(name, lazyPrefix) {
			lazy += len(a.compressed)
		} else {
			total += len(a.compressed)
		}
	}
	if lazy > maxLazy || lazy < 10<<10 {
		t.Errorf("the first terminal loads %d bytes, at most %d", lazy, maxLazy)
	}
	if total > maxFirstVisit || total < 10<<10 {
		t.Errorf("a first visit loads %d bytes, at most %d", total, maxFirstVisit)
	}
}

func TestCookieNames(t *testing.T) {
	for host, want := range map[string]string{
		"hub.example": "__Host-atoll-console", "hub.example:6443": "__Host-atoll-console-6443", "[::1]:6443": "__Host-atoll-console-6443",
		"hub:evil": "__Host-atoll-console", "hub:99999": "__Host-atoll-console", "": "__Host-atoll-console", "a:6443; Domain=x": "__Host-atoll-console",
	} {
		if got := cookieName(&http.Request{Host: host}); got != want {
			t.Errorf("%q: %s", host, got)
		}
	}
}

func FuzzOpenSession(f *testing.F) {
	s, err := newSealer(make([]byte, 32))
	if err != nil {
		f.Fatal(err)
	}
	sealed := s.sealSession(session{token: goodToken, until: testStart.Add(time.Hour)})
	f.Add(sealed)
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		if v, err := s.openSession(text, testStart); err == nil && text != sealed {
			t.Errorf("%q opens as a session of %q", text, v.token)
		}
	})
}

// A console without visitors takes next to nothing of the hub's memory.
func TestAConsoleIsLight(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	c, err := newConsole(make([]byte, 32), Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 5<<20 {
		t.Errorf("a console allocates %d bytes as it is made", took)
	}
	runtime.KeepAlive(c)
}

// A stream ends with its session at the latest: the API would follow a log for as long as it is read.
func TestAStreamEndsWithItsSession(t *testing.T) {
	h := newTestHub(t, 1)
	cookie := h.signIn()
	for _, left := range []time.Duration{sessionTime, time.Hour} {
		h.clock = testStart.Add(sessionTime - left)
		r := pageRequest("GET", apiPath+"/api/v1/namespaces/shop/pods/web/log?follow=true", "")
		r.AddCookie(cookie)
		before := time.Now()
		if answer := h.serve(r); answer.StatusCode != http.StatusOK {
			t.Fatalf("%d", answer.StatusCode)
		}
		got := h.api.reached[len(h.api.reached)-1]
		end, bounded := got.Context().Deadline()
		if most := time.Now().Add(left); !bounded || end.Before(before.Add(left)) || end.After(most) {
			t.Errorf("with %s left, the request ends at %v (%t), want within %s", left, end, bounded, most)
		}
	}
}
