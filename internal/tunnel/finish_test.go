package tunnel

import (
	"bytes"
	"context"
	"crypto/rand"
	"io"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/testwait"
)

// dialTunnel serves a tunnel over gRPC: the agent's end and the hub's.
func dialTunnel(t *testing.T) (agent, hub *Conn) {
	t.Helper()
	return dialledBy(t, &SendBudget{})
}

// dialledBy a share.
func dialledBy(t *testing.T, share *SendBudget) (agent, hub *Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	taken := taking{conns: make(chan *Conn, 1)}
	server := grpc.NewServer()
	pb.RegisterTunnelServer(server, taken)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	client, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	stream, err := share.OpenStream(func(o ...grpc.CallOption) (ClientStream, error) { return pb.NewTunnelClient(client).Open(ctx, o...) })
	if err != nil {
		t.Fatal(err)
	}
	agent = New(stream, cancel, "hub")
	go func() { _ = agent.PumpMessages() }()
	return agent, <-taken.conns
}

type taking struct {
	pb.UnimplementedTunnelServer
	conns chan *Conn
}

func (c taking) Open(rpc grpc.BidiStreamingServer[wrapperspb.BytesValue, wrapperspb.BytesValue]) error {
	conn := New(rpc, func() {}, "agent")
	c.conns <- conn
	return conn.PumpMessages()
}

// TestWhatWasWrittenArrivesAlthoughTheConnectionIsClosed: a server that has said all that
// it has to say closes the connection, whether or not it was read.
func TestWhatWasWrittenArrivesAlthoughTheConnectionIsClosed(t *testing.T) {
	for range 20 {
		agent, hub := dialTunnel(t)
		said := make([]byte, 48<<10)
		_, _ = rand.Read(said)
		if _, err := agent.Write(said); err != nil {
			t.Fatal(err)
		}
		_, _ = agent.Close(), agent.Close()
		_ = hub.SetReadDeadline(time.Now().Add(testwait.HangLimit))
		got, err := io.ReadAll(hub)
		if err != nil || !bytes.Equal(got, said) {
			t.Fatalf("%d of %d bytes came, %v", len(got), len(said), err)
		}
	}
}

// TestAConnectionIsClosedAlthoughNobodyReads: one on which a writer is stuck, at once.
func TestAConnectionIsClosedAlthoughNobodyReads(t *testing.T) {
	agent, hub := dialTunnel(t)
	stuck := make(chan error)
	go func() {
		_, err := agent.Write(make([]byte, 10<<20))
		stuck <- err
	}()
	if _, err := io.ReadFull(hub, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	_ = agent.Close()
	select {
	case err := <-stuck:
		if err == nil {
			t.Error("all was written without a reader")
		}
	case <-time.After(testwait.HangLimit):
		t.Error("Close does not free a writer")
	}
}

// TestWhatWasWrittenCountsNoMore: gRPC reports a written piece, so that a tunnel with a reader has
// no limit, and only unread data counts.
func TestWhatWasWrittenCountsNoMore(t *testing.T) {
	share := &SendBudget{}
	agent, hub := dialledBy(t, share)
	go func() { _, _ = agent.Write(make([]byte, 8<<20)) }()
	if _, err := io.ReadFull(hub, make([]byte, 8<<20)); err != nil {
		t.Fatal(err)
	}
	counts := func() int {
		share.mu.Lock()
		defer share.mu.Unlock()
		return share.used
	}
	for until := time.Now().Add(testwait.HangLimit); counts() > 0; <-time.After(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("%d bytes count, and all was read", counts())
		}
	}
	go func() { _, _ = agent.Write(make([]byte, 8<<20)) }()
	for until := time.Now().Add(testwait.HangLimit); counts() == 0; <-time.After(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("unread data does not count")
		}
	}
}
