package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/internal/delivery/fairness"
)

const (
	// sessionTime is how long a person stays signed in. The token may end before.
	sessionTime = 12 * time.Hour
	// maxSignInBody bounds the body of a sign-in, before it is parsed.
	maxSignInBody = 16 << 10
	// signInTime bounds the time in which the body of a sign-in arrives, and that of the token's check.
	signInTime = 10 * time.Second
	// maxReviewBody bounds the API's answer about a token.
	maxReviewBody = 256 << 10
	reviewPath    = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
)

// signIn is the body of a sign-in.
type signIn struct {
	Token string `json:"token"`
}

// person is the answer about the signed-in person.
type person struct {
	User   string    `json:"user"`
	Groups []string  `json:"groups,omitempty"`
	Until  time.Time `json:"until"`
	// Session is the name by which the page states the session that it shows.
	Session string `json:"session"`
	// RenewInSeconds is when the page renews the session; 0: it is not renewed.
	RenewInSeconds int `json:"renewInSeconds,omitempty"`
}

// serveSession reports the signed-in person, signs in, or signs out.
func (c *console) serveSession(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	if !isOwnPage(r) || r.Method != http.MethodGet && !isOwnOrigin(r) {
		writeRefusal(w, http.StatusForbidden, metav1.StatusReasonForbidden, "only the console's own page signs in and out; a proxy before the hub must keep the header Host")
		return
	}
	switch r.Method {
	case http.MethodGet:
		c.reportPerson(w, r)
	case http.MethodPost:
		c.signIn(w, r)
	case http.MethodDelete:
		c.signOut(w, r)
	default:
		w.Header().Set("Allow", "GET, POST, DELETE")
		writeRefusal(w, http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "a session is read, made by POST, or ended by DELETE")
	}
}

// reportPerson answers with the person of the session, whose credential the API checks again.
func (c *console) reportPerson(w http.ResponseWriter, r *http.Request) {
	s, ok := c.sessionOf(r)
	if !ok {
		refuseWithoutSession(w)
		return
	}
	p, code := c.reviewCredential(r, s)
	renewed, isRenewed := c.renewalOf(r, s)
	switch {
	case isRenewed && code == http.StatusUnauthorized:
		writeRefusal(w, code, metav1.StatusReasonExpired, "the token has ended: the page renews the session")
		return
	case isRenewed:
		p.RenewInSeconds = renewed.secondsFrom(c.now())
	case code == http.StatusUnauthorized:
		c.terminals.endSession(s.encodeCredential())
		sessionCookies(r).clearText(w, r)
	}
	writePerson(w, p, code)
}

// signIn checks a token by the API, and puts it into a cookie.
func (c *console) signIn(w http.ResponseWriter, r *http.Request) {
	var in signIn
	if !c.readOfPage(w, r, &in, `{"token": "..."}`, c.limiter) {
		return
	}
	if !isToken(in.Token) {
		writeRefusal(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, "a token has from 1 to 5600 printable ASCII characters, without spaces")
		return
	}
	s := session{token: in.Token}
	s.until = c.endOfSession(s)
	p, code := c.reviewCredential(r, s)
	if code == http.StatusOK { // a refused one is the caller's alone, and in the audit log
		c.beginSession(w, r, s, p, sessionTime)
	}
	writePerson(w, p, code)
}

// beginSession makes a session the browser's, for a time, and ends what an earlier one had. more is for the log.
func (c *console) beginSession(w http.ResponseWriter, r *http.Request, s session, p person, lifetime time.Duration, more ...any) {
	c.endTerminals(r)
	c.log.Info("signed in to the console", append([]any{"user", p.User, "network", networkOf(r)}, more...)...)
	sessionCookies(r).setText(w, r, c.seal.sealSession(s), lifetime)
	clearKeptCookie(w, r, renewalCookieName(r))
}

// endOfSession returns the end of a session that begins now: after sessionTime, or with its certificate.
func (c *console) endOfSession(s session) time.Time {
	until := c.now().Add(sessionTime)
	if len(s.chain) > 0 && s.chain[0].NotAfter.Before(until) {
		until = s.chain[0].NotAfter
	}
	return until.Truncate(time.Second)
}

// readOfPage takes a turn of the request's network and reads its body, or refuses the request.
func (c *console) readOfPage(w http.ResponseWriter, r *http.Request, into any, form string, limiter *fairness.RequestLimiter) bool {
	if !c.takeTurn(w, r, limiter) {
		return false
	}
	// A writer that has no deadlines, as in tests, reads without.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(signInTime))
	if problem := readSignInBody(r, into, form); problem != "" {
		writeRefusal(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, problem)
		return false
	}
	return true
}

