package reach

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
	// May tells whether a user may do something with clusters/proxy of a cluster.
	May func(ctx context.Context, u user.Info, verb, cluster string) bool
	// Refuse answers with an error of the API.
	Refuse func(http.ResponseWriter, error)
	// Limits, which pass their Check; default DefaultLimits.
	Limits Limits
	// Metrics are registered here; default: nowhere.
	Metrics prometheus.Registerer
	Log     *slog.Logger
}

// Handler serves …/clusters/NAME/proxy. It is safe for concurrent use.
type Handler struct {
	o       Options
	forward *httputil.ReverseProxy
	places  places
	metrics *metrics
	// transport to agents; the host of a URL is a cluster's UID.
	transport http.RoundTripper
}

// New makes a Handler.
func New(o Options) *Handler {
	if o.Limits == (Limits{}) {
		o.Limits = DefaultLimits
	}
	h := &Handler{o: o, places: places{limits: o.Limits, taken: map[place]int{}}, metrics: newMetrics(o.Metrics)}
	dial := func(ctx context.Context, uid string) (net.Conn, error) {
		conn, err := o.Dial(ctx, uid)
		if err != nil {
			return nil, err
		}
		return h.metrics.counted(conn), nil
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
		DisableCompression:  true, // what is asked for compressed is handed on so

		MaxResponseHeaderBytes: headerMost,
	}
	h.transport = &hops{dial: dial, others: others}
	h.forward = &httputil.ReverseProxy{
		Rewrite:   rewrite,
		Transport: h.transport,

		ModifyResponse: h.answered,
		FlushInterval:  -1, // what comes is for somebody who waits for it
		BufferPool:     tunnel.Buffers{},
		ErrorHandler:   h.failed,
		ErrorLog:       slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
	}
	return h
}

// PerUser is how many requests of one user at one cluster may be under way.
func (h *Handler) PerUser() int { return h.o.Limits.PerUser }

// Transport carries requests to agents: the host of a URL is the cluster's UID. Whose name
// a request has, and which host name, is for who makes it to say.
func (h *Handler) Transport() http.RoundTripper { return h.transport }

// Mine tells whether a request is for a Handler, if only to be refused.
func Mine(info *request.RequestInfo) bool {
	return info.IsResourceRequest && info.APIGroup == v1alpha1.GroupVersion.Group && info.Resource == "clusters" && info.Subresource == "proxy"
}

// asked is what a request comes to.
type asked struct {
	cluster *v1alpha1.Cluster
	who     person.Person
	path    string // in the member, escaped
	audit   string
	// at on the hub, escaped, is base in the member: what is below the one is that below
	// the other.
	at, base string
	// body of the answer is put here, where it is passed on beside the proxy.
	body *io.ReadCloser
	// shown: it is of something that the hub shows as its own.
	shown bool
}

type askedKey struct{}

func askedOf(ctx context.Context) asked { return ctx.Value(askedKey{}).(asked) }

// ServeHTTP serves a request that is authorized.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a, u, err := h.ask(r)
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	h.serve(w, r, u, a)
}

// serve what was asked, while there is a place for who asks.
func (h *Handler) serve(w http.ResponseWriter, r *http.Request, u user.Info, a asked) {
	p := place{user: u.GetName(), cluster: a.cluster.Name}
	if full := h.places.take(p); full != "" {
		h.refuse(w, r, apierrors.NewTooManyRequests(full, 1))
		return
	}
	defer h.places.leave(p)
	h.metrics.underWay.Inc()
	defer h.metrics.underWay.Dec()
	defer quietly(r.Context())
	var body io.ReadCloser
	a.body = &body
	Beside(func() { h.forward.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), askedKey{}, a))) })
	if body != nil {
		pass(w, body)
	}
}

