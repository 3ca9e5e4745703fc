package console

import (
	"crypto/subtle"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/internal/console/issuer"
	"atoll.dev/atoll/internal/delivery/fairness"
)

const (
	offerLabel = "atoll console offers v1"
	// offerTime is how long the page waits for the person's consent to a sign-in by a code.
	offerTime = 5 * time.Minute
	// maxCodeRequest bounds the body of a request for a code.
	maxCodeRequest = 1 << 10
)

// codeRequest is the body of a request for a one-time code. An empty body has the default.
type codeRequest struct {
	LifetimeSeconds int `json:"lifetimeSeconds"`
}

// codeAnswer is the answer to it.
type codeAnswer struct {
	Code  string    `json:"code"`
	User  string    `json:"user"`
	Until time.Time `json:"until"`
}

// codeText is the body with which the page uses a code.
type codeText struct {
	Code string `json:"code"`
}

// consent is the body with which the page agrees to the sign-in that it shows.
type consent struct {
	Offer string `json:"offer"`
}

// offeredPerson is the answer to a code: the person of the session that the browser can have.
type offeredPerson struct {
	User   string   `json:"user"`
	Groups []string `json:"groups,omitempty"`
	// Offer identifies what is offered, so that the person agrees to exactly this.
	Offer string `json:"offer"`
}

// issueCode answers a client with a one-time code for its own person. The API authenticates the request's credential, which
// becomes that of the session.
func (c *console) issueCode(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", "POST")
		writeRefusal(w, http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "a code is made by POST")
		return
	}
	if problem := findCodeObstacle(r); problem != "" {
		writeRefusal(w, http.StatusForbidden, metav1.StatusReasonForbidden, problem)
		return
	}
	if !c.takeTurn(w, r, c.codeLimiter) {
		return
	}
	// A writer that has no deadlines, as in tests, reads without.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(signInTime))
	lifetime, problem := readLifetime(r)
	if problem != "" {
		writeRefusal(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, problem)
		return
	}
	own, p, ok := c.reviewCaller(w, r)
	if !ok {
		return
	}
	if wait, hasTurn := c.personCodeLimiter.TakeTurn(p.User, c.now()); !hasTurn {
		fairness.SetRetryAfter(w.Header(), wait)
		writeRefusal(w, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "you request codes too fast; try again in "+max(wait, time.Second).Round(time.Second).String())
		return
	}
	until := time.Now().Add(lifetime)
	code, err := c.codes.addCode(r.Context(), p.User, own, until)
	switch {
	case errors.Is(err, errNoPlace):
		fairness.SetRetryAfter(w.Header(), codeTime)
		writeRefusal(w, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, err.Error())
		return
	case err != nil:
		c.refuseWithoutStore(w, "a one-time code of the console could not be stored", err)
		return
	}
	c.log.Info("made a one-time code for the console", "user", p.User, "network", networkOf(r), "until", until.UTC().Format(time.RFC3339))
	writeJSON(w, http.StatusCreated, codeAnswer{Code: code, User: p.User, Until: until.UTC()})
}

// findCodeObstacle returns why a request gets no code, for each person. A browser has credentials of its own, which
// another site could use. A session cannot carry impersonation, and a front proxy's certificate is not the person's.
func findCodeObstacle(r *http.Request) string {
	if r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != "" {
		return "a browser gets no code: run atoll console"
	}
	for name := range r.Header {
		if strings.HasPrefix(name, "Impersonate-") || strings.HasPrefix(name, "X-Remote-") {
			return "a code is for the person of the credential itself: without impersonation, and not through an authenticating proxy"
		}
	}
	return ""
}

// readLifetime returns how long the requested code is good, or what is wrong with the request.
func readLifetime(r *http.Request) (lifetime time.Duration, problem string) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxCodeRequest+1))
	if err != nil || len(body) > maxCodeRequest {
		return 0, "the body of a request for a code has at most 1 KiB"
	}
	var in codeRequest
	if len(body) > 0 && json.Unmarshal(body, &in) != nil {
		return 0, `the body of a request for a code is {"lifetimeSeconds": NUMBER}, or empty`
	}
	switch most := int(maxCodeTime / time.Second); {
	case in.LifetimeSeconds == 0:
		return codeTime, ""
	case in.LifetimeSeconds < 0 || in.LifetimeSeconds > most:
		return 0, "lifetimeSeconds is from 1 to " + strconv.Itoa(most)
	}
	return time.Duration(in.LifetimeSeconds) * time.Second, ""
}

// reviewCaller returns the credential of a request that the API accepts, and its person. Otherwise it refuses the request.
func (c *console) reviewCaller(w http.ResponseWriter, r *http.Request) (session, person, bool) {
	offered := credentialsOf(r)
	status := http.StatusUnauthorized
	for _, own := range offered {
		if len(own.encodeCredential()) > maxToken {
			writeRefusal(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, "the token or certificate has more than 5600 bytes, which do not fit into the cookies of a session")
			return session{}, person{}, false
		}
		var p person
		if p, status = c.reviewCredential(r, own); status == http.StatusOK {
			return own, p, true
		}
		if status != http.StatusUnauthorized {
			break
		}
	}
	if status == http.StatusUnauthorized {
		writeRefusal(w, status, metav1.StatusReasonUnauthorized, "the hub accepts no credential of this request: a code is for the person of a client certificate or a bearer token")
	} else {
		writePerson(w, person{}, status)
	}
	return session{}, person{}, false
}

