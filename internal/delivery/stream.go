package delivery

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

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/delivery/payloads"
	"atoll.dev/atoll/internal/h2"
	"atoll.dev/atoll/internal/reconcile"
	"atoll.dev/atoll/internal/session"
	pb "atoll.dev/atoll/internal/session/sessionpb"
)

const (
	// helloTimeout bounds how long a stream may be silent at first.
	helloTimeout = 10 * time.Second
	// resyncTimeout frees a resync's slot for others, whether or not the resync is done.
	resyncTimeout = 5 * time.Second
	// closeReasonTimeout bounds how long an agent may take to read why its session ends, and a
	// busy hub to send it. Nothing else is sent or received in that time.
	closeReasonTimeout = 5 * time.Second
	// generationLimit is above every generation that a hub assigns. JSON numbers are exact up
	// to it.
	generationLimit = 1 << 53
)

// agentSession is one session of an agent. The goroutine of its handler receives. Another
// goroutine sends while there is something to send, and then ends.
type agentSession struct {
	gateway    *Gateway
	id         identity
	cluster    string
	instance   string
	grpc       grpc.BidiStreamingServer[pb.FromAgent, pb.FromHub]
	cancelCall context.CancelFunc // ends Recv

	ended chan struct{}

	listsAssessments bool // the agent reads manifests that list the parts of assessments

	restoreEpoch string    // of the gateway when the session began
	pendingHello *pb.Hello // waits until the recorded removals of the agent are settled

	mu                   sync.Mutex
	closeFrame           *pb.FromHub // the last frame, if the hub ends the session
	done                 bool
	senderRunning        bool                // a goroutine sends now
	resyncSlot           *resyncSlot         // while it compares
	core                 *session.HubSession // nil before Hello is answered
	recallPending        bool                // the agent got the request for its recorded removals, and has not answered completely
	rememberedTombstones []*pb.RememberedTombstone
	queue                sendQueue
	bases                map[string]payloads.Base // by bundle: what the agent is known to hold
	unclaimed            map[string]struct{}
	unclaimedCounted     int // how many of unclaimed the metric has
	aheadReported        map[string]int64
	aheadWaiting         map[string]bool       // bundles whose turn to be raised comes
	lookupHash           string                // of the APIs that are to be looked up; empty: none
	earlyReports         map[string]*pb.Report // reports that wait for their rows, by bundle
	complaintCount       int
	renewedAt            time.Time
	checkInState         checkInState
	leaveState           leaveState
	tunnels              tunnels

	// certificate of the agent, and the index of the session among those that are not
	// overdue. The lock of the expiryTracker guards both.
	certificate certificateInfo
	expiryIndex int
}

// Connect serves one session.
func (g *Gateway) Connect(rpc grpc.BidiStreamingServer[pb.FromAgent, pb.FromHub]) error {
	return g.serveContainingPanics(func() error { return g.serveSession(rpc) })
}

// serveSession serves one session until it ends.
func (g *Gateway) serveSession(rpc grpc.BidiStreamingServer[pb.FromAgent, pb.FromHub]) error {
	if err := g.checkServing(); err != nil {
		return err
	}
	id, err := identifyPeer(rpc.Context())
	if err != nil {
		g.metrics.refused.WithLabelValues("stream", "NoIdentity").Inc()
		if log, dropped := g.strangerLog.admitLine(time.Now()); log {
			g.log.Warn("refused a stream", "from", peerAddress(rpc.Context()), "err", err, "refusalsNotLogged", dropped)
		}
		return status.Error(codes.Unauthenticated, err.Error())
	}
	c, refused := g.admitWithRetry(rpc.Context(), id)
	if refused != nil {
		g.metrics.refused.WithLabelValues("stream", refused.Reason).Inc()
		if g.warnings.TakeToken(id.uid+refused.Reason, time.Now()) {
			g.log.Warn("refused a stream; further refusals of this kind are not logged for ten minutes", "uid", id.uid, "from", peerAddress(rpc.Context()), "reason", refused.Reason, "message", refused.Message)
		}
		return errors.Join(rpc.Send(&pb.FromHub{Frame: &pb.FromHub_Refused{Refused: refused}}), status.Error(codes.PermissionDenied, refused.Message))
	}
	// The session has a sender from the moment when others can find it, so that no second
	// sender starts before Hello is answered.
	s := &agentSession{gateway: g, id: id, cluster: c.Name, grpc: rpc, cancelCall: h2.FindCallCancel(rpc.Context()), ended: make(chan struct{}), senderRunning: true}
	hello, err := s.receiveHello()
	if err != nil {
		return err
	}
	s.instance = hello.GetInstance()
	s.tunnels.supported, s.leaveState.supported, s.listsAssessments = hello.GetTunnels(), hello.GetLeaves(), hello.GetListsAssessments()
	g.waitForRows(rpc.Context(), hello.GetPosition())
	g.activateSession(s)
	defer g.finishSession(s)
	g.recordHello(s, hello)
	if s.hasFormerCA() {
		s.reissueCertificate() // before Idle is sent
	}
	go s.runContainingPanics(func() { s.answerHelloAndRunSender(hello) })
	return s.receiveFrames()
}

