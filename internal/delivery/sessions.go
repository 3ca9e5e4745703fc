package delivery

import (
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"sync"
	"time"

	"atoll.dev/atoll/internal/atoll"
	pb "atoll.dev/atoll/internal/session/sessionpb"
)

// takeoverWindow and rivalTakeovers: two processes that take the stream from each other
// so often in that time are two agents under one identity.
const (
	// takeoverWindow and rivalTakeovers: two processes that take the stream from each other so
	// often within the window are two agents with one identity.
	takeoverWindow = time.Minute
	rivalTakeovers = 2
)

// sessionTable is the table of live sessions. It is safe for concurrent use.
type sessionTable struct {
	mu              sync.Mutex
	byUID           map[string]*agentSession
	byName          map[string]*agentSession
	rivals          map[string]*takeoverCount
	moveRequestedAt map[string]time.Time // by UID: when the agent got the request to connect to another hub

	// clusterLocks, by a hash of the UID, keep the notices that a cluster's sessions came
	// and went in order. A holder of a clusterLock may take mu, not the reverse.
	clusterLocks [256]sync.Mutex
	seed         maphash.Seed
}

// takeoverCount counts how often another process took a cluster's stream.
type takeoverCount struct {
	since    time.Time
	switches int
}

func newSessionTable() *sessionTable {
	return &sessionTable{byUID: map[string]*agentSession{}, byName: map[string]*agentSession{}, rivals: map[string]*takeoverCount{}, moveRequestedAt: map[string]time.Time{}, seed: maphash.MakeSeed()}
}

// clusterLock returns the lock under which notices about the cluster are given one at a
// time.
func (t *sessionTable) clusterLock(uid string) *sync.Mutex {
	return &t.clusterLocks[maphash.String(t.seed, uid)%uint64(len(t.clusterLocks))]
}

func (t *sessionTable) getByUID(uid string) *agentSession {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byUID[uid]
}

func (t *sessionTable) getByName(cluster string) *agentSession {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byName[cluster]
}

func (t *sessionTable) listAll() []*agentSession {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Values(t.byUID))
}

// put adds a session and returns the one that it replaces, and whether the two are rivals.
func (t *sessionTable) put(s *agentSession, now time.Time) (old *agentSession, rivals bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	old = t.byUID[s.id.uid]
	t.byUID[s.id.uid], t.byName[s.cluster] = s, s
	if old == nil || old.instance == s.instance {
		return old, false
	}
	_, rivals = t.countTakeoverLocked(s.id.uid, now)
	return old, rivals
}

// countTakeover counts that another hub took the stream of a cluster.
func (t *sessionTable) countTakeover(uid string, now time.Time) (switches int, rivals bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.countTakeoverLocked(uid, now)
}

// countTakeoverLocked counts a takeover. The caller holds the lock.
func (t *sessionTable) countTakeoverLocked(uid string, now time.Time) (switches int, rivals bool) {
	r := t.rivals[uid]
	if r == nil || now.Sub(r.since) > takeoverWindow {
		r = &takeoverCount{since: now}
		t.rivals[uid] = r
	}
	r.switches++
	return r.switches, r.switches >= rivalTakeovers
}

// remove takes a session out and returns true, unless another has replaced it.
func (t *sessionTable) remove(s *agentSession, now time.Time) (last bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byUID[s.id.uid] != s {
		return false
	}
	delete(t.byUID, s.id.uid)
	if t.byName[s.cluster] == s {
		delete(t.byName, s.cluster)
	}
	if r := t.rivals[s.id.uid]; r != nil && now.Sub(r.since) > takeoverWindow {
		delete(t.rivals, s.id.uid)
	}
	return true
}

