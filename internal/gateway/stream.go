package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"atoll.dev/atoll/internal/session"
	pb "atoll.dev/atoll/internal/session/sessionpb"
)

const (
	// helloTimeout bounds how long a stream may say nothing at first.
	helloTimeout = 10 * time.Second
	// resyncTimeout gives a resync's place to others, whether or not it is done.
	resyncTimeout = 5 * time.Second
	// farewellTimeout is how long an agent may take to read why it is cut off, and a hub
	// that is busy to say so. Nothing else is sent or taken meanwhile.
	farewellTimeout = 5 * time.Second
	// generationLimit is above every generation that a hub gives out; JSON numbers
	// are exact up to it.
	generationLimit = 1 << 53
)

// stream is one session. It has one goroutine of its own, the handler's, which
// receives; another sends while there is something to send, and goes.
type stream struct {
	g        *Gateway
	id       identity
	cluster  string
	instance string
	grpc     grpc.BidiStreamingServer[pb.FromAgent, pb.FromHub]
	hangUp   context.CancelFunc // ends Recv, whatever the agent does

	ended chan struct{}

	era   string    // of the gateway when the session began
	hello *pb.Hello // that waits until what the agent remembers is settled

	mu        sync.Mutex
	bye       *pb.FromHub // what the agent is told last, if the hub ended it
	done      bool
	sending   bool         // a goroutine sends
	place     *place       // among those that compare
	core      *session.Hub // nil before Hello is answered
	asked     bool         // what it remembers, and the answer is not complete
	told      []*pb.RememberedTombstone
	queue     queue
	bases     map[string]base // by bundle: what the agent is known to hold
	unclaimed map[string]struct{}
	counted   int // of unclaimed, in the metric
	aheadTold map[string]int64
	early     map[string]*pb.Report // that wait for their rows
	complains int
	renewed   time.Time
	visit     visit
	leaving   leaving
	tunnels   tunnels

	// What is known of the agent's certificate, and the stream's place among those that
	// are not overdue; the lock of expiries guards them.
	certificate certified
	dueAt       int
}

// Connect serves one session.
func (g *Gateway) Connect(rpc grpc.BidiStreamingServer[pb.FromAgent, pb.FromHub]) error {
	if err := g.serving(); err != nil {
		return err
	}
	id, err := identify(rpc.Context())
	if err != nil {
		g.metrics.refused.WithLabelValues("stream", "NoIdentity").Inc()
		g.log.Warn("refused a stream", "from", address(rpc.Context()), "err", err)
		return status.Error(codes.Unauthenticated, err.Error())
	}
	c, refused := g.admitLate(rpc.Context(), id)
	if refused != nil {
		g.metrics.refused.WithLabelValues("stream", refused.Reason).Inc()
		if g.warned.first(id.uid+refused.Reason, time.Now()) {
			g.log.Warn("refused a stream; further refusals of this kind are not logged for ten minutes", "uid", id.uid, "from", address(rpc.Context()), "reason", refused.Reason, "message", refused.Message)
		}
		return errors.Join(rpc.Send(&pb.FromHub{Frame: &pb.FromHub_Refused{Refused: refused}}), status.Error(codes.PermissionDenied, refused.Message))
	}
	// From when it can be found it has a sender, which is about to answer Hello: nobody
	// may begin another one beside it.
	s := &stream{g: g, id: id, cluster: c.Name, grpc: rpc, hangUp: hangUp(rpc.Context()), ended: make(chan struct{}), sending: true}
	hello, err := s.greeting()
	if err != nil {
		return err
	}
	s.instance = hello.GetInstance()
	s.tunnels.can, s.leaving.can = hello.GetTunnels(), hello.GetLeaves()
	g.catchUp(rpc.Context(), hello.GetPosition())
	g.enter(s)
	defer g.leave(s)
	g.seen(s, hello)
	if s.formerly() {
		s.reissue() // before it is told that there is nothing more
	}
	go s.open(hello)
	return s.receive()
}

// greeting waits for Hello, the first frame.
func (s *stream) greeting() (*pb.Hello, error) {
	late := time.AfterFunc(helloTimeout, s.hangUp)
	f, err := s.grpc.Recv()
	if !late.Stop() {
		return nil, status.Error(codes.DeadlineExceeded, "no Hello came in time")
	}
	if err != nil {
		return nil, err
	}
	s.g.metrics.frame("up", f)
	if f.GetHello() == nil {
		return nil, status.Error(codes.FailedPrecondition, "a session begins with Hello")
	}
	return f.GetHello(), nil
}

