package peer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"atoll.dev/atoll/internal/pause"
	"atoll.dev/atoll/internal/peer/peerpb"
	"atoll.dev/atoll/internal/wakeup"
)

// Grace is how long a hub's streams count on when the call to it breaks.
const Grace = 3 * time.Second

// Options of Peers; all are required.
type Options struct {
	// Address, HOST:PORT, where other hubs dial this one: its gateway.
	Address string
	// Leases of the namespace where hubs find each other. Writes through it must be
	// possible only while this hub is in touch with the store.
	Leases coordinationv1.LeaseInterface
	// Certificate of this hub, for hubs (see Identity), and the configuration's roots
	// for the other's gateway.
	Client func(host string) *tls.Config
	Log    *slog.Logger
}

// HubPeers are the peers of this hub. Make it with New.
type HubPeers struct {
	peerpb.UnimplementedPeerServer

	o        Options
	hub      Hub
	agents   Agents
	gateway  Gateway
	self     string // name of this process among hubs
	complete atomic.Bool

	mu       sync.Mutex
	union    *sessionUnion
	watchers map[*watcher]struct{}
	found    map[string]*foundHub // by name
	listed   bool                 // Leases were listed
}

// New returns a HubPeers without known hubs. id is random for each process.
func New(o Options, id string) *HubPeers {
	self := o.Address + "_" + id
	return &HubPeers{o: o, self: self, union: newUnion(self), watchers: map[*watcher]struct{}{}, found: map[string]*foundHub{}}
}

// Attach connects Peers with the parts of this hub. It is called before Run, and before a
// stream opens.
func (p *HubPeers) Attach(hub Hub, agents Agents, gateway Gateway) {
	p.hub, p.agents, p.gateway = hub, agents, gateway
}

// Register serves other hubs on s. Its credentials must verify client certificates by the CA
// that signs hubs' certificates. Their AuthInfo must have a method Subject() *pkix.Name that
// returns the certificate's subject.
func (p *HubPeers) Register(s grpc.ServiceRegistrar) { peerpb.RegisterPeerServer(s, p) }

// Run finds the other hubs and follows them until ctx ends; then this hub's Lease is
// given up.
func (p *HubPeers) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { p.announceHub(ctx) })
	return p.discoverHubs(ctx, &wg)
}

// IsComplete reports whether every living hub has sent its list, and continues to send changes.
func (p *HubPeers) IsComplete() bool { return p.complete.Load() }

// StreamOpened reports that a stream of the cluster came to this hub.
func (p *HubPeers) StreamOpened(uid string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.applyOutcome(p.union.addOwnSession(uid, now.UnixMicro()), now)
	p.queueUpdate(uid, now)
}

// CertificateRenewed reports that the agent whose stream is at this hub has another certificate.
func (p *HubPeers) CertificateRenewed(uid string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, own := p.union.own[uid]; own {
		p.queueUpdate(uid, time.Now())
	}
}

// StreamClosed reports that the stream went, and the time of the agent's last message.
func (p *HubPeers) StreamClosed(uid string, heard time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.applyOutcome(p.union.endOwnSession(uid), heard)
	p.queueUpdate(uid, heard)
}

// queueUpdate records for the other hubs that something is new about a cluster. The caller holds mu.
func (p *HubPeers) queueUpdate(uid string, heard time.Time) {
	for w := range p.watchers {
		w.dirty[uid] = heard
		wakeup.WakeReader(w.wake)
	}
}

// aheadLimit is the number of rows that wait for a hub; the others are found again at their
// agents' next sessions.
const aheadLimit = 4096

// RequestRaise sends the other hubs a row that the leading hub must raise.
func (p *HubPeers) RequestRaise(bundle, cluster string, generation int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := range p.watchers {
		if len(w.ahead) < aheadLimit {
			w.ahead = append(w.ahead, &peerpb.Ahead{Bundle: bundle, Cluster: cluster, Generation: generation})
			wakeup.WakeReader(w.wake)
		}
	}
}

