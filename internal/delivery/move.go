package delivery

import (
	"maps"
	"slices"
	"time"

	pb "atoll.dev/atoll/internal/session/sessionpb"
)

// moveRetryAfter is when an agent that got a request to connect to another hub, and is here again,
// gets another one. It may be unable to reach the other hub.
const moveRetryAfter = 10 * time.Minute

// MoveAgents requests of up to n agents to connect to another hub, and returns how many requests it
// sent. Agents of clusters for which first returns true come before others. Only agents whose
// session is idle get a request, so that nothing is sent twice.
func (g *Gateway) MoveAgents(n int, hub string, first func(cluster string) bool) (asked int) {
	now := time.Now()
	may := slices.DeleteFunc(g.sessions.listMovable(now), func(s *agentSession) bool { return g.isPushed(s.cluster) })
	for _, others := range []bool{false, true} {
		for _, s := range may {
			if asked >= n {
				return asked
			}
			if first(s.cluster) != others && s.requestMove(hub) {
				g.sessions.recordMoveRequest(s.id.uid, now)
				asked++
			}
		}
	}
	return asked
}

// isPushed reports whether the hub runs the agent of the cluster. Such an agent has the
// address of this gateway only.
func (g *Gateway) isPushed(cluster string) bool {
	c, ok := g.options.Clusters.Get(cluster)
	return ok && c.Spec.IsPushed()
}

// requestMove sends the agent to another hub, if nothing is in progress.
func (s *agentSession) requestMove(hub string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done || s.senderRunning || s.checkInState.intervalSeconds > 0 || s.core == nil || !s.core.IsSynced() || s.recallPending || len(s.earlyReports) > 0 || !s.queue.isEmpty() || s.tunnels.hasAny() {
		return false
	}
	s.closeLocked(&pb.FromHub{Frame: &pb.FromHub_Move{Move: &pb.Move{Hub: hub}}})
	return true
}

// isEmpty reports whether nothing waits to be sent or to be tried again.
func (q *sendQueue) isEmpty() bool {
	return len(q.control)+len(q.acks)+len(q.changedRows)+len(q.needs)+len(q.orders)+len(q.retries) == 0
}

// listMovable lists the sessions whose agents got no request to move within moveRetryAfter, and
// drops older requests.
func (t *sessionTable) listMovable(now time.Time) []*agentSession {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.moveRequestedAt, func(_ string, at time.Time) bool { return now.Sub(at) >= moveRetryAfter })
	may := make([]*agentSession, 0, len(t.byUID))
	for uid, s := range t.byUID {
		if _, ok := t.moveRequestedAt[uid]; !ok {
			may = append(may, s)
		}
	}
	return may
}

// recordMoveRequest notes that the agent got a request to move.
func (t *sessionTable) recordMoveRequest(uid string, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.moveRequestedAt[uid] = now
}
