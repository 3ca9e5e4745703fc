// Package hub is the composition root: it starts the API server, feeds the tables
// from it, and runs Atoll's reconcilers and the gateway over them.
//
// Contract: Run returns when ctx ends and all is down, or with the error of the
// first part that failed, the others being stopped. Nothing is ordered of any
// member before the tables have their first lists and this start is in the chain.
// Of several hubs on one etcd all serve the API and agents, and one leads: it alone
// decides. A hub that may have lost its lease decides nothing from that moment on, and
// Run ends with an error that says so; one that is out of touch with the store sends
// its agents to the others until it is back.
package hub

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics/legacyregistry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	crlog "sigs.k8s.io/controller-runtime/pkg/log"

	"atoll.dev/atoll/internal/apiserver"
	"atoll.dev/atoll/internal/apiserver/backup"
	"atoll.dev/atoll/internal/gateway"
	"atoll.dev/atoll/internal/hub/files"
	"atoll.dev/atoll/internal/hub/leader"
	"atoll.dev/atoll/internal/hub/memory"
	"atoll.dev/atoll/internal/hub/reach"
	"atoll.dev/atoll/internal/state"
)

// stopTimeout bounds the graceful stop of the API server and etcd.
const stopTimeout = 20 * time.Second

// Takeover is how long at most it takes another hub to lead when one vanishes.
const Takeover = leader.Takeover

// Options of a hub.
type Options struct {
	// API says where and how the API server runs. Its Admission, Handlers,
	// Storage and Groups are the hub's to set.
	API apiserver.Options
	// GatewayPort is where agents dial. 0 takes the port of the last start when it
	// is free, else 6444 when it is free, else a free one.
	GatewayPort int
	// WebSocketBind is HOST:PORT where load balancers reach the gateway in HTTP without
	// TLS; "" opens none. What agents say through them is encrypted all the same.
	WebSocketBind string
	// GatewayAddress, HOST:PORT, is what agents are told to dial; several by commas
	// where several hubs share one etcd. Default: the API server's advertise address
	// and the gateway's port.
	GatewayAddress string
	// APIAddress, HOST:PORT, is where others are told to reach the API, in ClusterProfiles; the
	// same for several hubs that share one etcd. Default: the API server's advertise address
	// and its port.
	APIAddress string
	// AgentCertificateLifetime, from MinCertificateLifetime to MaxCertificateLifetime;
	// default DefaultAgentCertificateLifetime.
	AgentCertificateLifetime time.Duration
	// ProxyLimits of what people have under way at clusters through this hub. They have no
	// default here, so that a 0 that was asked for is refused.
	ProxyLimits reach.Limits
}

// DefaultAgentCertificateLifetime, and the bounds of all lifetimes of certificates.
const (
	DefaultAgentCertificateLifetime = gateway.DefaultCertificateLifetime

	MinCertificateLifetime = 30 * time.Second
	MaxCertificateLifetime = 5 * 365 * 24 * time.Hour
)

// complete refuses what cannot work.
func (o *Options) complete() error {
	for flag, d := range map[string]time.Duration{"--agent-certificate-lifetime": o.AgentCertificateLifetime, "--certificate-lifetime": o.API.CertificateLifetime} {
		if d != 0 && (d < MinCertificateLifetime || d > MaxCertificateLifetime) {
			return fmt.Errorf("%s is %s: it is from %s to %s", flag, d, MinCertificateLifetime, MaxCertificateLifetime)
		}
	}
	return o.ProxyLimits.Check()
}

// hub is a running hub.
type hub struct {
	o      Options
	log    *slog.Logger
	server *apiserver.Server
	door   *door
	late   *lateParts
	began  time.Time
	tables atomic.Pointer[state.State] // nil until they are made
}

// holds counts what the tables have.
func (h *hub) holds() memory.Holdings {
	if st := h.tables.Load(); st != nil {
		return memory.Holdings{Clusters: st.Clusters.Len(), Bundles: st.Bundles.Len()}
	}
	return memory.Holdings{}
}

