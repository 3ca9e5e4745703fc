package console

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"atoll.dev/atoll/internal/console/issuer"
)

// browser is one browser at a hub, with its cookies.
type browser struct {
	h       *testHub
	cookies map[string]*http.Cookie
}

func newBrowser(h *testHub) *browser { return &browser{h: h, cookies: map[string]*http.Cookie{}} }

// send serves a request with the browser's cookies, and keeps those of the answer.
func (b *browser) send(r *http.Request) *http.Response {
	for _, c := range b.cookies {
		r.AddCookie(c)
	}
	answer := b.h.serve(r)
	for _, c := range answer.Cookies() {
		if c.MaxAge < 0 {
			delete(b.cookies, c.Name)
		} else {
			b.cookies[c.Name] = c
		}
	}
	return answer
}

// followLink serves a browser's way to an address.
func (b *browser) followLink(target string) *http.Response {
	r := httptest.NewRequest("GET", target, nil)
	r.Host, r.RemoteAddr = hubHost, "192.0.2.1:999"
	return b.send(r)
}

// beginSignIn begins a sign-in, and returns the parameters of the request to the issuer.
func (b *browser) beginSignIn(i *testIssuer, page string) url.Values {
	b.h.t.Helper()
	answer := b.followLink(beginPath + "?return=" + url.QueryEscape(page))
	u, err := url.Parse(answer.Header.Get("Location"))
	if err != nil || answer.StatusCode != http.StatusSeeOther || !strings.HasPrefix(u.String(), i.server.URL+"/authorize?") {
		b.h.t.Fatalf("the sign-in begins with %d to %q", answer.StatusCode, answer.Header.Get("Location"))
	}
	return u.Query()
}

// signInAt signs in at the issuer.
func (b *browser) signInAt(i *testIssuer) *http.Response {
	b.h.t.Helper()
	asked := b.beginSignIn(i, "/console/waiting?q=a")
	return b.followLink(issuer.CallbackPath + "?" + url.Values{"code": {i.allowSignIn(asked)}, "state": {asked.Get("state")}}.Encode())
}

func (b *browser) readStatus() issuerText {
	b.h.t.Helper()
	var out issuerText
	answer := b.send(pageRequest("GET", issuerPath, ""))
	if err := json.Unmarshal([]byte(readBody(b.h.t, answer)), &out); err != nil || answer.StatusCode != http.StatusOK {
		b.h.t.Fatalf("the state of the issuer: %d %v", answer.StatusCode, err)
	}
	return out
}

// checkFailed fails unless the browser is at the sign-in page with the kind of failure, without a session.
func (b *browser) checkFailed(answer *http.Response, kind issuer.FailureKind) string {
	b.h.t.Helper()
	if answer.StatusCode != http.StatusSeeOther || answer.Header.Get("Location") != rootPath {
		b.h.t.Fatalf("a failed sign-in leads to %d %q", answer.StatusCode, answer.Header.Get("Location"))
	}
	if _, ok := b.cookies[sessionCookie]; ok {
		b.h.t.Error("a failed sign-in has a session")
	}
	f := b.readStatus().Failure
	if f == nil || f.Kind != kind {
		b.h.t.Fatalf("the failure is %+v, want %s", f, kind)
	}
	if again := b.readStatus().Failure; again != nil {
		b.h.t.Errorf("the failure is shown again: %+v", again)
	}
	return f.Message
}

const (
	sessionCookie = cookiePrefix + "-6443"
	renewalCookie = cookiePrefix + "-renewal-6443"
	flowCookie    = cookiePrefix + "-signin-6443"
)

