package hub

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics/legacyregistry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/apiserver"
	"atoll.dev/atoll/internal/apiserver/bootstrap"
	"atoll.dev/atoll/internal/apiserver/direct"
	"atoll.dev/atoll/internal/apiserver/objectversions"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/binder"
	"atoll.dev/atoll/internal/binder/defaulting"
	"atoll.dev/atoll/internal/bundlestatus"
	"atoll.dev/atoll/internal/clusterstatus"
	"atoll.dev/atoll/internal/clusterstatus/profiles"
	"atoll.dev/atoll/internal/decommission"
	"atoll.dev/atoll/internal/delivery"
	"atoll.dev/atoll/internal/delivery/listener"
	"atoll.dev/atoll/internal/delivery/payloads"
	"atoll.dev/atoll/internal/dialect/karmada"
	"atoll.dev/atoll/internal/failover"
	"atoll.dev/atoll/internal/gatechecks"
	"atoll.dev/atoll/internal/leader"
	"atoll.dev/atoll/internal/notify"
	"atoll.dev/atoll/internal/peer/streams"
	"atoll.dev/atoll/internal/placer"
	"atoll.dev/atoll/internal/placer/decisions"
	"atoll.dev/atoll/internal/placer/setstatus"
	"atoll.dev/atoll/internal/placer/sigdecisions"
	"atoll.dev/atoll/internal/push"
	"atoll.dev/atoll/internal/quarantine"
	"atoll.dev/atoll/internal/restore/controller"
	"atoll.dev/atoll/internal/sources/sourcesets"
	"atoll.dev/atoll/internal/state"
	"atoll.dev/atoll/internal/statemetrics"
	"atoll.dev/atoll/internal/tracing"
	"atoll.dev/atoll/internal/trust"
	"atoll.dev/atoll/internal/trust/castatus"
	"atoll.dev/atoll/internal/undo"
)

// components is everything that runs over the tables.
type components struct {
	haOptions
	state           *state.HubTables
	traces          *tracing.Tracer
	log             *slog.Logger
	binder          *binder.Binder
	placer          *placer.PlacementReconciler
	gateChecks      *gatechecks.Checker
	decisions       *decisions.DecisionPublisher
	setStatus       *setstatus.StatusWriter
	sigDecisions    *sigdecisions.MulticlusterPublisher
	karmada         *karmada.Reconciler
	bundleStatus    *bundlestatus.BundleReconciler
	recorder        *bundlestatus.EventRecorder
	stateMetrics    *statemetrics.StateCollector
	quarantines     *quarantine.RenderAccounts
	inventory       *clusterstatus.ClusterStatusReconciler
	decommission    *decommission.RemovalReconciler
	profiles        *profiles.ProfilePublisher
	failover        *failover.ClusterReconciler
	restore         *controller.RestoreController
	gateway         *delivery.Gateway
	pushSupervisor  *push.AgentSupervisor
	gatewayListener *listener.GatewayListener
	caStatus        *castatus.CAReporter
	// servingClient writes what any hub may, while it is in touch with the store.
	servingClient client.Client
	// fingerprints of templates, which bind and summarise read.
	fingerprints         *binder.FingerprintCache
	sources              sourcesets.Config
	notificationNetworks []string
	// addFinalizer puts finalizers on templates of built-in kinds.
	addFinalizer func(ctx context.Context, t *unstructured.Unstructured, finalizer string) (bool, error)
}

