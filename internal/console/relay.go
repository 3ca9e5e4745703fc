package console

import (
	"context"
	"crypto/tls"
	"mime"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"

	"atoll.dev/atoll/internal/atoll"
)

// relayedHeaders are the headers of a browser that reach the API. Impersonation, identities of a front
// proxy, upgrades and cookies are not among them.
var relayedHeaders = []string{"Accept", "Accept-Encoding", "User-Agent"}

// relayedPaths are the parts of the API that the console uses.
var relayedPaths = []string{"/api/", "/apis/", "/atoll/v1alpha1/"}

// versionPath is the version of the hub, which the console reads, too.
const versionPath = "/version"

// relayedVerbs only read.
var relayedVerbs = []string{"get", "list", "watch"}

// maxWriteBody bounds the body of a write, which is the bound of the API, and writeTime the time in which it arrives.
const (
	maxWriteBody = 3 << 20
	writeTime    = 30 * time.Second
)

// relayedWrite is a request with a body that the console makes.
type relayedWrite struct {
	method, contentType string
	// path is the whole path; empty: group, resource and subresource count.
	path                         string
	group, resource, subresource string
}

// anyResource stands for all groups and resources, but for those of secretResources.
const anyResource = "*"

// relayedWrites are all of them: changes of an object, a decision on an agent's certificate, the question for a right, that
// for a plan, and that for what an undo writes. None creates, deletes, or returns a credential.
var relayedWrites = []relayedWrite{
	{method: http.MethodPatch, contentType: "application/merge-patch+json", group: anyResource, resource: anyResource},
	{method: http.MethodPut, contentType: "application/json", group: "certificates.k8s.io", resource: "certificatesigningrequests", subresource: "approval"},
	{method: http.MethodPost, contentType: "application/json", group: "authorization.k8s.io", resource: "selfsubjectaccessreviews"},
	{method: http.MethodPost, contentType: "application/json", path: atoll.PlanPath},
	{method: http.MethodPost, contentType: "application/json", path: atoll.UndoPath},
}

// secretResources hold credentials. The console changes none of them.
var secretResources = []string{"secrets", "serviceaccounts"}

// foreignContents are subresources whose answers come from containers and Services of users. As pages of the
// hub's own address they could act as the person, so the console relays none of them. A terminal is a WebSocket, which no
// browser shows as a page.
var foreignContents = []string{"proxy", "exec", "attach", "portforward"}

var requestInfos = request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

// otherSessionMessage refuses a request whose page was loaded in another session.
const otherSessionMessage = "this browser has signed in again since the page was loaded: load it again"

// relayToAPI serves a request of the page by the hub's API, as the person of the session: its credential takes
// the place of all other credentials of the request.
func (c *console) relayToAPI(w http.ResponseWriter, r *http.Request) {
	isRead := r.Method == http.MethodGet
	if !isOwnPage(r) || !isRead && !isOwnOrigin(r) {
		writeRefusal(w, http.StatusForbidden, metav1.StatusReasonForbidden, "only the console's own page acts here; clients use the API of the hub; a proxy before the hub must keep the header Host")
		return
	}
	if !isRead && !slices.ContainsFunc(relayedWrites, func(known relayedWrite) bool { return known.method == r.Method }) {
		w.Header().Set("Allow", "GET, PATCH, POST, PUT")
		writeRefusal(w, http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "the console does not use this method; use kubectl or atoll")
		return
	}
	s, ok := c.sessionOf(r)
	if !ok {
		refuseWithoutSession(w)
		return
	}
	if !isRead && r.Header.Get(sessionHeader) != s.pageName() {
		writeRefusal(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized, otherSessionMessage)
		return
	}
	inner := newInnerRequest(r)
	if !isRelayed(inner) {
		writeRefusal(w, http.StatusForbidden, metav1.StatusReasonForbidden, "the console does not use this path; use the API of the hub")
		return
	}
	if !isRead && !takeBody(w, r, inner) {
		return
	}
	// A stream, as of a log that is followed, ends with the session at the latest.
	ctx, cancel := context.WithTimeout(inner.Context(), s.until.Sub(c.now()))
	defer cancel()
	inner = inner.WithContext(ctx)
	actAs(inner, s)
	w.Header().Set("Cache-Control", "no-store")
	c.api.ServeHTTP(w, inner)
}