// Run runs a hub until ctx ends. On an embedded etcd it leads; on an external one it
// shares that with other hubs and stands for election.
func Run(ctx context.Context, o Options) error {
	if err := files.Enough(); err != nil {
		return err
	}
	if err := o.complete(); err != nil {
		return err
	}
	h := &hub{o: o, log: o.API.Logger, late: newLateParts(o.API.Logger, o.ProxyLimits), began: time.Now()}
	h.o.API.Admission, h.o.API.Handlers = h.late.admission(), h.late.handlers
	h.o.API.Authorize, h.o.API.Storage = h.late.authorize, h.late.fleet.Install
	h.o.API.Groups = []*genericapiserver.APIGroupInfo{h.late.fleet.Usage()}
	h.o.API.NoControllers = h.several()
	h.o.API.Metrics = legacyregistry.Registerer()
	crlog.SetLogger(logr.FromSlogHandler(h.log.With("component", "cache").Handler()))
	if err := h.registerMetrics(legacyregistry.Registerer()); err != nil {
		return fmt.Errorf("register the hub's metrics: %w", err)
	}
	var err error
	if h.server, err = apiserver.Start(ctx, h.o.API); err != nil {
		return fmt.Errorf("start the hub's API server: %w", err)
	}
	defer stop(ctx, h.server, h.log)
	if err := h.prepare(ctx); err != nil {
		return err
	}
	defer h.door.close()
	group, gctx := errgroup.WithContext(ctx)
	group.Go(func() error { return watch(gctx, h.server) })
	group.Go(func() error { return memory.Keep(gctx, h.holds) })
	if h.several() {
		group.Go(func() error { return h.share(gctx) })
	} else {
		group.Go(func() error { return h.alone(gctx) })
	}
	err = group.Wait()
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return nil
	}
	return err
}

// several hubs may run on the etcd.
func (h *hub) several() bool { return len(h.o.API.EtcdServers) > 0 }

// prepare installs what the hub needs in its own API, and opens the gateway's port.
func (h *hub) prepare(ctx context.Context) error {
	c, err := client.New(clientConfig(h.server), client.Options{Scheme: state.Scheme()})
	if err != nil {
		return fmt.Errorf("client of the hub's API: %w", err)
	}
	if err := install(ctx, c); err != nil {
		return err
	}
	h.door, err = newDoor(h.o, h.server)
	return err
}

// alone decides and serves agents on an embedded etcd until ctx ends.
func (h *hub) alone(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	p, err := h.newParts(ctx, togetherness{})
	if err != nil {
		return err
	}
	if err := h.begin(ctx, p); err != nil {
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
		h.publish(p)
		h.said("the hub is ready")
		listener := h.door.open()
		return together(ctx, p.inventory.Run, p.rewinds.run, p.decide, p.push.Run,
			func(ctx context.Context) error { return h.door.credentials.follow(ctx, p) },
			func(context.Context) error { return p.gateway.Serve(listener) })
	})
	return group.Wait()
}

// together runs all until ctx ends or one fails.
func together(ctx context.Context, runs ...func(context.Context) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, run := range runs {
		group.Go(func() error { return run(ctx) })
	}
	return group.Wait()
}

func (h *hub) said(what string) {
	h.log.Info(what, "api", h.server.Address(), "gateway", h.door.address, "kubeconfig", h.server.AdminKubeconfigPath(), "after", time.Since(h.began).Round(time.Millisecond))
}

// begin records that this hub begins to lead.
func (h *hub) begin(ctx context.Context, p *parts) error {
	restored, err := restoredFrom(h.o.API.DataDir)
	if err != nil {
		return err
	}
	started, err := recordStart(ctx, p.state.Client, h.server.EtcdClient(), restored, h.several())
	if err != nil {
		return err
	}
	if restored != "" {
		h.log.Warn("this hub was restored from a backup: it holds until an administrator decides with: atoll restore accept --hub|--members")
		if err := backup.ClearMarker(h.o.API.DataDir); err != nil {
			return err
		}
	}
	p.state.Hub.Put(started)
	return nil
}

// publish the parts to admission and the API's endpoints.
func (h *hub) publish(p *parts) { h.late.set(p) }

// clientConfig for typed clients, which choose the content type by kind: custom
// resources are JSON, built-in kinds are not.
func clientConfig(server *apiserver.Server) *rest.Config {
	cfg := server.LoopbackConfig()
	cfg.ContentType, cfg.AcceptContentTypes = "", ""
	return cfg
}

// restoredFrom says from what the data directory was restored; empty: it was not.
func restoredFrom(dataDir string) (string, error) {
	m, err := backup.ReadMarker(dataDir)
	if err != nil || m == nil {
		return "", err
	}
	return fmt.Sprintf("the hub was restored at %s from the backup of %s", m.Time.Format(time.RFC3339), m.BackupTime.Format(time.RFC3339)), nil
}

// watch for the end of the API server.
func watch(ctx context.Context, server *apiserver.Server) error {
	select {
	case <-ctx.Done():
		return nil
	case <-server.Done():
		if err := server.Err(); err != nil {
			return err
		}
		return errors.New("the API server ended")
	}
}

func stop(ctx context.Context, server *apiserver.Server, log *slog.Logger) {
	sctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if err := server.Stop(sctx); err != nil {
		log.Error("the API server did not stop in time", "timeout", stopTimeout, "err", err)
	}
}
