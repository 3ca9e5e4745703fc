package hub

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/component-base/metrics/legacyregistry"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/admission"
	"atoll.dev/atoll/internal/apiserver"
	"atoll.dev/atoll/internal/hub/reach"
	"atoll.dev/atoll/internal/hub/view"
	"atoll.dev/atoll/internal/leave"
	"atoll.dev/atoll/internal/trust/standing"
)

// lateParts is what the API server, which is there first, needs of the parts.
type lateParts struct {
	parts  published
	plugin *admission.Plugin
	reach  *reach.Handler
	fleet  *view.Fleet
	// subscribed: the fleet hears of rows.
	subscribed sync.Once
	// authorizer of the API, once it is built.
	authorizer authorizer.Authorizer
}

func newLateParts(log *slog.Logger, limits reach.Limits) *lateParts {
	l := &lateParts{}
	l.plugin = admission.New(admission.Options{
		Own: apiserver.Own, Foretell: l.foretell,
		Hub: func() (admission.Hub, bool) {
			p, ok := l.parts.Get()
			if !ok {
				return nil, false
			}
			return p.bind, true
		},
		Sets: func() (admission.Sets, bool) {
			p, ok := l.parts.Get()
			if !ok {
				return nil, false
			}
			return p.state.Sets, true
		},
		CleanPlan: func(ctx context.Context, c *v1alpha1.Cluster) (string, error) {
			p, ok := l.parts.Get()
			if !ok {
				return "", errors.New("the hub has just been started")
			}
			return leave.CleanPlan(ctx, p.state.Revisions, c, p.state.Rows.OfCluster(string(c.UID)))
		},
		Properties: func() []string {
			p, ok := l.parts.Get()
			if !ok {
				return nil
			}
			return p.state.Views.Listed()
		},
	})
	l.reach = reach.New(reach.Options{Clusters: l, Dial: l.dial, May: l.mayProxy, Refuse: refuse, Limits: limits, Metrics: legacyregistry.Registerer(), Log: log.With("component", "reach")})
	l.fleet = view.New(view.Options{Own: apiserver.Own, Reach: l.reach, Tables: l.shown})
	return l
}

// set the parts, once their tables are synced.
func (l *lateParts) set(p *parts) {
	l.parts.Set(p)
	l.subscribed.Do(func() { // the parts of one who leads have the same tables
		p.state.Rows.SubscribeOrders(func(_ string, _, ordered []string) {
			if len(ordered) > 0 {
				l.fleet.RowsChanged()
			}
		})
	})
}

// admission is Atoll's own, which lets templates pass unseen until the parts are there.
func (l *lateParts) admission() []apiserver.AdmissionPlugin {
	return []apiserver.AdmissionPlugin{{Name: admission.Name, Handler: l.plugin}}
}

// handlers adds the hub's own endpoints to the API: it is not ready before the parts
// are, except in the eyes of its own identities, which wait for the API alone.
func (l *lateParts) handlers(next http.Handler) http.Handler {
	next = view.Complete(view.Whole(next))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/readyz" {
			u, _ := request.UserFrom(r.Context())
			if _, ready := l.parts.Get(); !ready && !apiserver.Own(u) {
				http.Error(w, "the API is ready; Atoll's tables are being read", http.StatusServiceUnavailable)
				return
			}
		}
		if r.URL.Path == explainPath {
			l.serveExplain(w, r)
			return
		}
		if r.URL.Path == planPath {
			l.servePlan(w, r)
			return
		}
		if r.URL.Path == rebalancePath {
			l.serveRebalance(w, r)
			return
		}
		if r.URL.Path == standing.Path {
			l.serveStanding(w, r)
			return
		}
		if r.URL.Path == standing.CertificatesPath {
			l.serveCertificates(w, r)
			return
		}
		if info, ok := request.RequestInfoFrom(r.Context()); ok && reach.Mine(info) {
			l.serveProxy(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}
