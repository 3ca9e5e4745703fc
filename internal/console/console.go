// Package console serves the web console of the hub: its files, sign-in, and the hub's API as the
// signed-in person.
//
// Contract: a handler stands before the API's chain and passes everything outside of /console on,
// unchanged. It keeps no session: cookies hold the person's own credentials, sealed under the hub key. A
// one-time code, with the credential that it stands for, is kept until it is used or over.
// All methods are safe for concurrent use.
package console

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/console/issuer"
	"atoll.dev/atoll/internal/delivery/fairness"
)

const (
	// rootPath is the console's part of the hub's paths.
	rootPath = "/console/"
	// sessionPath signs in and out, and reports the signed-in person.
	sessionPath = rootPath + "session"
	// renewalPath renews the session at the issuer.
	renewalPath = sessionPath + "/renewal"
	// codePath takes a one-time code, and signs in by it after the person's consent.
	codePath = sessionPath + "/code"
	// issuerPath reports on the issuer, and beginPath sends a browser to it.
	issuerPath = rootPath + "oidc"
	beginPath  = issuerPath + "/sign-in"
	// apiPath is the hub's API as the signed-in person.
	apiPath = rootPath + "api"
	// reasonsPath has the table of reasons with their sentences and actors.
	reasonsPath = rootPath + "reasons.json"
	// answerTime bounds how long a client takes to read a file or an answer about its session.
	answerTime = 30 * time.Second
	// pageHeader is on every request of the console's own script. No other site's page can set it.
	pageHeader = "X-Atoll-Console"
	// sessionHeader is on every write: the name of the session that the page shows. After another sign-in in the same browser,
	// the page does not act as another person than it names.
	sessionHeader = "X-Atoll-Session"
)

// console is the handler of all below /console.
type console struct {
	api     http.Handler
	seal    *sealer
	limiter *fairness.RequestLimiter
	// issuer signs people in; nil: they paste tokens only.
	issuer *issuer.Client
	// beginLimiter is for ways to the issuer; callbackLimiter and renewalLimiter are for requests that the hub takes there.
	beginLimiter, callbackLimiter, renewalLimiter *fairness.RequestLimiter
	// terminals are those that are open at this hub. terminalLimiter is for networks that open them, personLimiter for people.
	terminals                      *terminals
	terminalLimiter, personLimiter *fairness.RequestLimiter

	// codes are the one-time codes. codeLimiter is for networks that request them, personCodeLimiter for people.
	codes                          *codes
	codeLimiter, personCodeLimiter *fairness.RequestLimiter

	assets map[string]asset
	log    *slog.Logger
	now    func() time.Time
}

// Options of a console.
type Options struct {
	// Log takes sign-ins, without credentials.
	Log *slog.Logger
	// SignIn is the sign-in by an issuer of the AuthenticationConfig, which is the path of the file that the API reads.
	SignIn               issuer.Options
	AuthenticationConfig string
	// Codes keeps one-time codes for all hubs of one etcd; nil: this hub alone keeps its own.
	Codes CodeStore
}

// NewFront returns a function that makes the console of a hub with the key: a handler that serves the console,
// and all else by the API's chain. All hubs of one etcd have one key, so each opens the others' cookies.
func NewFront(o Options) func(hubKey []byte) (func(api http.Handler) http.Handler, error) {
	return func(hubKey []byte) (func(http.Handler) http.Handler, error) {
		c, err := newConsole(hubKey, o)
		if err != nil {
			return nil, err
		}
		return c.wrapAPI, nil
	}
}

func newConsole(hubKey []byte, o Options) (*console, error) {
	seal, err := newSealer(hubKey)
	if err != nil {
		return nil, err
	}
	files, err := readAssets()
	if err != nil {
		return nil, err
	}
	if files[reasonsPath], err = newAsset(encodeReasons(), "application/json", false); err != nil {
		return nil, err
	}
	c := &console{
		seal: seal, assets: files, log: o.Log, now: time.Now,
		limiter: newSignInLimiter(), beginLimiter: newFlowLimiter(), callbackLimiter: newFlowLimiter(), renewalLimiter: newRenewalLimiter(),
		codeLimiter: newCodeLimiter(), personCodeLimiter: newPersonCodeLimiter(),
		terminals: newTerminals(), terminalLimiter: newTerminalLimiter(), personLimiter: newPersonLimiter(),
	}
	if c.codes, err = newCodes(hubKey, seal, o.Codes); err != nil {
		return nil, err
	}
	if o.SignIn.URL != "" {
		if c.issuer, err = issuer.NewClient(o.SignIn, o.AuthenticationConfig); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// wrapAPI returns a handler that serves the console, and all else by the API. It is called once.
func (c *console) wrapAPI(api http.Handler) http.Handler {
	c.api = api
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path+"/" == rootPath:
			http.Redirect(w, r, rootPath, http.StatusPermanentRedirect)
		case strings.HasPrefix(r.URL.Path, rootPath):
			c.ServeHTTP(w, r)
		default:
			api.ServeHTTP(w, withoutSessions(r))
		}
	})
}

// withoutSessions returns the request without the sessions of consoles, which no server behind the API receives.
func withoutSessions(r *http.Request) *http.Request {
	if !strings.Contains(strings.Join(r.Header.Values("Cookie"), ";"), cookiePrefix) {
		return r
	}
	out := r.WithContext(r.Context())
	out.Header = r.Header.Clone()
	out.Header.Del("Cookie")
	for _, c := range r.Cookies() {
		if !strings.HasPrefix(c.Name, cookiePrefix) {
			out.AddCookie(c)
		}
	}
	return out
}

// ServeHTTP serves a path below /console.
func (c *console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	setSecurityHeaders(w.Header())
	if isTerminal(r) {
		c.serveTerminal(w, r)
		return
	}
	if strings.HasPrefix(r.URL.Path, apiPath+"/") {
		c.relayToAPI(w, r)
		return
	}
	// The chain of the API bounds its own answers. A writer that has no deadlines, as in tests, writes without.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTime))
	switch r.URL.Path {
	case sessionPath:
		c.serveSession(w, r)
	case renewalPath:
		c.serveRenewal(w, r)
	case codePath:
		c.serveCode(w, r)
	case atoll.ConsoleCodesPath:
		c.issueCode(w, r)
	case issuerPath:
		c.reportIssuer(w, r)
	case beginPath:
		c.beginSignIn(w, r)
	case issuer.CallbackPath:
		c.finishSignIn(w, r)
	default:
		c.serveAsset(w, r)
	}
}

// setSecurityHeaders sets what every answer of the console has, an answer of the API included.
func setSecurityHeaders(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; "+
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
}

// reasonText is one row of the table of reasons.
type reasonText struct {
	Reason   atoll.Reason `json:"reason"`
	Subject  string       `json:"subject"`
	Actor    atoll.Actor  `json:"actor"`
	Sentence string       `json:"sentence"`
}

func encodeReasons() []byte {
	out := make([]reasonText, 0, len(atoll.Reasons))
	for _, r := range atoll.Reasons {
		out = append(out, reasonText{Reason: r.Reason, Subject: r.Subject, Actor: r.Actor, Sentence: r.Sentence})
	}
	text, _ := json.Marshal(out) // texts alone always encode
	return text
}