// newComponents makes all parts and subscribes them to the tables, which are still empty.
// ctx is the gateway's life. On a hub that does not lead, those that decide are there for previews.
func (h *hub) newComponents(ctx context.Context, t haOptions) (*components, error) {
	cfg := leader.ConfigFencedByRequestPath(typedClientConfig(h.server), t.tenure, t.presence)
	deciding, err := h.newDirectWriteClient(cfg, func(report bool) error {
		if report {
			return t.presence.CheckMayWrite()
		}
		return t.tenure.CheckMayWrite()
	})
	if err != nil {
		return nil, err
	}
	st, err := state.New(deciding, cfg, h.server.DirectStores(), objectversions.Converter{}, h.server.KeySet().HubKey, h.log.With("component", "tables"))
	if err != nil {
		return nil, err
	}
	h.tables.Store(st)
	p := &components{haOptions: t, state: st, traces: h.traces, log: h.log, gatewayListener: h.gateway, addFinalizer: h.newFinalizerAdder(st, t), fingerprints: &binder.FingerprintCache{}, notificationNetworks: h.options.NotificationAllowedCIDRs}
	if p.servingClient, err = h.newDirectWriteClient(t.presence.FencedConfig(typedClientConfig(h.server)), func(bool) error { return t.presence.CheckMayWrite() }); err != nil {
		return nil, err
	}
	var statusWrites *prometheus.CounterVec
	if err := h.hooks.undo.Attach(undo.Tables{Settings: st.Settings, Namespaces: st.Namespaces, Templates: st.Templates}, t.presence.FencedConfig(h.server.LoopbackConfig())); err != nil {
		return nil, err
	}
	p.stateMetrics, statusWrites = newStateMetrics(st, legacyregistry.Registerer())
	p.quarantines = payloads.NewAccounts(legacyregistry.Registerer(), h.log.With("component", "gateway"))
	p.restore = controller.New(st, p.servingClient, t.IsLeader, h.log.With("component", "rewind"))
	p.recorder = bundlestatus.NewEventRecorder(st.Client, st.Revisions, st.Templates, h.log.With("component", "events"))
	p.binder = p.newBinder(t.tenure != nil)
	p.gateChecks = p.newGateChecks(h.options.GateAllowedCIDRs)
	p.placer = placer.New(placer.Config{
		Bundles: st.Bundles, Rows: st.Rows, RowWriter: st.Rows, Clusters: st.Clusters, Revisions: st.Revisions,
		Namespaces: st.Namespaces, Hub: st.Hub, Sets: st.Sets, Views: st.Views, Settings: st.Settings, Scores: st.Scores, SetCondition: p.binder.SetBundleCondition, SetRollout: p.binder.SetBundleRollout, SetFailover: p.binder.SetBundleFailover, Measurements: p.gateChecks, Events: p.recorder,
		Metrics: placer.NewMetrics(legacyregistry.Registerer()), Traces: h.traces, Log: h.log.With("component", "place"),
	})
	p.decisions = decisions.New(decisions.Config{
		Placements: st.Placements, Decisions: st.Decisions, Clusters: st.Clusters, Hub: st.Hub, Views: st.Views, Sets: st.Sets, Client: st.Client,
		SetInterest: p.placer.SetScoreInputs, Log: h.log.With("component", "decisions"),
	})
	p.sigDecisions = sigdecisions.New(sigdecisions.Config{Placements: st.Placements, Decisions: st.Decisions, Settings: st.Settings, Client: st.Client, Log: h.log.With("component", "sigdecisions")})
	p.setStatus = setstatus.New(st.Sets, st.Sets, st.Client, h.log.With("component", "setstatus"))
	p.karmada = karmada.New(karmada.Config{
		Customizations: st.Customizations, Interpreters: st.Policies, Client: st.Client, Events: p.recorder, Log: h.log.With("component", "karmada"),
	})
	p.bundleStatus = bundlestatus.New(bundlestatus.Config{
		Bundles: st.Bundles, Rows: st.Rows, RowSlices: st.Rows, Clusters: st.Clusters, Revisions: st.Revisions, Templates: st.Templates,
		Namespaces: st.Namespaces, Hub: st.Hub, Settings: st.Settings, Intent: bundlestatus.NewItemMatcher(defaulting.New(st.Templates.FindCRD), p.fingerprints.FingerprintOf), Events: p.recorder, Quarantines: p.quarantines,
		OnShown: p.stateMetrics.EndChangeIfReady, ExplainShortage: p.placer.ExplainShortage, StatusWrites: statusWrites,
		Writer: &bundlestatus.APIWriter{Client: st.Client, Bundles: st.Bundles, Templates: st.Templates},
		Traces: h.traces, Log: h.log.With("component", "summarise"),
	})
	p.decommission = decommission.New(decommission.Config{
		Clusters: st.Clusters, Rows: st.Rows, Revisions: st.Revisions, Hub: st.Hub, Client: st.Client, Serving: p.servingClient,
		NotifyAdmin: p.recordClusterEvent, Log: h.log.With("component", "leave"),
	})
	p.profiles = profiles.New(profiles.Config{
		Clusters: st.Clusters, Settings: st.Settings, Client: st.Client,
		Hub: profiles.Hub{Address: cmp.Or(h.options.APIAddress, h.server.AdvertisedAddress()), CA: h.server.KeySet().ClusterCA.CertPEM}, Log: h.log.With("component", "profiles"),
	})
	p.failover = failover.New(failover.Config{Clusters: st.Clusters, Settings: st.Settings, Client: st.Client, NotifyAdmin: p.recordClusterEvent, Metrics: legacyregistry.Registerer(), Log: h.log.With("component", "failover")})
	observed := clusterstatus.Options{
		Clusters: st.Clusters, Client: p.servingClient, Logger: h.log.With("component", "inventory"),
		Metrics: legacyregistry.Registerer(), Leads: t.IsLeader,
	}
	if t.peers != nil {
		observed.Complete = t.peers.IsComplete
	}
	p.inventory = clusterstatus.New(observed)
	p.caStatus = &castatus.CAReporter{
		Authorities: h.server, Rotation: h.server, Clusters: st.Clusters, Agents: p.inventory, Settings: st.Settings,
		GatewayCertificate: h.gateway.CertificateStatus, IsComplete: func() bool { return t.peers == nil || t.peers.IsComplete() },
	}
	if p.sources, err = sourcesets.NewConfig(st, p.recorder, t.tenure.FencedConfig(h.server.LoopbackConfig()), h.options.SourceAllowedCIDRs, h.log.With("component", "sources")); err != nil {
		return nil, err
	}
	if p.pushSupervisor, err = h.newPushSupervisor(p); err != nil {
		return nil, err
	}
	return p, p.newGateway(ctx, h.options, h.server)
}

