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
	// farewellTimeout is how long an agent may take to read why it is cut off.
	farewellTimeout = time.Second
	// generationLimit is above every generation that a hub gives out; JSON numbers
	// are exact up to it.
	generationLimit = 1 << 53
)

// stream is one session. Its goroutines are the handler, which waits for the end,
// one that receives and one that sends; the last two end when the handler returns,
// whatever they are blocked in.
type stream struct {
	g        *Gateway
	id       identity
	cluster  string
	instance string
	log      *slog.Logger
	grpc     grpc.BidiStreamingServer[pb.FromAgent, pb.FromHub]

	wake    chan struct{} // capacity 1
	ended   chan struct{}
	release func() // of the resync's place; safe to call again

	era   string    // of the gateway when the session began
	hello *pb.Hello // that waits until what the agent remembers is settled

	mu        sync.Mutex
	refusal   *pb.Refused // why it ended, if the hub ended it
	done      bool
	core      *session.Hub // nil before Hello is answered
	asked     bool         // what it remembers, and the answer is not complete
	told      []*pb.RememberedTombstone
	queue     queue
	bases     map[string]base // by bundle: what the agent is known to hold
	unclaimed map[string]struct{}
	counted   int // of unclaimed, in the metric
	aheadTold map[string]int64
	complains int
	renewed   time.Time
}

// Connect serves one session.
func (g *Gateway) Connect(rpc grpc.BidiStreamingServer[pb.FromAgent, pb.FromHub]) error {
	id, err := identify(rpc.Context())
	if err != nil {
		g.metrics.refused.WithLabelValues("stream", "NoIdentity").Inc()
		g.log.Warn("refused a stream", "from", address(rpc.Context()), "err", err)
		return status.Error(codes.Unauthenticated, err.Error())
	}
	c, refused := g.admit(id)
	if refused != nil {
		g.metrics.refused.WithLabelValues("stream", refused.Reason).Inc()
		if g.warned.first(id.uid+refused.Reason, time.Now()) {
			g.log.Warn("refused a stream; further refusals of this kind are not logged for ten minutes", "uid", id.uid, "from", address(rpc.Context()), "reason", refused.Reason, "message", refused.Message)
		}
		return errors.Join(rpc.Send(&pb.FromHub{Frame: &pb.FromHub_Refused{Refused: refused}}), status.Error(codes.PermissionDenied, refused.Message))
	}
	s := &stream{
		g: g, id: id, cluster: c.Name, grpc: rpc, log: g.log.With("cluster", c.Name),
		wake: make(chan struct{}, 1), ended: make(chan struct{}), release: func() {},
		queue: newQueue(), bases: map[string]base{}, unclaimed: map[string]struct{}{}, aheadTold: map[string]int64{},
	}
	received := make(chan error, 1)
	hello := make(chan *pb.Hello, 1)
	go func() { received <- s.receive(hello) }()
	select {
	case h := <-hello:
		s.instance = h.GetInstance()
		return s.serve(h, received)
	case err := <-received:
		return err
	case <-time.After(helloTimeout):
		return status.Error(codes.DeadlineExceeded, "no Hello came in time")
	case <-g.running.Done():
		return status.Error(codes.Unavailable, "the hub stops")
	}
}

// serve the session from Hello to its end.
func (s *stream) serve(hello *pb.Hello, received <-chan error) error {
	s.g.enter(s)
	defer s.g.leave(s)
	s.g.seen(s, hello)
	sent := make(chan error, 1)
	go func() { sent <- s.sendLoop(hello) }()
	select {
	case err := <-received:
		s.end(nil)
		return err
	case err := <-sent:
		return err
	case <-s.g.running.Done():
		s.end(nil)
		return status.Error(codes.Unavailable, "the hub stops")
	case <-s.ended:
	}
	select { // the sender tells the agent why, unless it is stuck
	case err := <-sent:
		return err
	case <-time.After(farewellTimeout):
		return s.ending()
	}
}

// sendLoop answers Hello and sends what is queued until the session ends.
func (s *stream) sendLoop(hello *pb.Hello) error {
	defer func() { s.release() }()
	if err := s.begin(hello); err != nil {
		return err
	}
	for {
		if err := s.sendAll(); err != nil {
			return err
		}
		select {
		case <-s.wake:
		case <-s.ended:
			return s.farewell()
		}
	}
}

