package delivery

import (
	"errors"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"

	"atoll.dev/atoll/internal/delivery/fairness"
	"atoll.dev/atoll/internal/h2"
	pb "atoll.dev/atoll/internal/session/sessionpb"
)

// How callers without a certificate are served
//
// An agent that joins has no certificate yet, so that the hub must listen to anyone. Such callers
// have a server of their own, with few connections, calls, bytes and little time. They take
// nothing from agents with certificates, whose server they never reach.

const (
	// maxStrangers is how many connections without a certificate are open at a time;
	// maxStrangersPerNetwork of them may come from one network. Many clusters may join
	// through one NAT gateway.
	maxStrangers           = 1000
	maxStrangersPerNetwork = 500
	// strangerStreams is how many calls one such connection may have open.
	strangerStreams = 4
	// strangerMessageBytes bounds a message of such a caller.
	strangerMessageBytes = 16 << 10
	// strangerIdle and strangerAge are how long such a connection may be without a call, and open
	// at all. A call that waits for its Join is ended by the age after strangerGrace.
	strangerIdle  = time.Minute
	strangerAge   = 10 * time.Minute
	strangerGrace = time.Minute
	// strangerCallGrace is how much longer than JoinWait a call may take, its message included.
	strangerCallGrace = 15 * time.Second
)

// errStrangersFull closes a connection without a certificate.
var errStrangersFull = errors.New("too many connections without a certificate are open")

// uncertifiedConnServer serves callers without a certificate. It is safe for concurrent use.
type uncertifiedConnServer struct {
	// serve serves a connection in the background, and closes it.
	serve func(net.Conn, credentials.AuthInfo)

	mu        sync.Mutex
	open      int
	byNetwork map[string]int
}

func newUncertifiedConnServer(serve func(net.Conn, credentials.AuthInfo)) *uncertifiedConnServer {
	return &uncertifiedConnServer{serve: serve, byNetwork: map[string]int{}}
}

// newUncertifiedCallerServer returns the server of callers without a certificate.
func (g *Gateway) newUncertifiedCallerServer() *h2.GRPCServer {
	o := agentServerOptions()
	o.MessageMost, o.Streams = strangerMessageBytes, strangerStreams
	s := h2.NewGRPCServer(o, h2.GRPCLimits{Call: g.options.JoinWait + strangerCallGrace, Idle: strangerIdle, Age: strangerAge, AgeGrace: strangerGrace})
	pb.RegisterRegistrationServer(s, g)
	pb.RegisterSessionServer(s, g) // refuses, and states what to do
	pb.RegisterTunnelServer(s, g)  // refuses
	return s
}

// serveConn passes a connection on, or closes it where the lane is full.
func (l *uncertifiedConnServer) serveConn(conn net.Conn, auth credentials.AuthInfo) error {
	network := fairness.NetworkOf(conn.RemoteAddr())
	l.mu.Lock()
	full := l.open >= maxStrangers || l.byNetwork[network] >= maxStrangersPerNetwork
	if !full {
		l.open++
		l.byNetwork[network]++
	}
	l.mu.Unlock()
	if full {
		_ = conn.Close() // its end is not reported
		return errStrangersFull
	}
	release := sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.open--
		if l.byNetwork[network]--; l.byNetwork[network] == 0 {
			delete(l.byNetwork, network)
		}
	})
	l.serve(&uncertifiedConn{Conn: conn, release: release}, auth)
	return credentials.ErrConnDispatched
}

// uncertifiedConn is a connection that has a place in its lane.
type uncertifiedConn struct {
	net.Conn
	release func()
}

// Close releases the place of the connection.
func (c *uncertifiedConn) Close() error {
	c.release()
	return c.Conn.Close()
}
