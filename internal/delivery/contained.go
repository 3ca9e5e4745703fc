package delivery

import (
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/reconcile"
	pb "atoll.dev/atoll/internal/session/sessionpb"
)

// Panics
//
// A defect in the code that handles what one agent sends must not end the hub. A panic ends the
// session of that agent, or the call. The log has the place, once in ten minutes for each cluster.
// Code that runs here must not keep a lock when it panics.

// panicQueue is the name by which the panics of sessions and calls are counted.
const panicQueue = "agent-sessions"

// runContainingPanics runs a part of the session. A panic there ends the session, and nothing else.
func (s *agentSession) runContainingPanics(fn func()) {
	if p := reconcile.ContainPanicCounted(panicQueue, fn); p != nil {
		s.endPanicked(p)
	}
}

// endPanicked ends the session after a panic.
func (s *agentSession) endPanicked(p *reconcile.Panic) {
	if s.gateway.warnings.TakeToken(s.id.uid+string(atoll.ReasonSessionPanicked), time.Now()) {
		s.sessionLog().Error("the session of an agent ends; the hub and other sessions go on, and further panics of this cluster's sessions are not logged for ten minutes",
			"reason", atoll.ReasonSessionPanicked, "err", p)
	}
	s.endSession(&pb.Refused{Reason: string(atoll.ReasonSessionPanicked), Message: "the hub failed to handle the session by a defect of Atoll; the hub's log has the place"})
}

// serveContainingPanics serves a call of a peer. A panic ends the call with the code Internal.
func (g *Gateway) serveContainingPanics(serve func() error) (err error) {
	p := reconcile.ContainPanicCounted(panicQueue, func() { err = serve() })
	if p == nil {
		return err
	}
	g.logPanic("a call ends; the hub goes on, and further panics at this place are not logged for ten minutes", p)
	return status.Error(codes.Internal, "the hub failed to handle the call by a defect of Atoll; the hub's log has the place")
}

// logPanic logs a panic, once in ten minutes for each place.
func (g *Gateway) logPanic(message string, p *reconcile.Panic) {
	if g.warnings.TakeToken(string(atoll.ReasonSessionPanicked)+p.Place, time.Now()) {
		g.log.Error(message, "reason", atoll.ReasonSessionPanicked, "err", p)
	}
}

// framePanics reports panics of the server of agents' connections about frames of HTTP/2.
type framePanics struct{ gateway *Gateway }

// ReportPanic is called during a panic, so that a second panic with the same value shows the place of
// the first.
func (f framePanics) ReportPanic(value any) {
	p := reconcile.ContainPanicCounted(panicQueue, func() { panic(value) })
	f.gateway.logPanic("a connection of an agent ends; the hub goes on, and further panics at this place are not logged for ten minutes", p)
}

// endPanickedSession ends the session of the agent whose report panics, so that the reports of other
// agents are written. The allowance of its cluster is charged, as for a write.
func (g *Gateway) endPanickedSession(uid string, p *reconcile.Panic) {
	g.allowances.reserveTurn(uid, time.Now())
	if s := g.sessions.getByUID(uid); s != nil {
		s.endPanicked(p)
	}
}
