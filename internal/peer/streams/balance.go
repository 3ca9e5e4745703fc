package streams

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"atoll.dev/atoll/internal/peer"
	"atoll.dev/atoll/internal/session"
)

// Return of streams to a restarted hub
//
// Agents of a stopped hub connect to the other hubs, and have no reason to return. So a hub that
// has clearly more streams than its share sends some of its agents each second to another hub. They move
// to hubs with fewer streams, first of all the agents that prefer these hubs. A moving agent is
// without a stream for the moment of a handshake. No component is informed, and nothing is
// written.

const (
	balanceInterval = time.Second
	// redirectBatch is how many agents a hub moves each time. The hub that they go to has one
	// handshake for each, and every other hub may send as many.
	redirectBatch = 50
)

// Surplus is the number of streams above this hub's share, and the hubs with fewer.
type Surplus interface {
	SurplusStreams(moving bool) (surplus int, rooms []peer.StreamDeficit)
}

// Agents is the gateway of this hub.
type Agents interface {
	MoveAgents(n int, hub string, first func(cluster string) bool) (asked int)
}

// StreamBalancer sends agents to other hubs while this hub has more than its share.
type StreamBalancer struct {
	Surplus Surplus
	Agents  Agents
	// IsServing reports whether this hub serves agents now.
	IsServing func() bool
	// Hubs are the addresses of all hubs, by commas, as agents dial them.
	Hubs string
	Log  *slog.Logger

	moving bool
}

// Run balances until ctx ends.
func (b *StreamBalancer) Run(ctx context.Context) error {
	tick := time.NewTicker(balanceInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			b.moveSurplus()
		}
	}
}

// moveSurplus moves one batch of agents.
func (b *StreamBalancer) moveSurplus() {
	surplus, rooms := b.Surplus.SurplusStreams(b.moving)
	if surplus == 0 || !b.IsServing() {
		b.moving = false
		return
	}
	if !b.moving {
		b.moving = true
		b.Log.Info("this hub has more agents than its share: it sends some on to hubs that have fewer", "surplus", surplus)
	}
	left := min(surplus, redirectBatch)
	for _, r := range rooms {
		left -= b.Agents.MoveAgents(min(left, r.Streams), r.Address, b.prefersHub(r.Address))
	}
}

// prefersHub returns a function that reports whether the agent of a cluster prefers the hub.
func (b *StreamBalancer) prefersHub(hub string) func(cluster string) bool {
	hubs := strings.Split(b.Hubs, ",")
	return func(cluster string) bool { return session.OrderHubs(cluster, hubs)[0] == hub }
}
