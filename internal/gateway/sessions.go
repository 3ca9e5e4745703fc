package gateway

import (
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"sync"
	"time"

	pb "atoll.dev/atoll/internal/session/sessionpb"
)

// rivalWindow and rivalSwitches: two processes that take the stream from each other
// so often in that time are two agents under one identity.
const (
	rivalWindow   = time.Minute
	rivalSwitches = 2
)

// sessions is the table of live streams. It is safe for concurrent use.
type sessions struct {
	mu     sync.Mutex
	byUID  map[string]*stream
	byName map[string]*stream
	rivals map[string]*rivalry
	asked  map[string]time.Time // by UID, to go on to another hub

	// turns, by a hash of the UID: others are told that a cluster's streams came and went
	// in the order in which they did. Who holds one may take mu, not the other way round.
	turns [256]sync.Mutex
	seed  maphash.Seed
}

// rivalry counts how often another process took a cluster's stream.
type rivalry struct {
	since    time.Time
	switches int
}

func newSessions() *sessions {
	return &sessions{byUID: map[string]*stream{}, byName: map[string]*stream{}, rivals: map[string]*rivalry{}, asked: map[string]time.Time{}, seed: maphash.MakeSeed()}
}

// turn of a cluster: what is done in it, for that cluster, is not done at the same time.
func (t *sessions) turn(uid string) *sync.Mutex {
	return &t.turns[maphash.String(t.seed, uid)%uint64(len(t.turns))]
}

func (t *sessions) of(uid string) *stream {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byUID[uid]
}

func (t *sessions) named(cluster string) *stream {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byName[cluster]
}

func (t *sessions) all() []*stream {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Values(t.byUID))
}

// put a stream in its place and give the one that had it, and whether the two look
// like rivals.
func (t *sessions) put(s *stream, now time.Time) (old *stream, rivals bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	old = t.byUID[s.id.uid]
	t.byUID[s.id.uid], t.byName[s.cluster] = s, s
	if old == nil || old.instance == s.instance {
		return old, false
	}
	_, rivals = t.count(s.id.uid, now)
	return old, rivals
}

// switched counts that another hub took the stream of a cluster.
func (t *sessions) switched(uid string, now time.Time) (switches int, rivals bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.count(uid, now)
}

// count a switch of a cluster's stream. The caller holds the lock.
func (t *sessions) count(uid string, now time.Time) (switches int, rivals bool) {
	r := t.rivals[uid]
	if r == nil || now.Sub(r.since) > rivalWindow {
		r = &rivalry{since: now}
		t.rivals[uid] = r
	}
	r.switches++
	return r.switches, r.switches >= rivalSwitches
}

// remove a stream, unless another has taken its place.
func (t *sessions) remove(s *stream, now time.Time) (last bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byUID[s.id.uid] != s {
		return false
	}
	delete(t.byUID, s.id.uid)
	if t.byName[s.cluster] == s {
		delete(t.byName, s.cluster)
	}
	if r := t.rivals[s.id.uid]; r != nil && now.Sub(r.since) > rivalWindow {
		delete(t.rivals, s.id.uid)
	}
	return true
}

// enter makes s the session of its cluster. An older one ends.
func (g *Gateway) enter(s *stream) {
	old, rivals := g.come(s)
	if old != nil {
		old.end(&pb.Refused{Reason: "Superseded", Message: "a newer stream of this cluster's agent took over"})
	} else {
		g.metrics.streams.Inc()
	}
	if rivals {
		g.metrics.refused.WithLabelValues("stream", "Rivals").Inc()
		s.log().Error("two agents take the stream of one cluster from each other: its identity was copied. Stop one of them; to be sure that the other cannot return, deny the cluster and join it anew",
			"instances", []string{old.instance, s.instance}, "from", address(s.grpc.Context()))
		if c, ok := g.o.Clusters.ByUID(s.id.uid); ok {
			g.tell(c, "TwoAgents", fmt.Sprintf("two agents, one at %s, take the cluster's stream from each other: its identity was copied. Stop one of them; to be sure that the other cannot return, deny the cluster and join it anew", address(s.grpc.Context())))
		}
	}
	s.log().Log(s.grpc.Context(), s.level(), "an agent's stream is up", "from", address(s.grpc.Context()), "instance", s.instance)
	// The Cluster may have changed since it was read and before it could be found.
	if _, refused := g.admit(s.id); refused != nil {
		s.end(refused)
	}
	if g.serving() != nil {
		s.end(nil)
	}
}

// come puts the stream into its place and tells that it is up.
func (g *Gateway) come(s *stream) (old *stream, rivals bool) {
	turn := g.sessions.turn(s.id.uid)
	turn.Lock()
	defer turn.Unlock()
	old, rivals = g.sessions.put(s, time.Now())
	g.o.Clusters.SetOnline(s.id.uid, true)
	v, ok := visitorIn(s.grpc.Context())
	carriage := ""
	if ok {
		carriage = v.carriage
	}
	g.o.Inventory.StreamUp(s.id.uid, carriage)
	if old != nil {
		g.certificates.remove(old)
	}
	if ok {
		g.certificates.put(s, v.certificate)
	}
	return old, rivals
}

// leave takes s out when it is over.
func (g *Gateway) leave(s *stream) {
	s.end(nil)
	s.mu.Lock()
	g.metrics.unclaimed.Sub(float64(s.counted))
	s.counted = 0
	s.mu.Unlock()
	if g.gone(s) {
		g.metrics.streams.Dec()
		s.log().Log(s.grpc.Context(), s.level(), "an agent's stream is down")
	}
}

// gone takes the stream from its place and tells that it is down, unless another has
// taken its place.
func (g *Gateway) gone(s *stream) bool {
	turn := g.sessions.turn(s.id.uid)
	turn.Lock()
	defer turn.Unlock()
	if !g.sessions.remove(s, time.Now()) {
		return false
	}
	g.certificates.remove(s)
	g.o.Clusters.SetOnline(s.id.uid, false)
	g.o.Inventory.StreamDown(s.id.uid, heard(s.grpc.Context()))
	return true
}

// seen takes from Hello what concerns the whole hub.
func (g *Gateway) seen(s *stream, h *pb.Hello) {
	g.checkPosition(s, h.GetPosition())
	// Rows begin with the milliseconds of their time and count up by one. What is
	// beyond tomorrow no hub has given out, and one agent must not raise all rows to
	// where there is no room above them.
	if h.GetHighest() > time.Now().Add(24*time.Hour).UnixMilli() {
		s.log().Warn("an agent claims to hold a generation that no hub gives out; the claim is ignored", "generation", h.GetHighest())
		return
	}
	for {
		old := g.highest.Load()
		if h.GetHighest() <= old || g.highest.CompareAndSwap(old, h.GetHighest()) {
			return
		}
	}
}

const (
	warnEvery  = 10 * time.Minute
	warnsLimit = 4096
)

// warned keeps logs readable: who is refused every few seconds is logged seldom. It
// is safe for concurrent use.
type warned struct {
	mu sync.Mutex
	at map[string]time.Time
}

// first tells whether the key was not seen for a while.
func (w *warned) first(key string, now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if at, ok := w.at[key]; ok && now.Sub(at) < warnEvery {
		return false
	}
	if w.at == nil || len(w.at) >= warnsLimit {
		w.at = map[string]time.Time{}
	}
	w.at[key] = now
	return true
}
