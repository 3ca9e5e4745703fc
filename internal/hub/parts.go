package hub

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics/legacyregistry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/apiserver"
	"atoll.dev/atoll/internal/apiserver/direct"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/bind"
	"atoll.dev/atoll/internal/bind/defaulting"
	"atoll.dev/atoll/internal/dialect/karmada"
	"atoll.dev/atoll/internal/gateway"
	"atoll.dev/atoll/internal/hub/leader"
	"atoll.dev/atoll/internal/hub/push"
	"atoll.dev/atoll/internal/inventory"
	"atoll.dev/atoll/internal/inventory/profiles"
	"atoll.dev/atoll/internal/leave"
	"atoll.dev/atoll/internal/place"
	"atoll.dev/atoll/internal/place/decisions"
	"atoll.dev/atoll/internal/render"
	"atoll.dev/atoll/internal/state"
	"atoll.dev/atoll/internal/summarise"
)

// parts is everything that runs over the tables.
type parts struct {
	togetherness
	state     *state.State
	log       *slog.Logger
	bind      *bind.Binder
	place     *place.Reconciler
	decisions *decisions.Publisher
	karmada   *karmada.Reconciler
	summarise *summarise.Reconciler
	recorder  *summarise.Recorder
	inventory *inventory.Reconciler
	leave     *leave.Reconciler
	profiles  *profiles.Publisher
	rewinds   *rewinds
	gateway   *gateway.Gateway
	push      *push.Supervisor
	door      *door
	// serving writes what any hub may, while it is in touch with the store.
	serving client.Client
	// prints of templates, which bind and summarise ask for.
	prints *bind.Prints
	// finalize puts finalizers on templates of built-in kinds.
	finalize func(ctx context.Context, t *unstructured.Unstructured, finalizer string) (bool, error)
}

// newParts makes all parts and subscribes them to the tables, which are still empty.
// ctx is the gateway's life. On a hub that does not lead, those that decide are there
// to be asked.
func (h *hub) newParts(ctx context.Context, t togetherness) (*parts, error) {
	cfg := leader.Fenced(clientConfig(h.server), t.tenure, t.presence)
	deciding, err := h.client(cfg, func(report bool) error {
		if report {
			return t.presence.May()
		}
		return t.tenure.May()
	})
	if err != nil {
		return nil, err
	}
	st, err := state.New(deciding, cfg, h.server.Direct(), h.server.Keys().HubKey)
	if err != nil {
		return nil, err
	}
	h.tables.Store(st)
	p := &parts{togetherness: t, state: st, log: h.log, door: h.door, finalize: h.finalizer(st, t), prints: &bind.Prints{}}
	if p.serving, err = h.client(t.presence.Fenced(clientConfig(h.server)), func(bool) error { return t.presence.May() }); err != nil {
		return nil, err
	}
	p.rewinds = newRewinds(st, p.serving, t.leads, h.log.With("component", "rewind"))
	p.recorder = summarise.NewRecorder(st.Client, st.Revisions, st.Templates, h.log.With("component", "events"))
	p.bind = p.binder(t.tenure != nil)
	p.place = place.New(place.Config{
		Bundles: st.Bundles, Rows: st.Rows, Clusters: st.Clusters, Revisions: st.Revisions,
		Namespaces: st.Namespaces, Hub: st.Hub, Sets: st.Sets, Views: st.Views, Scores: st.Scores, Say: p.bind.Say, Events: p.recorder, Log: h.log.With("component", "place"),
	})
	p.decisions = decisions.New(decisions.Config{
		Placements: st.Placements, Decisions: st.Decisions, Clusters: st.Clusters, Hub: st.Hub, Views: st.Views, Sets: st.Sets, Client: st.Client,
		Feed: p.place.Feed, Log: h.log.With("component", "decisions"),
	})
	p.karmada = karmada.New(karmada.Config{
		Customizations: st.Customizations, Interpreters: st.Policies, Client: st.Client, Events: p.recorder, Log: h.log.With("component", "karmada"),
	})
	p.summarise = summarise.New(summarise.Config{
		Bundles: st.Bundles, Rows: st.Rows, Clusters: st.Clusters, Revisions: st.Revisions, Templates: st.Templates,
		Namespaces: st.Namespaces, Hub: st.Hub, Intent: summarise.Stated(defaults(st), p.prints.Of), Events: p.recorder,
		Writer: &summarise.APIWriter{Client: st.Client, Bundles: st.Bundles, Templates: st.Templates},
		Log:    h.log.With("component", "summarise"),
	})
	p.leave = leave.New(leave.Config{
		Clusters: st.Clusters, Rows: st.Rows, Revisions: st.Revisions, Hub: st.Hub, Client: st.Client, Serving: p.serving,
		Tell: p.tell, Log: h.log.With("component", "leave"),
	})
	p.profiles = profiles.New(profiles.Config{
		Clusters: st.Clusters, Settings: st.Settings, Client: st.Client,
		Hub: profiles.Hub{Address: cmp.Or(h.o.APIAddress, h.server.AdvertisedAddress()), CA: h.server.Keys().ClusterCA.CertPEM}, Log: h.log.With("component", "profiles"),
	})
	observed := inventory.Options{
		Clusters: st.Clusters, Client: p.serving, Logger: h.log.With("component", "inventory"),
		Metrics: legacyregistry.Registerer(), Leads: t.leads,
	}
	if t.peers != nil {
		observed.Complete = t.peers.Complete
	}
	p.inventory = inventory.New(observed)
	if p.push, err = h.pusher(p); err != nil {
		return nil, err
	}
	return p, p.newGateway(ctx, h.o, h.server)
}

