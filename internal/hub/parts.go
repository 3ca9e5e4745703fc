package hub

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/metrics/legacyregistry"

	"atoll.dev/atoll/internal/apiserver"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/bind"
	"atoll.dev/atoll/internal/bind/defaulting"
	"atoll.dev/atoll/internal/gateway"
	"atoll.dev/atoll/internal/inventory"
	"atoll.dev/atoll/internal/place"
	"atoll.dev/atoll/internal/state"
	"atoll.dev/atoll/internal/summarise"
	"atoll.dev/atoll/internal/trust"
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
	gateway   *gateway.Gateway
	rewinds   *rewinds

	listener net.Listener
	address  string
	caHash   string
	caPEM    []byte
}

// newParts makes the parts and subscribes them to the tables, which are still
// empty. ctx is the life of the gateway.
func newParts(ctx context.Context, o Options, server *apiserver.Server, st *state.State) (*parts, error) {
	log := o.API.Logger
	p := &parts{state: st, log: log, rewinds: newRewinds(st, log.With("component", "rewind"))}
	defaults := defaulting.New(func(gk schema.GroupKind) *unstructured.Unstructured { return definition(st, gk) })
	p.recorder = summarise.NewRecorder(st.Client, st.Revisions, st.Templates, log.With("component", "events"))
	p.bind = bind.New(bind.Options{
		Templates: st.Templates, Namespaces: st.Namespaces, Policies: st.Policies, Bundles: st.Bundles,
		Rows: st.Rows, Revisions: st.Revisions, Client: st.Client,
		Defaults: defaults, Log: log.With("component", "bind"),
	})
	p.place = place.New(place.Config{
		Bundles: st.Bundles, Rows: st.Rows, Clusters: st.Clusters, Revisions: st.Revisions,
		Namespaces: st.Namespaces, Hub: st.Hub, Events: p.recorder, Log: log.With("component", "place"),
	})
	p.summarise = summarise.New(summarise.Config{
		Bundles: st.Bundles, Rows: st.Rows, Clusters: st.Clusters, Revisions: st.Revisions, Templates: st.Templates,
		Hub: st.Hub, Intent: summarise.Stated(defaults), Events: p.recorder,
		Writer: &summarise.APIWriter{Client: st.Client, Bundles: st.Bundles, Templates: st.Templates},
		Log:    log.With("component", "summarise"),
	})
	p.inventory = inventory.New(inventory.Options{
		Clusters: st.Clusters, Client: st.Client, Logger: log.With("component", "inventory"), Metrics: legacyregistry.Registerer(),
	})
	if err := p.listen(o, server); err != nil {
		return nil, err
	}
	return p, p.newGateway(ctx, o, server)
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

func (p *parts) listen(o Options, server *apiserver.Server) (err error) {
	if p.listener, err = listenGateway(o); err != nil {
		return err
	}
	ca := server.Keys().ClusterCA
	p.address, p.caHash, p.caPEM = gatewayAddress(o, server, p.listener), trust.CertificateHash(ca.Cert), ca.CertPEM
	return nil
}

func (p *parts) newGateway(ctx context.Context, o Options, server *apiserver.Server) error {
	serving, err := servingCertificate(o, server.Keys().ClusterCA, p.address, time.Now())
	if err != nil {
		return err
	}
	kube, err := kubernetes.NewForConfig(server.LoopbackConfig())
	if err != nil {
		return fmt.Errorf("client of certificate requests: %w", err)
	}
	rows := rowRenderer{state: p.state, ctx: ctx}
	p.gateway, err = gateway.New(ctx, gateway.Options{
		Clusters: p.state.Clusters, Rows: p.state.Rows, Inventory: p.inventory,
		Render: rows.manifest, RenderSalt: rows.salt,
		Client: p.state.Client, Requests: kube.CertificatesV1().CertificateSigningRequests(),
		Serving: serving, HubCA: p.caPEM, AgentCAs: server.Keys().AgentCA.Pool(), Sign: signer(server.Keys().AgentCA),
		HubKey: server.Keys().HubKey, Position: p.position, HubState: p.state.Hub.Get,
		OnRewind: p.rewinds.onRewind, OnAhead: p.rewinds.onAhead,
		Recalling: p.rewinds.recalling, OnRemembered: p.rewinds.onRemembered,
		Version: o.API.Version, Logger: o.API.Logger.With("component", "gateway"), Metrics: legacyregistry.Registerer(),
	})
	p.rewinds.fleet = p.gateway
	return err
}

// position of the store now: this start, and the newest slice.
func (p *parts) position() (string, int64) {
	chain := p.state.Hub.Chain()
	if len(chain) == 0 {
		return "", 0
	}
	return chain[len(chain)-1].ID, p.state.Rows.Revision()
}

// run everything until ctx ends or one part fails.
func (p *parts) run(ctx context.Context) error {
	if err := publishInfo(ctx, p.state.Client, p.address, p.caHash, p.caPEM); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, run := range []func(context.Context) error{
		p.bind.Run, p.place.Run, p.summarise.Run, p.recorder.Run, p.inventory.Run, p.rewinds.run, p.rewinds.recall,
		func(context.Context) error { return p.gateway.Serve(p.listener) },
	} {
		group.Go(func() error { return run(ctx) })
	}
	return group.Wait()
}
