package h2

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/testwait"
)

// The options of both servers.
const (
	testMessageMost = 8 << 20
	testStreams     = 100
)

type rpc = grpc.BidiStreamingServer[pb.FromAgent, pb.FromHub]

// testServer does what each test states.
type testServer struct {
	pb.UnimplementedSessionServer
	pb.UnimplementedRegistrationServer
	connect func(rpc) error
	join    func(context.Context, *pb.JoinRequest) (*pb.JoinReply, error)
}

func (s *testServer) Connect(r rpc) error { return s.connect(r) }

func (s *testServer) Join(ctx context.Context, r *pb.JoinRequest) (*pb.JoinReply, error) {
	return s.join(ctx, r)
}

func testOptions() ServerOptions {
	return ServerOptions{
		Inline:      func(m string) bool { return m == pb.Session_Connect_FullMethodName },
		MessageMost: testMessageMost, Window: 64 << 10, Streams: testStreams, FieldsMost: 16 << 10,
		PingAfter: 16 * time.Second, PingTimeout: 5 * time.Second, PingsApart: 5 * time.Second, WriteTimeout: 20 * time.Second,
	}
}

// testEndpoint is a running server: its address, and how to stop it.
type testEndpoint struct {
	address string
	stop    func()
}

// connServer serves connections: Server or GRPCServer.
type connServer interface {
	grpc.ServiceRegistrar
	Serve(net.Conn, credentials.AuthInfo)
	Stop()
}

// startH2Server starts a Server of this package on loopback.
func startH2Server(t testing.TB, impl *testServer) testEndpoint {
	return startServer(t, impl, NewServer(t.Context(), testOptions()))
}

// startGRPCServer starts a GRPCServer on loopback.
func startGRPCServer(t testing.TB, impl *testServer) testEndpoint {
	return startServer(t, impl, NewGRPCServer(testOptions(), GRPCLimits{}))
}

func startServer(t testing.TB, impl *testServer, s connServer) testEndpoint {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	pb.RegisterSessionServer(s, impl)
	pb.RegisterRegistrationServer(s, impl)
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepting.Go(func() { s.Serve(c, nil) })
		}
	})
	stop := sync.OnceFunc(func() { l.Close(); s.Stop(); accepting.Wait() })
	t.Cleanup(stop)
	return testEndpoint{l.Addr().String(), stop}
}

// onBoth runs a test over both servers, with gRPC's own client.
func onBoth(t *testing.T, test func(t *testing.T, serve func(*testServer) (testEndpoint, *grpc.ClientConn))) {
	for name, start := range map[string]func(testing.TB, *testServer) testEndpoint{"grpc": startGRPCServer, "h2": startH2Server} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, func(impl *testServer) (testEndpoint, *grpc.ClientConn) {
				s := start(t, impl)
				cc, err := grpc.NewClient(s.address, grpc.WithTransportCredentials(insecure.NewCredentials()),
					grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { cc.Close() })
				return s, cc
			})
		})
	}
}

// echoReports sends every report back until the client closes.
func echoReports(r rpc) error {
	for {
		f, err := r.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := r.Send(&pb.FromHub{Frame: &pb.FromHub_Upsert{Upsert: &pb.Upsert{Manifest: f.GetReport().GetStatus()}}}); err != nil {
			return err
		}
	}
}

