package person

import (
	"net/http"
	"strings"
)

// Of the header by which a request is made as somebody else, as Kubernetes has it.
const (
	headerUser   = "Impersonate-User"
	headerGroup  = "Impersonate-Group"
	headerPrefix = "Impersonate-"

	// headerProtocols may hold a token, after tokenProtocol, as browsers log in by
	// WebSocket.
	headerProtocols = "Sec-Websocket-Protocol"
	tokenProtocol   = "base64url.bearer.authorization.k8s.io."
)

// From gives in whose name a request is to be made; empty where it says nobody.
func From(h http.Header) Person {
	return Person{Name: h.Get(headerUser), Groups: h.Values(headerGroup)}
}

// Named tells whether a header names somebody in whose name a request is to be made.
func Named(h http.Header) bool {
	for field := range h {
		if strings.HasPrefix(field, headerPrefix) {
			return true
		}
	}
	return false
}

// Replace who asks, as a header says it, by p: credentials, and whatever else says who
// asks or in whose name, mean something to who receives them, and are not passed on.
func (p Person) Replace(h http.Header) {
	for field := range h {
		if strings.HasPrefix(field, headerPrefix) || strings.HasPrefix(field, "X-Remote-") || field == "Authorization" || field == "Cookie" {
			h.Del(field)
		}
	}
	withoutTokens(h)
	h.Set(headerUser, p.Name)
	for _, g := range p.Groups {
		h.Add(headerGroup, g)
	}
}

// withoutTokens leaves the protocols of a WebSocket that are ones.
func withoutTokens(h http.Header) {
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