// newDirectWriteClient returns a client of the hub's API, which writes the hub's own bookkeeping directly while it may.
func (h *hub) newDirectWriteClient(cfg *rest.Config, may direct.May) (client.Client, error) {
	c, err := client.New(cfg, client.Options{Scheme: state.NewScheme()})
	if err != nil {
		return nil, fmt.Errorf("client of the hub's API: %w", err)
	}
	return h.server.DirectStores().WrapClient(c, may, h.livingNamespaceVersion), nil
}

// livingNamespaceVersion returns the version at which a namespace was seen to live.
func (h *hub) livingNamespaceVersion(namespace string) (string, bool) {
	if st := h.tables.Load(); st != nil {
		return st.Namespaces.LivingVersion(namespace)
	}
	return "", false
}

// newFinalizerAdder returns a function that adds a finalizer to templates of built-in kinds
// directly, while this hub may decide.
func (h *hub) newFinalizerAdder(st *state.HubTables, t haOptions) func(context.Context, *unstructured.Unstructured, string) (bool, error) {
	templates := h.server.DirectStores().Templates
	return func(ctx context.Context, obj *unstructured.Unstructured, finalizer string) (bool, error) {
		gvk := obj.GroupVersionKind()
		gvr, ok := st.Templates.ResourceOfKey(atoll.ItemKey{Group: gvk.Group, Kind: gvk.Kind, Namespace: obj.GetNamespace(), Name: obj.GetName()})
		if !ok {
			return false, nil
		}
		if err := t.tenure.CheckMayWrite(); err != nil {
			return false, err
		}
		return templates.AddFinalizer(ctx, gvk, gvr.GroupResource(), obj, finalizer)
	}
}

// IsLeader reports whether this hub decides, by its own lease.
func (t haOptions) IsLeader() bool { return t.tenure.IsLeading() }

// newBinder returns a Binder over the tables; one that only reads answers which policy places an
// object.
func (p *components) newBinder(readOnly bool) *binder.Binder {
	st := p.state
	return binder.New(binder.Options{
		Templates: st.Templates, Kinds: st.Templates, Namespaces: st.Namespaces, Policies: st.Policies, Overrides: st.Policies, Placements: st.Placements, Strategies: st.Strategies, Settings: st.Settings, Bundles: st.Bundles,
		Rows: st.Rows, Clusters: st.Clusters, Events: p.recorder, Revisions: st.Revisions, Client: st.Client,
		PutFinalizer: p.addFinalizer, OnRevision: p.stateMetrics.BeginChange, Defaults: defaulting.New(st.Templates.FindCRD), Fingerprints: p.fingerprints, Log: p.log.With("component", "bind"), ReadOnly: readOnly, Traces: p.traces,
	})
}

// newGateChecks makes what measures for gates of rollouts.
func (p *components) newGateChecks(allowed []string) *gatechecks.Checker {
	return gatechecks.New(gatechecks.Config{
		Bundles: p.state.Bundles, Revisions: p.state.Revisions, Settings: p.state.Settings, Secrets: p.state.Client, AllowedNetworks: allowed, Events: p.recorder,
		Changed: func(uid string) { p.placer.MeasurementsChanged(uid) }, Log: p.log.With("component", "gates"),
	})
}

// asLeader returns the parts of a follower as those of a leader.
func (p *components) asLeader() *components {
	l := *p
	l.binder = p.newBinder(false)
	return &l
}

