// Package delivery is the hub's side of agents: their registration, their sessions, the
// orders that go to them and the reports that come back.
//
// Contract: one session per cluster; the newest wins. An agent speaks only for the Cluster
// whose UID its certificate carries. The Cluster must exist, be accepted and have the
// certificate's key. The check is repeated whenever the Cluster changes, and a failure
// ends the session at once.
//
// An order is the cluster's row as it is when the order is sent. Queues hold names of
// bundles, never content, so that the rows bound them. Equal content is rendered and
// encoded once, whatever the number of clusters. While the hub holds after a restore,
// nothing is ordered.
//
// A report is acknowledged only after its write. Reports of one bundle that arrive at
// about the same time are one write per slice.
//
// Certificates of agents are renewed on their sessions, for the keys that the agents have
// shown: when an agent requests it, or when the CAs have changed. A renewal writes nothing.
//
// A Gateway is safe for concurrent use. Callbacks in Options are called from sessions and
// must not block.
package delivery

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

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/delivery/payloads"
	"atoll.dev/atoll/internal/pace"
	"atoll.dev/atoll/internal/session"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/state"
	"atoll.dev/atoll/internal/tracing"
)

// Clusters is the table of members.
type Clusters interface {
	Get(name string) (*v1alpha1.Cluster, bool)
	GetByUID(uid string) (*v1alpha1.Cluster, bool)
	SetOnline(uid string, on bool)
	Subscribe(fn func(name string))
}

// Rows is the table of what clusters must hold.
type Rows interface {
	ListOfCluster(uid string) []state.Row
	CountOfCluster(uid string) int
	Get(bundleUID, cluster string) (state.Row, bool)
	Subscribe(fn func(bundleUID string, clusters []string))
	WriteStatuses(ctx context.Context, bundleUID string, reports map[string]atoll.RowStatus) error
}

// BundleRows lists the rows of a Bundle of at most state.SmallBundle, and nothing for a larger one.
type BundleRows interface {
	ListOfSmallBundle(uid string) []state.Row
}

// DefaultCertificateLifetime of agents' certificates.
const DefaultCertificateLifetime = 24 * time.Hour

// Servers of agents' connections.
const (
	// AgentServerH2 is the own server, which costs little for a quiet connection.
	AgentServerH2 = "h2"
	// AgentServerGRPC is the server of grpc-go.
	AgentServerGRPC = "grpc"
)

// Options of a Gateway. Options without a default are required.
type Options struct {
	Clusters Clusters
	Rows     Rows
	// BundleRows are the same rows, by Bundle.
	BundleRows BundleRows
	Streams    StreamTracker
	Inventory  Inventory
	// Manifests reads what a row's manifest depends on and renders it, objects included.
	Manifests payloads.Source
	// Client writes Clusters and join tokens. It must not read from a cache.
	Client client.Client
	// Requests are the hub's certificate requests.
	Requests certificates.CertificateSigningRequestInterface

	// Trust returns the certificates and CAs of the moment. It is called often. Call
	// TrustChanged when it returns another value.
	Trust func() *Trust
	// HubKey authenticates positions and seals agents' keys.
	HubKey []byte

	// Store is the hub's store, Restore the restore of it from a backup.
	Store   Store
	Restore Restore
	// Departures are clusters that leave the fleet.
	Departures Departures

	// AgentServer serves the connections of agents: AgentServerH2 or AgentServerGRPC. Default:
	// AgentServerH2.
	AgentServer string
	// PlainListener accepts load balancers that speak HTTP without TLS. The gateway closes it.
	// Default: none.
	PlainListener net.Listener
	// HA connects the gateway to those of other hubs. Default: this hub is the only one.
	HA HAOptions
	// Version of the hub.
	Version string
	Logger  *slog.Logger
	// Metrics are registered here. Default: nowhere.
	Metrics prometheus.Registerer

	// Traces of changes; nil: none are recorded.
	Traces *tracing.Tracer

	// CertificateLifetime of agents, which renew at half of it. Default:
	// DefaultCertificateLifetime.
	CertificateLifetime time.Duration
	// NotifyAdmin gets events about a Cluster that the hub's administrator should see. It must
	// not block. Default: events are only logged.
	NotifyAdmin func(c *v1alpha1.Cluster, reason atoll.Reason, message string)
	// MaxResyncs is how many agents compare at a time. Default: 64.
	MaxResyncs int
	// CacheBytes of rendered content. Default: 64 MiB.
	CacheBytes int
	// FlushAfter is how long the first report of a bundle waits for others. Default: 100 ms.
	FlushAfter time.Duration
	// QuietInterval between writes of a row of which only the health flaps. Default: 15 s.
	QuietInterval time.Duration
	// JoinWait is how long a Join waits for acceptance. Default: 55 s.
	JoinWait time.Duration
	// TunnelIdle is how long a tunnel may be idle. Default: 4 h, as for kubelets.
	TunnelIdle time.Duration
}