func TestSignInAtTheIssuer(t *testing.T) {
	i := newTestIssuer(t)
	b := newBrowser(i.newHub(nil))
	if s := b.readStatus(); s.State != "Ready" || s.SignIn != beginPath || s.Host != strings.TrimPrefix(i.server.URL, "https://") {
		t.Errorf("the state is %+v", s)
	}
	asked := b.beginSignIn(i, "/console/waiting?q=a")
	for name, want := range map[string]string{
		"client_id": testAudience, "redirect_uri": "https://" + hubHost + "/console/oidc/callback", "response_type": "code", "scope": "openid groups", "code_challenge_method": "S256",
	} {
		if asked.Get(name) != want {
			t.Errorf("%s is %q, want %q", name, asked.Get(name), want)
		}
	}
	c := b.cookies[flowCookie]
	if c == nil || !c.HttpOnly || !c.Secure || c.SameSite != http.SameSiteLaxMode || c.Path != "/" || c.MaxAge != 600 || strings.Contains(c.Value, asked.Get("state")) {
		t.Fatalf("the cookie of the sign-in is %v", c)
	}
	answer := b.followLink(issuer.CallbackPath + "?" + url.Values{"code": {i.allowSignIn(asked)}, "state": {asked.Get("state")}, "iss": {i.server.URL}}.Encode())
	if answer.StatusCode != http.StatusSeeOther || answer.Header.Get("Location") != "/console/waiting?q=a" {
		t.Fatalf("the sign-in ends with %d at %q", answer.StatusCode, answer.Header.Get("Location"))
	}
	for _, name := range []string{sessionCookie, renewalCookie} {
		if c := b.cookies[name]; c == nil || !c.HttpOnly || !c.Secure || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.MaxAge > 12*60*60 || strings.Contains(c.Value, "refresh-") {
			t.Errorf("the cookie %s is %v", name, c)
		}
	}
	if _, ok := b.cookies[flowCookie]; ok {
		t.Error("the cookie of the sign-in is kept")
	}
	var p person
	if err := json.Unmarshal([]byte(readBody(t, b.send(pageRequest("GET", sessionPath, "")))), &p); err != nil || p.User != "aiko" || p.RenewInSeconds != 45*60 {
		t.Errorf("the person is %+v, %v", p, err)
	}
	if b.send(pageRequest("GET", apiPath+"/api/v1/pods", "")); len(b.h.api.reached) != 1 || !strings.HasPrefix(b.h.api.reached[0].Header.Get("Authorization"), "Bearer ey") {
		t.Errorf("the API got %v", b.h.api.reached)
	}
}