// Beside the caller's goroutine something is done for which he waits: his own goes on to wait
// for what a member says, and as large as its stack has been for this it would stay. A panic is
// the caller's, who is told where it came from.
func Beside(do func()) {
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

// Pass the body of an answer on, as it comes, until it ends or who asked in ctx has gone. An
// answer that cannot be passed on to its end is broken off.
func Pass(ctx context.Context, w http.ResponseWriter, body io.ReadCloser) {
	defer quietly(ctx)
	pass(w, body)
}

// pass the body of an answer on, as it comes, and its header before: who watches waits for
// that, and what he watches may be quiet for hours. The proxy would hold a buffer while nothing
// comes.
func pass(w http.ResponseWriter, body io.ReadCloser) {
	defer body.Close()
	by := http.NewResponseController(w)
	if err := by.Flush(); err != nil {
		panic(http.ErrAbortHandler)
	}
	if _, err := io.Copy(flushing{w, by}, body); err != nil {
		panic(http.ErrAbortHandler) // as the proxy does: an answer of which something lacks is none
	}
}

// flushing hands over at once what is written to it.
type flushing struct {
	http.ResponseWriter
	by *http.ResponseController
}

func (f flushing) Write(b []byte) (int, error) {
	n, err := f.ResponseWriter.Write(b)
	if err == nil {
		err = f.by.Flush()
	}
	return n, err
}

// quietly ends a request that is broken off because who asked has gone: that is how
// watches and logs end, and no error. A request that the other end broke off is broken
// off, so that nobody takes half of an answer for the whole.
func quietly(ctx context.Context) {
	if broken := recover(); broken != nil && (broken != http.ErrAbortHandler || ctx.Err() == nil) {
		panic(broken)
	}
}

// ask what a request comes to, and whether it may.
func (h *Handler) ask(r *http.Request) (asked, user.Info, error) {
	info, _ := request.RequestInfoFrom(r.Context())
	u, ok := request.UserFrom(r.Context())
	if !ok {
		return asked{}, nil, apierrors.NewUnauthorized("nobody asks")
	}
	path, ok := pathInMember(r, info)
	if !ok {
		return asked{}, nil, apierrors.NewBadRequest("a cluster is reached at " + atoll.ProxyPath("NAME") + ", by the methods GET, HEAD, POST, PUT, PATCH and DELETE")
	}
	who, err := person.Of(u.GetName(), u.GetGroups())
	if err != nil {
		return asked{}, nil, apierrors.NewForbidden(proxied, info.Name, err)
	}
	c, ok := h.o.Clusters.Get(info.Name)
	if !ok {
		return asked{}, nil, apierrors.NewNotFound(clusters, info.Name)
	}
	if err := Unreachable(c); err != nil {
		return asked{}, nil, err
	}
	switch {
	case httpUpgrade(r) && !known(r.Header.Values("Upgrade")):
		return asked{}, nil, errUpgrade
	case httpUpgrade(r) && !h.o.May(r.Context(), u, "create", c.Name):
		return asked{}, nil, apierrors.NewForbidden(proxied, c.Name, errNeedsCreate)
	}
	return asked{cluster: c, who: who, path: path, at: atoll.ProxyPath(c.Name), audit: audit.GetAuditIDTruncated(r.Context())}, u, nil
}

var (
	clusters = schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "clusters"}
	proxied  = schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "clusters/proxy"}
)

// httpUpgrade tells whether the connection is to become another one.
func httpUpgrade(r *http.Request) bool { return r.Header.Get("Upgrade") != "" }

// known tells of a protocol that API servers upgrade connections to: others, such as h2c,
// would be a way past all that is asked of single requests.
func known(protocols []string) bool {
	return len(protocols) == 1 && (strings.EqualFold(protocols[0], "websocket") || strings.EqualFold(protocols[0], "SPDY/3.1"))
}

// answered by a member, if its answer can be handed on.
func (h *Handler) answered(r *http.Response) error {
	if err := switched(r); err != nil {
		return err
	}
	if err := askedOf(r.Request.Context()).redirected(r); err != nil {
		return err
	}
	if r.StatusCode < 100 {
		return BadAnswer(askedOf(r.Request.Context()).cluster, fmt.Sprintf("its agent answers with the status %03d, which HTTP does not have", r.StatusCode))
	}
	h.metrics.answered(r.Request.Method, r.StatusCode)
	if a := askedOf(r.Request.Context()); a.shown && r.StatusCode == http.StatusForbidden {
		return refusedIn(a.cluster, r)
	}
	if b, waits := r.Body.(*hopBody); waits {
		*askedOf(r.Request.Context()).body = b
		r.Body = http.NoBody
	}
	return nil
}

// switched refuses an answer that makes another connection of this one than was asked for;
// it is closed by that.
func switched(r *http.Response) error {
	if r.StatusCode == http.StatusSwitchingProtocols && !strings.EqualFold(r.Header.Get("Upgrade"), r.Request.Header.Get("Upgrade")) {
		return errNobodyAsked
	}
	return nil
}

var errNobodyAsked = errors.New("it was upgraded although nobody asked for that")

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
	rest, ok := strings.CutPrefix(r.URL.EscapedPath(), atoll.ProxyPath(info.Name))
	if !ok || info.Name == "" || info.Namespace != "" || info.Verb == "" || info.Verb != verbs[r.Method] {
		return "", false
	}
	if rest == "" {
		rest = "/"
	}
	return rest, rest[0] == '/'
}

// rewrite a request for the agent.
func rewrite(r *httputil.ProxyRequest) {
	a := askedOf(r.In.Context())
	r.Out.URL.Scheme, r.Out.URL.Host = "http", string(a.cluster.UID)
	r.Out.URL.RawPath = a.path
	r.Out.URL.Path = unescaped(a.path)
	r.Out.Host = ""
	a.who.Replace(r.Out.Header)
	if a.audit != "" {
		r.Out.Header.Set("Audit-Id", a.audit)
	}
}

// places of requests that are under way.
type places struct {
	limits Limits

	mu    sync.Mutex
	taken map[place]int // at a cluster; of a user, where it names none
	all   int
}

type place struct{ user, cluster string }

// take a place; where there is none, why.
func (p *places) take(at place) (full string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	user := place{user: at.user}
	switch {
	case p.taken[at] >= p.limits.PerUser:
		return "you have as many requests under way at cluster " + at.cluster + " as one user may; end some of them"
	case p.taken[user] >= p.limits.PerUserAll:
		return "you have as many requests under way at all clusters together as one user may; end some of them"
	case p.all >= p.limits.All:
		return "as many requests to clusters are under way at this hub as there may be; try again later, or at another hub"
	}
	p.taken[at]++
	p.taken[user]++
	p.all++
	return ""
}

// leave a place.
func (p *places) leave(at place) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range []place{at, {user: at.user}} {
		if p.taken[one]--; p.taken[one] == 0 {
			delete(p.taken, one)
		}
	}
	p.all--
}
