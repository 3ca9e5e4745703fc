package console

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// newCertificate returns a client certificate that is good until the time, whose subject and issuer have so many bytes.
func newCertificate(t *testing.T, until time.Time, size int) *x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "aiko", Organization: []string{strings.Repeat("x", size)}}, NotBefore: testStart.Add(-time.Hour), NotAfter: until}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	out, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// clientRequest returns a request for a code as atoll makes it.
func clientRequest(body string) *http.Request {
	r := httptest.NewRequest("POST", "/console/codes", strings.NewReader(body))
	r.Host, r.RemoteAddr = hubHost, "192.0.2.9:999"
	r.TLS = &tls.ConnectionState{HandshakeComplete: true}
	r.Header.Set("User-Agent", "atoll/test")
	return r
}

// requestCode returns a code for a request.
func (h *testHub) requestCode(r *http.Request) string {
	h.t.Helper()
	answer := h.serve(r)
	var out codeAnswer
	if err := json.Unmarshal([]byte(readBody(h.t, answer)), &out); err != nil || answer.StatusCode != http.StatusCreated || out.User != "aiko" || len(answer.Cookies()) > 0 || answer.Header.Get("Cache-Control") != "no-store" {
		h.t.Fatalf("a code: %d %v %v", answer.StatusCode, out, err)
	}
	return out.Code
}

func (h *testHub) requestTokenCode() string {
	h.t.Helper()
	r := clientRequest("")
	r.Header.Set("Authorization", "Bearer "+goodToken)
	return h.requestCode(r)
}

// useCode returns what the browser is offered for a code.
func (b *browser) useCode(code string) (offeredPerson, *http.Response) {
	b.h.t.Helper()
	answer := b.send(pageRequest("POST", codePath, fmt.Sprintf(`{"code":%q}`, code)))
	var out offeredPerson
	if err := json.Unmarshal([]byte(readBody(b.h.t, answer)), &out); err != nil {
		b.h.t.Fatal(err)
	}
	return out, answer
}

func (b *browser) agreeTo(offer string) *http.Response {
	return b.send(pageRequest("PUT", codePath, fmt.Sprintf(`{"offer":%q}`, offer)))
}

// readPods reads the API by the session of the browser, and returns the request that reaches the API; nil: none.
func (b *browser) readPods() *http.Request {
	before := len(b.h.api.reached)
	b.send(pageRequest("GET", apiPath+"/api/v1/pods", ""))
	if len(b.h.api.reached) == before {
		return nil
	}
	return b.h.api.reached[before]
}

func TestSignInByACode(t *testing.T) {
	h := newTestHub(t, 1)
	b := newBrowser(h)
	offer, answer := b.useCode(h.requestTokenCode())
	if answer.StatusCode != http.StatusOK || offer.User != "aiko" || len(offer.Groups) != 1 || offer.Offer == "" {
		t.Fatalf("the browser is offered %v", offer)
	}
	if got := b.readPods(); got != nil {
		t.Fatal("there is a session before the person agrees")
	}
	for _, c := range b.cookies {
		if !c.HttpOnly || !c.Secure || c.SameSite != http.SameSiteStrictMode || strings.Contains(c.Value, goodToken) || c.MaxAge != 5*60 {
			t.Errorf("the cookie is %s", c)
		}
	}
	answer = b.agreeTo(offer.Offer)
	var p person
	if err := json.Unmarshal([]byte(readBody(t, answer)), &p); err != nil || answer.StatusCode != http.StatusOK || p.User != "aiko" || !p.Until.Equal(testStart.Add(sessionTime)) {
		t.Fatalf("%d %v %v", answer.StatusCode, p, err)
	}
	if len(b.cookies) != 1 || b.cookies[cookieName(pageRequest("GET", "/", ""))].MaxAge != 12*60*60 {
		t.Errorf("the browser has %v", b.cookies)
	}
	if got := b.readPods(); got == nil || got.Header.Get("Authorization") != "Bearer "+goodToken {
		t.Errorf("the API gets %v", got)
	}
	if answer := b.agreeTo(offer.Offer); answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("the same consent again: %d", answer.StatusCode)
	}
}