func TestRefusedAnswersOfIssuers(t *testing.T) {
	for name, c := range map[string]struct {
		// change changes the issuer before the sign-in, answer its answer, and after the browser.
		change func(*testIssuer)
		answer func(url.Values)
		after  func(*browser)
		want   issuer.FailureKind
	}{
		"another nonce":              {change: func(i *testIssuer) { i.claims["nonce"] = "other" }, want: issuer.Unverified},
		"no nonce":                   {change: func(i *testIssuer) { i.claims["nonce"] = nil }, want: issuer.Unverified},
		"another audience":           {change: func(i *testIssuer) { i.claims["aud"] = "shop" }, want: issuer.Unverified},
		"another party":              {change: func(i *testIssuer) { i.claims["azp"] = "shop" }, want: issuer.Unverified},
		"another issuer's token":     {change: func(i *testIssuer) { i.claims["iss"] = "https://evil.example" }, want: issuer.Unverified},
		"an expired token":           {change: func(i *testIssuer) { i.claims["exp"] = time.Now().Add(-time.Minute).Unix() }, want: issuer.Unverified},
		"a long token":               {change: func(i *testIssuer) { i.claims["groups"] = strings.Repeat("g", maxToken) }, want: failedTooLong},
		"a token that is not signed": {change: func(i *testIssuer) { i.answers["/token"] = answerText(`{"access_token":"a","id_token":"e30.e30."}`) }, want: issuer.Unverified},
		"no ID token":                {change: func(i *testIssuer) { i.answers["/token"] = answerText(`{"access_token":"a"}`) }, want: issuer.Unverified},
		"an endless answer":          {change: func(i *testIssuer) { i.answers["/token"] = answerEndlessly }, want: issuer.Unreachable},
		"endless keys":               {change: func(i *testIssuer) { i.answers["/keys"] = answerEndlessly }, want: issuer.Unreachable},
		"a page of HTML":             {change: func(i *testIssuer) { i.answers["/token"] = answerText("<html>") }, want: issuer.Unreachable},
		"a redirect": {change: func(i *testIssuer) {
			i.answers["/token"] = func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, "/other", http.StatusTemporaryRedirect)
			}
		}, want: issuer.Unreachable},
		"another state":          {answer: func(q url.Values) { q.Set("state", "other") }, want: failedExpired},
		"no state":               {answer: func(q url.Values) { q.Del("state") }, want: failedExpired},
		"another code":           {answer: func(q url.Values) { q.Set("code", "other") }, want: issuer.Refused},
		"no code":                {answer: func(q url.Values) { q.Del("code") }, want: issuer.Unverified},
		"a long code":            {answer: func(q url.Values) { q.Set("code", strings.Repeat("c", maxCode+1)) }, want: issuer.Unverified},
		"another issuer":         {answer: func(q url.Values) { q.Set("iss", "https://evil.example") }, want: issuer.Unverified},
		"a refusal":              {answer: func(q url.Values) { q.Set("error", "access_denied") }, want: issuer.Refused},
		"an oversized answer":    {answer: func(q url.Values) { q.Set("x", strings.Repeat("x", maxCallback)) }, want: failedExpired},
		"another browser":        {after: func(b *browser) { delete(b.cookies, flowCookie) }, want: failedExpired},
		"after ten minutes":      {after: func(b *browser) { b.h.clock = b.h.clock.Add(flowTime) }, want: failedExpired},
		"the API refuses":        {after: func(b *browser) { b.h.api.accepts = nil }, want: failedRejected},
		"the API does not check": {after: func(b *browser) { b.h.api.review = func(w http.ResponseWriter) { w.WriteHeader(500) } }, want: failedHub},
	} {
		t.Run(name, func(t *testing.T) {
			i := newTestIssuer(t)
			b := newBrowser(i.newHub(nil))
			if c.change != nil {
				c.change(i)
			}
			asked := b.beginSignIn(i, "")
			q := url.Values{"code": {i.allowSignIn(asked)}, "state": {asked.Get("state")}}
			if c.answer != nil {
				c.answer(q)
			}
			if c.after != nil {
				c.after(b)
			}
			b.checkFailed(b.followLink(issuer.CallbackPath+"?"+q.Encode()), c.want)
		})
	}
}

func answerText(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, text)
	}
}

// answerError answers with a status, and with an error of OAuth if there is a code.
func answerError(status int, code string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		if code != "" {
			fmt.Fprintf(w, `{"error":%q}`, code)
		}
	}
}

// answerEndlessly answers with an object that ends after 3 MiB.
func answerEndlessly(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprint(w, `{"access_token":"`)
	for range 3 << 10 {
		fmt.Fprint(w, strings.Repeat("a", 1<<10))
	}
	fmt.Fprint(w, `"}`)
}

// A code counts once, also for a browser that keeps the cookie of the sign-in.
func TestAReplayedCodeIsRefused(t *testing.T) {
	i := newTestIssuer(t)
	b := newBrowser(i.newHub(nil))
	asked := b.beginSignIn(i, "")
	kept := b.cookies[flowCookie]
	answer := issuer.CallbackPath + "?" + url.Values{"code": {i.allowSignIn(asked)}, "state": {asked.Get("state")}}.Encode()
	if r := b.followLink(answer); r.Header.Get("Location") != rootPath || b.cookies[sessionCookie] == nil {
		t.Fatalf("the first answer: %d", r.StatusCode)
	}
	other := newBrowser(b.h)
	other.cookies[kept.Name] = kept
	message := other.checkFailed(other.followLink(answer), issuer.Refused)
	if !strings.Contains(message, `invalid_grant`) || strings.Contains(message, "\u202e") || len(message) > 300 {
		t.Errorf("the message is %q", message)
	}
	if strings.Contains(message, "<b>") && !strings.Contains(message, `\u202e`) {
		t.Errorf("the message is not escaped: %q", message)
	}
}