// newGateway makes the gateway; ctx is its life.
func (p *components) newGateway(ctx context.Context, o Options, server *apiserver.Server) error {
	kube, err := kubernetes.NewForConfig(p.presence.FencedConfig(server.LoopbackConfig()))
	if err != nil {
		return fmt.Errorf("client of certificate requests: %w", err)
	}
	options := delivery.Options{
		Clusters: p.state.Clusters, Rows: p.state.Rows, BundleRows: p.state.Rows, Streams: p.inventory, Inventory: p.inventory,
		Manifests: payloads.NewHubRenderer(p.state, server.KeySet().HubKey, p.quarantines),
		Client:    p.servingClient, Requests: kube.CertificatesV1().CertificateSigningRequests(),
		AgentServer: o.GatewayTransport, PlainListener: p.gatewayListener.WebSockets(), Trust: p.gatewayListener.Trust, CertificateLifetime: o.AgentCertificateLifetime, NotifyAdmin: p.recordClusterEvent,
		HubKey: server.KeySet().HubKey, Store: p, Restore: p.restore, Departures: p.decommission,
		Version: o.API.Version, Logger: o.API.Logger.With("component", "gateway"), Metrics: legacyregistry.Registerer(), Traces: p.traces,
	}
	if p.peers != nil {
		options.Clusters, options.Streams = streams.StreamOpenBroadcaster{Clusters: p.state.Clusters, Peers: p.peers}, streams.BroadcastingTracker{StreamTracker: p.inventory, Peers: p.peers}
		options.HA = delivery.HAOptions{Hub: p, Peers: p.peers}
	}
	p.gateway, err = delivery.NewGateway(ctx, options)
	p.restore.SetAgents(p.gateway)
	return err
}

// StorePosition returns the position of the store now: the start that is the last one, and the newest slice, as
// far as no later start is in the store. A hub that surely leads and has written its
// start is its own witness; another one has what it saw when it last looked. The bound
// is read first, and the chain last.
func (p *components) StorePosition() (string, int64) {
	revision := p.state.Rows.HighestResourceVersion()
	if p.presence != nil && !(p.startRecorded.Load() && p.tenure.IsLeading()) {
		revision = min(revision, p.presence.ConfirmedRevision())
	}
	st := p.state.Hub.Get()
	if st == nil || len(st.Chain) == 0 || st.Beginning != "" || revision == 0 {
		return "", 0
	}
	return st.Chain[len(st.Chain)-1].ID, revision
}

// HubState returns the state for the gateway, which orders nothing without one.
func (p *components) HubState() *enginev1.HubState {
	if !p.presence.IsInTouch() {
		return nil
	}
	return p.state.Hub.Get()
}

// recordClusterEvent informs the administrator about a Cluster, by an Event. The leader writes
// Events; another hub logs.
func (p *components) recordClusterEvent(c *v1alpha1.Cluster, reason atoll.Reason, message string) {
	if p.IsLeader() {
		p.recorder.RecordEvent(corev1.ObjectReference{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: "Cluster", Name: c.Name, UID: c.UID, ResourceVersion: c.ResourceVersion,
		}, reason, message)
	}
}

// emitStoreFullEvent informs the administrator about the state of the store, by an Event.
func (p *components) emitStoreFullEvent(sentence string) {
	p.recorder.RecordEvent(corev1.ObjectReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "HubSettings", Name: v1alpha1.HubSettingsName,
	}, atoll.ReasonStoreFull, sentence)
}

// OnRowAhead informs the leader that a row must be raised.
func (p *components) OnRowAhead(bundle, cluster string, generation int64) {
	if p.IsLeader() {
		p.restore.OnRowAhead(bundle, cluster, generation)
	} else {
		p.peers.RequestRaise(bundle, cluster, generation)
	}
}

// runReconcilers runs the reconcilers until ctx ends or one part fails.
func (p *components) runReconcilers(ctx context.Context) error {
	if err := p.publishHubInfo(ctx); err != nil {
		return err
	}
	p.inventory.BecomeLeader()
	return runAll(ctx, p.binder.Run, p.placer.Run, p.gateChecks.Run, p.decisions.Run, p.setStatus.Run, p.sigDecisions.Run, p.karmada.Run, p.bundleStatus.Run, p.decommission.Run, p.profiles.Run, p.failover.Run, p.recorder.Run, p.restore.RunRecall, sourcesets.NewRunner(p.sources, p.binder), notify.New(notify.NewConfig(p.state, p.recorder, p.notificationNetworks, legacyregistry.Registerer(), p.log)).Run,
		func(ctx context.Context) error { return p.caStatus.RunConditions(ctx, p.state.Client, p.log) })
}

// publishHubInfo writes the address that agents dial and the CA that they pin.
func (p *components) publishHubInfo(ctx context.Context) error {
	a := p.caStatus.Authorities.CurrentAuthorities()
	return bootstrap.PublishHubInfo(ctx, p.state.Client, p.gatewayListener.AdvertisedAddress(), trust.CertificateKeyHash(a.Cluster.Cert), a.ClusterCABundlePEM())
}

// followHubCAChanges applies changes of the hub's CAs until ctx ends: to the gateway, and on the
// leader to the published address of agents.
func (p *components) followHubCAChanges(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.gatewayListener.TrustChanged():
		}
		p.gateway.TrustChanged()
		if !p.IsLeader() {
			continue
		}
		if err := p.publishHubInfo(ctx); err != nil && ctx.Err() == nil {
			p.log.Error("the trust that new clusters get is outdated until this hub is started again", "err", err)
		}
	}
}
