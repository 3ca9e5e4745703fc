package reach

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Redirections
//
// Who is redirected goes there by himself, with the method, the body and the credentials
// that he has for the hub. So a member, or whoever has taken one over, could have an
// administrator's client do on the hub, or in another member, what he meant for this one.

// leadsAwayError refuses a redirection that leads out of what was asked.
type leadsAwayError struct{ to string }

func (e *leadsAwayError) Error() string {
	return fmt.Sprintf("it redirects to %q, which is not below what was asked of it, and nobody is led there through the hub", e.to)
}

// redirected has a redirection lead to the same place of the member's API through the hub,
// and refuses one that leads anywhere else.
func (a asked) redirected(r *http.Response) error {
	said := r.Header.Values("Location")
	if r.StatusCode < 300 || r.StatusCode >= 400 || len(said) == 0 {
		return nil
	}
	to, ok := a.within(said[0])
	if !ok || len(said) > 1 {
		return &leadsAwayError{strings.Join(said, ", ")}
	}
	r.Header.Set("Location", to)
	return nil
}

// within gives the hub's own place for a redirection of the member; false where it has none.
// What somebody's client may take for another path than it says is nowhere.
func (a asked) within(said string) (to string, ok bool) {
	from := url.URL{Path: unescaped(a.path), RawPath: a.path}
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
	there.Path, there.RawPath = unescaped(a.at+rest), a.at+rest
	return there.String(), true
}
