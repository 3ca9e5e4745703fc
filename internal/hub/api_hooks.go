package hub

import (
	"context"
	"log/slog"
	"net/http"
	"sync"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/component-base/metrics/legacyregistry"

	"atoll.dev/atoll/internal/admission"
	"atoll.dev/atoll/internal/apiserver"
	"atoll.dev/atoll/internal/apiserver/respond"
	treeserver "atoll.dev/atoll/internal/apptree/server"
	"atoll.dev/atoll/internal/atoll"
	listserver "atoll.dev/atoll/internal/fleetlist/server"
	"atoll.dev/atoll/internal/fleetview/server"
	"atoll.dev/atoll/internal/fleetview/tables"
	"atoll.dev/atoll/internal/memberproxy"
	previewserver "atoll.dev/atoll/internal/preview/server"
	"atoll.dev/atoll/internal/sources/webhook"
	"atoll.dev/atoll/internal/state"
	"atoll.dev/atoll/internal/trust/castatus"
	"atoll.dev/atoll/internal/trust/standing"
	"atoll.dev/atoll/internal/undo"
)

// apiHooks is what the API server, which is there first, needs of the parts.
type apiHooks struct {
	components  componentsRef
	plugin      *admission.AdmissionPlugin
	preview     *previewserver.Server
	memberProxy *memberproxy.ProxyHandler
	fleetView   *server.Fleet
	undo        *undo.Keeper
	webhooks    *webhook.Receiver
	// subscribeOnce: the fleet gets changes of rows.
	subscribeOnce sync.Once
	// sets of clusters, once they are read.
	sets *apiserver.Late[memberproxy.Sets]
	// authorizer of the API, once it is built.
	authorizer authorizer.Authorizer
}

func newAPIHooks(log *slog.Logger, limits memberproxy.RequestLimits) *apiHooks {
	l := &apiHooks{sets: apiserver.NewLate[memberproxy.Sets]()}
	l.preview = &previewserver.Server{Sources: selectComponents(l, func(p *components) previewserver.Sources {
		return previewserver.Sources{State: p.state, Binder: p.binder, Placer: p.placer, Decisions: p.decisions, BundleStatus: p.bundleStatus, Undo: l.undo}
	})}
	l.plugin = admission.New(admission.Options{
		Own: apiserver.IsHubUser, Foretell: l.preview.PreviewWrite,
		Foreign: func(ctx context.Context, namespace string) []atoll.MemberForeignObjects {
			return l.fleetView.ForeignObjects(ctx, namespace)
		},
		Hub: selectComponents(l, func(p *components) admission.Hub {
			return admission.Hub{Placed: p.binder, Templates: p.binder, Definitions: p.state.Templates, Sets: p.state.Sets, Properties: p.state.Views, Removals: p.decommission, Drift: p.state, References: p.state, Sources: p.state.Sources, SourceSets: p.state.SourceSets, Policies: p.state.Policies}
		}),
	})
	l.preview.Plugin = l.plugin
	l.memberProxy = memberproxy.New(memberproxy.Options{Clusters: l, Dial: l.dialAgent, May: l.mayProxy, Refuse: respond.WriteError, Limits: limits, Metrics: legacyregistry.Registerer(), Log: log.With("component", "reach")})
	l.fleetView = server.New(server.Options{Own: apiserver.IsHubUser, Reach: l.memberProxy, Tables: selectComponents(l, func(p *components) server.Tables {
		t := tables.Tables{State: p.state, Binder: p.binder}
		return server.Tables{Members: t, Placements: t, Templates: t}
	})})
	l.preview.ReserveMemory = l.fleetView.ReserveMemory
	l.webhooks = webhook.New(webhook.Options{Hub: selectComponents(l, func(p *components) webhook.Hub {
		return webhook.Hub{Repositories: p.state.Repositories, Client: p.servingClient}
	}), Metrics: legacyregistry.Registerer(), Log: log.With("component", "webhooks")})
	l.undo = undo.New(undo.Options{Own: apiserver.IsHubUser, MayGet: l.plugin.MayGet, ReserveMemory: l.fleetView.ReserveMemory, Metrics: legacyregistry.Registerer(), Log: log.With("component", "undo")})
	return l
}

// selectComponents returns a function of a part of the components; false until the tables are read.
func selectComponents[T any](l *apiHooks, part func(*components) T) func() (T, bool) {
	return func() (out T, ok bool) {
		p, ok := l.components.Get()
		if ok {
			out = part(p)
		}
		return out, ok
	}
}

// setComponents publishes the components to admission and the API's endpoints, once their tables are synced.
func (l *apiHooks) setComponents(p *components) {
	l.components.Set(p)
	l.subscribeOnce.Do(func() { // a leader's components have the same tables
		l.sets.Set(p.state.Sets)
		p.state.Rows.SubscribeWithChangedOrders(func(_ string, _, ordered []string) {
			if len(ordered) > 0 {
				l.fleetView.WakeWatches()
			}
		})
	})
}

// admissionPlugins is Atoll's own, which lets templates pass unseen until the parts are there.
func (l *apiHooks) admissionPlugins() []apiserver.AdmissionPlugin {
	return []apiserver.AdmissionPlugin{{Name: admission.Name, Handler: l.plugin}, {Name: undo.AdmissionName, Handler: l.undo}}
}

// wrapWithHubEndpoints adds the hub's own endpoints to the API: it is not ready before the parts
// are, except in the eyes of its own identities, which wait for the API alone.
func (l *apiHooks) wrapWithHubEndpoints(next http.Handler) http.Handler {
	next = l.undo.RecordChanges(server.StripCompleteSelector(server.AbortTruncatedLogs(next)))
	tables, rights := selectComponents(l, func(p *components) *state.HubTables { return p.state }), func() authorizer.Authorizer { return l.authorizer }
	ca := castatus.CAEndpoints{Reporter: selectComponents(l, func(p *components) *castatus.CAReporter { return p.caStatus }), Authorizer: rights}
	trees, lists := treeserver.New(treeserver.Options{Tables: tables, MayGet: l.plugin.MayGet}), listserver.New(listserver.Options{Tables: tables, Authorizer: rights})
	endpoints := map[string]http.HandlerFunc{
		atoll.ExplainPath: l.preview.ServeExplain, atoll.PlanPath: l.preview.ServePlan, atoll.RenderPath: l.preview.ServeRender, atoll.RebalancePath: l.preview.ServeRebalance, atoll.DriftPath: l.preview.ServeDrift,
		standing.Path: ca.ServeCARequest, standing.CertificatesPath: ca.ServeAgentCertificates, atoll.UndoPath: l.undo.ServeUndo, atoll.TreePath: trees.ServeTree,
		atoll.FleetCountsPath: lists.ServeCounts, atoll.FleetClustersPath: lists.ServeClusters, atoll.FleetSourcesPath: lists.ServeSources, atoll.FleetSearchPath: lists.ServeSearch,
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/readyz" {
			u, _ := request.UserFrom(r.Context())
			if _, ready := l.components.Get(); !ready && !apiserver.IsHubUser(u) {
				http.Error(w, "the API is ready; Atoll's tables are being read", http.StatusServiceUnavailable)
				return
			}
		}
		if serve := endpoints[r.URL.Path]; serve != nil {
			serve(w, r)
			return
		}
		if info, ok := request.RequestInfoFrom(r.Context()); ok && memberproxy.IsProxyRequest(info) {
			l.serveMemberProxy(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}