// takeTurn takes a turn of the request's network, or refuses the request.
func (c *console) takeTurn(w http.ResponseWriter, r *http.Request, limiter *fairness.RequestLimiter) bool {
	wait, ok := limiter.TakeTurn(fairness.NetworkOfRequest(r), c.now())
	if !ok {
		fairness.SetRetryAfter(w.Header(), wait)
		writeRefusal(w, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "too many sign-ins from this network; try again in "+wait.Round(time.Second).String())
	}
	return ok
}

// noReviewMessage answers a request whose token the API could not review.
const noReviewMessage = "the hub cannot check tokens now; try again in a few seconds"

func writePerson(w http.ResponseWriter, p person, code int) {
	switch code {
	case http.StatusOK:
		writeJSON(w, code, p)
	case http.StatusForbidden:
		writeRefusal(w, code, metav1.StatusReasonForbidden, "the hub does not let this user read its own name: an administrator must grant the ClusterRole system:basic-user")
	case http.StatusUnauthorized:
		writeRefusal(w, code, metav1.StatusReasonUnauthorized, "the hub does not accept this token: it may be expired, revoked, or of another hub")
	default:
		writeRefusal(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, noReviewMessage)
	}
}

// readSignInBody reads the body of a sign-in, or returns what is wrong with the request. form is what the body should be.
func readSignInBody(r *http.Request, into any, form string) (problem string) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return "the body of a sign-in is application/json"
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxSignInBody+1))
	if err != nil || len(body) > maxSignInBody {
		return "the body of a sign-in has at most 16 KiB"
	}
	if err := json.Unmarshal(body, into); err != nil {
		return "the body of a sign-in is " + form
	}
	return ""
}

// reviewCredential has the API authenticate the credential, in this process, and returns the person and the status.
func (c *console) reviewCredential(r *http.Request, s session) (person, int) {
	body, _ := json.Marshal(authenticationv1.SelfSubjectReview{TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "SelfSubjectReview"}})
	ctx, cancel := context.WithTimeout(r.Context(), signInTime)
	defer cancel()
	inner := r.Clone(ctx)
	inner.Method, inner.URL, inner.RequestURI = http.MethodPost, &url.URL{Path: reviewPath}, reviewPath
	inner.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json"}, "User-Agent": {"atoll-console"}}
	inner.Body, inner.ContentLength, inner.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	actAs(inner, s)
	answer := &boundedAnswer{header: http.Header{}, code: http.StatusOK}
	c.api.ServeHTTP(answer, inner)
	if answer.code == http.StatusUnauthorized || answer.code == http.StatusForbidden {
		return person{}, answer.code
	}
	var review authenticationv1.SelfSubjectReview
	if answer.code != http.StatusCreated || answer.err != nil || json.Unmarshal(answer.body.Bytes(), &review) != nil || review.Status.UserInfo.Username == "" {
		return person{}, http.StatusServiceUnavailable
	}
	u := review.Status.UserInfo
	return person{User: u.Username, Groups: u.Groups, Until: s.until.UTC(), Session: s.pageName()}, http.StatusOK
}

// boundedAnswer keeps an answer of the API of at most maxReviewBody.
type boundedAnswer struct {
	header http.Header
	body   bytes.Buffer
	code   int
	err    error
}

func (a *boundedAnswer) Header() http.Header  { return a.header }
func (a *boundedAnswer) WriteHeader(code int) { a.code = code }
func (a *boundedAnswer) Write(b []byte) (int, error) {
	if a.body.Len()+len(b) > maxReviewBody {
		a.err = errors.New("the answer is too long")
		return 0, a.err
	}
	return a.body.Write(b)
}

// sessionOf returns the session of a request.
func (c *console) sessionOf(r *http.Request) (session, bool) {
	s, err := c.seal.openSession(sessionCookies(r).readText(r), c.now())
	return s, err == nil
}

// noSessionMessage answers a request without a session that holds.
const noSessionMessage = "sign in: there is no session, or it is over"

func refuseWithoutSession(w http.ResponseWriter) {
	writeRefusal(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized, noSessionMessage)
}

// writeRefusal writes a Status, as the API does. Nothing of the request is in it.
func writeRefusal(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	w.Header().Set("Cache-Control", "no-store")
	writeJSON(w, code, newRefusal(code, reason, message))
}

// newRefusal returns a Status as the API has it.
func newRefusal(code int, reason metav1.StatusReason, message string) metav1.Status {
	return metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message}
}

func writeJSON(w http.ResponseWriter, code int, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		slog.Error("encode an answer of the console", "err", err)
		http.Error(w, "the answer cannot be encoded", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(append(body, '\n')) // the client may have closed the connection
}
