package console

import (
	"context"
	"errors"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/internal/console/issuer"
)

const (
	renewalLabel = "atoll console renewals v1"
	// issuerTime bounds the requests to the issuer that a person waits for, and revokeTime those of a sign-out.
	issuerTime = 12 * time.Second
	revokeTime = 3 * time.Second
	// minRenewal is the shortest time from one renewal to the next, also for a token that has nearly ended by the hub's clock.
	minRenewal = 10 * time.Second
)

// renewal is what renews a session: it has a cookie of its own, so that both fit.
type renewal struct {
	// Refresh is the issuer's refresh token.
	Refresh string `json:"r"`
	// Session is the hash of the token that it renews.
	Session string `json:"s"`
	// At is when the page renews it, and Until the end of the session, in seconds of Unix time.
	At    int64 `json:"a"`
	Until int64 `json:"u"`
}

// secondsFrom returns when the page renews the session, at least a second from now.
func (n renewal) secondsFrom(now time.Time) int { return int(max(n.At-now.Unix(), 1)) }

// renewalOf returns what renews the session of a request.
func (c *console) renewalOf(r *http.Request, s session) (renewal, bool) {
	cookie, err := r.Cookie(renewalCookieName(r))
	if err != nil || c.issuer == nil {
		return renewal{}, false
	}
	var n renewal
	err = c.seal.openValue(renewalLabel, cookie.Value, &n)
	return n, err == nil && n.Refresh != "" && n.Session == issuer.HashToken(s.encodeCredential()) && c.now().Unix() < n.Until
}

// sealTokens returns the session of an issuer's tokens, and the text of the cookie that renews it. Without a refresh
// token, or with one that is longer than a cookie, the session ends with the ID token.
func (c *console) sealTokens(t issuer.Tokens, until time.Time) (s session, n renewal, text string) {
	s = session{token: t.IDToken, until: until}
	if t.Refresh != "" {
		n = renewal{Refresh: t.Refresh, Session: issuer.HashToken(t.IDToken), At: renewalTime(c.now(), t.Expiry, until).Unix(), Until: until.Unix()}
		text = c.seal.sealValue(renewalLabel, n)
	}
	if text == "" && t.Expiry.Before(until) {
		s.until = t.Expiry.Truncate(time.Second)
	}
	return s, n, text
}

// renewalTime returns when the page renews a token: at three quarters of its life within the session.
func renewalTime(now, expiry, until time.Time) time.Time {
	if expiry.After(until) {
		expiry = until
	}
	return now.Add(max(expiry.Sub(now)*3/4, minRenewal))
}

// setTokens has the API review an issuer's tokens, and puts them into cookies when it accepts them. Those of a renewal
// are kept also when the API cannot check them now, because the issuer does not take the ones of before again.
func (c *console) setTokens(w http.ResponseWriter, r *http.Request, t issuer.Tokens, until time.Time, isRenewal bool) (person, int) {
	s, n, text := c.sealTokens(t, until)
	p, code := c.reviewCredential(r, s)
	if code != http.StatusOK && !(isRenewal && code == http.StatusServiceUnavailable) {
		return p, code
	}
	lifetime := s.until.Sub(c.now())
	if former, ok := c.sessionOf(r); ok && isRenewal {
		c.terminals.renewSession(former.encodeCredential(), s.encodeCredential(), lifetime)
	} else if ok {
		c.terminals.endSession(former.encodeCredential())
	}
	sessionCookies(r).setText(w, r, c.seal.sealSession(s), lifetime)
	if text == "" {
		clearKeptCookie(w, r, renewalCookieName(r))
		return p, code
	}
	setCookie(w, renewalCookieName(r), text, lifetime)
	p.RenewInSeconds = n.secondsFrom(c.now())
	return p, code
}

// serveRenewal puts a new token of the issuer into the session. A session of before stays when that fails.
func (c *console) serveRenewal(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	if !isOwnPage(r) || !isOwnOrigin(r) {
		writeRefusal(w, http.StatusForbidden, metav1.StatusReasonForbidden, "only the console's own page renews a session; a proxy before the hub must keep the header Host")
		return
	}
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", "POST")
		writeRefusal(w, http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "a session is renewed by POST")
		return
	}
	s, ok := c.sessionOf(r)
	n, isRenewed := c.renewalOf(r, s)
	if !ok || !isRenewed {
		refuseWithoutSession(w)
		return
	}
	if !c.takeTurn(w, r, c.renewalLimiter) {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), issuerTime)
	defer cancel()
	tokens, err := c.issuer.RenewTokens(ctx, s.token, n.Refresh)
	if err != nil {
		writeFailure(w, err)
		return
	}
	if tokens.Refresh == "" {
		tokens.Refresh = n.Refresh
	}
	if !isToken(tokens.IDToken) {
		writeRefusal(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized, tooLongMessage)
		return
	}
	p, code := c.setTokens(w, r, tokens, s.until, true)
	writePerson(w, p, code)
}

// writeFailure answers a renewal that the issuer did not grant.
func writeFailure(w http.ResponseWriter, err error) {
	if failure, ok := errors.AsType[*issuer.Failure](err); ok && failure.Kind != issuer.Unreachable {
		writeRefusal(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "sign in again: "+failure.Message)
		return
	}
	writeRefusal(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, err.Error())
}

// signedOut is the answer to a sign-out of a session that an issuer began.
type signedOut struct {
	// IssuerSignOut is where the person can end the session at the issuer, too.
	IssuerSignOut string `json:"issuerSignOut"`
}

// signOut removes the session in this browser. The issuer revokes its refresh token where it can, so that no copy is renewed.
func (c *console) signOut(w http.ResponseWriter, r *http.Request) {
	s, ok := c.sessionOf(r)
	n, isRenewed := c.renewalOf(r, s)
	if ok {
		c.terminals.endSession(s.encodeCredential())
	}
	sessionCookies(r).clearText(w, r)
	clearKeptCookie(w, r, renewalCookieName(r))
	clearKeptCookie(w, r, signInCookieName(r))
	clearKeptCookie(w, r, failureCookieName(r))
	clearKeptCookie(w, r, offerCookies(r).first)
	clearKeptCookie(w, r, offerCookies(r).more)
	if !ok || c.issuer == nil || !c.issuer.IsIssued(s.token) {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	// A page that is closed at once takes no refresh token along.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), revokeTime)
	defer cancel()
	if _, hasTurn := c.renewalLimiter.TakeTurn(networkOf(r), c.now()); isRenewed && hasTurn {
		if err := c.issuer.RevokeToken(ctx, n.Refresh); err != nil {
			c.log.Warn("a session was signed out, but its refresh token was not revoked", "err", err)
		}
	}
	if address := c.issuer.EndSessionURL(ctx); address != "" {
		writeJSON(w, http.StatusOK, signedOut{IssuerSignOut: address})
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