// activateSession makes s the session of its cluster. An older session ends.
func (g *Gateway) activateSession(s *agentSession) {
	old, rivals := g.registerSession(s)
	if old != nil {
		old.endSession(&pb.Refused{Reason: string(atoll.ReasonSuperseded), Message: "a newer stream of this cluster's agent took over"})
	} else {
		g.metrics.streams.Inc()
	}
	if rivals {
		g.metrics.refused.WithLabelValues("stream", "Rivals").Inc()
		s.sessionLog().Error("two agents take the stream of one cluster from each other: its identity was copied. Stop one of them; to be sure that the other cannot return, deny the cluster and join it again",
			"instances", []string{old.instance, s.instance}, "from", peerAddress(s.grpc.Context()))
		if c, ok := g.options.Clusters.GetByUID(s.id.uid); ok {
			g.notifyAdmin(c, atoll.ReasonTwoAgents, fmt.Sprintf("two agents, one at %s, take the cluster's stream from each other: its identity was copied. Stop one of them; to be sure that the other cannot return, deny the cluster and join it again", peerAddress(s.grpc.Context())))
		}
	}
	s.sessionLog().Log(s.grpc.Context(), s.connectionLogLevel(), "an agent's stream is up", "from", peerAddress(s.grpc.Context()), "instance", s.instance)
	// The Cluster may have changed since it was read and before it could be found.
	if _, refused := g.admitIdentity(s.id); refused != nil {
		s.endSession(refused)
	}
	if g.checkServing() != nil {
		s.endSession(nil)
	}
}

// registerSession puts the session into the table and reports that the agent is connected.
func (g *Gateway) registerSession(s *agentSession) (old *agentSession, rivals bool) {
	turn := g.sessions.clusterLock(s.id.uid)
	turn.Lock()
	defer turn.Unlock()
	old, rivals = g.sessions.put(s, time.Now())
	g.options.Clusters.SetOnline(s.id.uid, true)
	v, ok := peerAuthFrom(s.grpc.Context())
	transport := ""
	if ok {
		transport = v.transport
	}
	g.options.Streams.StreamUp(s.id.uid, transport)
	if old != nil {
		g.certificates.remove(old)
	}
	if ok {
		g.certificates.put(s, v.certificate)
	}
	return old, rivals
}

// finishSession takes out a session that is over.
func (g *Gateway) finishSession(s *agentSession) {
	s.endSession(nil)
	s.mu.Lock()
	g.metrics.unclaimed.Sub(float64(s.unclaimedCounted))
	s.unclaimedCounted = 0
	s.mu.Unlock()
	if g.unregisterSession(s) {
		g.metrics.streams.Dec()
		s.sessionLog().Log(s.grpc.Context(), s.connectionLogLevel(), "an agent's stream is down")
	}
}

// unregisterSession takes the session out of the table and reports that the agent is
// disconnected, unless another session has replaced it.
func (g *Gateway) unregisterSession(s *agentSession) bool {
	turn := g.sessions.clusterLock(s.id.uid)
	turn.Lock()
	defer turn.Unlock()
	if !g.sessions.remove(s, time.Now()) {
		return false
	}
	g.certificates.remove(s)
	g.options.Clusters.SetOnline(s.id.uid, false)
	g.options.Streams.StreamDown(s.id.uid, lastReadFrom(s.grpc.Context()))
	return true
}

// recordHello takes from Hello what concerns the whole hub.
func (g *Gateway) recordHello(s *agentSession, h *pb.Hello) {
	g.checkForStoreRewind(s, h.GetPosition())
	// Generations of rows start at the milliseconds of their time and count up by one. No
	// hub assigns one of the day after tomorrow, and one agent must not raise all rows to
	// the limit of generations.
	if h.GetHighest() > time.Now().Add(24*time.Hour).UnixMilli() {
		s.sessionLog().Warn("an agent reports a generation that no hub assigns; the generation is ignored", "generation", h.GetHighest())
		return
	}
	for {
		old := g.highestGeneration.Load()
		if h.GetHighest() <= old || g.highestGeneration.CompareAndSwap(old, h.GetHighest()) {
			return
		}
	}
}
