// Package hub is the composition root: it starts the API server, feeds the tables
// from it, and runs Atoll's reconcilers and the gateway over them.
//
// Contract: Run returns when ctx ends and all is down, or with the error of the
// first part that failed, the others being stopped. Nothing is ordered of any
// member before the tables have their first lists and this start is in the chain.
package hub

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/internal/apiserver"
	"atoll.dev/atoll/internal/apiserver/backup"
	"atoll.dev/atoll/internal/state"
)

// stopTimeout bounds the graceful stop of the API server and etcd.
const stopTimeout = 20 * time.Second

// Options of a hub.
type Options struct {
	// API says where and how the API server runs. Its Admission and Handlers are
	// the hub's to set.
	API apiserver.Options
	// GatewayPort is where agents dial. 0 takes the port of the last start when it
	// is free, else 6444 when it is free, else a free one.
	GatewayPort int
	// GatewayAddress, HOST:PORT, is what agents are told to dial. Default: the API
	// server's advertise address and the gateway's port.
	GatewayAddress string
}

// Run runs a hub until ctx ends.
func Run(ctx context.Context, o Options) error {
	log := o.API.Logger
	began := time.Now()
	late := newLateParts()
	o.API.Admission = late.admission()
	o.API.Handlers = late.handlers
	server, err := apiserver.Start(ctx, o.API)
	if err != nil {
		return fmt.Errorf("start the hub's API server: %w", err)
	}
	defer stop(ctx, server, log)
	group, gctx := errgroup.WithContext(ctx)
	p, err := prepare(gctx, o, server)
	if err != nil {
		return err
	}
	ready := make(chan struct{})
	group.Go(func() error { return p.state.Run(gctx, ready) })
	group.Go(func() error { return watch(gctx, server) })
	group.Go(func() error {
		select {
		case <-gctx.Done():
			return nil
		case <-ready:
		}
		late.set(p)
		log.Info("the hub is ready", "api", server.Address(), "gateway", p.address, "kubeconfig", server.AdminKubeconfigPath(), "after", time.Since(began).Round(time.Millisecond))
		return p.run(gctx)
	})
	err = group.Wait()
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return nil
	}
	return err
}

// prepare installs what the hub needs in its own API, records this start, and makes
// all parts. Nothing runs yet.
func prepare(ctx context.Context, o Options, server *apiserver.Server) (*parts, error) {
	cfg := clientConfig(server)
	c, err := client.New(cfg, client.Options{Scheme: state.Scheme()})
	if err != nil {
		return nil, fmt.Errorf("client of the hub's API: %w", err)
	}
	if err := install(ctx, c); err != nil {
		return nil, err
	}
	restored, err := restoredFrom(o.API.DataDir)
	if err != nil {
		return nil, err
	}
	started, err := recordStart(ctx, c, server.EtcdClient(), restored)
	if err != nil {
		return nil, err
	}
	if restored != "" {
		o.API.Logger.Warn("this hub was restored from a backup: it holds until an administrator decides with: atoll restore accept --hub|--members")
		if err := backup.ClearMarker(o.API.DataDir); err != nil {
			return nil, err
		}
	}
	st, err := state.New(cfg, server.Keys().HubKey)
	if err != nil {
		return nil, err
	}
	st.Hub.Put(started)
	return newParts(ctx, o, server, st)
}

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
