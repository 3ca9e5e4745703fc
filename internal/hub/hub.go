// Package hub is the composition root: it starts the API server, feeds the tables from it, and
// runs Atoll's reconcilers and the gateway over them.
//
// Contract: Run returns when ctx ends and all is down, or with the error of the first component
// that failed, after it has stopped the others. Nothing is ordered of any member before the tables
// have their first lists and this start is in the chain. Several hubs on one etcd all serve the
// API and agents, and one leads: it alone decides. A hub that may have lost its lease decides
// nothing from that moment on, and Run ends with an error that reports it. A hub without contact
// to the store sends its agents to the others until it is back.
package hub

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics/legacyregistry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	crlog "sigs.k8s.io/controller-runtime/pkg/log"

	"atoll.dev/atoll/internal/addressguard"
	"atoll.dev/atoll/internal/apiserver"
	"atoll.dev/atoll/internal/apiserver/backup"
	"atoll.dev/atoll/internal/apiserver/bootstrap"
	"atoll.dev/atoll/internal/console"
	"atoll.dev/atoll/internal/console/issuer"
	"atoll.dev/atoll/internal/console/sharedcodes"
	"atoll.dev/atoll/internal/delivery"
	"atoll.dev/atoll/internal/delivery/listener"
	"atoll.dev/atoll/internal/hub/files"
	"atoll.dev/atoll/internal/hub/memory"
	"atoll.dev/atoll/internal/leader"
	"atoll.dev/atoll/internal/memberproxy"
	"atoll.dev/atoll/internal/restore/controller"
	"atoll.dev/atoll/internal/state"
	"atoll.dev/atoll/internal/tracing"
)

// stopTimeout bounds the graceful stop of the API server and etcd.
const stopTimeout = 20 * time.Second

// TakeoverTime is how long at most it takes another hub to lead when one vanishes.
const TakeoverTime = leader.TakeoverTime

// Options of a hub.
type Options struct {
	// API specifies where and how the API server runs. Its Admission, Handlers,
	// Storage and Groups are the hub's to set.
	API apiserver.Options
	// GatewayPort is where agents dial. 0 takes the port of the last start, which must be
	// free; at the first start 6444 when it is free, else a free one.
	GatewayPort int
	// GatewayTransport is the server of agents' connections: h2 or grpc. Default: h2.
	GatewayTransport string
	// WebSocketBind is HOST:PORT where load balancers reach the gateway in HTTP without TLS; ""
	// opens none. The agents' data through them is encrypted all the same.
	WebSocketBind string
	// GatewayAddress, HOST:PORT, is the address that agents dial; several by commas where several
	// hubs share one etcd. Default: the API server's advertise address and the gateway's port.
	GatewayAddress string
	// APIAddress, HOST:PORT, is the published address of the API, in ClusterProfiles; the same for
	// several hubs that share one etcd. Default: the API server's advertise address and its port.
	APIAddress string
	// AgentCertificateLifetime, from MinCertificateLifetime to MaxCertificateLifetime;
	// default DefaultAgentCertificateLifetime.
	AgentCertificateLifetime time.Duration
	// DefaultPlacement is where a new hub sends the objects that no policy and no annotation
	// places: None, All, ClusterSet/NAME or ClusterPlacement/NAME. It counts at the first start
	// only: later the HubSettings have it. Default None.
	DefaultPlacement string
	// PushAllowedCIDRs, SourceAllowedCIDRs, GateAllowedCIDRs and NotificationAllowedCIDRs are networks whose addresses the hub dials although it refuses
	// them otherwise. They are for members in push mode, for Repositories, for gates of rollouts, and for targets of Notifications. Default: none.
	PushAllowedCIDRs, SourceAllowedCIDRs, GateAllowedCIDRs, NotificationAllowedCIDRs []string
	// ProxyLimits of what people have under way at clusters through this hub. They have no
	// default here, so that an explicit 0 is refused.
	ProxyLimits memberproxy.RequestLimits
	// Console serves the web console at /console/ of the API's address. ConsoleSignIn is its sign-in by an issuer.
	Console       bool
	ConsoleSignIn issuer.Options
	// Tracing specifies where traces of changes go. Its Version, Log and Traceparent are the hub's to
	// set.
	Tracing tracing.Options
}

// DefaultAgentCertificateLifetime, and the bounds of all lifetimes of certificates.
const (
	DefaultAgentCertificateLifetime = delivery.DefaultCertificateLifetime

	MinCertificateLifetime = 30 * time.Second
	MaxCertificateLifetime = 5 * 365 * 24 * time.Hour
)

