package console

import (
	"crypto/tls"
	"net/http"
	"path"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// relayedHeaders are the headers of a browser that reach the API. Impersonation, identities of a front
// proxy, upgrades and cookies are not among them.
var relayedHeaders = []string{"Accept", "Accept-Encoding", "User-Agent"}

// relayedPaths are the parts of the API that the console reads.
var relayedPaths = []string{"/api/", "/apis/", "/atoll/v1alpha1/", "/version"}

// relayedVerbs only read.
var relayedVerbs = []string{"get", "list", "watch"}

// foreignContents are subresources whose answers come from containers and Services of users. As pages of the
// hub's own address they could act as the person, so the console serves none of them.
var foreignContents = []string{"proxy", "exec", "attach", "portforward"}

var requestInfos = request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

// relayToAPI serves a request of the page by the hub's API, as the person of the session: its token takes
// the place of all other credentials of the request.
func (c *console) relayToAPI(w http.ResponseWriter, r *http.Request) {
	if !isOwnPage(r) {
		writeRefusal(w, http.StatusForbidden, metav1.StatusReasonForbidden, "only the console's own page reads here; clients use the API of the hub")
		return
	}
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", "GET")
		writeRefusal(w, http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "the console only reads; change objects with kubectl or atoll")
		return
	}
	s, ok := c.sessionOf(r)
	if !ok {
		refuseWithoutSession(w)
		return
	}
	inner := r.Clone(r.Context())
	inner.URL.Path, inner.URL.RawPath = strings.TrimPrefix(r.URL.Path, apiPath), strings.TrimPrefix(r.URL.RawPath, apiPath)
	inner.RequestURI = inner.URL.RequestURI()
	inner.Header, inner.Body, inner.ContentLength, inner.TransferEncoding = http.Header{}, http.NoBody, 0, nil
	for _, name := range relayedHeaders {
		if v := r.Header.Get(name); v != "" {
			inner.Header.Set(name, v)
		}
	}
	if !isRelayed(inner) {
		writeRefusal(w, http.StatusForbidden, metav1.StatusReasonForbidden, "the console does not read this path; use the API of the hub")
		return
	}
	actAs(inner, s)
	w.Header().Set("Cache-Control", "no-store")
	c.api.ServeHTTP(w, inner)
}

// actAs gives a request the person's token, and takes the certificate of the browser's connection off.
func actAs(r *http.Request, s session) {
	r.Header.Set("Authorization", "Bearer "+s.token)
	if r.TLS != nil {
		state := tls.ConnectionState{Version: r.TLS.Version, CipherSuite: r.TLS.CipherSuite, ServerName: r.TLS.ServerName, HandshakeComplete: r.TLS.HandshakeComplete}
		r.TLS = &state
	}
}

// isRelayed reports whether the console reads the path.
func isRelayed(r *http.Request) bool {
	p := r.URL.Path
	if path.Clean(p) != strings.TrimSuffix(p, "/") || !slices.ContainsFunc(relayedPaths, func(prefix string) bool { return strings.HasPrefix(p, prefix) }) {
		return false
	}
	info, err := requestInfos.NewRequestInfo(r)
	return err == nil && slices.Contains(relayedVerbs, info.Verb) && !slices.Contains(foreignContents, info.Subresource)
}

// isOwnPage reports whether the console's own script made the request: it sets a header that no page of
// another site can, and a browser states no other site.
func isOwnPage(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return r.Header.Get(pageHeader) == "1" && (site == "" || site == "same-origin")
}

// isOwnOrigin reports whether the request states the hub's own address as its origin.
func isOwnOrigin(r *http.Request) bool {
	return r.Host != "" && r.Header.Get("Origin") == "https://"+r.Host
}