// A session by a client certificate reaches the API with the certificate alone, which the API verifies.
func TestSignInByACodeOfACertificate(t *testing.T) {
	h := newTestHub(t, 1)
	own, other := newCertificate(t, testStart.Add(2*time.Hour), 10), newCertificate(t, testStart.Add(2*time.Hour), 10)
	h.api.acceptsChain = func(chain []*x509.Certificate) bool { return chain[0].Equal(own) }
	b := newBrowser(h)
	r := clientRequest("")
	r.TLS.PeerCertificates = []*x509.Certificate{own, other}
	offer, _ := b.useCode(h.requestCode(r))
	answer := b.agreeTo(offer.Offer)
	var p person
	if err := json.Unmarshal([]byte(readBody(t, answer)), &p); err != nil || !p.Until.Equal(testStart.Add(2*time.Hour)) {
		t.Fatalf("%d: the session ends at %s, not with the certificate", answer.StatusCode, p.Until)
	}
	read := pageRequest("GET", apiPath+"/api/v1/pods", "")
	read.TLS = &tls.ConnectionState{HandshakeComplete: true, ServerName: "hub.example", PeerCertificates: []*x509.Certificate{other}, VerifiedChains: [][]*x509.Certificate{{other}}}
	read.Header.Set("Authorization", "Bearer "+goodToken)
	b.send(read)
	got := h.api.reached[0]
	if got.Header.Get("Authorization") != "" || len(got.TLS.PeerCertificates) != 2 || !got.TLS.PeerCertificates[0].Equal(own) || len(got.TLS.VerifiedChains) > 0 || got.TLS.ServerName != "hub.example" {
		t.Errorf("the API gets %v, %v", got.Header, got.TLS)
	}
	if len(read.TLS.PeerCertificates) != 1 {
		t.Error("the request of the browser is changed")
	}
	// The API no longer accepts the certificate, as after a rotation of its authority.
	h.api.acceptsChain = func([]*x509.Certificate) bool { return false }
	if answer := b.send(pageRequest("GET", sessionPath, "")); answer.StatusCode != http.StatusUnauthorized || len(b.cookies) > 0 {
		t.Errorf("%d, %v", answer.StatusCode, b.cookies)
	}
}

// The API tries the certificate first, as for any request.
func TestACodeIsForThePersonOfTheRequest(t *testing.T) {
	h := newTestHub(t, 1)
	certificate := newCertificate(t, testStart.Add(time.Hour), 10)
	for name, tc := range map[string]struct {
		accepts    bool
		isForToken bool
	}{"the API accepts the certificate": {true, false}, "the API does not": {false, true}} {
		h.api.acceptsChain = func([]*x509.Certificate) bool { return tc.accepts }
		r := clientRequest("")
		r.TLS.PeerCertificates = []*x509.Certificate{certificate}
		r.Header.Set("Authorization", "bearer "+goodToken)
		s, err := h.console.codes.takeCode(t.Context(), h.requestCode(r))
		if err != nil || (s.token == goodToken) != tc.isForToken || (len(s.chain) == 1) == tc.isForToken {
			t.Errorf("%s: %v, %v", name, s, err)
		}
	}
}

func TestRequestsThatGetNoCode(t *testing.T) {
	long := newCertificate(t, testStart.Add(time.Hour), maxToken)
	for name, tc := range map[string]struct {
		change func(*http.Request)
		body   string
		want   int
	}{
		"by GET":                {func(r *http.Request) { r.Method = "GET" }, "", 405},
		"of a page":             {func(r *http.Request) { r.Header.Set("Origin", "https://"+hubHost) }, "", 403},
		"of another site":       {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, "", 403},
		"with impersonation":    {func(r *http.Request) { r.Header.Set("Impersonate-User", "root") }, "", 403},
		"with a group":          {func(r *http.Request) { r.Header.Set("Impersonate-Extra-a", "b") }, "", 403},
		"of a front proxy":      {func(r *http.Request) { r.Header.Set("X-Remote-User", "root") }, "", 403},
		"without credentials":   {func(r *http.Request) { r.Header.Del("Authorization") }, "", 401},
		"with a password":       {func(r *http.Request) { r.Header.Set("Authorization", "Basic YTpi") }, "", 401},
		"with an unknown token": {func(r *http.Request) { r.Header.Set("Authorization", "Bearer other") }, "", 401},
		"with a session": {func(r *http.Request) {
			r.Header.Del("Authorization")
			r.AddCookie(&http.Cookie{Name: cookieName(r), Value: "x"})
		}, "", 401},
		"with a long token":       {func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+strings.Repeat("a", maxToken+1)) }, "", 400},
		"with a long certificate": {func(r *http.Request) { r.TLS.PeerCertificates = []*x509.Certificate{long} }, "", 400},
		"for too long":            {func(*http.Request) {}, `{"lifetimeSeconds":601}`, 400},
		"for no time":             {func(*http.Request) {}, `{"lifetimeSeconds":-1}`, 400},
		"with another body":       {func(*http.Request) {}, `<html>`, 400},
		"with a long body":        {func(*http.Request) {}, strings.Repeat(" ", maxCodeRequest+1), 400},
	} {
		h := newTestHub(t, 1)
		r := clientRequest(tc.body)
		r.Header.Set("Authorization", "Bearer "+goodToken)
		tc.change(r)
		answer := h.serve(r)
		if text := readBody(t, answer); answer.StatusCode != tc.want || strings.Contains(text, goodToken) || len(h.console.codes.byHash) > 0 {
			t.Errorf("%s: %d %s, want %d", name, answer.StatusCode, text, tc.want)
		}
		if len(h.api.reached) > 0 {
			t.Errorf("%s: the request reaches the API", name)
		}
	}
}

