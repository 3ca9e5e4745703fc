package proxy

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"atoll.dev/atoll/internal/agent/policy"
	"atoll.dev/atoll/internal/trust/person"
)

const (
	// maxRequests is how many requests of a hub are under way at a time.
	maxRequests = 1024
	// maxShortRequests is how many of them are neither watches, logs, nor upgraded connections. They
	// cost the member's API server the most.
	maxShortRequests = 256
)

// requestGuard are the requests that are under way.
type requestGuard struct {
	policy func() *policy.Policy

	mu     sync.Mutex
	inside map[*guardedRequest]bool
	short  int // requests of inside that are short
}

// guardedRequest is one request, as it came, and the person as which it was admitted. A request in
// the hub's own name has no person.
type guardedRequest struct {
	hub          bool
	who, as      person.Person
	method, path string
	upgrades     bool
	isShort      bool
	leave        context.CancelCauseFunc
}

// errTooMany refuses a request beyond the bounds of requests that are under way.
var errTooMany = errors.New("the hub has too many requests under way in this cluster; try again later")

// isShortRequest reports whether the request ends by itself, soon.
func isShortRequest(r *http.Request) bool {
	q := r.URL.Query()
	return r.Header.Get("Upgrade") == "" && !isParameterTrue(q, "watch") && !isParameterTrue(q, "follow") && !strings.Contains(r.URL.Path, "/watch/")
}

// isParameterTrue reports whether a parameter is true, as API servers read it.
func isParameterTrue(q url.Values, name string) bool {
	return q.Has(name) && !slices.Contains([]string{"0", "false", "False", "FALSE", "f", "F"}, q.Get(name))
}

// errLimited is why what was under way ends when the policy changes.
var errLimited = errors.New("the administrator of this cluster does not allow it any more")

// limitByPolicy passes on the users and requests that the policy allows, with the groups that it
// allows. hub: requests in the hub's own name.
func (g *requestGuard) limitByPolicy(next http.Handler, hub bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, leave := context.WithCancelCause(r.Context())
		defer leave(nil)
		one := &guardedRequest{hub: hub, who: person.ImpersonatedPerson(r.Header), method: r.Method, path: r.URL.Path, upgrades: r.Header.Get("Upgrade") != "", isShort: isShortRequest(r), leave: leave}
		switch err := g.admitRequest(one); {
		case errors.Is(err, errTooMany):
			w.Header().Set("Retry-After", "1")
			writeFailureStatus(w, http.StatusTooManyRequests, "the cluster's agent refuses: "+err.Error())
			return
		case err != nil:
			writeFailureStatus(w, http.StatusForbidden, "the cluster's agent refuses: "+err.Error())
			return
		}
		defer g.removeRequest(one)
		if !hub {
			one.as.ReplaceIdentity(r.Header)
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// admitRequest admits a request under the present policy; a change of the policy checks admitted
// requests again.
func (g *requestGuard) admitRequest(one *guardedRequest) (err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if one.as, err = one.checkAllowed(g.policy()); err != nil {
		return err
	}
	if len(g.inside) >= maxRequests || one.isShort && g.short >= maxShortRequests {
		return errTooMany
	}
	g.inside[one] = true
	if one.isShort {
		g.short++
	}
	return nil
}

func (g *requestGuard) removeRequest(one *guardedRequest) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.inside, one)
	if one.isShort {
		g.short--
	}
}

func (g *guardedRequest) checkAllowed(p *policy.Policy) (person.Person, error) {
	if g.hub {
		return g.who, p.CheckLiveRequest(g.method, g.path)
	}
	return p.AdmitPerson(g.who, g.method, g.path, g.upgrades)
}

// ReevaluatePolicy checks the requests under way, because the policy has changed. A request that
// would now be refused, or have other groups, is cut off.
func (s *MemberAPIProxy) ReevaluatePolicy() {
	now := s.requestGuard.policy()
	s.requestGuard.mu.Lock()
	defer s.requestGuard.mu.Unlock()
	for one := range s.requestGuard.inside {
		if as, err := one.checkAllowed(now); err != nil || !slices.Equal(as.Groups, one.as.Groups) {
			one.leave(errLimited)
		}
	}
}
