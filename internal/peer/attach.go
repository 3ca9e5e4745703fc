package peer

import (
	"context"
	"net"
	"time"
)

// Hub is this hub, for the other hubs.
type Hub interface {
	// UpdateStreamHolder is called whenever this hub, or another one, gets or loses the stream
	// of the cluster. For a lost stream it has the time of the agent's last sign of life.
	UpdateStreamHolder(uid string, here, elsewhere bool, heard time.Time)
	// RaiseRowGeneration is called with rows that other hubs' agents hold at a higher generation than the
	// store has.
	RaiseRowGeneration(bundle, cluster string, generation int64)
	// IsServing reports whether this hub serves agents now.
	IsServing() bool
}

// Agents records facts about the agents of the fleet.
type Agents interface {
	// CertificateOf returns, for an agent whose stream is here, the end of its certificate and
	// the generation of the CA that signed it; ok is false where these are not known yet.
	CertificateOf(uid string) (ends time.Time, generation int, ok bool)
	// RecordRemoteCertificate is called with the certificates of agents at other hubs, again at
	// each renewal.
	RecordRemoteCertificate(uid string, ends time.Time, generation int)
	// TransportOf returns the transport of an agent whose stream is here, for people to see.
	TransportOf(uid string) string
	// SetRemoteTransport is called with the transports of agents at other hubs.
	SetRemoteTransport(uid, how string)
}

// Gateway holds the streams of this hub's agents.
type Gateway interface {
	// SupersedeSession is called when a newer session of the cluster is at another hub.
	SupersedeSession(uid, hub string)
	// DialCluster gives a connection to the agent of a cluster that this hub holds, for another
	// hub. Its errors are gRPC statuses; NotFound: it does not hold it.
	DialCluster(ctx context.Context, uid string) (net.Conn, error)
}