func TestACodeWhileTheAPIFails(t *testing.T) {
	h := newTestHub(t, 1)
	h.api.review = func(w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) }
	r := clientRequest("")
	r.Header.Set("Authorization", "Bearer "+goodToken)
	if answer := h.serve(r); answer.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("%d", answer.StatusCode)
	}
}

func TestTheLifetimeOfACode(t *testing.T) {
	h := newTestHub(t, 1)
	for body, want := range map[string]time.Duration{"": time.Minute, "{}": time.Minute, `{"lifetimeSeconds":600}`: 10 * time.Minute} {
		r := clientRequest(body)
		r.Header.Set("Authorization", "Bearer "+goodToken)
		before := time.Now()
		var out codeAnswer
		if err := json.Unmarshal([]byte(readBody(t, h.serve(r))), &out); err != nil || out.Until.Before(before.Add(want)) || out.Until.After(time.Now().Add(want)) {
			t.Errorf("%q: until %s, %v", body, out.Until, err)
		}
	}
}

func TestCodesAreLimited(t *testing.T) {
	h := newTestHub(t, 1)
	request := func(network int) int {
		r := clientRequest("")
		r.RemoteAddr = fmt.Sprintf("198.51.100.%d:1", network)
		r.Header.Set("Authorization", "Bearer "+goodToken)
		answer := h.serve(r)
		if answer.StatusCode == http.StatusTooManyRequests && answer.Header.Get("Retry-After") == "" {
			t.Error("the refusal has no time")
		}
		return answer.StatusCode
	}
	for i := range personCodes.Burst {
		if code := request(i); code != http.StatusCreated {
			t.Fatalf("code %d: %d", i, code)
		}
	}
	if code := request(200); code != http.StatusTooManyRequests {
		t.Errorf("beyond the bound of a person: %d", code)
	}
	h.clock = h.clock.Add(personCodes.Interval)
	if code := request(201); code != http.StatusCreated {
		t.Errorf("after a wait: %d", code)
	}
	if n := len(h.console.codes.byHash); n != maxCodesOfPerson {
		t.Errorf("the hub has %d codes", n)
	}
	h = newTestHub(t, 1)
	for range networkCodes.Burst { // refused by the bound of the person later on
		request(1)
	}
	reviewed := 0
	h.api.review = func(w http.ResponseWriter) { reviewed++; w.WriteHeader(http.StatusUnauthorized) }
	if code := request(1); code != http.StatusTooManyRequests || reviewed > 0 {
		t.Errorf("beyond the bound of a network: %d, %d reviews", code, reviewed)
	}
}

// A link of another site makes no session: the one of before stays until the person agrees to exactly what the page shows.
func TestACodeOfAnotherPersonNeedsConsent(t *testing.T) {
	h := newTestHub(t, 1)
	h.api.accepts = func(token string) bool { return token == "ofMallory" }
	b := newBrowser(h)
	cookie := h.signIn()
	b.cookies[cookie.Name] = cookie
	shown, _ := b.useCode(h.requestTokenCode())
	r := clientRequest("")
	r.Header.Set("Authorization", "Bearer ofMallory")
	foreign, _ := b.useCode(h.requestCode(r)) // in another tab
	if got := b.readPods(); got == nil || got.Header.Get("Authorization") != "Bearer "+goodToken {
		t.Fatal("a code changes the session without consent")
	}
	if answer := b.agreeTo(shown.Offer); answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("the page signs in as another person than it shows: %d", answer.StatusCode)
	}
	for _, offer := range []string{"", foreign.Offer + "x"} {
		if answer := b.agreeTo(offer); answer.StatusCode != http.StatusUnauthorized {
			t.Errorf("consent to %q: %d", offer, answer.StatusCode)
		}
	}
	if answer := b.send(pageRequest("DELETE", codePath, "")); answer.StatusCode != http.StatusNoContent {
		t.Errorf("declined: %d", answer.StatusCode)
	}
	if answer := b.agreeTo(foreign.Offer); answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("consent after it was declined: %d", answer.StatusCode)
	}
	if got := b.readPods(); got == nil || got.Header.Get("Authorization") != "Bearer "+goodToken {
		t.Error("the session of before is over")
	}
}

