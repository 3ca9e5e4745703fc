package hub

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"atoll.dev/atoll/internal/leader"
	"atoll.dev/atoll/internal/peer"
	"atoll.dev/atoll/internal/peer/streams"
)

// haOptions is what parts need to serve beside other hubs. The zero value is that of
// the only hub.
type haOptions struct {
	tenure        *leader.Tenure
	presence      *leader.StoreContact
	peers         *peer.HubPeers
	tablesReady   *atomic.Bool // the tables have their first lists
	startRecorded *atomic.Bool // this hub's own start is the chain's last link, or was
}

// runWithPeers serves agents beside other hubs, and decides once elected, until ctx ends.
func (h *hub) runWithPeers(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx) // the gateway's life, too
	e, err := leader.NewElection(h.server.LoopbackConfig(), h.gateway.SelfAddress(), h.log.With("component", "leader"))
	if err != nil {
		return err
	}
	var p *components // presence looks only once parts run
	t := haOptions{tenure: e.OwnTenure(), tablesReady: &atomic.Bool{}, startRecorded: &atomic.Bool{}}
	t.presence = leader.NewStoreContact(func(ctx context.Context) (int64, bool, error) { return p.state.CompareHubState(ctx) }, h.log.With("component", "leader"))
	if t.peers, err = h.newPeers(t.presence); err != nil {
		return err
	}
	if p, err = h.newComponents(ctx, t); err != nil {
		return err
	}
	t.peers.Attach(p, p.inventory, p.gateway)
	balancer := &streams.StreamBalancer{Surplus: t.peers, Agents: p.gateway, IsServing: p.IsServing, Hubs: h.gateway.AdvertisedAddress(), Log: h.log}
	listener := h.gateway.TakeListener()
	ready := make(chan struct{})
	following, stopFollowing := context.WithCancel(ctx)
	defer stopFollowing()
	followed := make(chan struct{})
	for _, run := range []func(context.Context) error{
		func(ctx context.Context) error { return p.state.Run(ctx, ready) },
		func(context.Context) error { return p.gateway.ServeAgents(listener) },
		t.peers.Run, p.inventory.Run, p.restore.Run, balancer.Run, p.followHubCAChanges,
		func(ctx context.Context) error { return t.presence.Run(ctx, p.onStoreContactChange) },
		func(ctx context.Context) error {
			select {
			case <-ctx.Done():
				return nil
			case <-ready:
				return runAll(ctx, p.pushSupervisor.Run, h.hooks.undo.Run, h.hooks.webhooks.Run, func(ctx context.Context) error { return p.pushSupervisor.FollowServingHubs(ctx, t.peers, 2*peer.Grace) })
			}
		},
		func(context.Context) error {
			defer close(followed)
			return h.runFollower(following, p, ready)
		},
		func(ctx context.Context) error {
			return e.Run(ctx, func(ctx context.Context) error {
				return h.runLeader(ctx, p, ready, func() { stopFollowing(); <-followed })
			})
		},
	} {
		group.Go(func() error { return run(ctx) })
	}
	return group.Wait()
}

// runFollower serves as a follower once ready closes: it publishes the components and runs the
// read-only binder until ctx ends.
func (h *hub) runFollower(ctx context.Context, p *components, ready <-chan struct{}) error {
	select {
	case <-ctx.Done():
		return nil
	case <-ready:
	}
	p.tablesReady.Store(true)
	h.hooks.setComponents(p)
	h.logReady("the hub is ready and follows")
	return p.binder.Run(ctx)
}

// runLeader decides over the tables that this hub has served agents from, once they are as
// new as its election. stopFollowing returns when nothing of the follower runs.
func (h *hub) runLeader(ctx context.Context, p *components, ready <-chan struct{}, stopFollowing func()) error {
	return runAll(ctx, h.server.RunControllers, func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return nil
		case <-ready:
		}
		if err := h.recordLeadership(ctx, p); err != nil {
			return err
		}
		p.startRecorded.Store(true)
		elected := time.Now()
		if err := p.state.CatchUp(ctx); err != nil {
			return err
		}
		h.log.Info("the tables are as new as the election", "after", time.Since(elected).Round(time.Millisecond))
		stopFollowing()
		leading := p.asLeader()
		h.hooks.setComponents(leading)
		h.server.OnStoreSpaceLow(leading.emitStoreFullEvent) // once, because a hub leads at most once
		h.logReady("the hub is ready and leads")
		return leading.runReconcilers(ctx)
	})
}

// newPeers finds the gateways of other hubs.
func (h *hub) newPeers(presence *leader.StoreContact) (*peer.HubPeers, error) {
	kube, err := kubernetes.NewForConfig(presence.FencedConfig(h.server.LoopbackConfig()))
	if err != nil {
		return nil, fmt.Errorf("client of the hubs' leases: %w", err)
	}
	return peer.New(peer.Options{
		Address: h.gateway.SelfAddress(),
		Leases:  kube.CoordinationV1().Leases(metav1.NamespaceSystem),
		Client:  h.gateway.PeerTLSConfig,
		Log:     h.log.With("component", "peer"),
	}, rand.Text()[:8]), nil
}

// UpdateStreamHolder records the holder of a cluster's stream in the tables.
func (p *components) UpdateStreamHolder(uid string, here, elsewhere bool, heard time.Time) {
	p.state.Clusters.SetOnline(uid, here || elsewhere)
	p.inventory.SetRemoteStream(uid, elsewhere, heard)
}

// RaiseRowGeneration raises a row that another hub's agent holds at a higher generation than that
// hub's table, which may be behind.
func (p *components) RaiseRowGeneration(bundle, cluster string, generation int64) {
	row, ok := p.state.Rows.Get(bundle, cluster)
	if p.IsLeader() && ok && row.Spec.Generation < generation {
		p.restore.OnRowAhead(bundle, cluster, generation)
	}
}

// IsServing reports whether this hub's gateway may serve. While all hold after a restore, or
// request the recorded removals of members, only the leading hub serves.
func (p *components) IsServing() bool {
	st := p.state.Hub.Get()
	if !p.tablesReady.Load() || !p.presence.IsInTouch() || st == nil {
		return false
	}
	_, holding := p.state.Hub.HoldReason()
	return p.tenure.IsLeading() || !holding && !p.restore.IsRecalling()
}

// AreRowsBehind reports whether the table of rows surely does not show all up to the revision.
func (p *components) AreRowsBehind(revision int64) bool {
	return p.state.Rows.HighestResourceVersion() < revision
}

// onStoreContactChange: the hub came in touch with the store, or lost it.
func (p *components) onStoreContactChange(holds bool) {
	if holds {
		p.log.Info("in touch with the store: agents are served")
		return
	}
	p.log.Error("out of touch with the store, or behind it: this hub's agents are sent to the other hubs until it is back", "after", slog.DurationValue(leader.OutOfTouchAfter))
	p.gateway.EndSessions()
}
