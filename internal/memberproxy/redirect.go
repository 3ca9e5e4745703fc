package memberproxy

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Redirections
//
// A redirected client goes there by itself, with the method, the body and the credentials that it
// has for the hub. So a member, or an attacker in it, could have an administrator's client do on
// the hub, or in another member, a request that was meant for this one.

// leadsAwayError refuses a redirection that leads out of the requested API.
type leadsAwayError struct{ to string }

func (e *leadsAwayError) Error() string {
	return fmt.Sprintf("it redirects to %q, which is not below the requested path, and is not followed through the hub", e.to)
}

// rewriteRedirect has a redirection lead to the same place of the member's API through the hub,
// and refuses one that leads anywhere else.
func (a proxyRequest) rewriteRedirect(r *http.Response) error {
	said := r.Header.Values("Location")
	if r.StatusCode < 300 || r.StatusCode >= 400 || len(said) == 0 {
		return nil
	}
	to, ok := a.hubLocation(said[0])
	if !ok || len(said) > 1 {
		return &leadsAwayError{strings.Join(said, ", ")}
	}
	r.Header.Set("Location", to)
	return nil
}

// hubLocation returns the hub's own place for a redirection of the member; false where it has
// none. A location that a client may read as another path has none.
func (a proxyRequest) hubLocation(said string) (to string, ok bool) {
	from := url.URL{Path: unescapePath(a.path), RawPath: a.path}
	there, err := url.Parse(said)
	if err != nil || there.Scheme != "" || there.Host != "" || there.User != nil {
		return "", false
	}
	there = from.ResolveReference(there)
	if strings.Contains(there.Path, "\\") || slices.ContainsFunc(strings.Split(there.Path, "/"), func(part string) bool { return part == "." || part == ".." }) {
		return "", false
	}
	rest, ok := strings.CutPrefix(there.EscapedPath(), a.base)
	if !ok || rest != "" && rest[0] != '/' {
		return "", false
	}
	there.Path, there.RawPath = unescapePath(a.at+rest), a.at+rest
	return there.String(), true
}
