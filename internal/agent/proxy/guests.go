package proxy

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"

	"atoll.dev/atoll/internal/agent/policy"
	"atoll.dev/atoll/internal/trust/person"
)

// guests are the requests that are under way.
type guests struct {
	policy func() *policy.Policy

	mu     sync.Mutex
	inside map[*guest]bool
}

// guest is one request, as it came, and who it was let in as. What the hub asks in its own
// name is in nobody's.
type guest struct {
	hub          bool
	who, as      person.Person
	method, path string
	upgrades     bool
	leave        context.CancelCauseFunc
}

// errLimited is why what was under way ends when the policy changes.
var errLimited = errors.New("the administrator of this cluster does not allow it any more")

// limited lets through whom and what the policy allows, with the groups that it allows;
// hub: what the hub asks in its own name.
func (g *guests) limited(next http.Handler, hub bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, leave := context.WithCancelCause(r.Context())
		defer leave(nil)
		one := &guest{hub: hub, who: person.From(r.Header), method: r.Method, path: r.URL.Path, upgrades: r.Header.Get("Upgrade") != "", leave: leave}
		if err := g.enter(one); err != nil {
			refuse(w, http.StatusForbidden, "the cluster's agent refuses: "+err.Error())
			return
		}
		defer g.left(one)
		if !hub {
			one.as.Replace(r.Header)
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// enter under the policy of now; whoever is inside when it changes is weighed anew.
func (g *guests) enter(one *guest) (err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if one.as, err = one.allowed(g.policy()); err == nil {
		g.inside[one] = true
	}
	return err
}

func (g *guests) left(one *guest) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.inside, one)
}

func (g *guest) allowed(p *policy.Policy) (person.Person, error) {
	if g.hub {
		return g.who, p.Show(g.method, g.path)
	}
	return p.Reach(g.who, g.method, g.path, g.upgrades)
}

// Weigh anew what is under way, since the policy has changed. What would not come in any
// more, or in other groups, is cut off.
func (s *Server) Weigh() {
	now := s.guests.policy()
	s.guests.mu.Lock()
	defer s.guests.mu.Unlock()
	for one := range s.guests.inside {
		if as, err := one.allowed(now); err != nil || !slices.Equal(as.Groups, one.as.Groups) {
			one.leave(errLimited)
		}
	}
}
