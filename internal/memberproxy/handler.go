package memberproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/trust/person"
	"atoll.dev/atoll/internal/tunnel"
)

const (
	// idleTimeout of a tunnel that waits for another request.
	idleTimeout = time.Minute
	// idlePerCluster are kept waiting.
	idlePerCluster = 4
	// headerMost bounds the header of an answer, in bytes.
	headerMost = 256 << 10
)

// Clusters is the table of members.
type Clusters interface {
	Get(name string) (*v1alpha1.Cluster, bool)
}

// Options of a Handler. Those without a default are required.
type Options struct {
	Clusters Clusters
	// Dial gives a connection on which the agent of a cluster serves its member's API as
	// HTTP. Its errors are gRPC statuses.
	Dial func(ctx context.Context, uid string) (net.Conn, error)
	// May reports whether a user may do something with clusters/proxy of a cluster.
	May func(ctx context.Context, u user.Info, verb, cluster string) bool
	// Refuse answers with an error of the API.
	Refuse func(http.ResponseWriter, error)
	// Limits, which pass their Check; default DefaultLimits.
	Limits RequestLimits
	// Metrics are registered here; default: nowhere.
	Metrics prometheus.Registerer
	Log     *slog.Logger
}

// ProxyHandler serves …/clusters/NAME/proxy. It is safe for concurrent use.
type ProxyHandler struct {
	o       Options
	forward *httputil.ReverseProxy
	places  requestSlots
	metrics *metrics
	// transport to agents; the host of a URL is a cluster's UID.
	transport http.RoundTripper
}

// New makes a Handler.
func New(o Options) *ProxyHandler {
	if o.Limits == (RequestLimits{}) {
		o.Limits = DefaultLimits
	}
	h := &ProxyHandler{o: o, places: requestSlots{limits: o.Limits, usedPlaces: map[requestSlot]int{}}, metrics: newMetrics(o.Metrics)}
	dial := func(ctx context.Context, uid string) (net.Conn, error) {
		conn, err := o.Dial(ctx, uid)
		if err != nil {
			return nil, err
		}
		return h.metrics.countConn(conn), nil
	}
	others := &http.Transport{
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			uid, _, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			return dial(ctx, uid)
		},
		MaxIdleConnsPerHost: idlePerCluster,
		IdleConnTimeout:     idleTimeout,
		DisableCompression:  true, // a compressed answer is handed on compressed

		MaxResponseHeaderBytes: headerMost,
	}
	h.transport = &lowMemoryReadTransport{dial: dial, others: others}
	h.forward = &httputil.ReverseProxy{
		Rewrite:   rewriteForAgent,
		Transport: h.transport,

		ModifyResponse: h.checkAndModifyResponse,
		FlushInterval:  -1, // a client waits for each piece
		BufferPool:     tunnel.Buffers{},
		ErrorHandler:   h.writeAgentError,
		ErrorLog:       slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
	}
	return h
}

// MaxRequestsPerUser is how many requests of one user at one cluster may be under way.
func (h *ProxyHandler) MaxRequestsPerUser() int { return h.o.Limits.PerUser }

// Transport carries requests to agents: the host of a URL is the cluster's UID. The caller sets
// the user and the host name of a request.
func (h *ProxyHandler) Transport() http.RoundTripper { return h.transport }

// IsProxyRequest reports whether a request is for a Handler, if only to be refused.
func IsProxyRequest(info *request.RequestInfo) bool {
	return info.IsResourceRequest && info.APIGroup == v1alpha1.GroupVersion.Group && info.Resource == "clusters" && info.Subresource == "proxy"
}

// proxyRequest is what a request comes to.
type proxyRequest struct {
	cluster *v1alpha1.Cluster
	who     person.Person
	path    string // in the member, escaped
	audit   string
	// at on the hub, escaped, is base in the member: what is below the one is that below
	// the other.
	at, base string
	// body of the answer is put here, where it is passed on beside the proxy.
	body *io.ReadCloser
	// isShown: it is of something that the hub shows as its own.
	isShown bool
}

type askedKey struct{}

func proxyRequestOf(ctx context.Context) proxyRequest { return ctx.Value(askedKey{}).(proxyRequest) }

// ServeHTTP serves a request that is authorized.
func (h *ProxyHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a, u, err := h.authorizeRequest(r)
	if err != nil {
		h.writeRefusal(w, r, err)
		return
	}
	h.serve(w, r, u, a)
}