// validate refuses what cannot work.
func (o *Options) validate() error {
	for flag, d := range map[string]time.Duration{"--agent-certificate-lifetime": o.AgentCertificateLifetime, "--certificate-lifetime": o.API.CertificateLifetime} {
		if d != 0 && (d < MinCertificateLifetime || d > MaxCertificateLifetime) {
			return fmt.Errorf("%s is %s: it is from %s to %s", flag, d, MinCertificateLifetime, MaxCertificateLifetime)
		}
	}
	if _, err := bootstrap.ParseDefaultPlacement(o.DefaultPlacement); err != nil {
		return fmt.Errorf("--default-placement: %w", err)
	}
	for flag, networks := range map[string][]string{"--push-allowed-cidrs": o.PushAllowedCIDRs, "--source-allowed-cidrs": o.SourceAllowedCIDRs, "--gate-allowed-cidrs": o.GateAllowedCIDRs, "--notification-allowed-cidrs": o.NotificationAllowedCIDRs} {
		if _, err := addressguard.ParseNetworks(networks); err != nil {
			return fmt.Errorf("%s: %w", flag, err)
		}
	}
	if err := errors.Join(o.ConsoleSignIn.ValidateOptions(o.Console), o.Tracing.ValidateOptions()); err != nil {
		return err
	}
	if !slices.Contains([]string{"", delivery.AgentServerH2, delivery.AgentServerGRPC}, o.GatewayTransport) {
		return fmt.Errorf("--gateway-transport is %q: it is %s or %s", o.GatewayTransport, delivery.AgentServerH2, delivery.AgentServerGRPC)
	}
	return o.ProxyLimits.ValidateLimits()
}

// hub is a running hub.
type hub struct {
	options   Options
	log       *slog.Logger
	server    *apiserver.Server
	gateway   *listener.GatewayListener
	hooks     *apiHooks
	startTime time.Time
	tables    atomic.Pointer[state.HubTables] // nil until they are made
	traces    *tracing.Tracer                 // nil: tracing is off
	codes     sharedcodes.Store               // of the console, where hubs share an etcd
}

// countHoldings counts what the tables have.
func (h *hub) countHoldings() memory.Holdings {
	if st := h.tables.Load(); st != nil {
		return memory.Holdings{Clusters: st.Clusters.Len(), Bundles: st.Bundles.Len()}
	}
	return memory.Holdings{}
}

// RunHub runs a hub until ctx ends. On an embedded etcd it leads; on an external one it
// shares that with other hubs and stands for election.
func RunHub(ctx context.Context, o Options) error {
	if err := files.CheckOpenFileLimit(); err != nil {
		return err
	}
	if err := o.validate(); err != nil {
		return err
	}
	h := &hub{options: o, log: o.API.Logger, hooks: newAPIHooks(o.API.Logger, o.ProxyLimits), startTime: time.Now()}
	h.options.API.Admission, h.options.API.Handlers = h.hooks.admissionPlugins(), h.hooks.wrapWithHubEndpoints
	h.options.API.Authorize, h.options.API.Storage = h.hooks.wrapAuthorizer, h.hooks.fleetView.InstallStorage
	h.options.API.Groups = []*genericapiserver.APIGroupInfo{h.hooks.fleetView.MetricsAPIGroup()}
	h.options.API.NoControllers = h.sharesEtcd()
	if o.Console {
		front := console.Options{Log: h.log.With("component", "console"), SignIn: o.ConsoleSignIn, AuthenticationConfig: o.API.AuthenticationConfig}
		if h.sharesEtcd() { // each hub takes the one-time codes of all
			front.Codes = &h.codes
		}
		h.options.API.Front = console.NewFront(front)
	}
	h.options.API.Front = h.hooks.webhooks.WrapFront(h.options.API.Front)
	h.options.API.Metrics = legacyregistry.Registerer()
	crlog.SetLogger(logr.FromSlogHandler(h.log.With("component", "cache").Handler()))
	if err := h.registerMetrics(legacyregistry.Registerer()); err != nil {
		return fmt.Errorf("register the hub's metrics: %w", err)
	}
	err := h.startTracing(ctx)
	if err != nil {
		return err
	}
	defer h.traces.Shutdown(ctx)
	if h.server, err = apiserver.StartAPIServer(ctx, h.options.API); err != nil {
		return fmt.Errorf("start the hub's API server: %w", err)
	}
	defer stopServer(ctx, h.server, h.log)
	h.codes.SetClient(h.server.EtcdClient())
	if err := h.prepareAPIAndGateway(ctx); err != nil {
		return err
	}
	defer h.gateway.Close()
	group, gctx := errgroup.WithContext(ctx)
	group.Go(func() error { return waitServerEnd(gctx, h.server) })
	group.Go(func() error { return memory.RunGCTuner(gctx, h.countHoldings) })
	if h.sharesEtcd() {
		group.Go(func() error { return h.runWithPeers(gctx) })
	} else {
		group.Go(func() error { return h.runAlone(gctx) })
	}
	err = group.Wait()
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return nil
	}
	return err
}