func openSession(t *testing.T, ctx context.Context, cc *grpc.ClientConn) pb.Session_ConnectClient {
	t.Helper()
	s, err := pb.NewSessionClient(cc).Connect(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// roundTrip sends messages of the sizes and wants each of them back, then the end.
func roundTrip(s pb.Session_ConnectClient, sizes ...int) error {
	sent := make(chan error, 1)
	go func() {
		for _, n := range sizes {
			if err := s.Send(reportOfSize(n)); err != nil {
				sent <- err
				return
			}
		}
		sent <- s.CloseSend()
	}()
	for _, n := range sizes {
		f, err := s.Recv()
		if err != nil {
			return fmt.Errorf("message of %d bytes: %w", n, err)
		}
		if got := f.GetUpsert().GetManifest(); !bytes.Equal(got, bytes.Repeat([]byte{'s'}, n)) {
			return fmt.Errorf("%d bytes came back of %d", len(got), n)
		}
	}
	if _, err := s.Recv(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("the end is %w", err)
	}
	return <-sent
}

func TestEcho(t *testing.T) {
	onBoth(t, func(t *testing.T, serve func(*testServer) (testEndpoint, *grpc.ClientConn)) {
		_, cc := serve(&testServer{connect: echoReports})
		for range 3 { // calls follow each other on one connection
			if err := roundTrip(openSession(t, t.Context(), cc), 0, 1, 16<<10, 64<<10-6, 64<<10, 300<<10, 5<<20, 7, 0); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestManyCallsOfOneConnection(t *testing.T) {
	onBoth(t, func(t *testing.T, serve func(*testServer) (testEndpoint, *grpc.ClientConn)) {
		_, cc := serve(&testServer{connect: echoReports, join: func(_ context.Context, r *pb.JoinRequest) (*pb.JoinReply, error) {
			return &pb.JoinReply{Message: r.GetName()}, nil
		}})
		var wg sync.WaitGroup
		for i := range testStreams + 20 {
			s := openSession(t, t.Context(), cc)
			wg.Go(func() {
				if err := roundTrip(s, 10, 40<<10, i<<10, 100<<10); err != nil {
					t.Error(err)
				}
			})
			wg.Go(func() {
				reply, err := pb.NewRegistrationClient(cc).Join(t.Context(), &pb.JoinRequest{Name: fmt.Sprint(i)})
				if err != nil || reply.GetMessage() != fmt.Sprint(i) {
					t.Errorf("join %d: %v %v", i, reply, err)
				}
			})
			if i >= testStreams-2 {
				wg.Wait()
			}
		}
	})
}

func TestUnary(t *testing.T) {
	onBoth(t, func(t *testing.T, serve func(*testServer) (testEndpoint, *grpc.ClientConn)) {
		_, cc := serve(&testServer{join: func(ctx context.Context, r *pb.JoinRequest) (*pb.JoinReply, error) {
			md, _ := metadata.FromIncomingContext(ctx)
			p, ok := peer.FromContext(ctx)
			method, _ := grpc.Method(ctx)
			if !ok || p.Addr == nil || method != pb.Registration_Join_FullMethodName {
				return nil, status.Errorf(codes.Internal, "peer %v, method %s", p, method)
			}
			if len(md[":authority"]) != 1 || !slices.Equal(md["content-type"], []string{"application/grpc"}) || len(md["user-agent"]) != 1 {
				return nil, status.Errorf(codes.Internal, "metadata %v", md)
			}
			err := errors.Join(
				grpc.SetHeader(ctx, metadata.Pairs("first", "1", "first", "2")),
				grpc.SendHeader(ctx, metadata.Pairs("raw-bin", "\x00\xff")),
				grpc.SetTrailer(ctx, metadata.Pairs("last", strings.Join(md["a"], "+"), "last-bin", md["b-bin"][0])),
			)
			return &pb.JoinReply{Message: r.GetName()}, err
		}})
		ctx := metadata.AppendToOutgoingContext(t.Context(), "a", "x", "a", "y", "b-bin", "\x01\x02\xfe")
		var first, last metadata.MD
		reply, err := pb.NewRegistrationClient(cc).Join(ctx, &pb.JoinRequest{Name: "tokyo"}, grpc.Header(&first), grpc.Trailer(&last))
		if err != nil || reply.GetMessage() != "tokyo" {
			t.Fatal(reply, err)
		}
		if !slices.Equal(first["first"], []string{"1", "2"}) || first["raw-bin"][0] != "\x00\xff" || !slices.Equal(last["last"], []string{"x+y"}) || last["last-bin"][0] != "\x01\x02\xfe" {
			t.Errorf("header %v, trailer %v", first, last)
		}
	})
}

func TestStatusWithDetails(t *testing.T) {
	detailed, err := status.New(codes.FailedPrecondition, "not yet: 100 % größer\n+1").WithDetails(durationpb.New(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	onBoth(t, func(t *testing.T, serve func(*testServer) (testEndpoint, *grpc.ClientConn)) {
		for _, want := range []error{detailed.Err(), status.Error(codes.NotFound, ""), context.DeadlineExceeded, errors.New("plain")} {
			_, cc := serve(&testServer{
				connect: func(r rpc) error { return errors.Join(r.Send(&pb.FromHub{}), want) },
				join:    func(context.Context, *pb.JoinRequest) (*pb.JoinReply, error) { return nil, want },
			})
			st, ok := status.FromError(want)
			if !ok {
				st = status.FromContextError(want)
			}
			if _, err := pb.NewRegistrationClient(cc).Join(t.Context(), &pb.JoinRequest{}); status.Convert(err).String() != st.String() || len(status.Convert(err).Details()) != len(st.Details()) {
				t.Errorf("%v comes as %v", want, err)
			}
			s := openSession(t, t.Context(), cc)
			if _, err := s.Recv(); err != nil {
				t.Error(err)
			}
			if _, err := s.Recv(); status.Code(err) != st.Code() {
				t.Errorf("%v comes as %v", want, err)
			}
		}
	})
}

func TestRefusedCalls(t *testing.T) {
	onBoth(t, func(t *testing.T, serve func(*testServer) (testEndpoint, *grpc.ClientConn)) {
		_, cc := serve(&testServer{connect: echoReports})
		for _, name := range []string{"/no.Service/Method", "/atoll.session.v1.Session/No", "/x"} {
			if err := cc.Invoke(t.Context(), name, &pb.JoinRequest{}, &pb.JoinReply{}); status.Code(err) != codes.Unimplemented && name != "/x" || err == nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		s := openSession(t, t.Context(), cc)
		if err := s.Send(reportOfSize(testMessageMost)); err != nil && !errors.Is(err, io.EOF) {
			t.Error(err)
		}
		if _, err := s.Recv(); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("too large a message: %v", err)
		}
		if err := roundTrip(openSession(t, t.Context(), cc), 1, 2); err != nil {
			t.Errorf("after it: %v", err)
		}
	})
}

// TestEnds: whatever ends a call, its handler is freed.
func TestEnds(t *testing.T) {
	onBoth(t, func(t *testing.T, serve func(*testServer) (testEndpoint, *grpc.ClientConn)) {
		began, ended := make(chan context.Context, 1), make(chan error, 1)
		impl := &testServer{connect: func(r rpc) error {
			began <- r.Context()
			_, err := r.Recv()
			<-r.Context().Done()
			ended <- err
			return err
		}}
		s, cc := serve(impl)
		// As long as a slow machine may take to connect, and to begin the call.
		short, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		call := openSession(t, short, cc)
		if _, ok := (<-began).Deadline(); !ok {
			t.Error("the handler has no deadline")
		}
		if _, err := call.Recv(); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("past the deadline: %v", err)
		}
		if err := <-ended; status.Code(err) != codes.DeadlineExceeded && status.Code(err) != codes.Canceled {
			t.Errorf("the handler: %v", err)
		}

		cancelled, cancel := context.WithCancel(t.Context())
		openSession(t, cancelled, cc)
		<-began
		cancel()
		if err := <-ended; status.Code(err) != codes.Canceled {
			t.Errorf("the handler of a cancelled call: %v", err)
		}

		openSession(t, t.Context(), cc)
		<-began
		cc.Close()
		if err := <-ended; status.Code(err) != codes.Canceled {
			t.Errorf("the handler of a client that is gone: %v", err)
		}

		again, err := grpc.NewClient(s.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer again.Close()
		call = openSession(t, t.Context(), again)
		<-began
		s.stop()
		if err := <-ended; status.Code(err) != codes.Canceled {
			t.Errorf("the handler when the server stops: %v", err)
		}
		if _, err := call.Recv(); status.Code(err) != codes.Unavailable && status.Code(err) != codes.Canceled {
			t.Errorf("the client when the server stops: %v", err)
		}
	})
}

// TestSlowReaders get all, and delay no other call of their connection.
func TestSlowReaders(t *testing.T) {
	const messages, size = 100, 30 << 10
	onBoth(t, func(t *testing.T, serve func(*testServer) (testEndpoint, *grpc.ClientConn)) {
		sent := make(chan bool)
		_, cc := serve(&testServer{
			connect: func(r rpc) error {
				for range messages {
					if err := r.Send(&pb.FromHub{Frame: &pb.FromHub_Upsert{Upsert: &pb.Upsert{Manifest: make([]byte, size)}}}); err != nil {
						return err
					}
				}
				close(sent)
				return nil
			},
			join: func(context.Context, *pb.JoinRequest) (*pb.JoinReply, error) { return &pb.JoinReply{}, nil },
		})
		s := openSession(t, t.Context(), cc)
		for range 20 {
			if _, err := pb.NewRegistrationClient(cc).Join(t.Context(), &pb.JoinRequest{}); err != nil {
				t.Error(err)
			}
		}
		select {
		case <-sent:
			t.Error("all was sent without a reader")
		default:
		}
		for range messages {
			if f, err := s.Recv(); err != nil || len(f.GetUpsert().GetManifest()) != size {
				t.Fatal(err)
			}
		}
		if _, err := s.Recv(); !errors.Is(err, io.EOF) {
			t.Error(err)
		}
	})
}

// A peer that reads nothing is cut off on both, when a write has waited for WriteTimeout.
func TestAPeerThatReadsNothingIsCutOff(t *testing.T) {
	for name, start := range map[string]func(ServerOptions) connServer{
		"grpc": func(o ServerOptions) connServer { return NewGRPCServer(o, GRPCLimits{}) },
		"h2":   func(o ServerOptions) connServer { return NewServer(t.Context(), o) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := testOptions()
			o.WriteTimeout = 300 * time.Millisecond
			ended := make(chan struct{})
			s := startServer(t, &testServer{connect: func(r rpc) error {
				defer close(ended)
				for {
					if err := r.Send(&pb.FromHub{Frame: &pb.FromHub_Upsert{Upsert: &pb.Upsert{Manifest: make([]byte, 1<<20)}}}); err != nil {
						return err
					}
				}
			}}, start(o))
			cc, err := grpc.NewClient(s.address, grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithInitialWindowSize(64<<20), grpc.WithInitialConnWindowSize(64<<20),
				grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
					nc, err := new(net.Dialer).DialContext(ctx, "tcp", address)
					return &deafConn{Conn: nc, most: 1 << 10, closed: make(chan struct{})}, err
				}))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { cc.Close() })
			openSession(t, t.Context(), cc)
			select {
			case <-ended:
			case <-time.After(testwait.HangLimit):
				t.Error("its handler waits on")
			}
		})
	}
}

// deafConn stops to read after some bytes, until it is closed.
type deafConn struct {
	net.Conn
	most   int
	closed chan struct{}
	once   sync.Once
}

func (c *deafConn) Read(p []byte) (int, error) {
	if c.most <= 0 {
		<-c.closed
		return 0, net.ErrClosed
	}
	n, err := c.Conn.Read(p)
	c.most -= n
	return n, err
}

func (c *deafConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// TestFindCallCancel frees a handler, and the connection serves on.
func TestFindCallCancel(t *testing.T) {
	onBoth(t, func(t *testing.T, serve func(*testServer) (testEndpoint, *grpc.ClientConn)) {
		first := true
		_, cc := serve(&testServer{connect: func(r rpc) error {
			if !first {
				return echoReports(r)
			}
			first = false
			go FindCallCancel(r.Context())()
			_, err := r.Recv()
			if r.Context().Err() == nil {
				t.Error("its context goes on")
			}
			return errors.Join(err, status.Error(codes.Aborted, "hung up"))
		}})
		call := openSession(t, t.Context(), cc)
		// The peer gets the handler's status from Server, and Canceled from grpc-go.
		if _, err := call.Recv(); err == nil || !strings.Contains(err.Error(), "hung up") && (strings.HasSuffix(t.Name(), "/h2") || status.Code(err) != codes.Canceled) {
			t.Error(err)
		}
		if err := roundTrip(openSession(t, t.Context(), cc), 1, 70<<10); err != nil {
			t.Error(err)
		}
		if FindCallCancel(t.Context()) != nil {
			t.Error("there is nothing to hang up")
		}
	})
}