// begin waits for a place among those that compare, then answers Hello.
func (s *stream) begin(hello *pb.Hello) error {
	select {
	case s.g.resyncs <- struct{}{}:
	case <-s.ended:
		return s.farewell()
	}
	var once sync.Once
	s.release = func() { once.Do(func() { <-s.g.resyncs }) }
	timeout := time.AfterFunc(resyncTimeout, s.release)
	context.AfterFunc(s.grpc.Context(), func() { timeout.Stop() })

	s.era = s.g.era()
	holding := s.g.Holding()
	recalling := !holding && s.g.o.Recalling()
	welcome := &pb.Welcome{ClusterName: s.cluster, ClusterUid: s.id.uid, HubVersion: s.g.o.Version, Holding: holding}
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
		if want, ok := session.WantOf(r.Bundle.UID, r.Spec, r.Status); ok {
			out = append(out, want)
		}
	}
	return out
}

// receive frames until the stream ends. The first must be Hello.
func (s *stream) receive(hello chan<- *pb.Hello) error {
	greeted := false
	for {
		f, err := s.grpc.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		s.g.metrics.frame("up", f)
		if !greeted {
			if f.GetHello() == nil {
				return status.Error(codes.FailedPrecondition, "a session begins with Hello")
			}
			greeted = true
			hello <- f.GetHello()
			continue
		}
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
	} else {
		out.Inventory, out.Renew, out.Remembered = f.GetInventory(), f.GetRenew(), f.GetRemembered()
		if r := f.GetReport(); r != nil {
			out.Reports = []*pb.Report{r}
		}
	}
	s.apply(out)
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
		s.queue.needs[n.GetBundle()] = n
	}
	for _, a := range out.Ahead {
		s.ahead(a.Bundle, a.Generation)
	}
	if out.Refused != nil {
		s.endLocked(out.Refused)
	}
	if out.Synced {
		s.release()
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
	}
	if out.Renew != nil {
		s.renew(out.Renew)
	}
	if out.Remembered != nil {
		s.remembered(out.Remembered)
	}
}

// touch notes that a row changed.
func (s *stream) touch(bundle string) {
	s.mu.Lock()
	s.queue.touched[bundle] = struct{}{}
	s.mu.Unlock()
	s.poke()
}

// ack a report, after its write.
func (s *stream) ack(bundle string, seq int64) {
	s.mu.Lock()
	s.queue.acks[bundle] = max(seq, s.queue.acks[bundle])
	s.mu.Unlock()
	s.poke()
}

// control queues a frame. An agent that makes the hub queue more answers than it
// reads is cut off.
func (s *stream) control(f *pb.FromHub) {
	s.mu.Lock()
	if len(s.queue.control) < controlLimit {
		s.queue.control = append(s.queue.control, f)
	} else {
		s.endLocked(&pb.Refused{Reason: "Flooding", Message: "the agent asks faster than it reads answers"})
	}
	s.mu.Unlock()
	s.poke()
}

func (s *stream) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// end the session from the hub's side, with a reason for the agent or, where the
// stream is gone already, none.
func (s *stream) end(r *pb.Refused) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLocked(r)
}

func (s *stream) endLocked(r *pb.Refused) {
	if s.done {
		return
	}
	s.done, s.refusal = true, r
	close(s.ended)
}

// farewell tells the agent why.
func (s *stream) farewell() error {
	err := s.ending()
	if s.refusal != nil { // not changed after ended is closed
		if e := s.send(&pb.FromHub{Frame: &pb.FromHub_Refused{Refused: s.refusal}}); e != nil {
			return e
		}
	}
	return err
}

// ending is how a session that the hub ended looks to gRPC.
func (s *stream) ending() error {
	if s.refusal == nil {
		return status.Error(codes.Unavailable, "the session is over")
	}
	s.g.metrics.refused.WithLabelValues("stream", s.refusal.Reason).Inc()
	s.log.Info("ended a stream", "reason", s.refusal.Reason, "message", s.refusal.Message)
	return status.Error(codes.Aborted, s.refusal.Message)
}

func (s *stream) send(f *pb.FromHub) error {
	s.g.metrics.frame("down", f)
	return s.grpc.Send(f)
}
