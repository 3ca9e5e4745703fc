package gateway

import (
	"maps"
	"slices"
	"time"

	pb "atoll.dev/atoll/internal/session/sessionpb"
)

// askAgain is when an agent that was asked to go on to another hub, and is here again,
// is asked once more: it may not reach the other one.
const askAgain = 10 * time.Minute

// SendOn asks up to n agents to go on to another hub: those that it is first for, as first
// tells by their cluster's name, before others. It asks only agents that hold a stream of
// which both ends have all that the other one sent, so that nothing is sent twice. It
// gives how many it has asked.
func (g *Gateway) SendOn(n int, hub string, first func(cluster string) bool) (asked int) {
	now := time.Now()
	may := slices.DeleteFunc(g.sessions.movable(now), func(s *stream) bool { return g.runHere(s.cluster) })
	for _, others := range []bool{false, true} {
		for _, s := range may {
			if asked >= n {
				return asked
			}
			if first(s.cluster) != others && s.move(hub) {
				g.sessions.moved(s.id.uid, now)
				asked++
			}
		}
	}
	return asked
}

// runHere tells of a cluster whose agent the hub runs, which knows of this gateway alone.
func (g *Gateway) runHere(cluster string) bool {
	c, ok := g.o.Clusters.Get(cluster)
	return ok && c.Spec.Pushed()
}

// move the agent to another hub, if nothing is under way.
func (s *stream) move(hub string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done || s.sending || s.visit.every > 0 || s.core == nil || !s.core.Synced() || s.asked || len(s.early) > 0 || !s.queue.empty() || s.tunnels.used() {
		return false
	}
	s.over(&pb.FromHub{Frame: &pb.FromHub_Move{Move: &pb.Move{Hub: hub}}})
	return true
}

// empty: nothing waits to be sent, nor to be tried again.
func (q *queue) empty() bool {
	return len(q.control)+len(q.acks)+len(q.touched)+len(q.needs)+len(q.orders)+len(q.retries) == 0
}

// movable gives the streams whose agents were not asked to go on a while ago, and forgets
// those that were asked before that.
func (t *sessions) movable(now time.Time) []*stream {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.asked, func(_ string, at time.Time) bool { return now.Sub(at) >= askAgain })
	may := make([]*stream, 0, len(t.byUID))
	for uid, s := range t.byUID {
		if _, ok := t.asked[uid]; !ok {
			may = append(may, s)
		}
	}
	return may
}

// moved notes that the agent was asked to go on.
func (t *sessions) moved(uid string, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asked[uid] = now
}