// client of the hub's API, which writes the hub's own bookkeeping directly while it may.
func (h *hub) client(cfg *rest.Config, may direct.May) (client.Client, error) {
	c, err := client.New(cfg, client.Options{Scheme: state.Scheme()})
	if err != nil {
		return nil, fmt.Errorf("client of the hub's API: %w", err)
	}
	return h.server.Direct().Client(c, may, h.living), nil
}

// living gives the version at which a namespace was seen to live.
func (h *hub) living(namespace string) (string, bool) {
	st := h.tables.Load()
	if st == nil {
		return "", false
	}
	ns, ok := st.Namespaces.Get(namespace)
	if !ok || ns.DeletionTimestamp != nil || ns.Status.Phase == corev1.NamespaceTerminating {
		return "", false
	}
	return ns.ResourceVersion, true
}

// finalizer puts one on templates of built-in kinds directly, while this hub may decide.
func (h *hub) finalizer(st *state.State, t togetherness) func(context.Context, *unstructured.Unstructured, string) (bool, error) {
	templates := h.server.Direct().Templates
	return func(ctx context.Context, obj *unstructured.Unstructured, finalizer string) (bool, error) {
		gvk := obj.GroupVersionKind()
		gvr, ok := st.Templates.Resource(atoll.ItemKey{Group: gvk.Group, Kind: gvk.Kind, Namespace: obj.GetNamespace(), Name: obj.GetName()})
		if !ok {
			return false, nil
		}
		if err := t.tenure.May(); err != nil {
			return false, err
		}
		return templates.Finalize(ctx, gvk, gvr.GroupResource(), obj, finalizer)
	}
}

// leads tells whether this hub decides, as far as it surely knows.
func (t togetherness) leads() bool { return t.tenure.Leads() }

// binder over the tables; one that only reads answers who places what.
func (p *parts) binder(readOnly bool) *bind.Binder {
	st := p.state
	return bind.New(bind.Options{
		Templates: st.Templates, Namespaces: st.Namespaces, Policies: st.Policies, Placements: st.Placements, Bundles: st.Bundles,
		Rows: st.Rows, Clusters: st.Clusters, Events: p.recorder, Revisions: st.Revisions, Client: st.Client,
		Finalize: p.finalize, Defaults: defaults(st), Prints: p.prints, Log: p.log.With("component", "bind"), ReadOnly: readOnly,
	})
}

// leading gives the parts of a follower as those of a leader.
func (p *parts) leading() *parts {
	l := *p
	l.bind = p.binder(false)
	return &l
}

func defaults(st *state.State) render.Defaulter {
	return defaulting.New(func(gk schema.GroupKind) *unstructured.Unstructured { return definition(st, gk) })
}