// An answer to another sign-in, as by a link of another site, does not end the one that is under way.
func TestAStrayAnswerLeavesTheSignInUnderWay(t *testing.T) {
	i := newTestIssuer(t)
	b := newBrowser(i.newHub(nil))
	asked := b.beginSignIn(i, "/console/fleet")
	b.checkFailed(b.followLink(issuer.CallbackPath+"?code=stray&state=stray"), failedExpired)
	answer := b.followLink(issuer.CallbackPath + "?" + url.Values{"code": {i.allowSignIn(asked)}, "state": {asked.Get("state")}}.Encode())
	if answer.Header.Get("Location") != "/console/fleet" || b.cookies[sessionCookie] == nil {
		t.Errorf("the sign-in under way ends with %d at %q", answer.StatusCode, answer.Header.Get("Location"))
	}
}

// Colleagues behind one NAT gateway sign in at the same time, and a flood of them takes no turn of a pasted token.
func TestManySignInsFromOneNetwork(t *testing.T) {
	i := newTestIssuer(t)
	h := i.newHub(nil)
	for n := range networkFlows.Burst {
		b := newBrowser(h)
		if b.signInAt(i); b.cookies[sessionCookie] == nil {
			t.Fatalf("person %d is not signed in: %+v", n+1, b.readStatus().Failure)
		}
	}
	b := newBrowser(h)
	b.checkFailed(b.followLink(beginPath), failedTooMany)
	h.signIn()
}

func TestReturnPages(t *testing.T) {
	for text, want := range map[string]string{
		"": rootPath, "/console/": "/console/", "/console/fleet": "/console/fleet", "/console/fleet?q=status%3AAway": "/console/fleet?q=status%3AAway",
		"/console/clusters/a%20b": "/console/clusters/a%20b", "/console/applications/-/a#tree": "/console/applications/-/a",
		"https://evil.example/console/fleet": rootPath, "//evil.example/console/fleet": rootPath, "/\\evil.example": rootPath, "/console/\\evil": rootPath,
		"/console/../evil": rootPath, "/console//evil.example": rootPath, "/console/%2e%2e/x": rootPath, "/evil": rootPath, "javascript:alert(1)": rootPath, "console/fleet": rootPath,
		"/console/api/apis": rootPath, "/console/oidc/sign-in": rootPath, "/console/session": rootPath, "/console/fleet\r\nX: y": rootPath, "/console/fleet?" + strings.Repeat("q", maxReturn): rootPath,
	} {
		if got := safeReturn(text); got != want {
			t.Errorf("%q leads to %q, want %q", text, got, want)
		}
	}
}

// Another site's link does not begin a sign-in, and a hub without an issuer has none.
func TestSignInsThatDoNotBegin(t *testing.T) {
	i := newTestIssuer(t)
	b := newBrowser(i.newHub(nil))
	r := httptest.NewRequest("GET", beginPath, nil)
	r.Host = hubHost
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	if answer := b.send(r); answer.Header.Get("Location") != rootPath || len(answer.Cookies()) > 0 {
		t.Errorf("another site's link: %d %q", answer.StatusCode, answer.Header.Get("Location"))
	}
	r = httptest.NewRequest("GET", beginPath, nil)
	r.Host = "hub.example/evil"
	if answer := b.send(r); answer.StatusCode != http.StatusBadRequest {
		t.Errorf("a malformed host: %d", answer.StatusCode)
	}
	if answer := b.send(pageRequest("POST", beginPath, "")); answer.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("by POST: %d", answer.StatusCode)
	}
	for range networkFlows.Burst + 1 {
		b.followLink(beginPath)
	}
	b.checkFailed(b.followLink(beginPath), failedTooMany)
	plain := newBrowser(newTestHub(t, 1))
	for _, path := range []string{beginPath, issuer.CallbackPath} {
		if answer := plain.followLink(path); answer.StatusCode != http.StatusNotFound {
			t.Errorf("%s without an issuer: %d", path, answer.StatusCode)
		}
	}
	if s := plain.readStatus(); s != (issuerText{}) {
		t.Errorf("the state without an issuer is %+v", s)
	}
}

