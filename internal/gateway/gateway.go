// Package gateway is the hub's side of agents: their registration, their streams,
// what goes down them and what comes up.
//
// Contract: one session per cluster, the newest wins. An agent speaks only for the
// Cluster whose UID its certificate carries, and only while that Cluster exists, is
// accepted and knows the certificate's key; the check is made again whenever the
// Cluster changes, and failing it ends the stream at once. Down a stream goes what
// the cluster's rows say when it is sent, the latest only: queues hold names of
// bundles, never content, so that they are bounded by the rows. Equal content is
// rendered and encoded once whatever the number of clusters. A report is
// acknowledged only after its write; reports of one bundle that come at about the
// same time are one write per slice. While the hub holds after a restore nothing
// is ordered.
//
// Certificates of agents are renewed on their streams, when they ask or when the CAs have
// changed, for the keys that they have shown; nothing of that is written.
//
// A Gateway is safe for concurrent use. Callbacks in Options are called from
// streams and must not block.
package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	certificates "k8s.io/client-go/kubernetes/typed/certificates/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/session"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/state"
)

// Clusters is the table of members.
type Clusters interface {
	Get(name string) (*v1alpha1.Cluster, bool)
	ByUID(uid string) (*v1alpha1.Cluster, bool)
	SetOnline(uid string, on bool)
	Subscribe(fn func(name string))
}

// Rows is the table of what clusters are to hold.
type Rows interface {
	OfCluster(uid string) []state.Row
	Get(bundleUID, cluster string) (state.Row, bool)
	Subscribe(fn func(bundleUID string, clusters []string))
	WriteStatuses(ctx context.Context, bundleUID string, reports map[string]atoll.RowStatus) error
}

// Inventory takes what streams tell about members.
type Inventory interface {
	// StreamUp tells how the agent's connection comes: CarriageTLS or CarriageWebSocket.
	StreamUp(uid, carriage string)
	// StreamDown tells when the agent was heard of last.
	StreamDown(uid string, heard time.Time)
	Observe(uid string, inventory *pb.Inventory)
	// APIsKnown tells whether the hub has the list of that hash.
	APIsKnown(ctx context.Context, hash string) (bool, error)
	// Certificate tells of the newest certificate of an agent whose stream is here: when
	// it ends, the generation of the CA that signed it, and whether it should have been
	// renewed long since.
	Certificate(uid string, ends time.Time, generation int, overdue bool)
	// Unclaimed names the bundles that the member holds and no row asks for.
	Unclaimed(uid string, bundles []string)
}

// DefaultCertificateLifetime is how long agents' certificates live.
const DefaultCertificateLifetime = 24 * time.Hour

// Options of a Gateway. Those without a default are required.
type Options struct {
	Clusters  Clusters
	Rows      Rows
	Inventory Inventory
	// Render gives what the row's cluster is to hold, objects included. It is
	// called for one of many rows that share revision, variant, assigned replicas,
	// phase and RenderSalt, so nothing else of the row may enter the manifest.
	Render func(ctx context.Context, row state.Row) (atoll.Manifest, error)
	// RenderSalt names what else Render looks at, such as a namespace's labels; rows
	// of unequal salt are rendered apart. Default: nothing.
	RenderSalt func(row state.Row) string
	// Client writes Clusters and join tokens; it must not read from a cache.
	Client client.Client
	// Requests are the hub's certificate requests.
	Requests certificates.CertificateSigningRequestInterface

	// Trust is by whom the hub and agents know each other now. It is asked often; tell
	// TrustChanged when it gives another.
	Trust func() *Trust
	// HubKey authenticates positions and seals agents' keys.
	HubKey []byte

	// Position of the hub's store now.
	Position func() (chainID string, revision int64)
	// HubState as it is; nil before the first start was written.
	HubState func() *enginev1.HubState
	// OnRewind is told, once until Reset, why the store is known to be set back.
	// From then until Reset the gateway holds by itself.
	OnRewind func(reason string)
	// OnAhead is told that a cluster holds a generation above its row's, so that
	// the row must be raised above it.
	OnAhead func(bundle, cluster string, generation int64)
	// Recalling tells whether an agent is asked what it remembers of removals, and
	// the answer settled, before anything is ordered of it.
	Recalling func() bool
	// OnRemembered gets what an agent remembers of removals. Agents are asked for it
	// when a session begins while the gateway holds, or is Recalling.
	OnRemembered func(Remembered)

	// Plain is where load balancers that speak HTTP without TLS reach the gateway, which
	// closes it; nil: nowhere.
	Plain net.Listener
	// OnLeft is told that the agent of a cluster that leaves the fleet holds nothing any
	// more, and what stays there although it should have gone. It forgets the Cluster, if
	// that is still as it is given. It may block.
	OnLeft func(ctx context.Context, c *v1alpha1.Cluster, behind []string) error
	// OnLeaving is told what keeps the agent of such a cluster from letting go of its member,
	// and since when by its clock; "": nothing does any more. It may block.
	OnLeaving func(ctx context.Context, c *v1alpha1.Cluster, waits string, since time.Time) error

	// Several hubs' gateways serve; default: this one only.
	Several Several
	// Version of the hub.
	Version string
	Logger  *slog.Logger
	// Metrics are registered here; default: nowhere.
	Metrics prometheus.Registerer

	// CertificateLifetime of agents, who renew at half of it; default
	// DefaultCertificateLifetime.
	CertificateLifetime time.Duration
	// Tell is told what the hub's administrator should know about a Cluster. It must not
	// block. Default: only the log is.
	Tell func(c *v1alpha1.Cluster, reason, message string)
	// MaxResyncs is how many agents compare at a time; default 64.
	MaxResyncs int
	// CacheBytes of rendered content; default 64 MiB.
	CacheBytes int
	// FlushAfter the first report of a bundle that matters; default 100 ms.
	FlushAfter time.Duration
	// QuietInterval between writes of a row while only its health flaps; default 15 s.
	QuietInterval time.Duration
	// JoinWait is how long a Join waits for acceptance; default 55 s.
	JoinWait time.Duration
	// TunnelIdle is how long nothing may be said on a tunnel; default 4 h, as kubelets have it.
	TunnelIdle time.Duration
}

