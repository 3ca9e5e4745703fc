package peer

import (
	"context"
	"io"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"atoll.dev/atoll/internal/peer/peerpb"
	"atoll.dev/atoll/internal/tunnel"
)

// clusterKey is the metadata that names the cluster to whose agent a tunnel leads.
const clusterKey = "atoll-cluster"

// DialCluster returns a connection to the agent of a cluster by way of the hub that holds its
// stream. Errors are gRPC statuses; NotFound: no other hub holds it.
func (p *HubPeers) DialCluster(ctx context.Context, uid string) (net.Conn, error) {
	hub := p.connectionToHolder(uid)
	if hub == nil {
		return nil, status.Error(codes.NotFound, "no hub holds a stream of the cluster's agent")
	}
	call, cancel := context.WithCancel(metadata.AppendToOutgoingContext(context.WithoutCancel(ctx), clusterKey, uid))
	unbound := context.AfterFunc(ctx, cancel)
	stream, err := peerpb.NewPeerClient(hub).Tunnel(call)
	if err == nil {
		err = waitForTunnel(stream)
	}
	if err == nil && !unbound() {
		err = ctx.Err()
	}
	if err != nil {
		cancel()
		return nil, err
	}
	conn := tunnel.New(stream, cancel, uid)
	go func() {
		_ = conn.PumpMessages() // the reader gets an error
		cancel()
	}()
	return conn, nil
}

// waitForTunnel waits for the word that the tunnel is there, or why it is not.
func waitForTunnel(stream grpc.BidiStreamingClient[wrapperspb.BytesValue, wrapperspb.BytesValue]) error {
	header, err := stream.Header()
	if header == nil && err == nil { // the call ended without any
		_, err = stream.Recv()
	}
	return err
}

// IsHeldElsewhere reports whether another hub is known to hold the stream of that cluster.
func (p *HubPeers) IsHeldElsewhere(uid string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range p.union.hubs {
		if _, holds := h.sessions[uid]; holds {
			return true
		}
	}
	return false
}

// connectionToHolder returns the connection to the hub that holds the cluster; nil where none does that
// answers.
func (p *HubPeers) connectionToHolder(uid string) *grpc.ClientConn {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, h := range p.union.hubs {
		if _, holds := h.sessions[uid]; !holds {
			continue
		}
		if f := p.found[name]; f != nil && f.conn != nil {
			return f.conn
		}
	}
	return nil
}

// Tunnel leads another hub to an agent that this one holds.
func (p *HubPeers) Tunnel(rpc grpc.BidiStreamingServer[wrapperspb.BytesValue, wrapperspb.BytesValue]) error {
	if err := checkPeerIsHub(rpc.Context()); err != nil {
		return err
	}
	md, _ := metadata.FromIncomingContext(rpc.Context())
	uids := md.Get(clusterKey)
	if len(uids) != 1 {
		return status.Error(codes.InvalidArgument, "the call does not name its cluster")
	}
	agent, err := p.gateway.DialCluster(rpc.Context(), uids[0])
	if err != nil {
		return err
	}
	defer agent.Close()
	if err := rpc.SendHeader(metadata.MD{}); err != nil {
		return err
	}
	hub := tunnel.New(rpc, func() {}, uids[0])
	go func() { _ = hub.PumpMessages() }() // it ends with the call, and the reader gets an error
	joinConnections(hub, agent)
	return nil
}

// joinConnections copies between two connections until either ends, and closes both.
func joinConnections(a, b net.Conn) {
	var done sync.WaitGroup
	carry := func(to, from net.Conn) {
		_, _ = io.Copy(to, from) // how one ends is nothing to the other
		_, _ = a.Close(), b.Close()
	}
	done.Go(func() { carry(a, b) })
	carry(b, a)
	done.Wait()
}