// The address that the administrator states is in the redirect URL, whatever the header Host has.
func TestTheStatedAddressOfTheConsole(t *testing.T) {
	i := newTestIssuer(t)
	b := newBrowser(i.newHub(func(o *issuer.Options) { o.Address = "atoll.example" }))
	if got := b.readStatus().SignIn; got != "https://atoll.example/console/oidc/sign-in" {
		t.Errorf("the sign-in begins at %q", got)
	}
	if got := b.beginSignIn(i, "").Get("redirect_uri"); got != "https://atoll.example/console/oidc/callback" {
		t.Errorf("the redirect URL is %q", got)
	}
}

// A slow issuer, and one that fails, delay nothing but the sign-in there. The page shows the state.
func TestAnIssuerThatIsDown(t *testing.T) {
	i := newTestIssuer(t)
	answer := make(chan struct{})
	i.answers["/.well-known/openid-configuration"] = func(w http.ResponseWriter, _ *http.Request) {
		<-answer
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprint(w, "<b>"+strings.Repeat("x", 1000))
	}
	b := newBrowser(i.newHub(nil))
	impatient, cancel := context.WithCancel(t.Context())
	cancel()
	var s issuerText
	if err := json.Unmarshal([]byte(readBody(t, b.send(pageRequest("GET", issuerPath, "").WithContext(impatient)))), &s); err != nil || s.State != "Checking" || s.Since != nil {
		t.Errorf("the state while the issuer is slow is %+v, %v", s, err)
	}
	b.h.signIn()
	close(answer)
	if s := b.readStatus(); s.State != "Unreachable" || s.Since == nil || !strings.Contains(s.Message, "is not that of an OpenID Connect issuer") || strings.Contains(s.Message, "<b>") {
		t.Errorf("the state is %+v", s)
	}
	b.checkFailed(b.followLink(beginPath), issuer.Unreachable)
	if n := i.countRequests("/.well-known/openid-configuration"); n != 1 {
		t.Errorf("the issuer was requested %d times", n)
	}
}

func TestDocumentsOfIssuersThatAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		key   string
		value any
		want  string
	}{
		"tokens without TLS":  {"token_endpoint", "http://issuer.example/token", "no https URL"},
		"keys without TLS":    {"jwks_uri", "http://issuer.example/keys", "no https URL"},
		"no place to sign in": {"authorization_endpoint", "", "no https URL"},
		"a script":            {"authorization_endpoint", "javascript:alert(1)", "no https URL"},
		"another issuer":      {"issuer", "https://other.example", "is not that of an OpenID Connect issuer"},
		"plain PKCE":          {"code_challenge_methods_supported", []string{"plain"}, "does not support PKCE"},
		"a huge document":     {"x", strings.Repeat("x", 2<<20), "larger than 1 MiB"},
	} {
		i := newTestIssuer(t)
		i.document[c.key] = c.value
		if s := newBrowser(i.newHub(nil)).readStatus(); s.State != "Unreachable" || !strings.Contains(s.Message, c.want) {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

func TestSessionsAreRenewed(t *testing.T) {
	i := newTestIssuer(t)
	b := newBrowser(i.newHub(nil))
	b.signInAt(i)
	before, kept := b.cookies[sessionCookie], b.cookies[renewalCookie]
	// A page that is loaded after the ID token has ended renews the session.
	accepts := b.h.api.accepts
	b.h.api.accepts = nil
	if answer := b.send(pageRequest("GET", sessionPath, "")); answer.StatusCode != http.StatusUnauthorized || len(answer.Cookies()) > 0 {
		t.Errorf("the session of an expired token: %d %v", answer.StatusCode, answer.Cookies())
	}
	b.h.api.accepts = accepts
	b.h.clock = b.h.clock.Add(time.Hour)
	answer := b.send(pageRequest("POST", renewalPath, ""))
	var p person
	if err := json.Unmarshal([]byte(readBody(t, answer)), &p); err != nil || answer.StatusCode != http.StatusOK || p.RenewInSeconds == 0 || b.cookies[sessionCookie].Value == before.Value {
		t.Fatalf("the renewal: %d %+v %v", answer.StatusCode, p, err)
	}
	if want := b.h.clock.Add(11 * time.Hour); !p.Until.Equal(want) {
		t.Errorf("the session ends at %s, want %s: a renewal does not extend it", p.Until, want)
	}
	// The refresh token of before is used: a copy of the old cookies gets nothing, and the new ones stay.
	stale := newBrowser(b.h)
	stale.cookies[before.Name], stale.cookies[kept.Name] = before, kept
	if answer := stale.send(pageRequest("POST", renewalPath, "")); answer.StatusCode != http.StatusUnauthorized || len(answer.Cookies()) > 0 {
		t.Errorf("a used refresh token: %d %v", answer.StatusCode, answer.Cookies())
	}
	// The renewal of one session is none of another one.
	mixed := newBrowser(b.h)
	mixed.cookies[before.Name], mixed.cookies[kept.Name] = before, b.cookies[renewalCookie]
	if answer := mixed.send(pageRequest("POST", renewalPath, "")); answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("the renewal of another session: %d", answer.StatusCode)
	}
}

// A page renews within its session, and no faster than the issuer bears, whatever life the ID token has.
func TestTheTimeOfTheNextRenewal(t *testing.T) {
	for _, c := range []struct {
		life     time.Duration
		want     int
		whenSeen string
	}{
		{time.Second, 10, "a clock that is nearly a token's life ahead"}, {time.Minute, 45, "a short token"},
		{90 * 24 * time.Hour, 9 * 60 * 60, "three months: the timers of browsers end after 24 days"}, {150 * 365 * 24 * time.Hour, 9 * 60 * 60, "more than a Duration holds three times"},
	} {
		i := newTestIssuer(t)
		b := newBrowser(i.newHub(nil))
		i.claims["exp"] = b.h.clock.Add(c.life + time.Hour).Unix()
		b.h.clock = b.h.clock.Add(time.Hour)
		b.signInAt(i)
		var p person
		if err := json.Unmarshal([]byte(readBody(t, b.send(pageRequest("GET", sessionPath, "")))), &p); err != nil || p.RenewInSeconds != c.want {
			t.Errorf("%s: renewed in %d s, want %d, %v", c.whenSeen, p.RenewInSeconds, c.want, err)
		}
	}
}

func TestRefusedRenewals(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*testIssuer, *browser)
		ask    func(*http.Request)
		want   int
	}{
		"another subject":        {change: func(i *testIssuer, _ *browser) { i.claims["sub"] = "root" }, want: 401},
		"another nonce":          {change: func(i *testIssuer, _ *browser) { i.claims["nonce"] = "other" }, want: 401},
		"another audience":       {change: func(i *testIssuer, _ *browser) { i.claims["aud"] = "shop" }, want: 401},
		"a long token":           {change: func(i *testIssuer, _ *browser) { i.claims["groups"] = strings.Repeat("g", maxToken) }, want: 401},
		"revoked at the issuer":  {change: func(i *testIssuer, _ *browser) { clear(i.refresh) }, want: 401},
		"a storage that is down": {change: func(i *testIssuer, _ *browser) { i.answers["/token"] = answerError(500, "server_error") }, want: 503},
		"too many requests":      {change: func(i *testIssuer, _ *browser) { i.answers["/token"] = answerError(429, "") }, want: 503},
		"for a moment":           {change: func(i *testIssuer, _ *browser) { i.answers["/token"] = answerError(400, "temporarily_unavailable") }, want: 503},
		"no client":              {change: func(i *testIssuer, _ *browser) { i.answers["/token"] = answerError(401, "invalid_client") }, want: 401},
		"the issuer is down":     {change: func(i *testIssuer, _ *browser) { i.server.Close() }, want: 503},
		"the API refuses":        {change: func(_ *testIssuer, b *browser) { b.h.api.accepts = nil }, want: 401},
		"after twelve hours":     {change: func(_ *testIssuer, b *browser) { b.h.clock = b.h.clock.Add(sessionTime) }, want: 401},
		"without its cookie":     {change: func(_ *testIssuer, b *browser) { delete(b.cookies, renewalCookie) }, want: 401},
		"another site":           {ask: func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }, want: 403},
		"not the page":           {ask: func(r *http.Request) { r.Header.Del(pageHeader) }, want: 403},
		"by GET":                 {ask: func(r *http.Request) { r.Method = "GET" }, want: 405},
	} {
		t.Run(name, func(t *testing.T) {
			i := newTestIssuer(t)
			b := newBrowser(i.newHub(nil))
			b.signInAt(i)
			if c.change != nil {
				c.change(i, b)
			}
			r := pageRequest("POST", renewalPath, "")
			if c.ask != nil {
				c.ask(r)
			}
			if answer := b.send(r); answer.StatusCode != c.want || len(answer.Cookies()) > 0 {
				t.Errorf("%d %s %v, want %d", answer.StatusCode, readBody(t, answer), answer.Cookies(), c.want)
			}
		})
	}
}

