package fetch

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"atoll.dev/atoll/internal/atoll"
)

// tokenGrant is to which other host the credentials of a registry go, and for which token.
type tokenGrant struct {
	// host is the host of the tokens, with a port that is not that of HTTPS; empty: no other host gets the credentials.
	host string
	// repository is the path of the registry that tokens may read, with all below; empty: all of the registry.
	repository string
}

// tokenRefusal ends a request that would bring the credentials of a registry to another host than its token host, or for a token that
// does more than to read its repository.
type tokenRefusal struct {
	// host is the other host, where its name is one; the registry states it.
	host string
	// isWide is true for a token that does more.
	isWide bool
}

// Error returns why.
func (e *tokenRefusal) Error() string {
	if e.isWide {
		return "the registry requests a token for more than to read the repository of the URL"
	}
	host := ""
	if e.host != "" {
		host = ", " + e.host
	}
	return fmt.Sprintf("the registry requests the credentials for another host than its own%s, which gets none", host)
}

// newFailure returns the failure of a request that was refused.
func (e *tokenRefusal) newFailure() *Failure {
	if e.isWide {
		return newFailure(atoll.ReasonRedirectRefused, "%v", e)
	}
	return newFailure(atoll.ReasonRedirectRefused, "%v; state tokenHost of the Repository if the operator of the registry names this host, else name no Secret", e)
}

// hostForm is the form of a host that is shown.
var hostForm = regexp.MustCompile(`^[A-Za-z0-9.-]{1,253}(:[0-9]{1,5})?$`)

// checkRequest refuses a request with credentials to another host than the registry. The token host gets a request for a token alone, and the token
// may read the repository of the URL alone: a registry cannot get a token for another one by it.
func (g tokenGrant) checkRequest(r *http.Request) error {
	if g.host == "" || normalizeHost(r.URL.Host) != normalizeHost(g.host) || r.URL.Scheme != "https" || r.Method != http.MethodGet {
		return &tokenRefusal{host: hostForm.FindString(r.URL.Host)}
	}
	for _, scopes := range r.URL.Query()["scope"] {
		for scope := range strings.FieldsSeq(scopes) {
			if !g.allowsScope(scope) {
				return &tokenRefusal{isWide: true}
			}
		}
	}
	return nil
}

// allowsScope reports whether a scope is to read a repository of the URL.
func (g tokenGrant) allowsScope(scope string) bool {
	path, isRead := strings.CutSuffix(scope, ":pull")
	path, isRepository := strings.CutPrefix(path, "repository:")
	return isRead && isRepository && (g.repository == "" || path == g.repository || strings.HasPrefix(path, g.repository+"/"))
}

// normalizeHost returns a host in small letters, without the port of HTTPS.
func normalizeHost(host string) string { return strings.TrimSuffix(strings.ToLower(host), ":443") }