// applyOutcome carries out what a step of the core made. The caller holds mu.
func (p *HubPeers) applyOutcome(out outcome, heard time.Time) {
	for _, c := range out.changes {
		p.hub.UpdateStreamHolder(c.uid, c.here, c.elsewhere, heard)
	}
	for _, s := range out.superseded {
		p.gateway.SupersedeSession(s.uid, addressOf(s.hub))
	}
}

// updateCompleteness checks whether all living hubs have sent their lists. The caller holds mu.
func (p *HubPeers) updateCompleteness() {
	all := p.listed
	for name := range p.found {
		all = all && p.union.isHubListComplete(name)
	}
	p.complete.Store(all)
}

// piece is how many clusters one message has.
const piece = 500

// serveEvery is how often it is looked whether this hub serves.
const serveEvery = time.Second

// watcher is another hub that gets this one's list; Peers' lock guards it.
type watcher struct {
	dirty map[string]time.Time // by UID, the time of the agent's last message, as far as known
	ahead []*peerpb.Ahead
	wake  chan struct{} // capacity 1
}

// Watch sends another hub what this one holds.
func (p *HubPeers) Watch(r *peerpb.WatchRequest, rpc grpc.ServerStreamingServer[peerpb.Told]) error {
	if err := checkPeerIsHub(rpc.Context()); err != nil {
		return err
	}
	if r.GetHub() != p.self {
		return status.Error(codes.NotFound, "the hub that is meant has ended; another process is at its address")
	}
	w := p.addWatcher()
	defer p.removeWatcher(w)
	look := time.NewTicker(serveEvery)
	defer look.Stop()
	for complete, served := false, false; ; {
		told, rest := p.next(w)
		told.Complete = !rest && !complete
		complete = complete || told.Complete
		if hasNews(told, served) {
			if err := rpc.Send(told); err != nil {
				return err
			}
			served = told.Serves
		}
		if rest {
			continue
		}
		select {
		case <-rpc.Context().Done():
			return rpc.Context().Err()
		case <-w.wake:
		case <-look.C:
		}
	}
}

// addWatcher returns a watcher that is to get all that this hub holds.
func (p *HubPeers) addWatcher() *watcher {
	w := &watcher{dirty: map[string]time.Time{}, wake: make(chan struct{}, 1)}
	p.mu.Lock()
	defer p.mu.Unlock()
	for uid := range p.union.own {
		w.dirty[uid] = time.Time{}
	}
	p.watchers[w] = struct{}{}
	return w
}

func (p *HubPeers) removeWatcher(w *watcher) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.watchers, w)
}

// hasNews reports whether a message is to be sent. served: the last message reported that agents are served.
func hasNews(told *peerpb.Told, served bool) bool {
	return told.Complete || told.Serves != served || len(told.Sessions)+len(told.Gone)+len(told.Ahead) > 0
}

// next returns the next piece for a watcher, and whether there is more.
func (p *HubPeers) next(w *watcher) (told *peerpb.Told, rest bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	told = &peerpb.Told{Ahead: w.ahead, Serves: p.hub.IsServing()}
	w.ahead = nil
	for uid, heard := range w.dirty {
		if len(told.Sessions)+len(told.Gone) >= piece {
			return told, true
		}
		delete(w.dirty, uid)
		if s, ok := p.union.own[uid]; ok {
			told.Sessions = append(told.Sessions, p.ownSession(uid, s.at))
		} else {
			told.Gone = append(told.Gone, &peerpb.Gone{Uid: uid, Quiet: time.Since(heard).Milliseconds()})
		}
	}
	return told, false
}

// ownSession returns a session of this hub in the form of the protocol.
func (p *HubPeers) ownSession(uid string, at int64) *peerpb.Session {
	s := &peerpb.Session{Uid: uid, At: at, Carriage: p.agents.TransportOf(uid)}
	if ends, generation, ok := p.agents.CertificateOf(uid); ok {
		s.CertificateEnds, s.Generation = ends.Unix(), uint32(generation)
	}
	return s
}