// The issuer takes a refresh token once: the new one is kept also when the API cannot check the new ID token now.
func TestARenewalThatTheAPICannotCheck(t *testing.T) {
	i := newTestIssuer(t)
	b := newBrowser(i.newHub(nil))
	b.signInAt(i)
	b.h.api.review = func(w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) }
	if answer := b.send(pageRequest("POST", renewalPath, "")); answer.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("the renewal: %d", answer.StatusCode)
	}
	b.h.api.review = nil
	if answer := b.send(pageRequest("POST", renewalPath, "")); answer.StatusCode != http.StatusOK {
		t.Errorf("the next renewal: %d %s", answer.StatusCode, readBody(t, answer))
	}
}

// Without a refresh token that fits into a cookie, the session ends with the ID token.
func TestSessionsThatAreNotRenewed(t *testing.T) {
	for name, refresh := range map[string]string{"none": "", "a long one": strings.Repeat("r", maxSealed)} {
		i := newTestIssuer(t)
		b := newBrowser(i.newHub(nil))
		asked := b.beginSignIn(i, "")
		i.answers["/token"] = func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(map[string]any{"access_token": "a", "refresh_token": refresh, "id_token": i.signToken(asked.Get("nonce"))})
		}
		b.followLink(issuer.CallbackPath + "?" + url.Values{"code": {"c"}, "state": {asked.Get("state")}}.Encode())
		c := b.cookies[sessionCookie]
		if c == nil || c.MaxAge != 60*60 || b.cookies[renewalCookie] != nil {
			t.Errorf("%s: the session is %v, the renewal %v", name, c, b.cookies[renewalCookie])
		}
	}
}

// A sign-out revokes the refresh token, and names where the session at the issuer ends.
func TestSignOutOfASessionOfTheIssuer(t *testing.T) {
	i := newTestIssuer(t)
	b := newBrowser(i.newHub(nil))
	b.signInAt(i)
	answer := b.send(pageRequest("DELETE", sessionPath, ""))
	var out signedOut
	if err := json.Unmarshal([]byte(readBody(t, answer)), &out); err != nil || out.IssuerSignOut != i.server.URL+"/end?client_id="+testAudience {
		t.Errorf("the sign-out names %+v, %v", out, err)
	}
	if len(b.cookies) > 0 || len(i.revoked) != 1 || !strings.HasPrefix(i.revoked[0], "refresh-") {
		t.Errorf("cookies %v, revoked %v", b.cookies, i.revoked)
	}
	// A person whose page is closed at once is signed out as well.
	b.signInAt(i)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if b.send(pageRequest("DELETE", sessionPath, "").WithContext(gone)); len(i.revoked) != 2 {
		t.Errorf("revoked as the page is closed: %v", i.revoked)
	}
	// A pasted token takes the place of a session of the issuer, with its renewal.
	b.signInAt(i)
	b.send(pageRequest("POST", sessionPath, `{"token":"`+goodToken+`"}`))
	if b.cookies[renewalCookie] != nil {
		t.Error("the renewal is kept after another sign-in")
	}
	if answer := b.send(pageRequest("DELETE", sessionPath, "")); answer.StatusCode != http.StatusNoContent {
		t.Errorf("the sign-out of a pasted token: %d", answer.StatusCode)
	}
}