// newInnerRequest returns the request for the API, without credentials and without a body.
func newInnerRequest(r *http.Request) *http.Request {
	inner := r.Clone(r.Context())
	inner.URL.Path, inner.URL.RawPath = strings.TrimPrefix(r.URL.Path, apiPath), strings.TrimPrefix(r.URL.RawPath, apiPath)
	inner.RequestURI = inner.URL.RequestURI()
	inner.Header, inner.Body, inner.ContentLength, inner.TransferEncoding = http.Header{}, http.NoBody, 0, nil
	for _, name := range relayedHeaders {
		if v := r.Header.Get(name); v != "" {
			inner.Header.Set(name, v)
		}
	}
	return inner
}

// takeBody gives the request for the API the body of a write. It refuses one whose length or type is not as it should be.
func takeBody(w http.ResponseWriter, r, inner *http.Request) bool {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	known := findWrite(inner)
	switch {
	case known == nil || err != nil || kind != known.contentType:
		writeRefusal(w, http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType, "the body of this write has another content type")
		return false
	case r.ContentLength <= 0:
		writeRefusal(w, http.StatusLengthRequired, metav1.StatusReasonBadRequest, "a write has a body, whose length is stated")
		return false
	case r.ContentLength > maxWriteBody:
		writeRefusal(w, http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge, "the body of a write has at most 3 MiB; use kubectl or atoll")
		return false
	}
	// A writer that has no deadlines, as in tests, reads without.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(writeTime))
	inner.Header.Set("Content-Type", known.contentType)
	inner.Body, inner.ContentLength = http.MaxBytesReader(w, r.Body, maxWriteBody), r.ContentLength
	return true
}

// actAs gives a request the person's credential, and takes the certificate of the browser's connection off. The API verifies
// the certificate of a session as that of any connection.
func actAs(r *http.Request, s session) {
	state := tls.ConnectionState{HandshakeComplete: true}
	if r.TLS != nil {
		state = tls.ConnectionState{Version: r.TLS.Version, CipherSuite: r.TLS.CipherSuite, ServerName: r.TLS.ServerName, HandshakeComplete: r.TLS.HandshakeComplete}
	}
	if len(s.chain) > 0 {
		state.PeerCertificates = s.chain
	} else {
		r.Header.Set("Authorization", "Bearer "+s.token)
	}
	if r.TLS != nil || len(s.chain) > 0 {
		r.TLS = &state
	}
}

// isRelayed reports whether the console uses the path in this way.
func isRelayed(r *http.Request) bool {
	p := r.URL.Path
	isKnown := p == versionPath || slices.ContainsFunc(relayedPaths, func(prefix string) bool { return strings.HasPrefix(p, prefix) })
	if !isKnown || !isPlainPath(p) {
		return false
	}
	if r.Method != http.MethodGet {
		return findWrite(r) != nil
	}
	info, err := requestInfos.NewRequestInfo(r)
	return err == nil && slices.Contains(relayedVerbs, info.Verb) && !slices.Contains(foreignContents, info.Subresource)
}

// isPlainPath reports whether a path has no empty parts, and none that climbs.
func isPlainPath(p string) bool { return path.Clean(p) == strings.TrimSuffix(p, "/") }

// findWrite returns the entry of a write; nil: the console makes no such request.
func findWrite(r *http.Request) *relayedWrite {
	info, err := requestInfos.NewRequestInfo(r)
	if err != nil {
		return nil
	}
	i := slices.IndexFunc(relayedWrites, func(known relayedWrite) bool {
		switch {
		case known.method != r.Method:
			return false
		case known.path != "":
			return known.path == r.URL.Path
		case !info.IsResourceRequest || known.subresource != info.Subresource:
			return false
		case known.resource == anyResource:
			return !(info.APIGroup == "" && slices.Contains(secretResources, info.Resource))
		}
		return known.group == info.APIGroup && known.resource == info.Resource
	})
	if i < 0 {
		return nil
	}
	return &relayedWrites[i]
}

// isOwnPage reports whether the console's own script made the request: it sets a header that no page of
// another site can, and a browser states no other site.
func isOwnPage(r *http.Request) bool {
	return r.Header.Get(pageHeader) == "1" && isOwnSite(r)
}

// isOwnSite reports whether the browser states the console's own origin for the request, or none.
func isOwnSite(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return site == "" || site == "same-origin"
}

// isOwnOrigin reports whether the request states the hub's own address as its origin.
func isOwnOrigin(r *http.Request) bool {
	return r.Host != "" && r.Header.Get("Origin") == "https://"+r.Host
}