// applyUpdate takes a piece of a hub's list, unless a new call has begun since.
func (p *HubPeers) applyUpdate(f *foundHub, told *peerpb.Told) {
	if dropped := dropMalformed(told); dropped > 0 {
		p.o.Log.Error("another hub sends what no hub may send, which is left out; update that hub, or restart it", "hub", addressOf(f.name), "entries", dropped)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.found[f.name] != f {
		return
	}
	now := time.Now()
	latest := now.Add(maxAhead).UnixMicro()
	if h := p.union.hubs[f.name]; h != nil {
		h.serves = told.GetServes()
	}
	for _, s := range told.GetSessions() {
		p.applyOutcome(p.union.addRemoteSession(f.name, s.GetUid(), min(s.GetAt(), latest)), now)
		p.agents.SetRemoteTransport(s.GetUid(), s.GetCarriage())
		if s.GetCertificateEnds() != 0 {
			p.agents.RecordRemoteCertificate(s.GetUid(), time.Unix(s.GetCertificateEnds(), 0), int(s.GetGeneration()))
		}
	}
	for _, g := range told.GetGone() {
		p.applyOutcome(p.union.endRemoteSession(f.name, g.GetUid()), now.Add(-time.Duration(g.GetQuiet())*time.Millisecond))
	}
	if told.GetComplete() {
		p.applyOutcome(p.union.completeHubList(f.name), now)
	}
	for _, a := range told.GetAhead() {
		p.hub.RaiseRowGeneration(a.GetBundle(), a.GetCluster(), a.GetGeneration())
	}
	p.updateCompleteness()
}

// followHub follows a hub until ctx ends.
func (p *HubPeers) followHub(ctx context.Context, f *foundHub) {
	log, told := p.o.Log.With("hub", addressOf(f.name)), ""
	var lapse *time.Timer
	for {
		err := p.applySessionsFromHub(ctx, f)
		if ctx.Err() != nil {
			return
		}
		if p.callEnded(f) || lapse == nil {
			lapse = time.AfterFunc(Grace, func() { p.dropUnreachableHub(f) })
		}
		if told != err.Error() {
			told = err.Error()
			log.Warn("cannot read from another hub which clusters it holds; trying on", "err", err)
		}
		if !pause.WaitFor(ctx, redial) {
			lapse.Stop()
			return
		}
	}
}

// callEstablished: the call to a hub is answered.
func (p *HubPeers) callEstablished(f *foundHub, conn *grpc.ClientConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f.conn = conn
	if f.linked = true; p.found[f.name] == f {
		p.union.beginHubList(f.name)
	}
}

// callEnded: the call to a hub ended; was reports whether it had been answered.
func (p *HubPeers) callEnded(f *foundHub) (was bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if was, f.linked, f.conn = f.linked, false, nil; p.found[f.name] == f {
		p.union.markHubListIncomplete(f.name)
		p.updateCompleteness()
	}
	return was
}

// dropUnreachableHub: the call to a hub broke a while ago.
func (p *HubPeers) dropUnreachableHub(f *foundHub) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !f.linked && p.found[f.name] == f {
		p.applyOutcome(p.union.removeHub(f.name), time.Now())
		p.updateCompleteness()
	}
}

// applySessionsFromHub calls a hub and applies the sessions that it sends.
func (p *HubPeers) applySessionsFromHub(ctx context.Context, f *foundHub) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	address := addressOf(f.name)
	conn, err := dialHub(address, p.o.Client)
	if err != nil {
		return err
	}
	defer conn.Close()
	stream, err := peerpb.NewPeerClient(conn).Watch(ctx, &peerpb.WatchRequest{Hub: f.name})
	if err != nil {
		return fmt.Errorf("call the hub at %s: %w", address, err)
	}
	for first := true; ; first = false {
		told, err := stream.Recv()
		if err != nil {
			return fmt.Errorf("listen to the hub at %s: %w", address, err)
		}
		if first {
			p.callEstablished(f, conn)
			p.o.Log.Info("another hub sends which clusters it holds", "hub", address)
		}
		p.applyUpdate(f, told)
	}
}

var errNotAHub = errors.New("the caller showed no certificate of a hub of this key set")
