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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/internal/apiserver"
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
	server, err := apiserver.Start(ctx, o.API)
	if err != nil {
		return fmt.Errorf("start the hub's API server: %w", err)
	}
	defer stop(ctx, server, log)
	c, err := client.New(server.LoopbackConfig(), client.Options{Scheme: state.Scheme()})
	if err != nil {
		return fmt.Errorf("client of the hub's API: %w", err)
	}
	if err := install(ctx, c); err != nil {
		return err
	}
	st, err := state.New(server.LoopbackConfig(), server.Keys().HubKey)
	if err != nil {
		return err
	}
	group, gctx := errgroup.WithContext(ctx)
	ready := make(chan struct{})
	group.Go(func() error { return st.Run(gctx, ready) })
	group.Go(func() error {
		select {
		case <-gctx.Done():
			return nil
		case <-server.Done():
			return server.Err()
		}
	})
	group.Go(func() error {
		select {
		case <-gctx.Done():
			return nil
		case <-ready:
		}
		log.Info("the hub is ready", "api", server.Address(), "kubeconfig", server.AdminKubeconfigPath(), "after", time.Since(began).Round(time.Millisecond))
		return nil
	})
	err = group.Wait()
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return nil
	}
	return err
}

func stop(ctx context.Context, server *apiserver.Server, log *slog.Logger) {
	sctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if err := server.Stop(sctx); err != nil {
		log.Error("the API server did not stop in time", "timeout", stopTimeout, "err", err)
	}
}