func TestCodesThatAreRefused(t *testing.T) {
	h := newTestHub(t, 1)
	b := newBrowser(h)
	used := h.requestTokenCode()
	b.useCode(used)
	for name, tc := range map[string]struct{ code, want string }{
		"used": {used, errCodeUsed.Error()}, "of another hub": {newTestHub(t, 1).requestTokenCode(), errCodeForeign.Error()}, "none": {"x", errCodeMalformed.Error()},
	} {
		answer := newBrowser(h).send(pageRequest("POST", codePath, fmt.Sprintf(`{"code":%q}`, tc.code)))
		if text := readBody(t, answer); answer.StatusCode != http.StatusUnauthorized || !strings.Contains(text, tc.want) || len(answer.Cookies()) > 0 {
			t.Errorf("%s: %d %s", name, answer.StatusCode, text)
		}
	}
	revoked := h.requestTokenCode()
	offer, _ := b.useCode(h.requestTokenCode())
	h.api.review = func(w http.ResponseWriter) { w.WriteHeader(http.StatusUnauthorized) }
	if answer := b.send(pageRequest("POST", codePath, fmt.Sprintf(`{"code":%q}`, revoked))); answer.StatusCode != http.StatusUnauthorized || len(answer.Cookies()) > 0 {
		t.Errorf("a code of a revoked token: %d", answer.StatusCode)
	}
	if answer := b.agreeTo(offer.Offer); answer.StatusCode != http.StatusUnauthorized || len(answer.Cookies()) > 0 {
		t.Errorf("consent after the token was revoked: %d", answer.StatusCode)
	}
	h.api.review = nil
	h.clock = h.clock.Add(offerTime)
	if answer := b.agreeTo(offer.Offer); answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("consent that is too late: %d", answer.StatusCode)
	}
}

// Hubs of one key share what a person was offered: the consent may reach another one.
func TestConsentAtAnotherHub(t *testing.T) {
	h, other := newTestHub(t, 1), newTestHub(t, 1)
	b := newBrowser(h)
	offer, _ := b.useCode(h.requestTokenCode())
	b.h = other
	if answer := b.agreeTo(offer.Offer); answer.StatusCode != http.StatusOK {
		t.Errorf("%d", answer.StatusCode)
	}
}

// Without the store of codes nothing is lost but the code.
func TestAStoreThatDoesNotAnswer(t *testing.T) {
	store := &fakeStore{sealed: map[string]string{}}
	h := newTestHubOf(t, 1, Options{Codes: store})
	b := newBrowser(h)
	code := h.requestTokenCode()
	store.err = errors.New("no leader")
	if _, answer := b.useCode(code); answer.StatusCode != http.StatusServiceUnavailable || len(b.cookies) > 0 {
		t.Errorf("the code is used with %d", answer.StatusCode)
	}
	r := clientRequest("")
	r.Header.Set("Authorization", "Bearer "+goodToken)
	if answer := h.serve(r); answer.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a code is made with %d", answer.StatusCode)
	}
}

