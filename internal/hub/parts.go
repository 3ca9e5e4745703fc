package hub

import (
	"context"
	"fmt"
	"log/slog"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/metrics/legacyregistry"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/internal/apiserver"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/bind"
	"atoll.dev/atoll/internal/bind/defaulting"
	"atoll.dev/atoll/internal/gateway"
	"atoll.dev/atoll/internal/hub/leader"
	"atoll.dev/atoll/internal/inventory"
	"atoll.dev/atoll/internal/place"
	"atoll.dev/atoll/internal/state"
	"atoll.dev/atoll/internal/summarise"
)

// parts is everything that runs over the tables.
type parts struct {
	state     *state.State
	log       *slog.Logger
	bind      *bind.Binder
	place     *place.Reconciler
	summarise *summarise.Reconciler
	recorder  *summarise.Recorder
	inventory *inventory.Reconciler
	rewinds   *rewinds

	// The rest is a leader's only.
	tenure  *leader.Tenure
	gateway *gateway.Gateway
	door    *door
}

// newDeciders makes the parts that decide and subscribes them to the tables, which
// are still empty. On a hub that does not lead they are there to be asked.
func newDeciders(o Options, st *state.State, leads bool) *parts {
	log := o.API.Logger
	p := &parts{state: st, log: log, rewinds: newRewinds(st, log.With("component", "rewind"))}
	defaults := defaulting.New(func(gk schema.GroupKind) *unstructured.Unstructured { return definition(st, gk) })
	p.recorder = summarise.NewRecorder(st.Client, st.Revisions, st.Templates, log.With("component", "events"))
	p.bind = bind.New(bind.Options{
		Templates: st.Templates, Namespaces: st.Namespaces, Policies: st.Policies, Bundles: st.Bundles,
		Rows: st.Rows, Clusters: st.Clusters, Events: p.recorder, Revisions: st.Revisions, Client: st.Client,
		Defaults: defaults, Log: log.With("component", "bind"), ReadOnly: !leads,
	})
	p.place = place.New(place.Config{
		Bundles: st.Bundles, Rows: st.Rows, Clusters: st.Clusters, Revisions: st.Revisions,
		Namespaces: st.Namespaces, Hub: st.Hub, Events: p.recorder, Log: log.With("component", "place"),
	})
	p.summarise = summarise.New(summarise.Config{
		Bundles: st.Bundles, Rows: st.Rows, Clusters: st.Clusters, Revisions: st.Revisions, Templates: st.Templates,
		Namespaces: st.Namespaces, Hub: st.Hub, Intent: summarise.Stated(defaults), Events: p.recorder,
		Writer: &summarise.APIWriter{Client: st.Client, Bundles: st.Bundles, Templates: st.Templates},
		Log:    log.With("component", "summarise"),
	})
	observed := inventory.Options{Clusters: st.Clusters, Client: st.Client, Logger: log.With("component", "inventory")}
	if leads { // at most once in a process
		observed.Metrics = legacyregistry.Registerer()
	}
	p.inventory = inventory.New(observed)
	return p
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
func (p *parts) newGateway(ctx context.Context, o Options, server *apiserver.Server, d *door) error {
	p.door = d
	kube, err := kubernetes.NewForConfig(p.tenure.Fenced(server.LoopbackConfig()))
	if err != nil {
		return fmt.Errorf("client of certificate requests: %w", err)
	}
	rows := rowRenderer{state: p.state, ctx: ctx, key: server.Keys().HubKey}
	p.gateway, err = gateway.New(ctx, gateway.Options{
		Clusters: p.state.Clusters, Rows: p.state.Rows, Inventory: p.inventory,
		Render: rows.manifest, RenderSalt: rows.salt,
		Client: p.state.Client, Requests: kube.CertificatesV1().CertificateSigningRequests(),
		Serving: d.serving, HubCA: d.caPEM, AgentCAs: server.Keys().AgentCA.Pool(), Sign: signer(server.Keys().AgentCA),
		HubKey: server.Keys().HubKey, Position: p.position, HubState: p.hubState,
		OnRewind: p.rewinds.onRewind, OnAhead: p.rewinds.onAhead,
		Recalling: p.rewinds.recalling, OnRemembered: p.rewinds.onRemembered,
		Version: o.API.Version, Logger: o.API.Logger.With("component", "gateway"), Metrics: legacyregistry.Registerer(),
	})
	p.rewinds.fleet = p.gateway
	return err
}

// position of the store now: this start, and the newest slice; none once another hub
// may lead, whose start is where this one's positions end. So the revision is read
// first.
func (p *parts) position() (string, int64) {
	chain, revision := p.state.Hub.Chain(), p.state.Rows.Revision()
	if len(chain) == 0 || !p.tenure.Leads() {
		return "", 0
	}
	return chain[len(chain)-1].ID, revision
}

// hubState for the gateway, which orders nothing without one.
func (p *parts) hubState() *enginev1.HubState {
	if !p.tenure.Leads() {
		return nil
	}
	return p.state.Hub.Get()
}

// run everything until ctx ends or one part fails.
func (p *parts) run(ctx context.Context) error {
	listener, err := p.door.open(ctx)
	if err != nil {
		return err
	}
	if err := publishInfo(ctx, p.state.Client, p.door.address, p.door.caHash, p.door.caPEM); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, run := range []func(context.Context) error{
		p.bind.Run, p.place.Run, p.summarise.Run, p.recorder.Run, p.inventory.Run, p.rewinds.run, p.rewinds.recall,
		func(context.Context) error { return p.gateway.Serve(listener) },
	} {
		group.Go(func() error { return run(ctx) })
	}
	return group.Wait()
}
