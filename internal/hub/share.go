package hub

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/internal/hub/leader"
	"atoll.dev/atoll/internal/inventory"
	"atoll.dev/atoll/internal/peer"
	"atoll.dev/atoll/internal/state"
)

// togetherness is what parts need to serve beside other hubs. The zero value is that of
// the only hub.
type togetherness struct {
	tenure   *leader.Tenure
	presence *leader.Presence
	peers    *peer.Peers
	ready    *atomic.Bool // the tables have their first lists
	started  *atomic.Bool // this hub's own start is the chain's last link, or was
}

// share serves agents beside other hubs, and decides once elected, until ctx ends.
func (h *hub) share(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx) // the gateway's life, too
	e, err := leader.New(h.server.LoopbackConfig(), h.door.self, h.log.With("component", "leader"))
	if err != nil {
		return err
	}
	var p *parts // presence looks only once parts run
	t := togetherness{tenure: e.Tenure(), ready: &atomic.Bool{}, started: &atomic.Bool{}}
	t.presence = leader.NewPresence(func(ctx context.Context) (int64, bool, error) { return sight(ctx, p.state) }, h.log.With("component", "leader"))
	if t.peers, err = h.newPeers(t.presence, &p); err != nil {
		return err
	}
	if p, err = h.newParts(ctx, t); err != nil {
		return err
	}
	listener := h.door.open()
	ready := make(chan struct{})
	following, stopFollowing := context.WithCancel(ctx)
	defer stopFollowing()
	followed := make(chan struct{})
	for _, run := range []func(context.Context) error{
		func(ctx context.Context) error { return p.state.Run(ctx, ready) },
		func(context.Context) error { return p.gateway.Serve(listener) },
		t.peers.Run, p.inventory.Run, p.rewinds.run, p.balance,
		func(ctx context.Context) error { return h.door.credentials.follow(ctx, p) },
		func(ctx context.Context) error { return t.presence.Run(ctx, p.turned) },
		func(ctx context.Context) error {
			select {
			case <-ctx.Done():
				return nil
			case <-ready:
				return p.pushShare(ctx)
			}
		},
		func(context.Context) error {
			defer close(followed)
			return h.follow(following, p, ready)
		},
		func(ctx context.Context) error {
			return e.Run(ctx, func(ctx context.Context) error {
				return h.lead(ctx, p, ready, func() { stopFollowing(); <-followed })
			})
		},
	} {
		group.Go(func() error { return run(ctx) })
	}
	return group.Wait()
}

// follow lets admission know who places what, until ctx ends.
func (h *hub) follow(ctx context.Context, p *parts, ready <-chan struct{}) error {
	select {
	case <-ctx.Done():
		return nil
	case <-ready:
	}
	p.ready.Store(true)
	h.publish(p)
	h.said("the hub is ready and follows")
	return p.bind.Run(ctx)
}

// lead decides over the tables that this hub has served agents from, once they are as
// new as its election. stopFollowing returns when nothing of the follower runs.
func (h *hub) lead(ctx context.Context, p *parts, ready <-chan struct{}, stopFollowing func()) error {
	return together(ctx, h.server.RunControllers, func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return nil
		case <-ready:
		}
		if err := h.begin(ctx, p); err != nil {
			return err
		}
		p.started.Store(true)
		elected := time.Now()
		if err := p.state.CatchUp(ctx); err != nil {
			return err
		}
		h.log.Info("the tables are as new as the election", "after", time.Since(elected).Round(time.Millisecond))
		stopFollowing()
		leading := p.leading()
		h.publish(leading)
		h.said("the hub is ready and leads")
		return leading.decide(ctx)
	})
}

// sight is what the store says now, and whether the table shows its starts so.
func sight(ctx context.Context, st *state.State) (revision int64, known bool, err error) {
	var list enginev1.HubStateList
	if err := st.Client.List(ctx, &list); err != nil {
		return 0, false, fmt.Errorf("look at the hub's state: %w", err)
	}
	if revision, err = strconv.ParseInt(list.ResourceVersion, 10, 64); err != nil {
		return 0, false, fmt.Errorf("look at the hub's state: %w", err)
	}
	has := st.Hub.Get()
	for i := range list.Items {
		if list.Items[i].Name == state.HubName {
			return revision, has != nil && has.ResourceVersion == list.Items[i].ResourceVersion, nil
		}
	}
	return revision, false, nil
}

