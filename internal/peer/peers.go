package peer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"atoll.dev/atoll/internal/peer/peerpb"
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
	// Changed is told whether this hub, and whether another one, holds a stream of
	// the cluster, whenever either changes; and, where a stream went, when its agent
	// was heard of last.
	Changed func(uid string, here, elsewhere bool, heard time.Time)
	// Ahead is told of rows that other hubs' agents hold at a higher generation than
	// the store has.
	Ahead func(bundle, cluster string, generation int64)
	// Serves tells whether this hub serves agents now, which other hubs are told.
	Serves func() bool
	// Supersede is told that a newer session of the cluster is at another hub.
	Supersede func(uid, hub string)
	// Dial gives a connection to the agent of a cluster that this hub holds, for another
	// hub. Its errors are gRPC statuses; NotFound: it does not hold it.
	Dial func(ctx context.Context, uid string) (net.Conn, error)
	// CertificateOf an agent whose stream is here: when it ends, and the generation of the
	// CA that signed it; ok is false where that is not known yet. Certificate is told the
	// same of agents at other hubs, again whenever it is renewed.
	CertificateOf func(uid string) (ends time.Time, generation int, ok bool)
	Certificate   func(uid string, ends time.Time, generation int)
	// CarriageOf the connection of an agent whose stream is here, for people to see.
	// Carriage is told the same of agents at other hubs.
	CarriageOf func(uid string) string
	Carriage   func(uid, how string)
	Log        *slog.Logger
}

// Peers of this hub. Make it with New.
type Peers struct {
	peerpb.UnimplementedPeerServer

	o        Options
	self     string // name of this process among hubs
	complete atomic.Bool

	mu       sync.Mutex
	union    *union
	watchers map[*watcher]struct{}
	found    map[string]*found // by name
	listed   bool              // Leases were listed
}

// New makes Peers that know of nobody yet. id is random for each process.
func New(o Options, id string) *Peers {
	self := o.Address + "_" + id
	return &Peers{o: o, self: self, union: newUnion(self), watchers: map[*watcher]struct{}{}, found: map[string]*found{}}
}

// Register serves other hubs on s, whose credentials must verify client certificates
// by the CA that signs hubs', and tell the subject of what was shown: their AuthInfo
// has a method Subject() *pkix.Name.
func (p *Peers) Register(s grpc.ServiceRegistrar) { peerpb.RegisterPeerServer(s, p) }

// Run finds the other hubs and follows them until ctx ends; then this hub's Lease is
// given up.
func (p *Peers) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { p.announce(ctx) })
	return p.discover(ctx, &wg)
}

// Complete tells whether every hub that lives has told what it holds, and tells on.
func (p *Peers) Complete() bool { return p.complete.Load() }

// Up tells that a stream of the cluster came to this hub.
func (p *Peers) Up(uid string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.carry(p.union.up(uid, now.UnixMicro()), now)
	p.note(uid, now)
}

// Renewed tells that the agent whose stream is at this hub has another certificate.
func (p *Peers) Renewed(uid string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, own := p.union.own[uid]; own {
		p.note(uid, time.Now())
	}
}

// Down tells that the stream went, and when the agent was heard of last.
func (p *Peers) Down(uid string, heard time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.carry(p.union.down(uid), heard)
	p.note(uid, heard)
}

// note for the other hubs that something is new about a cluster. The caller holds mu.
func (p *Peers) note(uid string, heard time.Time) {
	for w := range p.watchers {
		w.dirty[uid] = heard
		signal(w.wake)
	}
}

// aheadLimit is how many rows wait to be told to a hub; the others are found again at
// their agents' next sessions.
const aheadLimit = 4096

// Ahead tells the other hubs of a row that the one that leads must raise.
func (p *Peers) Ahead(bundle, cluster string, generation int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := range p.watchers {
		if len(w.ahead) < aheadLimit {
			w.ahead = append(w.ahead, &peerpb.Ahead{Bundle: bundle, Cluster: cluster, Generation: generation})
			signal(w.wake)
		}
	}
}

// carry out what a step of the core made. The caller holds mu.
func (p *Peers) carry(out outcome, heard time.Time) {
	for _, c := range out.changes {
		p.o.Changed(c.uid, c.here, c.elsewhere, heard)
	}
	for _, s := range out.superseded {
		p.o.Supersede(s.uid, addressOf(s.hub))
	}
}

// judge whether all who live have told. The caller holds mu.
func (p *Peers) judge() {
	all := p.listed
	for name := range p.found {
		all = all && p.union.told(name)
	}
	p.complete.Store(all)
}

// piece is how many clusters one message tells of.
const piece = 500

// serveEvery is how often it is looked whether this hub serves.
const serveEvery = time.Second

// watcher is another hub that is told what this one holds; Peers' lock guards it.
type watcher struct {
	dirty map[string]time.Time // by UID, when the agent was heard of, as far as known
	ahead []*peerpb.Ahead
	wake  chan struct{} // capacity 1
}