func (o *Options) complete() error {
	for name, missing := range map[string]bool{
		"Clusters": o.Clusters == nil, "Rows": o.Rows == nil, "Inventory": o.Inventory == nil, "Render": o.Render == nil,
		"Client": o.Client == nil, "Requests": o.Requests == nil, "Trust": o.Trust == nil || !o.Trust().complete(), "HubKey": len(o.HubKey) == 0, "Position": o.Position == nil,
		"HubState": o.HubState == nil, "OnRewind": o.OnRewind == nil, "OnAhead": o.OnAhead == nil,
		"OnLeft": o.OnLeft == nil, "OnLeaving": o.OnLeaving == nil, "Recalling": o.Recalling == nil, "OnRemembered": o.OnRemembered == nil, "Logger": o.Logger == nil,
	} {
		if missing {
			return fmt.Errorf("gateway: option %s is missing", name)
		}
	}
	if o.Tell == nil {
		o.Tell = func(*v1alpha1.Cluster, string, string) {}
	}
	orDefault(&o.CertificateLifetime, DefaultCertificateLifetime)
	orDefault(&o.MaxResyncs, 64)
	orDefault(&o.CacheBytes, 64<<20)
	orDefault(&o.FlushAfter, 100*time.Millisecond)
	orDefault(&o.QuietInterval, 15*time.Second)
	orDefault(&o.JoinWait, 55*time.Second)
	orDefault(&o.TunnelIdle, 4*time.Hour)
	return nil
}

func orDefault[T int | time.Duration](v *T, def T) {
	if *v <= 0 {
		*v = def
	}
}

// Gateway serves agents. Make it with New.
type Gateway struct {
	pb.UnimplementedSessionServer
	pb.UnimplementedRegistrationServer
	pb.UnimplementedTunnelServer

	o        Options
	log      *slog.Logger
	metrics  *metrics
	parcels  *parcels
	reports  *reports
	tokens   *tokenDesk
	waiters  *waiters
	approved *approved
	resyncs  chan struct{}

	running context.Context // of Run; streams and writes end with it
	suspect atomic.Bool     // a rewind was found and not settled yet
	highest atomic.Int64

	sessions *sessions
	warned   warned

	certificates *expiries
	trustChanged chan struct{} // capacity 1
}