// definition gives the CRD of a kind, nil where it has none.
func definition(st *state.State, gk schema.GroupKind) *unstructured.Unstructured {
	gvr, ok := st.Templates.Resource(atoll.ItemKey{Group: gk.Group, Kind: gk.Kind})
	if !ok {
		return nil
	}
	crd, _ := st.Templates.Get(atoll.ItemKey{
		Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition", Name: gvr.GroupResource().String(),
	})
	return crd
}

// newGateway makes the gateway; ctx is its life.
func (p *parts) newGateway(ctx context.Context, o Options, server *apiserver.Server) error {
	kube, err := kubernetes.NewForConfig(p.presence.Fenced(server.LoopbackConfig()))
	if err != nil {
		return fmt.Errorf("client of certificate requests: %w", err)
	}
	rows := newRowRenderer(ctx, p.state, server.Keys().HubKey)
	options := gateway.Options{
		Clusters: p.state.Clusters, Rows: p.state.Rows, Inventory: p.inventory,
		Render: rows.manifest, RenderSalt: rows.salt,
		Client: p.serving, Requests: kube.CertificatesV1().CertificateSigningRequests(),
		Plain: p.door.plain, Trust: p.door.credentials.now.Load, CertificateLifetime: o.AgentCertificateLifetime, Tell: p.tell,
		HubKey: server.Keys().HubKey, Position: p.position, HubState: p.hubState,
		OnRewind: p.rewinds.onRewind, OnAhead: p.ahead,
		Recalling: p.rewinds.recalling, OnRemembered: p.rewinds.onRemembered, OnLeft: p.leave.Left, OnLeaving: p.leave.Leaving,
		Version: o.API.Version, Logger: o.API.Logger.With("component", "gateway"), Metrics: legacyregistry.Registerer(),
	}
	if p.peers != nil {
		options.Clusters, options.Inventory = streams{p.state.Clusters, p.peers}, members{p.inventory, p.peers}
		options.Several = gateway.Several{Serves: p.serves, Leads: p.leads, Register: p.peers.Register, Behind: p.behind, Elsewhere: p.peers.Holds}
	}
	p.gateway, err = gateway.New(ctx, options)
	p.rewinds.fleet = p.gateway
	return err
}

// position of the store now: the start that is the last one, and the newest slice, as
// far as no later start is in the store. A hub that surely leads and has written its
// start is its own witness; another one has what it saw when it last looked. The bound
// is read first, and the chain last.
func (p *parts) position() (string, int64) {
	revision := p.state.Rows.Revision()
	if p.presence != nil && !(p.started.Load() && p.tenure.Leads()) {
		revision = min(revision, p.presence.Vouched())
	}
	st := p.state.Hub.Get()
	if st == nil || len(st.Chain) == 0 || st.Beginning != "" || revision == 0 {
		return "", 0
	}
	return st.Chain[len(st.Chain)-1].ID, revision
}

// hubState for the gateway, which orders nothing without one.
func (p *parts) hubState() *enginev1.HubState {
	if !p.presence.Holds() {
		return nil
	}
	return p.state.Hub.Get()
}

// tell the administrator about a Cluster, by an Event. Who leads writes Events; of what
// another hub sees, its log tells.
func (p *parts) tell(c *v1alpha1.Cluster, reason, message string) {
	if p.leads() {
		p.recorder.Tell(corev1.ObjectReference{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: "Cluster", Name: c.Name, UID: c.UID, ResourceVersion: c.ResourceVersion,
		}, reason, message)
	}
}

// ahead tells who leads that a row must be raised.
func (p *parts) ahead(bundle, cluster string, generation int64) {
	if p.leads() {
		p.rewinds.onAhead(bundle, cluster, generation)
	} else {
		p.peers.Ahead(bundle, cluster, generation)
	}
}

// decide until ctx ends or one part fails.
func (p *parts) decide(ctx context.Context) error {
	if err := p.door.credentials.publish(ctx, p); err != nil {
		return err
	}
	p.inventory.Lead()
	return together(ctx, p.bind.Run, p.place.Run, p.decisions.Run, p.karmada.Run, p.summarise.Run, p.leave.Run, p.profiles.Run, p.recorder.Run, p.rewinds.recall,
		func(ctx context.Context) error { return p.door.credentials.warn(ctx, p) })
}