// open answers Hello and goes on to send.
func (s *stream) open(hello *pb.Hello) {
	if err := s.begin(hello); err != nil {
		s.hangUp()
		return
	}
	s.sendLoop()
}

// sendLoop sends what waits, and ends when nothing does. Once the session is over it
// tells the agent why. Only one runs at a time, while the field sending is set.
func (s *stream) sendLoop() {
	over, err := s.sendAll()
	if over {
		s.farewell()
	}
	if over || err != nil {
		s.hangUp()
	}
}

// begin waits for a place among those that compare, then answers Hello.
func (s *stream) begin(hello *pb.Hello) error {
	select {
	case s.g.resyncs <- struct{}{}:
	case <-s.ended:
		return nil
	}
	s.mu.Lock()
	s.place = &place{resyncs: s.g.resyncs}
	s.place.timeout = time.AfterFunc(resyncTimeout, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.place.free()
	})
	if s.done {
		s.place.free()
	}
	s.mu.Unlock()

	s.era = s.g.era()
	holding := s.g.Holding()
	recalling := !holding && s.g.o.Recalling()
	welcome := &pb.Welcome{ClusterName: s.cluster, ClusterUid: s.id.uid, HubVersion: s.g.o.Version, Holding: holding, CheckInSeconds: s.promised()}
	if !holding {
		welcome.Position = s.g.position()
	}
	if err := s.send(&pb.FromHub{Frame: &pb.FromHub_Welcome{Welcome: welcome}}); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if holding || recalling {
		s.asked = true
		s.queue.control = append(s.queue.control, &pb.FromHub{Frame: &pb.FromHub_Recall{Recall: &pb.Recall{}}})
	}
	if recalling {
		s.hello = hello
		return nil
	}
	s.start(hello, holding)
	return nil
}

// start the comparing. The caller holds the lock.
func (s *stream) start(hello *pb.Hello, holding bool) {
	// Rows that change from here on are touched; those that changed before are in
	// the list, read after the stream could be touched.
	core, out := session.NewHub(hello, s.wants(), holding)
	s.core = core
	s.g.metrics.resyncs.WithLabelValues(fmt.Sprint(out.Synced)).Inc()
	s.apply(out)
}

// wants of all rows of the cluster.
func (s *stream) wants() []session.Entry {
	rows := s.g.o.Rows.OfCluster(s.id.uid)
	out := make([]session.Entry, 0, len(rows))
	for _, r := range rows {
		if want, ok := session.WantOf(r.Bundle.UID, r.Spec, reported(r)); ok {
			out = append(out, want)
		}
	}
	return out
}

// receive frames after Hello until the stream ends.
func (s *stream) receive() error {
	for {
		f, err := s.grpc.Recv()
		if err != nil {
			return s.ending(err)
		}
		s.g.metrics.frame("up", f)
		s.take(f)
	}
}

// take one frame of the agent. Frames that come before Hello is answered (the
// inventory, as a rule) need no core.
func (s *stream) take(f *pb.FromAgent) {
	s.mu.Lock()
	if s.done {
		s.mu.Unlock()
		return
	}
	var out session.HubOutput
	if s.core != nil {
		out = s.core.Frame(f)
		s.apply(out)
	} else {
		out.Inventory, out.Renew, out.Remembered = f.GetInventory(), f.GetRenew(), f.GetRemembered()
		if r := f.GetReport(); r != nil {
			out.Reports = []*pb.Report{r}
		}
	}
	s.mu.Unlock()
	s.hand(out)
}

// apply queues what an output wants sent. The caller holds the lock.
func (s *stream) apply(out session.HubOutput) {
	s.queue.control = append(s.queue.control, out.Frames...)
	for _, o := range out.Orders {
		s.queue.order(o)
	}
	for _, n := range out.Needs {
		put(&s.queue.needs, n.GetBundle(), n)
	}
	for _, a := range out.Ahead {
		s.ahead(a.Bundle, a.Generation)
	}
	if out.Refused != nil {
		s.endLocked(out.Refused)
	}
	if out.Synced {
		s.place.free()
		s.noteUnclaimed(out.Unclaimed)
	}
	s.poke()
}