// receiveHello waits for Hello, the first frame.
func (s *agentSession) receiveHello() (*pb.Hello, error) {
	timer := time.AfterFunc(helloTimeout, s.cancelCall)
	f, err := s.grpc.Recv()
	if !timer.Stop() {
		return nil, status.Error(codes.DeadlineExceeded, "no Hello came in time")
	}
	if err != nil {
		s.recordOversizedFrame(err)
		return nil, err
	}
	s.gateway.metrics.countFrame("up", f)
	if refused := s.checkFrame(f); refused != nil {
		return nil, errors.Join(s.grpc.Send(&pb.FromHub{Frame: &pb.FromHub_Refused{Refused: refused}}), status.Error(codes.InvalidArgument, refused.Message))
	}
	if f.GetHello() == nil {
		return nil, status.Error(codes.FailedPrecondition, "a session begins with Hello")
	}
	return f.GetHello(), nil
}

// answerHelloAndRunSender answers Hello and runs the sender.
func (s *agentSession) answerHelloAndRunSender(hello *pb.Hello) {
	if err := s.answerHello(hello); err != nil {
		s.cancelCall()
		return
	}
	s.runSender()
}

// runSender sends what waits, and returns when nothing does. When the session is over, it
// sends the reason. Only one sender runs at a time, while senderRunning is set. A sender that
// panics ends the session, and another sender sends the reason.
func (s *agentSession) runSender() {
	var isOver bool
	var err error
	if p := reconcile.ContainPanicCounted(panicQueue, func() { isOver, err = s.sendQueued() }); p != nil {
		s.mu.Lock()
		s.senderRunning = false
		s.mu.Unlock()
		s.endPanicked(p)
		return
	}
	if isOver {
		s.sendCloseReason()
	}
	if isOver || err != nil {
		s.cancelCall()
	}
}

// answerHello waits for a resync slot and answers Hello.
func (s *agentSession) answerHello(hello *pb.Hello) error {
	select {
	case s.gateway.resyncSlots <- struct{}{}:
	case <-s.ended:
		return nil
	}
	s.mu.Lock()
	s.resyncSlot = &resyncSlot{slots: s.gateway.resyncSlots}
	s.resyncSlot.timeout = time.AfterFunc(resyncTimeout, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.resyncSlot.releaseSlot()
	})
	if s.done {
		s.resyncSlot.releaseSlot()
	}
	s.mu.Unlock()

	s.restoreEpoch = s.gateway.restoreDecisionMark()
	holding := s.gateway.IsHolding()
	recalling := !holding && s.gateway.options.Restore.IsRecalling()
	welcome := &pb.Welcome{ClusterName: s.cluster, ClusterUid: s.id.uid, HubVersion: s.gateway.options.Version, Holding: holding, CheckInSeconds: s.recordIntervalToSend()}
	if !holding {
		welcome.Position = s.gateway.currentPosition()
	}
	if err := s.send(&pb.FromHub{Frame: &pb.FromHub_Welcome{Welcome: welcome}}); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if holding || recalling {
		s.recallPending = true
		s.queue.control = append(s.queue.control, &pb.FromHub{Frame: &pb.FromHub_Recall{Recall: &pb.Recall{}}})
	}
	if recalling {
		s.pendingHello = hello
		return nil
	}
	s.startResync(hello, holding)
	return nil
}

// startResync starts the comparison with the agent. The caller holds the lock.
func (s *agentSession) startResync(hello *pb.Hello, holding bool) {
	// The list is read after the session could be found. Rows that change from now on are
	// marked as changed; earlier changes are in the list.
	core, out := session.NewHubSession(hello, s.wantedEntries(), holding)
	s.core = core
	s.gateway.metrics.resyncs.WithLabelValues(fmt.Sprint(out.Synced)).Inc()
	s.queueOutput(out)
}