// serve serves the request, while its user has a place.
func (h *ProxyHandler) serve(w http.ResponseWriter, r *http.Request, u user.Info, a proxyRequest) {
	p := requestSlot{user: u.GetName(), cluster: a.cluster.Name}
	if full := h.places.acquireSlot(p); full != "" {
		h.writeRefusal(w, r, apierrors.NewTooManyRequests(full, 1))
		return
	}
	defer h.places.releaseSlot(p)
	h.metrics.underWay.Inc()
	defer h.metrics.underWay.Dec()
	defer recoverClientAbort(r.Context())
	var body io.ReadCloser
	a.body = &body
	RunOnSeparateStack(func() { h.forward.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), askedKey{}, a))) })
	if body != nil {
		copyBody(w, body)
	}
}

// RunOnSeparateStack runs a function in another goroutine, for which the caller waits. The caller's own
// goroutine then waits for a member's answer, and would keep a stack as large as this function
// needs. A panic becomes the caller's, with its origin.
func RunOnSeparateStack(do func()) {
	done := make(chan any, 1)
	go func() {
		defer func() {
			broken := recover()
			if broken != nil && broken != http.ErrAbortHandler {
				broken = fmt.Sprintf("%v\n\n%s", broken, debug.Stack())
			}
			done <- broken
		}()
		do()
	}()
	if broken := <-done; broken != nil {
		panic(broken)
	}
}

// PassBody passes the body of an answer on, as it comes, until it ends or the client of ctx has
// gone. An answer that cannot be passed on to its end is aborted.
func PassBody(ctx context.Context, w http.ResponseWriter, body io.ReadCloser) {
	defer recoverClientAbort(ctx)
	copyBody(w, body)
}

// copyBody passes the body of an answer on, as it comes, and its header before: a watch waits for
// that, and its objects may be quiet for hours. The proxy would hold a buffer while nothing comes.
func copyBody(w http.ResponseWriter, body io.ReadCloser) {
	defer body.Close()
	by := http.NewResponseController(w)
	if err := by.Flush(); err != nil {
		panic(http.ErrAbortHandler)
	}
	if _, err := io.Copy(flushWriter{w, by}, body); err != nil {
		panic(http.ErrAbortHandler) // as the proxy does: an answer of which something lacks is none
	}
}

// flushWriter hands over at once what is written to it.
type flushWriter struct {
	http.ResponseWriter
	by *http.ResponseController
}

func (f flushWriter) Write(b []byte) (int, error) {
	n, err := f.ResponseWriter.Write(b)
	if err == nil {
		err = f.by.Flush()
	}
	return n, err
}

// recoverClientAbort ends a request whose client has gone: that is how watches and logs end, and no
// error. A request that the other end aborted is aborted, so that no client takes a part of an
// answer for the whole.
func recoverClientAbort(ctx context.Context) {
	if broken := recover(); broken != nil && (broken != http.ErrAbortHandler || ctx.Err() == nil) {
		panic(broken)
	}
}

// authorizeRequest returns what a request comes to, and whether it may.
func (h *ProxyHandler) authorizeRequest(r *http.Request) (proxyRequest, user.Info, error) {
	info, _ := request.RequestInfoFrom(r.Context())
	u, ok := request.UserFrom(r.Context())
	if !ok {
		return proxyRequest{}, nil, apierrors.NewUnauthorized("the request has no user")
	}
	path, ok := pathInMember(r, info)
	if !ok {
		return proxyRequest{}, nil, apierrors.NewBadRequest("a cluster is reached at " + atoll.ClusterProxyPath("NAME") + ", by the methods GET, HEAD, POST, PUT, PATCH and DELETE")
	}
	who, err := person.MemberIdentityOf(u.GetName(), u.GetGroups())
	if err != nil {
		return proxyRequest{}, nil, apierrors.NewForbidden(proxied, info.Name, err)
	}
	c, ok := h.o.Clusters.Get(info.Name)
	if !ok {
		return proxyRequest{}, nil, apierrors.NewNotFound(clusters, info.Name)
	}
	if err := UnreachableReason(c); err != nil {
		return proxyRequest{}, nil, err
	}
	switch {
	case isUpgradeRequest(r) && !isAllowedUpgrade(r.Header.Values("Upgrade")):
		return proxyRequest{}, nil, errUpgrade
	case isUpgradeRequest(r) && !h.o.May(r.Context(), u, "create", c.Name):
		return proxyRequest{}, nil, apierrors.NewForbidden(proxied, c.Name, errNeedsCreate)
	}
	return proxyRequest{cluster: c, who: who, path: path, at: atoll.ClusterProxyPath(c.Name), audit: audit.GetAuditIDTruncated(r.Context())}, u, nil
}

var (
	clusters = schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "clusters"}
	proxied  = schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "clusters/proxy"}
)

// isUpgradeRequest reports whether the connection is to become another one.
func isUpgradeRequest(r *http.Request) bool { return r.Header.Get("Upgrade") != "" }