// hand what is for others to them, without the lock.
func (s *stream) hand(out session.HubOutput) {
	for _, r := range out.Reports {
		s.report(r)
	}
	if out.Inventory != nil {
		s.inventory(out.Inventory)
		s.looked()
	}
	if out.Renew != nil {
		s.renew(out.Renew)
	}
	if out.Remembered != nil {
		s.remembered(out.Remembered)
	}
	if out.Leaving != nil {
		s.agentLeaves(out.Leaving)
	}
	if out.Left != nil {
		s.left(out.Left)
	}
}

// touch notes that a row changed.
func (s *stream) touch(bundle string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	put(&s.queue.touched, bundle, struct{}{})
	s.poke()
}

// ack a report, after its write.
func (s *stream) ack(bundle string, seq int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	put(&s.queue.acks, bundle, max(seq, s.queue.acks[bundle]))
	s.poke()
}

// control queues a frame. An agent that makes the hub queue more answers than it
// reads is cut off.
func (s *stream) control(f *pb.FromHub) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue.control) < controlLimit {
		s.queue.control = append(s.queue.control, f)
		s.poke()
	} else {
		s.endLocked(&pb.Refused{Reason: "Flooding", Message: "the agent asks faster than it reads answers"})
	}
}

// poke has what waits sent. The caller holds the lock.
func (s *stream) poke() {
	if !s.sending && !s.done {
		s.sending = true
		go s.sendLoop()
	}
}

// end the session from the hub's side, with a reason for the agent or none, which
// cuts it off at once.
func (s *stream) end(r *pb.Refused) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLocked(r)
}

func (s *stream) endLocked(r *pb.Refused) {
	if s.done {
		return
	}
	if r == nil {
		s.hangUp()
		s.over(nil)
	} else {
		s.over(&pb.FromHub{Frame: &pb.FromHub_Refused{Refused: r}})
	}
}

// over: the session is, and the agent is told so, or nothing. The caller holds the lock.
func (s *stream) over(bye *pb.FromHub) {
	if bye != nil { // the sender tells it, unless it is stuck
		s.poke()
		time.AfterFunc(farewellTimeout, s.hangUp)
	}
	s.done, s.bye = true, bye
	close(s.ended)
	s.tunnels.end()
	s.place.free()
}

// farewell tells the agent why the session is over.
func (s *stream) farewell() {
	if s.bye != nil { // not changed once the session is over
		if err := s.send(s.bye); err != nil {
			s.log().Debug("an agent was not told why its session is over", "err", err)
		}
	}
}

// ending is how the end of a session looks to gRPC; err is what Recv gave.
func (s *stream) ending(err error) error {
	s.mu.Lock()
	done, refusal := s.done, s.bye.GetRefused()
	s.mu.Unlock()
	switch {
	case refusal != nil:
		s.g.metrics.refused.WithLabelValues("stream", refusal.Reason).Inc()
		s.log().Info("ended a stream", "reason", refusal.Reason, "message", refusal.Message)
		return status.Error(codes.Aborted, refusal.Message)
	case s.g.running.Err() != nil:
		return status.Error(codes.Unavailable, "the hub stops")
	case done:
		return status.Error(codes.Unavailable, "the hub has ended the session; dial again")
	case errors.Is(err, io.EOF):
		return nil
	}
	return err
}

func (s *stream) send(f *pb.FromHub) error {
	s.g.metrics.frame("down", f)
	return s.grpc.Send(f)
}

// log of the stream. It is made when it is needed, since most streams are silent.
func (s *stream) log() *slog.Logger { return s.g.log.With("cluster", s.cluster) }

// place among the sessions that compare; nil is none. Its stream's lock guards it.
type place struct {
	resyncs <-chan struct{}
	timeout *time.Timer
	freed   sync.Once
}

// free the place for another session; safe to call again.
func (p *place) free() {
	if p == nil {
		return
	}
	p.freed.Do(func() {
		p.timeout.Stop()
		<-p.resyncs
	})
}

// put a value into a map that is made when it is needed.
func put[K comparable, V any](m *map[K]V, k K, v V) {
	if *m == nil {
		*m = map[K]V{}
	}
	(*m)[k] = v
}