func TestPagesThatUseNoCode(t *testing.T) {
	h := newTestHub(t, 1)
	code := h.requestTokenCode()
	for name, tc := range map[string]struct {
		method, body string
		change       func(*http.Request)
		want         int
	}{
		"of another site":    {"POST", "", func(r *http.Request) { r.Header.Del(pageHeader) }, 403},
		"of another origin":  {"POST", "", func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }, 403},
		"without an origin":  {"POST", "", func(r *http.Request) { r.Header.Del("Origin") }, 403},
		"consent elsewhere":  {"PUT", `{"offer":"x"}`, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, 403},
		"declined elsewhere": {"DELETE", "", func(r *http.Request) { r.Header.Del(pageHeader) }, 403},
		"read":               {"GET", "", func(*http.Request) {}, 405},
		"of another type":    {"POST", "", func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }, 400},
		"without a form":     {"PUT", "<html>", func(*http.Request) {}, 400},
	} {
		body := tc.body
		if body == "" {
			body = fmt.Sprintf(`{"code":%q}`, code)
		}
		r := pageRequest(tc.method, codePath, body)
		tc.change(r)
		if answer := h.serve(r); answer.StatusCode != tc.want || len(answer.Cookies()) > 0 {
			t.Errorf("%s: %d, want %d", name, answer.StatusCode, tc.want)
		}
	}
	if _, err := h.console.codes.takeCode(t.Context(), code); err != nil {
		t.Errorf("a refused request used the code up: %v", err)
	}
}

// A cookie of one purpose is none of another one.
func TestAnOfferIsNoSession(t *testing.T) {
	h := newTestHub(t, 1)
	b := newBrowser(h)
	b.useCode(h.requestTokenCode())
	name := cookieName(pageRequest("GET", "/", ""))
	for _, c := range b.cookies {
		b.cookies = map[string]*http.Cookie{name: {Name: name, Value: c.Value}}
	}
	if got := b.readPods(); got != nil {
		t.Error("the API is read by an offer")
	}
}

func TestAnotherSignInByCodeClosesTerminals(t *testing.T) {
	h := newTerminalHub(t)
	conn := h.open()
	defer conn.Close()
	b := newBrowser(h.testHub)
	cookie := h.signIn()
	b.cookies[cookie.Name] = cookie
	offer, _ := b.useCode(h.requestTokenCode())
	checkEcho(t, conn)
	if answer := b.agreeTo(offer.Offer); answer.StatusCode != http.StatusOK {
		t.Fatalf("%d", answer.StatusCode)
	}
	checkClosed(t, conn, closeSignedOut)
}

func TestChainsThatAreNone(t *testing.T) {
	good := session{chain: []*x509.Certificate{newCertificate(t, testStart, 10)}}
	if got, err := decodeCredential(good.encodeCredential()); err != nil || len(got.chain) != 1 || got.token != "" || got.encodeCredential() != good.encodeCredential() {
		t.Errorf("%v, %v", got, err)
	}
	for _, text := range []string{"", chainMark, chainMark + goodToken, good.encodeCredential()[1:], good.encodeCredential() + "x", chainMark + strings.Repeat("\x30", maxToken), "token of two words"} {
		if s, err := decodeCredential(text); err == nil {
			t.Errorf("%q is a credential: %v", text, s)
		}
	}
}

// A certificate that is longer than a cookie is offered, and becomes a session, by two cookies.
func TestALongCertificateHasTwoCookies(t *testing.T) {
	h := newTestHub(t, 1)
	h.api.acceptsChain = func([]*x509.Certificate) bool { return true }
	b := newBrowser(h)
	r := clientRequest("")
	r.TLS.PeerCertificates = []*x509.Certificate{newCertificate(t, testStart.Add(time.Hour), 2000)}
	offer, _ := b.useCode(h.requestCode(r))
	if len(b.cookies) != 2 {
		t.Fatalf("the offer has %d cookies", len(b.cookies))
	}
	if answer := b.agreeTo(offer.Offer); answer.StatusCode != http.StatusOK || len(b.cookies) != 2 {
		t.Fatalf("%d, with %d cookies", answer.StatusCode, len(b.cookies))
	}
	if got := b.readPods(); got == nil || !got.TLS.PeerCertificates[0].Equal(r.TLS.PeerCertificates[0]) {
		t.Errorf("the API gets %v", got)
	}
}

// Sessions of two certificates that end together have two names, so that a page of one does not act as the other. A renewed token keeps the
// name.
func TestNamesOfSessions(t *testing.T) {
	until := testStart.Add(time.Hour)
	name := func(s session) string { s.until = until; return s.pageName() }
	first, second := newCertificate(t, until, 10), newCertificate(t, until, 10)
	one, two := name(session{chain: []*x509.Certificate{first}}), name(session{chain: []*x509.Certificate{second}})
	if again := name(session{chain: []*x509.Certificate{first}}); one == two || one != again || strings.ContainsAny(one, " /+=,") {
		t.Errorf("the names %q, %q and %q", one, two, again)
	}
	if a, b := name(session{token: "a"}), name(session{token: "b"}); a != b || a == one {
		t.Errorf("the names of tokens %q and %q", a, b)
	}
}