// credentialsOf returns the credentials of a request, in the order in which the API tries them: the client certificate, then
// the token.
func credentialsOf(r *http.Request) []session {
	var out []session
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		out = append(out, session{chain: r.TLS.PeerCertificates})
	}
	kind, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if token = strings.TrimSpace(token); strings.EqualFold(kind, "Bearer") && (isToken(token) || len(token) > maxToken) {
		out = append(out, session{token: token})
	}
	return out
}

// serveCode takes a one-time code of the page, and signs in by it after the person's consent.
func (c *console) serveCode(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	if !isOwnPage(r) || !isOwnOrigin(r) {
		writeRefusal(w, http.StatusForbidden, metav1.StatusReasonForbidden, "only the console's own page uses codes; a proxy before the hub must keep the header Host")
		return
	}
	switch r.Method {
	case http.MethodPost:
		c.useCode(w, r)
	case http.MethodPut:
		c.agreeToOffer(w, r)
	case http.MethodDelete:
		offerCookies(r).clearText(w, r)
		w.WriteHeader(http.StatusNoContent)
	default:
		w.Header().Set("Allow", "POST, PUT, DELETE")
		writeRefusal(w, http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "a code is used by POST, its sign-in is agreed to by PUT, or declined by DELETE")
	}
}

// useCode uses a code up, and offers the sign-in to the person. Another site can send a browser here with a code of its own, so
// the session of before stays until the person agrees.
func (c *console) useCode(w http.ResponseWriter, r *http.Request) {
	var in codeText
	if !c.readOfPage(w, r, &in, `{"code": "..."}`, c.limiter) {
		return
	}
	offered, err := c.codes.takeCode(r.Context(), in.Code)
	switch {
	case errors.Is(err, errCodeUsed): // another one may have used it first
		c.log.Warn("a one-time code of the console came after its use or its end", "network", networkOf(r))
		fallthrough
	case errors.Is(err, errCodeForeign), errors.Is(err, errCodeMalformed):
		writeRefusal(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized, err.Error()+": run atoll console again")
		return
	case err != nil:
		c.refuseWithoutStore(w, "a one-time code of the console could not be taken", err)
		return
	}
	p, status := c.reviewCredential(r, offered)
	if status != http.StatusOK {
		writeCodeRefusal(w, status)
		return
	}
	offered.until = c.now().Add(offerTime)
	text := c.seal.sealPerson(offerLabel, offered)
	c.log.Info("used a one-time code of the console", "user", p.User, "network", networkOf(r))
	offerCookies(r).setText(w, r, text, offerTime)
	writeJSON(w, http.StatusOK, offeredPerson{User: p.User, Groups: p.Groups, Offer: issuer.HashToken(text)})
}

// refuseWithoutStore refuses a request for which the store of codes does not answer.
func (c *console) refuseWithoutStore(w http.ResponseWriter, what string, err error) {
	c.log.Warn(what, "err", err)
	writeRefusal(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "the hub does not reach its store of codes now; run atoll console again in a few seconds")
}

// agreeToOffer makes the offered sign-in the browser's session.
func (c *console) agreeToOffer(w http.ResponseWriter, r *http.Request) {
	var in consent
	if !c.readOfPage(w, r, &in, `{"offer": "..."}`, c.renewalLimiter) {
		return
	}
	s, ok := c.offerOf(r, in.Offer)
	if !ok {
		writeRefusal(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "this sign-in is over, or the browser has used another code since: run atoll console again")
		return
	}
	s.until = c.endOfSession(s)
	p, status := c.reviewCredential(r, s)
	if status != http.StatusOK {
		writeCodeRefusal(w, status)
		return
	}
	c.beginSession(w, r, s, p, s.until.Sub(c.now()), "by", "one-time code")
	offerCookies(r).clearText(w, r)
	writeJSON(w, http.StatusOK, p)
}

// offerOf returns the sign-in that the browser was offered, if the person agrees to exactly this one.
func (c *console) offerOf(r *http.Request, agreed string) (session, bool) {
	text := offerCookies(r).readText(r)
	if subtle.ConstantTimeCompare([]byte(issuer.HashToken(text)), []byte(agreed)) != 1 {
		return session{}, false
	}
	s, err := c.seal.openPerson(offerLabel, text, c.now())
	return s, err == nil
}

// writeCodeRefusal refuses a sign-in by a code whose credential the API does not accept now.
func writeCodeRefusal(w http.ResponseWriter, status int) {
	if status == http.StatusUnauthorized {
		writeRefusal(w, status, metav1.StatusReasonUnauthorized, "the hub does not accept the credential of this code any more: run atoll console again")
		return
	}
	writePerson(w, person{}, status)
}
