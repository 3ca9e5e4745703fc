package person

import (
	"net/http"
	"strings"
)

// The prefix of the header for impersonation, as in Kubernetes.
const (
	headerUser   = "Impersonate-User"
	headerGroup  = "Impersonate-Group"
	headerPrefix = "Impersonate-"

	// headerProtocols may hold a token, after tokenProtocol, as browsers log in by
	// WebSocket.
	headerProtocols = "Sec-Websocket-Protocol"
	tokenProtocol   = "base64url.bearer.authorization.k8s.io."
)

// ImpersonatedPerson returns the person in whose name a request is made; empty where the header has none.
func ImpersonatedPerson(h http.Header) Person {
	return Person{Name: h.Get(headerUser), Groups: h.Values(headerGroup)}
}

// HasImpersonation reports whether a header names a person in whose name a request is made.
func HasImpersonation(h http.Header) bool {
	for field := range h {
		if strings.HasPrefix(field, headerPrefix) {
			return true
		}
	}
	return false
}

// ReplaceIdentity replaces the identity in a header by p. Credentials, and other identity headers,
// have a meaning for the receiver, and are not passed on.
func (p Person) ReplaceIdentity(h http.Header) {
	for field := range h {
		if strings.HasPrefix(field, headerPrefix) || strings.HasPrefix(field, "X-Remote-") || field == "Authorization" || field == "Cookie" {
			h.Del(field)
		}
	}
	removeWebSocketTokens(h)
	h.Set(headerUser, p.Name)
	for _, g := range p.Groups {
		h.Add(headerGroup, g)
	}
}

// removeWebSocketTokens leaves the protocols of a WebSocket that are ones.
func removeWebSocketTokens(h http.Header) {
	said := strings.Join(h.Values(headerProtocols), ",")
	if !strings.Contains(said, tokenProtocol) {
		return
	}
	var left []string
	for protocol := range strings.SplitSeq(said, ",") {
		if protocol = strings.TrimSpace(protocol); !strings.HasPrefix(protocol, tokenProtocol) {
			left = append(left, protocol)
		}
	}
	if h.Del(headerProtocols); len(left) > 0 {
		h.Set(headerProtocols, strings.Join(left, ", "))
	}
}