func (o *Options) completeAndValidate() error {
	for name, missing := range map[string]bool{
		"Clusters": o.Clusters == nil, "Rows": o.Rows == nil, "Streams": o.Streams == nil, "Inventory": o.Inventory == nil, "Manifests": o.Manifests == nil,
		"Client": o.Client == nil, "Requests": o.Requests == nil, "Trust": o.Trust == nil || !o.Trust().isComplete(), "HubKey": len(o.HubKey) == 0, "Store": o.Store == nil,
		"Restore": o.Restore == nil, "Departures": o.Departures == nil, "Logger": o.Logger == nil,
	} {
		if missing {
			return fmt.Errorf("gateway: option %s is missing", name)
		}
	}
	if o.NotifyAdmin == nil {
		o.NotifyAdmin = func(*v1alpha1.Cluster, atoll.Reason, string) {}
	}
	setDefault(&o.CertificateLifetime, DefaultCertificateLifetime)
	setDefault(&o.MaxResyncs, 64)
	setDefault(&o.CacheBytes, 64<<20)
	setDefault(&o.FlushAfter, 100*time.Millisecond)
	setDefault(&o.QuietInterval, 15*time.Second)
	setDefault(&o.JoinWait, 55*time.Second)
	setDefault(&o.TunnelIdle, 4*time.Hour)
	return nil
}

func setDefault[T int | time.Duration](v *T, def T) {
	if *v <= 0 {
		*v = def
	}
}

// Gateway serves agents. Make it with New.
type Gateway struct {
	pb.UnimplementedSessionServer
	pb.UnimplementedRegistrationServer
	pb.UnimplementedTunnelServer

	options          Options
	log              *slog.Logger
	metrics          *metrics
	payloads         *payloads.Cache
	reportWriter     *reportWriter
	allowances       *clusterAllowances
	tokenUses        *tokenUses
	waiters          *clusterWaiters
	approvedRequests *approvedRequests
	resyncSlots      chan struct{}

	lifetime          context.Context // sessions and writes end with it
	setBackSuspected  atomic.Bool     // the store was set back, which is not settled yet
	highestGeneration atomic.Int64

	sessions *sessionTable
	warnings *pace.KeyedLimiter
	// uncertifiedCallerLog is shared by all callers without a certificate.
	strangerLog *uncertifiedCallerLog

	certificates *expiryTracker
	trustChanged chan struct{} // capacity 1
}

// NewGateway returns a Gateway. It does not outlive ctx.
func NewGateway(ctx context.Context, o Options) (*Gateway, error) {
	if err := o.completeAndValidate(); err != nil {
		return nil, err
	}
	g := &Gateway{
		options: o, log: o.Logger, lifetime: ctx, metrics: newMetrics(o.Metrics),
		strangerLog: newUncertifiedCallerLog(), warnings: pace.RepeatedWarnings.NewKeyedLimiter(), waiters: newClusterWaiters(), resyncSlots: make(chan struct{}, o.MaxResyncs),
		sessions: newSessionTable(), certificates: newExpiryTracker(o.Streams.RecordCertificate), trustChanged: make(chan struct{}, 1),
	}
	g.approvedRequests = g.newApprovedRequests()
	g.metrics.registerExpiryGauges(o.Metrics, g.certificates.summarizeExpiries)
	g.payloads = payloads.NewCache(ctx, o.Manifests, o.CacheBytes, payloads.Metrics{
		Renders: g.metrics.renders, RenderFailures: g.metrics.renderFailures, RenderSeconds: g.metrics.renderSeconds, Encodes: g.metrics.encodes, Hits: g.metrics.cacheHits, Bytes: g.metrics.cacheBytes,
	})
	g.allowances = newClusterAllowances(o.Rows.CountOfCluster)
	g.reportWriter = newReportWriter(ctx, reportWriterOptions{
		rows: o.Rows, bundleRows: o.BundleRows, allowances: g.allowances, flushAfter: o.FlushAfter, quietInterval: o.QuietInterval, onStored: g.acknowledgeReport, onPanic: g.endPanickedSession, log: o.Logger, metrics: g.metrics, traces: o.Traces,
	})
	g.tokenUses = newTokenUses(ctx, o.Client, o.Logger)
	o.Rows.Subscribe(g.handleRowsChanged)
	o.Clusters.Subscribe(g.handleClusterChanged)
	return g, nil
}

