package memberproxy

import (
	"context"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/trust/person"
)

// Others of the hub's endpoints lead to members too, for what they have authorized
// themselves: these are the ways in which people's requests are made there, for them as for
// a Handler. They are as safe for concurrent use as it.

// ServeAs hands a request on to a cluster in the name of a user, at base+rest of the
// member's API, both escaped; the request's own path ends in rest, too.
func (h *ProxyHandler) ServeAs(w http.ResponseWriter, r *http.Request, u user.Info, c *v1alpha1.Cluster, base, rest string) {
	who, err := h.identityInMember(u, c)
	if err == nil && isUpgradeRequest(r) && !isAllowedUpgrade(r.Header.Values("Upgrade")) {
		err = errUpgrade
	}
	if err != nil {
		h.writeRefusal(w, r, err)
		return
	}
	at := strings.TrimSuffix(r.URL.EscapedPath(), rest)
	h.serve(w, r, u, proxyRequest{cluster: c, who: who, path: base + rest, at: at, base: base, audit: audit.GetAuditIDTruncated(r.Context()), isShown: true})
}

// DoAs makes a request of a cluster in the name of a user; its URL has a path of the
// member's API and no host. The body of the answer is the caller's to close. The error is
// one of the API.
func (h *ProxyHandler) DoAs(ctx context.Context, u user.Info, c *v1alpha1.Cluster, r *http.Request) (*http.Response, error) {
	who, err := h.identityInMember(u, c)
	if err != nil {
		return nil, err
	}
	p := requestSlot{user: u.GetName(), cluster: c.Name}
	if full := h.places.acquireSlot(p); full != "" {
		return nil, apierrors.NewTooManyRequests(full, 1)
	}
	defer h.places.releaseSlot(p)
	r = r.Clone(ctx)
	r.URL.Scheme, r.URL.Host, r.Host = "http", string(c.UID), ""
	who.ReplaceIdentity(r.Header)
	if id := audit.GetAuditIDTruncated(ctx); id != "" {
		r.Header.Set("Audit-Id", id)
	}
	answer, err := h.transport.RoundTrip(r)
	if err != nil {
		return nil, RefusalFor(c, err)
	}
	return answer, nil
}

// identityInMember returns a user's identity in members, if one can be reached.
func (h *ProxyHandler) identityInMember(u user.Info, c *v1alpha1.Cluster) (person.Person, error) {
	who, err := person.MemberIdentityOf(u.GetName(), u.GetGroups())
	if err != nil {
		return who, apierrors.NewForbidden(clusters, c.Name, err)
	}
	return who, UnreachableReason(c)
}