// wantedEntries lists what the agent must hold, of all rows of the cluster.
func (s *agentSession) wantedEntries() []session.Entry {
	rows := s.gateway.options.Rows.ListOfCluster(s.id.uid)
	out := make([]session.Entry, 0, len(rows))
	for _, r := range rows {
		if want, ok := session.WantedEntry(r.Bundle.UID, r.Spec, reportedStatus(r)); ok {
			out = append(out, want)
		}
	}
	return out
}

// receiveFrames handles the frames after Hello until the stream ends.
func (s *agentSession) receiveFrames() error {
	for {
		f, err := s.grpc.Recv()
		if err != nil {
			s.recordOversizedFrame(err)
			return s.closeStatus(err)
		}
		s.gateway.metrics.countFrame("up", f)
		if refused := s.checkFrame(f); refused != nil {
			s.endSession(refused)
			continue
		}
		s.runContainingPanics(func() { s.handleFrame(f) })
	}
}

// handleFrame handles one frame of the agent. Frames after the end of the session are ignored.
func (s *agentSession) handleFrame(f *pb.FromAgent) {
	out, isOver := s.passToCore(f)
	if isOver {
		return
	}
	if v := f.GetStored(); v != nil {
		s.gateway.options.Traces.OrderStored(s.id.uid, v.GetBundle(), v.GetGeneration())
	}
	s.passOutputToComponents(out)
}

// passToCore passes a frame to the core. Frames that come before Hello is answered, such as the
// inventory, need no core.
func (s *agentSession) passToCore(f *pb.FromAgent) (out session.HubOutput, isOver bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done {
		return out, true
	}
	if s.core != nil {
		out = s.core.HandleFrame(f)
		s.queueOutput(out)
	} else {
		out.Inventory, out.Renew, out.Remembered = f.GetInventory(), f.GetRenew(), f.GetRemembered()
		if r := f.GetReport(); r != nil {
			out.Reports = []*pb.Report{r}
		}
	}
	return out, false
}

// queueOutput queues what the output sends. The caller holds the lock.
func (s *agentSession) queueOutput(out session.HubOutput) {
	s.queue.control = append(s.queue.control, out.Frames...)
	for _, o := range out.Orders {
		s.queue.queueOrder(o)
	}
	for _, n := range out.Needs {
		if !s.queue.queueNeededObjects(n) {
			s.endFlooding("the agent requests more objects than it takes")
		}
	}
	for _, a := range out.Ahead {
		s.reportGenerationAhead(a.Bundle, a.Generation)
	}
	if out.Refused != nil {
		s.endLocked(out.Refused)
	}
	if out.Synced {
		s.resyncSlot.releaseSlot()
		s.recordUnclaimedBundles(out.Unclaimed)
	}
	s.wakeSender()
}

// passOutputToComponents passes on what an output has for other components. It takes no lock.
func (s *agentSession) passOutputToComponents(out session.HubOutput) {
	for _, r := range out.Reports {
		s.handleReport(r)
	}
	if out.Inventory != nil {
		s.handleInventory(out.Inventory)
		s.markInventorySeen()
	}
	if out.Renew != nil {
		s.renewCertificate(out.Renew)
	}
	if out.Remembered != nil {
		s.handleRememberedRemovals(out.Remembered)
	}
	if out.Leaving != nil {
		s.handleLeaveBlocked(out.Leaving)
	}
	if out.Left != nil {
		s.handleLeft(out.Left)
	}
}

// markRowChanged notes that a row changed.
func (s *agentSession) markRowChanged(bundle string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	put(&s.queue.changedRows, bundle, struct{}{})
	s.wakeSender()
}

// queueAck queues the acknowledgement of a report after its write.
func (s *agentSession) queueAck(bundle string, seq int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, waits := s.queue.acks[bundle]; !waits && len(s.queue.acks) >= s.maxAcks() {
		s.endFlooding("the agent reports about more bundles than it reads answers for")
		return
	}
	put(&s.queue.acks, bundle, max(seq, s.queue.acks[bundle]))
	s.wakeSender()
}

// maxAcks bounds the acknowledgements that wait. The caller holds the lock.
func (s *agentSession) maxAcks() int {
	if s.core == nil {
		return ackMargin
	}
	return 2*s.core.CountBundles() + ackMargin
}