// newPeers joins this hub's gateway with those of others. p is set before they run.
func (h *hub) newPeers(presence *leader.Presence, p **parts) (*peer.Peers, error) {
	kube, err := kubernetes.NewForConfig(presence.Fenced(h.server.LoopbackConfig()))
	if err != nil {
		return nil, fmt.Errorf("client of the hubs' leases: %w", err)
	}
	return peer.New(peer.Options{
		Address:       h.door.self,
		Leases:        kube.CoordinationV1().Leases(metav1.NamespaceSystem),
		Client:        h.door.credentials.toHub,
		Changed:       func(uid string, here, elsewhere bool, heard time.Time) { (*p).held(uid, here, elsewhere, heard) },
		Ahead:         func(bundle, cluster string, generation int64) { (*p).aheadElsewhere(bundle, cluster, generation) },
		Serves:        func() bool { return (*p).serves() },
		Supersede:     func(uid, hub string) { (*p).gateway.Supersede(uid, hub) },
		Dial:          func(ctx context.Context, uid string) (net.Conn, error) { return (*p).gateway.Dial(ctx, uid) },
		CertificateOf: func(uid string) (time.Time, int, bool) { return (*p).inventory.CertificateOf(uid) },
		Certificate: func(uid string, ends time.Time, generation int) {
			(*p).inventory.CertificateElsewhere(uid, ends, generation)
		},
		CarriageOf: func(uid string) string { return (*p).inventory.CarriageOf(uid) },
		Carriage:   func(uid, how string) { (*p).inventory.Carriage(uid, how) },
		Log:        h.log.With("component", "peer"),
	}, rand.Text()[:8]), nil
}

// held tells the tables who holds a cluster's stream.
func (p *parts) held(uid string, here, elsewhere bool, heard time.Time) {
	p.state.Clusters.SetOnline(uid, here || elsewhere)
	p.inventory.Elsewhere(uid, elsewhere, heard)
}

// aheadElsewhere: another hub's agent holds a higher generation than that hub's table
// has. That table may have been behind.
func (p *parts) aheadElsewhere(bundle, cluster string, generation int64) {
	row, ok := p.state.Rows.Get(bundle, cluster)
	if p.leads() && ok && row.Spec.Generation < generation {
		p.rewinds.onAhead(bundle, cluster, generation)
	}
}

// streams is the table of Clusters as the gateway sees it: what it says of streams goes
// to the other hubs, too.
type streams struct {
	*state.Clusters
	peers *peer.Peers
}

// SetOnline tells that a stream came to this hub; that one went, members say.
func (s streams) SetOnline(uid string, on bool) {
	if on {
		s.peers.Up(uid)
	}
}

// members is the inventory as the gateway sees it.
type members struct {
	*inventory.Reconciler
	peers *peer.Peers
}

// StreamDown tells that a stream of this hub went.
func (m members) StreamDown(uid string, heard time.Time) {
	m.peers.Down(uid, heard)
	m.Reconciler.StreamDown(uid, heard)
}

// Certificate tells the other hubs, too, that an agent has another certificate.
func (m members) Certificate(uid string, ends time.Time, generation int, overdue bool) {
	m.Reconciler.Certificate(uid, ends, generation, overdue)
	m.peers.Renewed(uid)
}

// serves tells whether this hub's gateway may serve. While all hold after a restore,
// or ask members what they remember, the one does that settles it.
func (p *parts) serves() bool {
	st := p.state.Hub.Get()
	if !p.ready.Load() || !p.presence.Holds() || st == nil {
		return false
	}
	_, holding := p.state.Hub.Holding()
	return p.tenure.Leads() || !holding && !p.rewinds.recalling()
}

// behind tells whether the table of rows surely does not show all up to the revision.
func (p *parts) behind(revision int64) bool { return p.state.Rows.Revision() < revision }

// turned: the hub came in touch with the store, or lost it.
func (p *parts) turned(holds bool) {
	if holds {
		p.log.Info("in touch with the store: agents are served")
		return
	}
	p.log.Error("out of touch with the store, or behind it: this hub's agents are sent to the other hubs until it is back", "after", slog.DurationValue(leader.OutOfTouch))
	p.gateway.CutOff()
}