// sharesEtcd reports whether several hubs may run on the etcd.
func (h *hub) sharesEtcd() bool { return len(h.options.API.EtcdServers) > 0 }

// prepareAPIAndGateway installs what the hub needs in its own API, and opens the gateway's port.
func (h *hub) prepareAPIAndGateway(ctx context.Context) error {
	c, err := client.New(typedClientConfig(h.server), client.Options{Scheme: state.NewScheme()})
	if err != nil {
		return fmt.Errorf("client of the hub's API: %w", err)
	}
	o := h.options
	byDefault, err := bootstrap.ParseDefaultPlacement(o.DefaultPlacement)
	if err != nil {
		return err
	}
	if err := bootstrap.InstallHubObjects(ctx, c, byDefault); err != nil {
		return err
	}
	h.gateway, err = listener.Open(listener.Options{
		DataDir: o.API.DataDir, BindAddress: o.API.BindAddress, Port: o.GatewayPort, AdvertiseHost: h.server.AdvertiseIP(), Address: o.GatewayAddress,
		WebSocketBind: o.WebSocketBind, ExtraSANs: o.API.ExtraSANs, CertificateLifetime: o.API.CertificateLifetime, Logger: h.log,
	}, h.server)
	return err
}

// runAlone decides and serves agents on an embedded etcd until ctx ends.
func (h *hub) runAlone(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	p, err := h.newComponents(ctx, haOptions{})
	if err != nil {
		return err
	}
	if err := h.recordLeadership(ctx, p); err != nil {
		return err
	}
	ready := make(chan struct{})
	group.Go(func() error { return p.state.Run(ctx, ready) })
	group.Go(func() error {
		select {
		case <-ctx.Done():
			return nil
		case <-ready:
		}
		h.hooks.setComponents(p)
		h.server.OnStoreSpaceLow(p.emitStoreFullEvent)
		h.logReady("the hub is ready")
		listener := h.gateway.TakeListener()
		return runAll(ctx, p.inventory.Run, p.restore.Run, p.runReconcilers, p.pushSupervisor.Run, p.followHubCAChanges, h.hooks.undo.Run, h.hooks.webhooks.Run,
			func(context.Context) error { return p.gateway.ServeAgents(listener) })
	})
	return group.Wait()
}

// runAll runs all until ctx ends or one fails.
func runAll(ctx context.Context, runs ...func(context.Context) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, run := range runs {
		group.Go(func() error { return run(ctx) })
	}
	return group.Wait()
}

func (h *hub) logReady(what string) {
	h.log.Info(what, "api", h.server.LocalAddress(), "gateway", h.gateway.AdvertisedAddress(), "kubeconfig", h.server.AdminKubeconfigPath(), "after", time.Since(h.startTime).Round(time.Millisecond))
}

// recordLeadership records that this hub begins to lead.
func (h *hub) recordLeadership(ctx context.Context, p *components) error {
	restored, err := backup.RestoreReason(h.options.API.DataDir)
	if err != nil {
		return err
	}
	started, err := controller.RecordHubStart(ctx, p.state.Client, h.server.EtcdClient(), restored, h.sharesEtcd())
	if err != nil {
		return err
	}
	if restored != "" {
		h.log.Warn("this hub was restored from a backup: it holds until an administrator decides with: atoll restore accept --hub|--members")
		if err := backup.RemoveRestoreMarker(h.options.API.DataDir); err != nil {
			return err
		}
	}
	p.state.Hub.Put(started)
	return nil
}

// typedClientConfig returns the configuration for typed clients, which choose the content type by kind: custom
// resources are JSON, built-in kinds are not.
func typedClientConfig(server *apiserver.Server) *rest.Config {
	cfg := server.LoopbackConfig()
	cfg.ContentType, cfg.AcceptContentTypes = "", ""
	return cfg
}

// waitServerEnd waits for the end of the API server.
func waitServerEnd(ctx context.Context, server *apiserver.Server) error {
	select {
	case <-ctx.Done():
		return nil
	case <-server.Done():
		if err := server.EndError(); err != nil {
			return err
		}
		return errors.New("the API server ended")
	}
}

func stopServer(ctx context.Context, server *apiserver.Server, log *slog.Logger) {
	sctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if err := server.Stop(sctx); err != nil {
		log.Error("the API server did not stop in time", "timeout", stopTimeout, "err", err)
	}
}