// endFlooding ends the session of an agent that makes the hub keep more than it may, and records it
// on the Cluster. The caller holds the lock.
func (s *agentSession) endFlooding(message string) {
	if s.done {
		return
	}
	s.gateway.options.Inventory.RecordMisbehaviour(s.id.uid, message)
	s.endLocked(&pb.Refused{Reason: string(atoll.ReasonFlooding), Message: message})
}

// queueControl queues a frame. The session of an agent that makes the hub queue more
// answers than the agent reads is ended.
func (s *agentSession) queueControl(f *pb.FromHub) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue.control) < maxControlFrames {
		s.queue.control = append(s.queue.control, f)
		s.wakeSender()
	} else {
		s.endFlooding("the agent sends requests faster than it reads answers")
	}
}

// wakeSender starts the sender if none runs. The caller holds the lock.
func (s *agentSession) wakeSender() {
	if !s.senderRunning && !s.done {
		s.senderRunning = true
		go s.runSender()
	}
}

// endSession ends the session with a reason that is sent to the agent. Without a reason
// the connection is closed at once.
func (s *agentSession) endSession(r *pb.Refused) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLocked(r)
}

func (s *agentSession) endLocked(r *pb.Refused) {
	if s.done {
		return
	}
	if r == nil {
		s.cancelCall()
		s.closeLocked(nil)
	} else {
		s.closeLocked(&pb.FromHub{Frame: &pb.FromHub_Refused{Refused: r}})
	}
}

// closeLocked ends the session after it has sent the last frame, if there is one. The
// caller holds the lock.
func (s *agentSession) closeLocked(last *pb.FromHub) {
	if last != nil { // the sender sends it, unless it is blocked
		s.wakeSender()
		time.AfterFunc(closeReasonTimeout, s.cancelCall)
	}
	s.done, s.closeFrame = true, last
	close(s.ended)
	s.tunnels.closeAll()
	s.resyncSlot.releaseSlot()
}

// sendCloseReason sends the agent why its session is over.
func (s *agentSession) sendCloseReason() {
	if s.closeFrame != nil { // not changed once the session is over
		if err := s.send(s.closeFrame); err != nil {
			s.sessionLog().Debug("cannot send an agent why its session is over", "err", err)
		}
	}
}

// closeStatus returns the gRPC status of the end of a session. err is the error of Recv.
func (s *agentSession) closeStatus(err error) error {
	s.mu.Lock()
	done, refusal := s.done, s.closeFrame.GetRefused()
	s.mu.Unlock()
	switch {
	case refusal != nil:
		s.gateway.metrics.refused.WithLabelValues("stream", refusal.Reason).Inc()
		s.sessionLog().Info("ended a stream", "reason", refusal.Reason, "message", refusal.Message)
		return status.Error(codes.Aborted, refusal.Message)
	case s.gateway.lifetime.Err() != nil:
		return status.Error(codes.Unavailable, "the hub stops")
	case done:
		return status.Error(codes.Unavailable, "the hub has ended the session; dial again")
	case errors.Is(err, io.EOF):
		return nil
	}
	return err
}

// send sends a frame. One that no agent reads is not sent: the error is a *session.OrderTooLargeError.
func (s *agentSession) send(f *pb.FromHub) error {
	if err := session.CheckFrameSize(f); err != nil {
		return err
	}
	s.gateway.metrics.countFrame("down", f)
	return s.grpc.Send(f)
}

// sessionLog returns a logger of the session. It is made on demand, since most sessions
// log nothing.
func (s *agentSession) sessionLog() *slog.Logger { return s.gateway.log.With("cluster", s.cluster) }

// resyncSlot is a place among the sessions that compare; nil is none. The lock of its
// session guards it.
type resyncSlot struct {
	slots       <-chan struct{}
	timeout     *time.Timer
	releaseOnce sync.Once
}

// releaseSlot frees the slot for another session. Further calls do nothing.
func (p *resyncSlot) releaseSlot() {
	if p == nil {
		return
	}
	p.releaseOnce.Do(func() {
		p.timeout.Stop()
		<-p.slots
	})
}

// put sets a value in a map that is made on demand.
func put[K comparable, V any](m *map[K]V, k K, v V) {
	if *m == nil {
		*m = map[K]V{}
	}
	(*m)[k] = v
}
