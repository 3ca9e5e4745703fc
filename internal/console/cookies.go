package console

import (
	"net"
	"net/http"
	"strconv"
	"time"
)

// cookiePrefix begins the names of all cookies of consoles.
const cookiePrefix = "__Host-atoll-console"

// cookieName has the port of the hub, because a browser sends the cookies of a host to all of its ports. The
// prefix makes browsers refuse the cookie without Secure, of another path, or of a parent domain.
func cookieName(r *http.Request) string { return cookiePrefix + portSuffix(r) }

// renewalCookieName, signInCookieName and failureCookieName are the names of the cookies that renew a session, that begin one
// at an issuer, and that have the failure of one for the page.
func renewalCookieName(r *http.Request) string { return cookiePrefix + "-renewal" + portSuffix(r) }
func signInCookieName(r *http.Request) string  { return cookiePrefix + "-signin" + portSuffix(r) }
func failureCookieName(r *http.Request) string { return cookiePrefix + "-failure" + portSuffix(r) }

// maxPart is the longest text of one cookie, of which browsers take 4,096 bytes with the name.
const maxPart = 3900

// cookiePair are the names of the two cookies of one sealed text. A text that fits into one cookie has no second one.
type cookiePair struct{ first, more string }

// sessionCookies are the cookies of a session.
func sessionCookies(r *http.Request) cookiePair {
	return cookiePair{first: cookieName(r), more: cookiePrefix + "-more" + portSuffix(r)}
}

// offerCookies are the cookies of a sign-in that a one-time code offers, until the person agrees.
func offerCookies(r *http.Request) cookiePair {
	return cookiePair{first: cookiePrefix + "-offer" + portSuffix(r), more: cookiePrefix + "-offer-more" + portSuffix(r)}
}

// setText sets the cookies of a text.
func (p cookiePair) setText(w http.ResponseWriter, r *http.Request, text string, lifetime time.Duration) {
	if len(text) <= maxPart {
		setCookie(w, p.first, text, lifetime)
		clearKeptCookie(w, r, p.more)
		return
	}
	setCookie(w, p.first, text[:maxPart], lifetime)
	setCookie(w, p.more, text[maxPart:], lifetime)
}

// readText returns the text of the cookies; "": the request has none. The second cookie counts if the first one is full. The
// first one counts of several cookies of a name.
func (p cookiePair) readText(r *http.Request) string {
	first, err := r.Cookie(p.first)
	if err != nil {
		return ""
	}
	if len(first.Value) == maxPart {
		if more, err := r.Cookie(p.more); err == nil {
			return first.Value + more.Value
		}
	}
	return first.Value
}

// clearText removes the cookies.
func (p cookiePair) clearText(w http.ResponseWriter, r *http.Request) {
	clearCookie(w, p.first)
	clearKeptCookie(w, r, p.more)
}

func portSuffix(r *http.Request) string {
	_, port, err := net.SplitHostPort(r.Host)
	if n, wrong := strconv.ParseUint(port, 10, 16); err == nil && wrong == nil {
		return "-" + strconv.FormatUint(n, 10)
	}
	return ""
}

// setCookie sets a cookie that only requests of the console's own page have.
func setCookie(w http.ResponseWriter, name, value string, lifetime time.Duration) {
	http.SetCookie(w, &http.Cookie{Name: name, Value: value, Path: "/", MaxAge: int(lifetime.Seconds()), Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode})
}

// setReturnCookie sets a cookie that a browser also sends as the issuer sends it back to the console.
func setReturnCookie(w http.ResponseWriter, name, value string, lifetime time.Duration) {
	http.SetCookie(w, &http.Cookie{Name: name, Value: value, Path: "/", MaxAge: int(lifetime.Seconds()), Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode})
}

// clearCookie removes a cookie.
func clearCookie(w http.ResponseWriter, name string) { setCookie(w, name, "", -time.Second) }

// clearKeptCookie removes a cookie that the request has.
func clearKeptCookie(w http.ResponseWriter, r *http.Request, name string) {
	if _, err := r.Cookie(name); err == nil {
		clearCookie(w, name)
	}
}