// isAllowedUpgrade reports whether API servers upgrade connections to a protocol: others, such as
// h2c, would bypass all checks of single requests.
func isAllowedUpgrade(protocols []string) bool {
	return len(protocols) == 1 && (strings.EqualFold(protocols[0], "websocket") || strings.EqualFold(protocols[0], "SPDY/3.1"))
}

// checkAndModifyResponse checks an answer by a member, if its answer can be handed on.
func (h *ProxyHandler) checkAndModifyResponse(r *http.Response) error {
	if err := refuseUnrequestedUpgrade(r); err != nil {
		return err
	}
	if err := proxyRequestOf(r.Request.Context()).rewriteRedirect(r); err != nil {
		return err
	}
	if r.StatusCode < 100 {
		return BadAnswerError(proxyRequestOf(r.Request.Context()).cluster, fmt.Sprintf("its agent answers with the status %03d, which HTTP does not have", r.StatusCode))
	}
	h.metrics.countAnswer(r.Request.Method, r.StatusCode)
	if a := proxyRequestOf(r.Request.Context()); a.isShown && r.StatusCode == http.StatusForbidden {
		return addClusterToRefusal(a.cluster, r)
	}
	tunnel.IgnoreUpgradeWriteErrors(r)
	if b, waits := r.Body.(*responseBody); waits {
		*proxyRequestOf(r.Request.Context()).body = b
		r.Body = http.NoBody
	}
	return nil
}

// refuseUnrequestedUpgrade refuses an answer that makes another connection of this one than was requested;
// it is closed by that.
func refuseUnrequestedUpgrade(r *http.Response) error {
	if r.StatusCode == http.StatusSwitchingProtocols && !strings.EqualFold(r.Header.Get("Upgrade"), r.Request.Header.Get("Upgrade")) {
		return errNobodyAsked
	}
	return nil
}

var errNobodyAsked = errors.New("it was upgraded without a request for that")

// verbs by which a method is authorized.
var verbs = map[string]string{
	http.MethodGet: "get", http.MethodHead: "get", http.MethodPost: "create",
	http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete",
}

// pathInMember is what follows …/clusters/NAME/proxy, escaped, at least "/"; false where
// what was authorized is not this method at this path. The API understands more paths than
// one as clusters/proxy: in a namespace, whose administrator may grant it to himself; with
// a verb in the path, whatever the method; with a name in the query.
func pathInMember(r *http.Request, info *request.RequestInfo) (path string, ok bool) {
	rest, ok := strings.CutPrefix(r.URL.EscapedPath(), atoll.ClusterProxyPath(info.Name))
	if !ok || info.Name == "" || info.Namespace != "" || info.Verb == "" || info.Verb != verbs[r.Method] {
		return "", false
	}
	if rest == "" {
		rest = "/"
	}
	return rest, rest[0] == '/'
}

// rewriteForAgent rewrites a request for the agent.
func rewriteForAgent(r *httputil.ProxyRequest) {
	a := proxyRequestOf(r.In.Context())
	r.Out.URL.Scheme, r.Out.URL.Host = "http", string(a.cluster.UID)
	r.Out.URL.RawPath = a.path
	r.Out.URL.Path = unescapePath(a.path)
	r.Out.Host = ""
	a.who.ReplaceIdentity(r.Out.Header)
	if a.audit != "" {
		r.Out.Header.Set("Audit-Id", a.audit)
	}
}

// requestSlots are the places of requests that are under way.
type requestSlots struct {
	limits RequestLimits

	mu         sync.Mutex
	usedPlaces map[requestSlot]int // at a cluster; of a user, where it names none
	all        int
}

type requestSlot struct{ user, cluster string }

// acquireSlot takes a place; where there is none, why.
func (p *requestSlots) acquireSlot(at requestSlot) (full string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	user := requestSlot{user: at.user}
	switch {
	case p.usedPlaces[at] >= p.limits.PerUser:
		return "you have as many requests under way at cluster " + at.cluster + " as one user may; end some of them"
	case p.usedPlaces[user] >= p.limits.PerUserAll:
		return "you have as many requests under way at all clusters together as one user may; end some of them"
	case p.all >= p.limits.All:
		return "as many requests to clusters are under way at this hub as there may be; try again later, or at another hub"
	}
	p.usedPlaces[at]++
	p.usedPlaces[user]++
	p.all++
	return ""
}

// releaseSlot frees the place of a request that has ended.
func (p *requestSlots) releaseSlot(at requestSlot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range []requestSlot{at, {user: at.user}} {
		if p.usedPlaces[one]--; p.usedPlaces[one] == 0 {
			delete(p.usedPlaces, one)
		}
	}
	p.all--
}
