package h2

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "atoll.dev/atoll/internal/session/sessionpb"
)

// server is gRPC's own; each test states what it does with a call.
type server struct {
	pb.UnimplementedSessionServer
	pb.UnimplementedRegistrationServer
	connect func(grpc.BidiStreamingServer[pb.FromAgent, pb.FromHub]) error
}

func (s *server) Connect(rpc grpc.BidiStreamingServer[pb.FromAgent, pb.FromHub]) error {
	return s.connect(rpc)
}

// serve starts a gRPC server and returns the address at which it listens.
func serve(t *testing.T, connect func(grpc.BidiStreamingServer[pb.FromAgent, pb.FromHub]) error, options ...grpc.ServerOption) (*grpc.Server, string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(append(options, grpc.MaxRecvMsgSize(64<<20))...)
	pb.RegisterSessionServer(g, &server{connect: connect})
	go func() { _ = g.Serve(listener) }()
	t.Cleanup(g.Stop)
	return g, listener.Addr().String()
}

func dialServer(t *testing.T, address string, counts *Counts) *ClientCall {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	c, err := Open(conn, &CallOptions{Authority: address, Method: pb.Session_Connect_FullMethodName, MessageMost: 32 << 20, Counts: counts})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func (c *ClientCall) sendFrame(t *testing.T, f *pb.FromAgent) {
	body, err := proto.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	c.QueueMessages(FrameMessage(body))
	c.Flush()
}

func reportOfSize(size int) *pb.FromAgent {
	return &pb.FromAgent{Frame: &pb.FromAgent_Report{Report: &pb.Report{Bundle: "b", Seq: int64(size), Status: bytes.Repeat([]byte{'s'}, size)}}}
}

// TestLargeMessages go both ways through windows that are far too small for them.
func TestLargeMessages(t *testing.T) {
	sizes := []int{0, 1, 16 << 10, 64<<10 - 1, 300 << 10, 5 << 20, 7}
	_, address := serve(t, func(rpc grpc.BidiStreamingServer[pb.FromAgent, pb.FromHub]) error {
		for {
			f, err := rpc.Recv()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			back := &pb.FromHub{Frame: &pb.FromHub_Upsert{Upsert: &pb.Upsert{Generation: f.GetReport().GetSeq(), Manifest: f.GetReport().GetStatus()}}}
			if err := rpc.Send(back); err != nil {
				return err
			}
		}
	})
	counts := &Counts{}
	c := dialServer(t, address, counts)
	for range 3 {
		for _, n := range sizes {
			c.sendFrame(t, reportOfSize(n))
		}
	}
	c.CloseSend()
	var got []int
	err := c.Serve(func(m []byte) error {
		var f pb.FromHub
		if err := proto.Unmarshal(m, &f); err != nil {
			return err
		}
		if n := len(f.GetUpsert().GetManifest()); n != int(f.GetUpsert().GetGeneration()) {
			t.Errorf("%d bytes came back of %d", n, f.GetUpsert().GetGeneration())
		}
		got = append(got, len(f.GetUpsert().GetManifest()))
		return nil
	})
	if err != nil || len(got) != 3*len(sizes) {
		t.Errorf("%d of %d messages came back: %v", len(got), 3*len(sizes), err)
	}
	if up, down := counts.BytesUp.Load(), counts.BytesDown.Load(); up < 15<<20 || down < 15<<20 {
		t.Errorf("%d bytes up and %d down are counted", up, down)
	}
}

func TestStatuses(t *testing.T) {
	for name, want := range map[string]error{
		"good":       nil,
		"refused":    status.Error(codes.PermissionDenied, "nein: 100 % größer\n+1"),
		"no message": status.Error(codes.Unavailable, ""),
	} {
		t.Run(name, func(t *testing.T) {
			_, address := serve(t, func(grpc.BidiStreamingServer[pb.FromAgent, pb.FromHub]) error { return want })
			err := dialServer(t, address, nil).Serve(nil)
			if status.Code(err) != status.Code(want) || status.Convert(err).Message() != status.Convert(want).Message() {
				t.Errorf("the call ends with %v, want %v", err, want)
			}
		})
	}
	_, address := serve(t, nil)
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	c, err := Open(conn, &CallOptions{Authority: address, Method: "/no.such/Method"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Serve(nil); status.Code(err) != codes.Unimplemented {
		t.Errorf("a method that is not there ends with %v", err)
	}
}

// TestGoAway: a server that stops gracefully lets the call go on to its end; one that
// stops breaks it.
func TestGoAway(t *testing.T) {
	greeted, end := make(chan bool, 1), make(chan bool)
	g, address := serve(t, func(rpc grpc.BidiStreamingServer[pb.FromAgent, pb.FromHub]) error {
		greeted <- true
		<-end
		return rpc.Send(&pb.FromHub{Frame: &pb.FromHub_Recall{Recall: &pb.Recall{}}})
	})
	c := dialServer(t, address, nil)
	done := make(chan error, 1)
	var messages atomic.Int32
	go func() { done <- c.Serve(func([]byte) error { messages.Add(1); return nil }) }()
	<-greeted
	stopped := make(chan bool)
	go func() { g.GracefulStop(); close(stopped) }()
	end <- true
	if err := <-done; err != nil || messages.Load() != 1 {
		t.Errorf("the call ends with %d messages and %v", messages.Load(), err)
	}
	c.Close()
	<-stopped

	g, address = serve(t, func(rpc grpc.BidiStreamingServer[pb.FromAgent, pb.FromHub]) error {
		greeted <- true
		<-rpc.Context().Done()
		return rpc.Context().Err()
	})
	c = dialServer(t, address, nil)
	go func() { done <- c.Serve(nil) }()
	<-greeted
	g.Stop()
	if err := <-done; err == nil {
		t.Error("the call ends well, although the server broke off")
	}
}

// TestKeepalive: a server that pings takes the call for alive. One that does not answer
// would be cut off a second before the call ends; a slow machine has four for an answer.
func TestKeepalive(t *testing.T) {
	t.Parallel()
	const beats = 6
	_, address := serve(t, func(rpc grpc.BidiStreamingServer[pb.FromAgent, pb.FromHub]) error {
		select {
		case <-rpc.Context().Done():
			return rpc.Context().Err()
		case <-time.After(beats * time.Second):
			return nil
		}
	}, grpc.KeepaliveParams(keepalive.ServerParameters{Time: time.Second, Timeout: 4 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Millisecond, PermitWithoutStream: true}))
	c := dialServer(t, address, nil)
	before := c.LastRead()
	c.SendPing()
	if err := c.Serve(nil); err != nil {
		t.Errorf("the call ends with %v", err)
	}
	if !c.LastRead().After(before) {
		t.Error("nothing was read")
	}
}

// TestHalfOpen: a silent peer leaves LastRead as it was, and Close frees waiting goroutines.
func TestHalfOpen(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	c := dialServer(t, listener.Addr().String(), nil)
	before := c.LastRead()
	done := make(chan error, 1)
	go func() { done <- c.Serve(nil) }()
	c.SendPing()
	c.sendFrame(t, reportOfSize(1<<20)) // more than fits into the window: it must not block
	if !c.HasUnwritten() || c.LastRead() != before {
		t.Error("it takes unread data for sent, or a peer for alive")
	}
	c.Close()
	if err := <-done; err == nil {
		t.Error("a broken connection ends well")
	}
	if c.HasUnwritten() {
		t.Error("a closed call still has something to send")
	}
}

// TestMessageLimit: a message that is too large ends the call before it is taken in.
func TestMessageLimit(t *testing.T) {
	_, address := serve(t, func(rpc grpc.BidiStreamingServer[pb.FromAgent, pb.FromHub]) error {
		return rpc.Send(&pb.FromHub{Frame: &pb.FromHub_Refused{Refused: &pb.Refused{Message: strings.Repeat("x", 33<<20)}}})
	})
	if err := dialServer(t, address, nil).Serve(nil); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("it ends with %v", err)
	}
}
