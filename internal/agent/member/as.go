package member

import (
	"context"
	"net/http"

	"k8s.io/client-go/transport"
)

// accountKey of a context holds in whose name is written.
type accountKey struct{}

// WithServiceAccount returns a context in which a Client writes in the name of a ServiceAccount,
// by impersonation. Reads use the agent's own identity.
func WithServiceAccount(ctx context.Context, namespace, account string) context.Context {
	return context.WithValue(ctx, accountKey{}, serviceAccountUser(namespace, account))
}

// serviceAccountUser returns the user that a ServiceAccount is to the member's API.
func serviceAccountUser(namespace, name string) string {
	return "system:serviceaccount:" + namespace + ":" + name
}

// impersonatingTransport is a transport that writes in the name that the context holds.
type impersonatingTransport struct{ http.RoundTripper }

// RoundTrip sends writes in the name of the ServiceAccount in the request's context.
func (w impersonatingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if user, ok := r.Context().Value(accountKey{}).(string); ok && r.Method != http.MethodGet {
		r = r.Clone(r.Context())
		r.Header.Set(transport.ImpersonateUserHeader, user)
	}
	return w.RoundTripper.RoundTrip(r)
}