// Watch tells another hub what this one holds.
func (p *Peers) Watch(r *peerpb.WatchRequest, rpc grpc.ServerStreamingServer[peerpb.Told]) error {
	if err := fromHub(rpc.Context()); err != nil {
		return err
	}
	if r.GetHub() != p.self {
		return status.Error(codes.NotFound, "the hub that is meant has ended; another process is at its address")
	}
	w := &watcher{dirty: map[string]time.Time{}, wake: make(chan struct{}, 1)}
	p.mu.Lock()
	for uid := range p.union.own {
		w.dirty[uid] = time.Time{}
	}
	p.watchers[w] = struct{}{}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.watchers, w)
		p.mu.Unlock()
	}()
	look := time.NewTicker(serveEvery)
	defer look.Stop()
	for complete, served := false, false; ; {
		told, rest := p.next(w)
		told.Complete = !rest && !complete
		complete = complete || told.Complete
		if len(told.Sessions)+len(told.Gone)+len(told.Ahead) > 0 || told.Complete || told.Serves != served {
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

// next piece for a watcher, and whether there is more.
func (p *Peers) next(w *watcher) (told *peerpb.Told, rest bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	told = &peerpb.Told{Ahead: w.ahead, Serves: p.o.Serves()}
	w.ahead = nil
	for uid, heard := range w.dirty {
		if len(told.Sessions)+len(told.Gone) >= piece {
			return told, true
		}
		delete(w.dirty, uid)
		if s, ok := p.union.own[uid]; ok {
			told.Sessions = append(told.Sessions, p.session(uid, s.at))
		} else {
			told.Gone = append(told.Gone, &peerpb.Gone{Uid: uid, Quiet: time.Since(heard).Milliseconds()})
		}
	}
	return told, false
}

// session of this hub, as it is told.
func (p *Peers) session(uid string, at int64) *peerpb.Session {
	s := &peerpb.Session{Uid: uid, At: at, Carriage: p.o.CarriageOf(uid)}
	if ends, generation, ok := p.o.CertificateOf(uid); ok {
		s.CertificateEnds, s.Generation = ends.Unix(), uint32(generation)
	}
	return s
}

// take a piece of what a hub tells, unless it is followed anew meanwhile.
func (p *Peers) take(f *found, told *peerpb.Told) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.found[f.name] != f {
		return
	}
	now := time.Now()
	if h := p.union.hubs[f.name]; h != nil {
		h.serves = told.GetServes()
	}
	for _, s := range told.GetSessions() {
		p.carry(p.union.held(f.name, s.GetUid(), s.GetAt()), now)
		p.o.Carriage(s.GetUid(), s.GetCarriage())
		if s.GetCertificateEnds() != 0 {
			p.o.Certificate(s.GetUid(), time.Unix(s.GetCertificateEnds(), 0), int(s.GetGeneration()))
		}
	}
	for _, g := range told.GetGone() {
		p.carry(p.union.gone(f.name, g.GetUid()), now.Add(-time.Duration(g.GetQuiet())*time.Millisecond))
	}
	if told.GetComplete() {
		p.carry(p.union.completed(f.name), now)
	}
	for _, a := range told.GetAhead() {
		p.o.Ahead(a.GetBundle(), a.GetCluster(), a.GetGeneration())
	}
	p.judge()
}

// follow a hub until ctx ends.
func (p *Peers) follow(ctx context.Context, f *found) {
	log, told := p.o.Log.With("hub", addressOf(f.name)), ""
	var lapse *time.Timer
	for {
		err := p.call(ctx, f)
		if ctx.Err() != nil {
			return
		}
		if p.broken(f) || lapse == nil {
			lapse = time.AfterFunc(Grace, func() { p.lapsed(f) })
		}
		if told != err.Error() {
			told = err.Error()
			log.Warn("cannot ask another hub which clusters it holds; trying on", "err", err)
		}
		select {
		case <-ctx.Done():
			lapse.Stop()
			return
		case <-time.After(redial):
		}
	}
}

// begun: the call to a hub is answered.
func (p *Peers) begun(f *found, conn *grpc.ClientConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f.conn = conn
	if f.linked = true; p.found[f.name] == f {
		p.union.begin(f.name)
	}
}

// broken: the call to a hub ended; was tells whether it had been answered.
func (p *Peers) broken(f *found) (was bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if was, f.linked, f.conn = f.linked, false, nil; p.found[f.name] == f {
		p.union.broken(f.name)
		p.judge()
	}
	return was
}

// lapsed: the call to a hub broke a while ago.
func (p *Peers) lapsed(f *found) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !f.linked && p.found[f.name] == f {
		p.carry(p.union.lost(f.name), time.Now())
		p.judge()
	}
}

// call a hub and take what it tells.
func (p *Peers) call(ctx context.Context, f *found) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	address := addressOf(f.name)
	conn, err := dial(address, p.o.Client)
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
			p.begun(f, conn)
			p.o.Log.Info("another hub tells which clusters it holds", "hub", address)
		}
		p.take(f, told)
	}
}

var errNotAHub = errors.New("the caller showed no certificate of a hub of this key set")
