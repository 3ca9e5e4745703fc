package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"atoll.dev/atoll/internal/agent/policy"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/trust/person"
	"atoll.dev/atoll/internal/tunnel"
)

const (
	// idleTimeout of a tunnel on which no request is under way. It is above the hub's
	// own, so that no request meets a tunnel that is being closed.
	idleTimeout = 2 * time.Minute
	// headerTimeout is how long a tunnel may take to send its request: the hub may keep
	// one that it has not used yet as long as one that it has.
	headerTimeout = idleTimeout
	// headerMost bounds the header of a request, in bytes. Each of a thousand tunnels may hold one without its end.
	headerMost = 32 << 10
)

// MemberAPIProxy serves tunnels. Make it with New, and Run it.
type MemberAPIProxy struct {
	log          *slog.Logger
	server       *http.Server
	conns        *tunnel.Listener
	requestGuard requestGuard
}

// Options of a Server; all are required.
type Options struct {
	// Config reaches the member's API server. It is not changed.
	Config *rest.Config
	// Transport to the same.
	Transport http.RoundTripper
	// Policy of the member's administrator, as it is now.
	Policy func() *policy.Policy
	// Live answers the hub's own requests.
	Live http.Handler
	Log  *slog.Logger
}

// New returns a MemberAPIProxy.
func New(o Options) (*MemberAPIProxy, error) {
	config, log := o.Config, o.Log
	target, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("the member's address: %w", err)
	}
	target.Path = strings.TrimSuffix(target.Path, "/")
	s := &MemberAPIProxy{log: log, conns: tunnel.NewListener("the hub"), requestGuard: requestGuard{policy: o.Policy, inside: map[*guardedRequest]bool{}}}
	forward := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { rewriteForMember(r, target) },
		Transport:     o.Transport,
		FlushInterval: -1, // a client waits for each piece
		BufferPool:    tunnel.Buffers{},
		ErrorHandler:  s.writeProxyError,
		ErrorLog:      slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		ModifyResponse: func(r *http.Response) error {
			tunnel.IgnoreUpgradeWriteErrors(r)
			return nil
		},
	}
	s.server = &http.Server{
		Handler:           splitHubAndUserRequests(s.requestGuard.limitByPolicy(o.Live, true), requireImpersonation(s.requestGuard.limitByPolicy(forward, false))),
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    headerMost,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	return s, nil
}

// Run serves until ctx ends; what is under way is cut off then.
func (s *MemberAPIProxy) Run(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() { _ = s.server.Close() }) // the only error is that of a listener that has none
	defer stop()
	if err := s.server.Serve(s.conns); err != nil && !errors.Is(err, http.ErrServerClosed) {
		s.log.Error("people cannot reach this member through the hub any more until the agent is started again", "err", err)
	}
}

// ServeTunnel serves a tunnel. It is the server's from then on, which closes it.
func (s *MemberAPIProxy) ServeTunnel(conn net.Conn) { s.conns.HandOverConn(conn) }

// splitHubAndUserRequests leads requests in the hub's own name to live, and all others to people.
func splitHubAndUserRequests(live, people http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Host != atoll.FleetViewHost:
			people.ServeHTTP(w, r)
		case person.HasImpersonation(r.Header):
			writeFailureStatus(w, http.StatusForbidden, "the cluster's agent refuses: a request in the hub's own name must have no user")
		default:
			live.ServeHTTP(w, r)
		}
	})
}

// requireImpersonation passes on requests of a user that may be impersonated.
func requireImpersonation(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := person.CheckImpersonation(person.ImpersonatedPerson(r.Header)); err != nil {
			writeFailureStatus(w, http.StatusForbidden, "the cluster's agent refuses: "+err.Error())
			return
		}
		if slices.Contains(strings.Split(r.URL.Path, "/"), "..") {
			writeFailureStatus(w, http.StatusForbidden, "the cluster's agent refuses: a path with \"..\" may lead out of the member's API")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// rewriteForMember rewrites a request for the member's API server.
func rewriteForMember(r *httputil.ProxyRequest, target *url.URL) {
	r.SetURL(target)
	r.Out.Host = ""
	person.ImpersonatedPerson(r.In.Header).ReplaceIdentity(r.Out.Header)
}

// writeProxyError answers for an API server that did not.
func (s *MemberAPIProxy) writeProxyError(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(context.Cause(r.Context()), errLimited) {
		writeFailureStatus(w, http.StatusForbidden, "the cluster's agent refuses: "+errLimited.Error())
		return
	}
	if r.Context().Err() != nil {
		return // the client has gone
	}
	s.log.Debug("a request that came through the hub was not answered by this member's API server", "method", r.Method, "path", r.URL.Path, "err", err)
	writeFailureStatus(w, http.StatusServiceUnavailable, "the cluster's API server does not answer its agent: "+err.Error())
}
