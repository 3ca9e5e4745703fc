package delivery

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/pause"
	pb "atoll.dev/atoll/internal/session/sessionpb"
)

// HAOptions connect a gateway to those of other hubs over the same store. The zero value
// is that of a single hub.
type HAOptions struct {
	// Hub is this hub among the others; nil: it is the only one.
	Hub HAHub
	// Peers are the other hubs; nil: there are none.
	Peers HAPeers
}

// HAHub is a hub that shares its store with others.
type HAHub interface {
	// IsServing reports whether agents may be served now. While it is false, agents that
	// connect are sent to another hub.
	IsServing() bool
	// IsLeader reports whether this hub decides. Other hubs sign approved requests only if the
	// leader does not.
	IsLeader() bool
	// AreRowsBehind reports whether the table of rows may lack what another hub's agents were sent
	// at the revision.
	AreRowsBehind(revision int64) bool
}

// HAPeers are the other hubs on the store.
type HAPeers interface {
	// Register adds the services between hubs.
	Register(s grpc.ServiceRegistrar)
	// IsHeldElsewhere reports whether another hub holds the stream of the cluster with that UID.
	IsHeldElsewhere(uid string) bool
}

const (
	// maxTableLag is how far a table may be behind what another hub has written and sent to an
	// agent.
	maxTableLag       = 2 * time.Second
	tablePollInterval = 25 * time.Millisecond
	// maxEarlyReports is how many reports of one session may wait for their rows.
	maxEarlyReports = 256
	// followerSignDelay is how long hubs that do not lead leave a request to the leader.
	followerSignDelay = 3 * time.Second
)

// checkServing returns nil while agents may be served. Otherwise it returns Unavailable,
// so that an agent tries its next address.
func (g *Gateway) checkServing() error {
	if g.options.HA.Hub == nil || g.options.HA.Hub.IsServing() {
		return nil
	}
	return status.Error(codes.Unavailable, "this hub serves no agents now: it starts, or is out of touch with its store; agents that have the address of every hub find another one")
}

// isConnectedToAnyHub reports whether the agent of a cluster has a stream at any hub.
func (g *Gateway) isConnectedToAnyHub(uid string) bool {
	return g.sessions.getByUID(uid) != nil || g.options.HA.Peers != nil && g.options.HA.Peers.IsHeldElsewhere(uid)
}

// EndSessions ends all sessions, so that agents connect to other hubs.
func (g *Gateway) EndSessions() {
	for _, s := range g.sessions.listAll() {
		s.endSession(nil)
	}
}

// SupersedeSession ends the session of a cluster that has a newer session at another hub.
func (g *Gateway) SupersedeSession(uid, hub string) {
	s := g.sessions.getByUID(uid)
	if s == nil {
		return
	}
	switches, rivals := g.sessions.countTakeover(uid, time.Now())
	if rivals {
		g.metrics.refused.WithLabelValues("stream", "Rivals").Inc()
		s.sessionLog().Error("agents at two hubs take the stream of one cluster from each other: its identity was copied. Stop one of them; to be sure that the other cannot return, deny the cluster and join it again",
			"instance", s.instance, "otherHub", hub, "switches", switches)
		s.endSession(&pb.Refused{Reason: string(atoll.ReasonSuperseded), Message: "a newer stream of this cluster's agent took over, at the hub " + hub})
		return
	}
	s.endSession(&pb.Refused{Reason: string(atoll.ReasonElsewhere), Message: "a newer stream of this cluster's agent is at the hub " + hub})
}

// admitWithRetry is admitIdentity for a certificate that another hub may have issued a
// moment ago.
func (g *Gateway) admitWithRetry(ctx context.Context, id identity) (c *v1alpha1.Cluster, refused *pb.Refused) {
	for until := time.Now().Add(maxTableLag); ; {
		c, refused = g.admitIdentity(id)
		if refused == nil || g.options.HA.Hub == nil || time.Now().After(until) {
			return c, refused
		}
		if !pause.WaitFor(ctx, tablePollInterval) {
			return c, refused
		}
	}
}

// signingDelay returns how long an approved request waits at this hub.
func (g *Gateway) signingDelay() time.Duration {
	if g.options.HA.Hub == nil || g.options.HA.Hub.IsLeader() {
		return 0
	}
	return followerSignDelay
}

// waitForRows waits until the table of rows has what the agent was sent at another hub, so
// that the two are not compared too early. After maxTableLag it returns all the same:
// agents ignore lower generations.
func (g *Gateway) waitForRows(ctx context.Context, p *pb.Position) {
	for until := time.Now().Add(maxTableLag); g.options.HA.Hub != nil && g.options.HA.Hub.AreRowsBehind(p.GetRevision()) && time.Now().Before(until); {
		if !pause.WaitFor(ctx, tablePollInterval) {
			return
		}
	}
}

// keepEarlyReport keeps a report of a bundle without a row in this hub's table. Another
// hub's table may have the row already, and the agent does not repeat the report.
func (s *agentSession) keepEarlyReport(r *pb.Report) {
	if s.gateway.options.HA.Hub == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.earlyReports[r.GetBundle()]; old.GetSeq() > r.GetSeq() || old == nil && len(s.earlyReports) >= maxEarlyReports {
		return
	}
	if s.earlyReports == nil {
		s.earlyReports = map[string]*pb.Report{}
	}
	s.earlyReports[r.GetBundle()] = r
}

// releaseEarlyReport handles the report that waited for the bundle's row. The caller holds
// the lock.
func (s *agentSession) releaseEarlyReport(bundle string) {
	if r := s.earlyReports[bundle]; r != nil {
		delete(s.earlyReports, bundle)
		go s.runContainingPanics(func() { s.handleReport(r) })
	}
}
