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

// offerCookieName is the name of the cookie with a sign-in that a one-time code offers, until the person agrees.
func offerCookieName(r *http.Request) string { return cookiePrefix + "-offer" + portSuffix(r) }

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