// ServeAgents serves agents on the listener and signs approved requests until the
// Gateway's context ends. Sessions then end without sending what is queued.
func (g *Gateway) ServeAgents(l net.Listener) error {
	balancers := g.newWebSocketServer()
	strangers := g.newUncertifiedCallerServer()
	agents, others := g.newServers(balancers, newUncertifiedConnServer(strangers.Serve))
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case <-g.lifetime.Done():
		case <-done:
		}
		balancers.stop()
		agents.Stop()
		others.Stop()
		strangers.Stop()
	})
	for _, run := range []func(context.Context){g.signApproved, g.reissueOnTrustChange, g.certificates.watchOverdue} {
		wg.Go(func() { run(g.lifetime) })
	}
	httping := balancers.serveLoadBalancers(g, others)
	err := others.Serve(g.limitConnections(l))
	close(done)
	wg.Wait()
	httping.Wait()
	if g.lifetime.Err() != nil || errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return fmt.Errorf("serve agents on %s: %w", l.Addr(), err)
}

// ResetSessions ends all sessions, so that agents connect and compare again. It also lifts the
// hold after a restore that an administrator has accepted.
func (g *Gateway) ResetSessions(reason string) {
	g.setBackSuspected.Store(false)
	for _, s := range g.sessions.listAll() {
		s.endSession(&pb.Refused{Reason: string(atoll.ReasonReset), Message: reason})
	}
}

// HighestReportedGeneration returns the highest generation that an agent has reported since the Gateway was made.
func (g *Gateway) HighestReportedGeneration() int64 { return g.highestGeneration.Load() }

// IsHolding reports whether orders are held back.
func (g *Gateway) IsHolding() bool {
	st := g.options.Store.HubState()
	return g.setBackSuspected.Load() || st == nil || st.Rewound != nil && st.Rewound.Accepted == ""
}

// restoreDecisionMark changes with every decision about a restore. Sessions of an earlier mark are
// held until ResetSessions ends them. Sessions of an earlier epoch are held until Reset ends them.
func (g *Gateway) restoreDecisionMark() string {
	st := g.options.Store.HubState()
	if st == nil || st.Rewound == nil {
		return ""
	}
	return st.Rewound.Since.String() + st.Rewound.Accepted
}

// handleRowsChanged marks the changed rows at the sessions of their clusters.
func (g *Gateway) handleRowsChanged(bundle string, clusters []string) {
	for _, name := range clusters {
		if s := g.sessions.getByName(name); s != nil {
			s.markRowChanged(bundle)
		}
	}
}

// handleClusterChanged ends the session of a cluster that is no longer accepted, and wakes
// the calls that wait for the cluster.
func (g *Gateway) handleClusterChanged(name string) {
	g.waiters.wakeAll(name)
	g.approvedRequests.requeueWaiting(name)
	s := g.sessions.getByName(name)
	if s == nil {
		return
	}
	if _, refused := g.admitIdentity(s.id); refused != nil {
		s.endSession(refused)
		return
	}
	s.applyCheckInChange()
}

// acknowledgeReport acknowledges a report after its write.
func (g *Gateway) acknowledgeReport(uid, bundle string, seq int64) {
	if s := g.sessions.getByUID(uid); s != nil {
		s.queueAck(bundle, seq)
	}
}

// currentPosition returns the present position, authenticated.
func (g *Gateway) currentPosition() *pb.Position {
	id, revision := g.options.Store.StorePosition()
	return signPosition(g.options.HubKey, id, revision, time.Now())
}

// checkForStoreRewind looks for proof of a restore in the position that an agent saw last.
func (g *Gateway) checkForStoreRewind(s *agentSession, p *pb.Position) {
	if p.GetChainId() == "" {
		return
	}
	if !isPositionAuthentic(g.options.HubKey, p) {
		g.log.Warn("an agent showed a position that this hub's key did not authenticate; the position proves nothing and is ignored. If the key set was restored from elsewhere, restore the right one",
			"cluster", s.cluster)
		return
	}
	st := g.options.Store.HubState()
	if st == nil || st.Rewound != nil && st.Rewound.Accepted == "" {
		return // the hub holds already, or its state is about to come
	}
	var forgiven int64
	if st.Rewound != nil {
		forgiven = st.Rewound.Since.Unix()
	}
	reason, rewound := session.CheckPosition(st.Chain, forgiven, p)
	if !rewound || g.setBackSuspected.Swap(true) {
		return
	}
	g.log.Error("the hub's store was set back to an older state; the hub issues no orders until an administrator decides with: atoll restore accept --hub|--members",
		"cluster", s.cluster, "proof", reason)
	g.options.Restore.OnRewind(reason)
}