// New makes a Gateway. ctx is its life: nothing of it outlives ctx.
func New(ctx context.Context, o Options) (*Gateway, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	g := &Gateway{
		o: o, log: o.Logger, running: ctx, metrics: newMetrics(o.Metrics),
		waiters: newWaiters(), approved: newApproved(), resyncs: make(chan struct{}, o.MaxResyncs),
		sessions: newSessions(), certificates: newExpiries(o.Inventory.Certificate), trustChanged: make(chan struct{}, 1),
	}
	g.metrics.ofCertificates(o.Metrics, g.certificates.summary)
	g.parcels = newParcels(ctx, o, g.metrics)
	g.reports = newReports(ctx, reportOptions{
		rows: o.Rows, flushAfter: o.FlushAfter, quiet: o.QuietInterval, stored: g.stored, log: o.Logger, metrics: g.metrics,
	})
	g.tokens = newTokenDesk(ctx, o.Client, o.Logger)
	o.Rows.Subscribe(g.rowsChanged)
	o.Clusters.Subscribe(g.clusterChanged)
	return g, nil
}

// Serve agents on the listener, and sign approved requests, until the Gateway's
// context ends. Streams then end without waiting for what is queued.
func (g *Gateway) Serve(l net.Listener) error {
	balancers := g.websockets()
	agents, others := g.servers(balancers)
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case <-g.running.Done():
		case <-done:
		}
		balancers.stop()
		agents.Stop()
		others.Stop()
	})
	for _, run := range []func(context.Context){g.signApproved, g.reissues, g.certificates.watch} {
		wg.Go(func() { run(g.running) })
	}
	httping := balancers.serve(g, others)
	err := others.Serve(g.guests(l))
	close(done)
	wg.Wait()
	httping.Wait()
	if g.running.Err() != nil || errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return fmt.Errorf("serve agents on %s: %w", l.Addr(), err)
}

// Reset ends all sessions, so that agents come back and compare anew, and lets
// orders flow again after a rewind that an administrator has accepted.
func (g *Gateway) Reset(reason string) {
	g.suspect.Store(false)
	for _, s := range g.sessions.all() {
		s.end(&pb.Refused{Reason: "Reset", Message: reason})
	}
}

// HighestGeneration that any agent said to hold since the Gateway was made.
func (g *Gateway) HighestGeneration() int64 { return g.highest.Load() }

// Holding tells whether orders are held back.
func (g *Gateway) Holding() bool {
	st := g.o.HubState()
	return g.suspect.Load() || st == nil || st.Rewound != nil && st.Rewound.Accepted == ""
}

// era tells sessions that began before a decision about a rewind from those that
// began after it: only Reset ends the former, and until then they are held.
func (g *Gateway) era() string {
	st := g.o.HubState()
	if st == nil || st.Rewound == nil {
		return ""
	}
	return st.Rewound.Since.String() + st.Rewound.Accepted
}

// rowsChanged notes the change at the streams that it concerns.
func (g *Gateway) rowsChanged(bundle string, clusters []string) {
	for _, name := range clusters {
		if s := g.sessions.named(name); s != nil {
			s.touch(bundle)
		}
	}
}

// clusterChanged cuts off what is no longer accepted, and wakes who waits for it.
func (g *Gateway) clusterChanged(name string) {
	g.waiters.wake(name)
	g.approved.clusterChanged(name)
	s := g.sessions.named(name)
	if s == nil {
		return
	}
	if _, refused := g.admit(s.id); refused != nil {
		s.end(refused)
		return
	}
	s.reconsider()
}

// stored acknowledges a report after its write.
func (g *Gateway) stored(uid, bundle string, seq int64) {
	if s := g.sessions.of(uid); s != nil {
		s.ack(bundle, seq)
	}
}

// position now, authenticated.
func (g *Gateway) position() *pb.Position {
	id, revision := g.o.Position()
	return signPosition(g.o.HubKey, id, revision, time.Now())
}

// checkPosition looks for proof of a rewind in what an agent saw last.
func (g *Gateway) checkPosition(s *stream, p *pb.Position) {
	if p.GetChainId() == "" {
		return
	}
	if !positionHolds(g.o.HubKey, p) {
		g.log.Warn("an agent showed a position that this hub's key did not authenticate; it proves nothing and is ignored. If the key set was restored from elsewhere, restore the right one",
			"cluster", s.cluster)
		return
	}
	st := g.o.HubState()
	if st == nil || st.Rewound != nil && st.Rewound.Accepted == "" {
		return // it holds already, or is about to know
	}
	var forgiven int64
	if st.Rewound != nil {
		forgiven = st.Rewound.Since.Unix()
	}
	reason, rewound := session.CheckPosition(st.Chain, forgiven, p)
	if !rewound || g.suspect.Swap(true) {
		return
	}
	g.log.Error("the hub's store was set back to an older state; the hub issues no orders until an administrator decides with: atoll restore accept --hub|--members",
		"cluster", s.cluster, "proof", reason)
	g.o.OnRewind(reason)
}
