package console

import (
	"context"
	"crypto/subtle"
	"errors"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/internal/console/issuer"
	"atoll.dev/atoll/internal/delivery/fairness"
)

const (
	flowLabel    = "atoll console sign-ins v1"
	failureLabel = "atoll console failed sign-ins v1"
	// flowTime is how long a sign-in at the issuer may take, and failureTime how long its failure is kept for the page.
	flowTime    = 10 * time.Minute
	failureTime = time.Minute
	// statusTime is how long the sign-in page waits for the first answer of the issuer.
	statusTime = 3 * time.Second
	// maxReturn, maxCallback and maxCode bound the page after a sign-in, the query of the issuer's answer, and its code.
	maxReturn   = 1024
	maxCallback = 16 << 10
	maxCode     = 8 << 10

	tooLongMessage = "the issuer's ID token has more than 5600 characters, which does not fit into two cookies: have it name fewer groups and claims"
)

// Kinds of failed sign-ins that the issuer's client does not have.
const (
	failedExpired  issuer.FailureKind = "SignInExpired"
	failedTooMany  issuer.FailureKind = "TooManySignIns"
	failedTooLong  issuer.FailureKind = "TokenTooLong"
	failedRejected issuer.FailureKind = "TokenRejected"
	failedHub      issuer.FailureKind = "HubUnavailable"
)

// signInFlow is a sign-in under way, which one browser has in a cookie.
type signInFlow struct {
	issuer.SignIn
	// Return is the page after the sign-in.
	Return string
	// Until is its end, in seconds of Unix time.
	Until int64
}

// failureText is a failed sign-in, for the sign-in page.
type failureText struct {
	Kind    issuer.FailureKind `json:"kind"`
	Message string             `json:"message"`
}

// issuerText is what the sign-in page shows of the issuer.
type issuerText struct {
	Host    string     `json:"host,omitempty"`
	State   string     `json:"state,omitempty"`
	Since   *time.Time `json:"since,omitempty"`
	Message string     `json:"message,omitempty"`
	// SignIn is where a browser begins.
	SignIn string `json:"signIn,omitempty"`
	// Failure is that of the last sign-in of this browser.
	Failure *failureText `json:"failure,omitempty"`
}

// reportIssuer answers with the issuer's state, and once with the failure of this browser's last sign-in.
func (c *console) reportIssuer(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	switch {
	case !isOwnPage(r):
		writeRefusal(w, http.StatusForbidden, metav1.StatusReasonForbidden, "only the console's own page reads this")
	case r.Method != http.MethodGet:
		w.Header().Set("Allow", "GET")
		writeRefusal(w, http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "the state of the issuer is only read")
	case c.issuer == nil:
		writeJSON(w, http.StatusOK, issuerText{})
	default:
		ctx, cancel := context.WithTimeout(r.Context(), statusTime)
		defer cancel()
		status := c.issuer.CheckStatus(ctx)
		out := issuerText{Host: c.issuer.Host(), State: status.State, Message: status.Message, SignIn: beginPath, Failure: c.takeFailure(w, r)}
		if address := c.issuer.Address(); address != "" {
			out.SignIn = "https://" + address + beginPath
		}
		if !status.Since.IsZero() {
			out.Since = &status.Since
		}
		writeJSON(w, http.StatusOK, out)
	}
}

// takeFailure returns the failure that the browser keeps, and removes it there.
func (c *console) takeFailure(w http.ResponseWriter, r *http.Request) *failureText {
	cookie, err := r.Cookie(failureCookieName(r))
	if err != nil {
		return nil
	}
	var f failureText
	if c.seal.openValue(failureLabel, cookie.Value, &f) != nil {
		return nil
	}
	clearCookie(w, failureCookieName(r))
	return &f
}

// beginSignIn sends a browser to the issuer.
func (c *console) beginSignIn(w http.ResponseWriter, r *http.Request) {
	if !c.isNavigation(w, r) {
		return
	}
	// Another site cannot begin a sign-in: its link leads to the sign-in page.
	if r.Header.Get("Sec-Fetch-Site") == "cross-site" {
		http.Redirect(w, r, rootPath, http.StatusSeeOther)
		return
	}
	if _, ok := c.beginLimiter.TakeTurn(networkOf(r), c.now()); !ok {
		c.failSignIn(w, r, &issuer.Failure{Kind: failedTooMany})
		return
	}
	host := c.issuer.Address()
	if host == "" {
		host = r.Host
	}
	if !issuer.IsAddress(host) {
		writeRefusal(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, "the header Host is no HOST or HOST:PORT")
		return
	}
	flow := signInFlow{SignIn: issuer.NewSignIn(host), Return: safeReturn(r.URL.Query().Get("return")), Until: c.now().Add(flowTime).Unix()}
	ctx, cancel := context.WithTimeout(r.Context(), issuerTime)
	defer cancel()
	address, err := c.issuer.AuthorizeURL(ctx, flow.SignIn)
	if err != nil {
		c.failSignIn(w, r, err)
		return
	}
	setReturnCookie(w, signInCookieName(r), c.seal.sealValue(flowLabel, flow), flowTime)
	http.Redirect(w, r, address, http.StatusSeeOther)
}

