package gateway

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"atoll.dev/atoll/api/v1alpha1"
	pb "atoll.dev/atoll/internal/session/sessionpb"
)

// Several says how a gateway serves beside those of other hubs of one store. The zero
// value is that of the only hub.
type Several struct {
	// Serves tells whether agents may be served now; default: always. Who dials
	// meanwhile is told to go on to another hub.
	Serves func() bool
	// Leads tells whether this hub decides; default: it does. The others sign
	// approved requests only where it does not.
	Leads func() bool
	// Register adds the services by which hubs talk; default: none.
	Register func(grpc.ServiceRegistrar)
	// Behind tells whether the table of rows may lack what another hub's agents have
	// been told at that revision; default: it does not.
	Behind func(revision int64) bool
	// Elsewhere tells whether another hub holds the stream of the cluster of that UID;
	// default: none does.
	Elsewhere func(uid string) bool
}

const (
	// tableLag is how long a table may be behind what another hub has written, and
	// an agent has been told there.
	tableLag = 2 * time.Second
	lookLag  = 25 * time.Millisecond
	// earlyLimit is how many reports one stream may have that wait for their rows.
	earlyLimit = 256
	// signLater is how long hubs that do not lead leave a request to the one that does.
	signLater = 3 * time.Second
)

// serving is nil while agents may be served. Otherwise it is "unavailable", so that
// an agent goes on with the next address that it has.
func (g *Gateway) serving() error {
	if g.o.Several.Serves == nil || g.o.Several.Serves() {
		return nil
	}
	return status.Error(codes.Unavailable, "this hub serves no agents now: it starts, or is out of touch with its store; agents that know the address of every hub find another one")
}

// connected tells whether the agent of a cluster has a stream, at whichever hub.
func (g *Gateway) connected(uid string) bool {
	return g.sessions.of(uid) != nil || g.o.Several.Elsewhere != nil && g.o.Several.Elsewhere(uid)
}

// CutOff ends all sessions, so that agents go on to other hubs.
func (g *Gateway) CutOff() {
	for _, s := range g.sessions.all() {
		s.end(nil)
	}
}

// Supersede ends the session of a cluster of which another hub has a newer one.
func (g *Gateway) Supersede(uid, hub string) {
	s := g.sessions.of(uid)
	if s == nil {
		return
	}
	switches, rivals := g.sessions.switched(uid, time.Now())
	if rivals {
		g.metrics.refused.WithLabelValues("stream", "Rivals").Inc()
		s.log().Error("agents at two hubs take the stream of one cluster from each other: its identity was copied. Stop one of them; to be sure that the other cannot return, deny the cluster and join it anew",
			"instance", s.instance, "otherHub", hub, "switches", switches)
		s.end(&pb.Refused{Reason: "Superseded", Message: "a newer stream of this cluster's agent took over, at the hub " + hub})
		return
	}
	s.end(&pb.Refused{Reason: "Elsewhere", Message: "a newer stream of this cluster's agent is at the hub " + hub})
}

// admitLate is admit for who comes with a certificate that another hub may have
// issued a moment ago.
func (g *Gateway) admitLate(ctx context.Context, id identity) (c *v1alpha1.Cluster, refused *pb.Refused) {
	for until := time.Now().Add(tableLag); ; {
		c, refused = g.admit(id)
		if refused == nil || g.o.Several.Serves == nil || time.Now().After(until) {
			return c, refused
		}
		select {
		case <-ctx.Done():
			return c, refused
		case <-time.After(lookLag):
		}
	}
}

// signAfter is how long a request that was approved waits here.
func (g *Gateway) signAfter() time.Duration {
	if g.o.Several.Leads == nil || g.o.Several.Leads() {
		return 0
	}
	return signLater
}

// catchUp waits until the table of rows has what the agent was told at another hub, so
// that it is not compared with less. After a while it is all the same: generations
// keep what is older from being obeyed.
func (g *Gateway) catchUp(ctx context.Context, p *pb.Position) {
	for until := time.Now().Add(tableLag); g.o.Several.Behind != nil && g.o.Several.Behind(p.GetRevision()) && time.Now().Before(until); {
		select {
		case <-ctx.Done():
			return
		case <-time.After(lookLag):
		}
	}
}

// keepEarly keeps a report of a bundle of which this hub's table shows no row: another
// hub's may have shown it already, and the agent does not report again by itself.
func (s *stream) keepEarly(r *pb.Report) {
	if s.g.o.Several.Behind == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.early[r.GetBundle()]; old.GetSeq() > r.GetSeq() || old == nil && len(s.early) >= earlyLimit {
		return
	}
	if s.early == nil {
		s.early = map[string]*pb.Report{}
	}
	s.early[r.GetBundle()] = r
}

// takeEarly reports what waited for the bundle's row. The caller holds the lock.
func (s *stream) takeEarly(bundle string) {
	if r := s.early[bundle]; r != nil {
		delete(s.early, bundle)
		go s.report(r)
	}
}