// finishSignIn takes the issuer's answer, and puts its token into a session.
func (c *console) finishSignIn(w http.ResponseWriter, r *http.Request) {
	if !c.isNavigation(w, r) {
		return
	}
	flow, ok := c.flowOf(r)
	if !ok {
		c.failSignIn(w, r, &issuer.Failure{Kind: failedExpired})
		return
	}
	clearCookie(w, signInCookieName(r))
	if _, ok := c.callbackLimiter.TakeTurn(networkOf(r), c.now()); !ok {
		c.failSignIn(w, r, &issuer.Failure{Kind: failedTooMany})
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), issuerTime)
	defer cancel()
	tokens, err := c.takeAnswer(ctx, flow, r.URL.Query())
	if err != nil {
		c.failSignIn(w, r, err)
		return
	}
	p, code := c.setTokens(w, r, tokens, c.now().Add(sessionTime).Truncate(time.Second), false)
	if code != http.StatusOK {
		c.log.Warn("the hub's API does not accept a token of the console's issuer", "issuer", c.issuer.Host(), "status", code, "network", networkOf(r))
		c.failSignIn(w, r, describeReview(code))
		return
	}
	c.log.Info("signed in to the console", "user", p.User, "network", networkOf(r), "issuer", c.issuer.Host())
	http.Redirect(w, r, flow.Return, http.StatusSeeOther)
}

// takeAnswer returns the tokens for the issuer's answer to a sign-in.
func (c *console) takeAnswer(ctx context.Context, flow signInFlow, q url.Values) (issuer.Tokens, error) {
	if iss := q.Get("iss"); iss != "" && !c.issuer.IsIssuer(iss) {
		return issuer.Tokens{}, &issuer.Failure{Kind: issuer.Unverified, Message: "the answer is of another issuer"}
	}
	if refusal := q.Get("error"); refusal != "" {
		return issuer.Tokens{}, issuer.DescribeRefusal(refusal, q.Get("error_description"))
	}
	code := q.Get("code")
	if code == "" || len(code) > maxCode {
		return issuer.Tokens{}, &issuer.Failure{Kind: issuer.Unverified, Message: "the answer of the issuer has no code"}
	}
	tokens, err := c.issuer.ExchangeCode(ctx, flow.SignIn, code)
	if err == nil && !isToken(tokens.IDToken) {
		return issuer.Tokens{}, &issuer.Failure{Kind: failedTooLong, Message: tooLongMessage}
	}
	return tokens, err
}

// describeReview returns why the hub's API does not accept a token.
func describeReview(code int) *issuer.Failure {
	if code == http.StatusUnauthorized || code == http.StatusForbidden {
		return &issuer.Failure{Kind: failedRejected}
	}
	return &issuer.Failure{Kind: failedHub}
}

// flowOf returns the sign-in that a browser has under way, if the issuer's answer is to it.
func (c *console) flowOf(r *http.Request) (signInFlow, bool) {
	cookie, err := r.Cookie(signInCookieName(r))
	if err != nil || len(r.URL.RawQuery) > maxCallback {
		return signInFlow{}, false
	}
	var flow signInFlow
	if c.seal.openValue(flowLabel, cookie.Value, &flow) != nil || c.now().Unix() >= flow.Until {
		return signInFlow{}, false
	}
	return flow, subtle.ConstantTimeCompare([]byte(r.URL.Query().Get("state")), []byte(flow.State)) == 1
}

// isNavigation refuses a request of the sign-in that is not a browser's way to a page.
func (c *console) isNavigation(w http.ResponseWriter, r *http.Request) bool {
	w.Header().Set("Cache-Control", "no-store")
	switch {
	case c.issuer == nil:
		writeRefusal(w, http.StatusNotFound, metav1.StatusReasonNotFound, "this hub has no sign-in by an issuer: --console-oidc-issuer")
	case r.Method != http.MethodGet:
		w.Header().Set("Allow", "GET")
		writeRefusal(w, http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "a browser signs in by GET")
	default:
		return true
	}
	return false
}

// failSignIn sends the browser to the sign-in page, which shows the failure.
func (c *console) failSignIn(w http.ResponseWriter, r *http.Request, err error) {
	f := failureText{Kind: issuer.Unreachable, Message: err.Error()}
	if failure, ok := errors.AsType[*issuer.Failure](err); ok {
		f.Kind = failure.Kind
	}
	setCookie(w, failureCookieName(r), c.seal.sealValue(failureLabel, f), failureTime)
	http.Redirect(w, r, rootPath, http.StatusSeeOther)
}

func networkOf(r *http.Request) string { return fairness.NetworkOfRequest(r) }

// safeReturn returns a page of the console; what is none of its views becomes the first page.
func safeReturn(text string) string {
	if len(text) > maxReturn || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' || r == '\\' }) {
		return rootPath
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme+u.Host+u.Opaque != "" || u.User != nil || !isView(u.Path) {
		return rootPath
	}
	return u.RequestURI()
}

// isView reports whether a path is one of the pages, without parts such as ".." or "//".
func isView(p string) bool {
	rest, ok := strings.CutPrefix(p, rootPath)
	view, _, _ := strings.Cut(rest, "/")
	return ok && views[view] && path.Clean(p) == strings.TrimSuffix(p, "/")
}
