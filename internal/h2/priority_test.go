package h2

import (
	"net"
	"testing"
	"testing/synctest"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	pb "atoll.dev/atoll/internal/session/sessionpb"
)

// heavy tunnels send whatever their windows take.
type heavy struct{ pb.UnimplementedTunnelServer }

func (heavy) Open(r grpc.BidiStreamingServer[wrapperspb.BytesValue, wrapperspb.BytesValue]) error {
	for {
		if err := r.Send(wrapperspb.Bytes(make([]byte, 10_000))); err != nil {
			return err
		}
	}
}

// TestInlineCallsGoFirst: others leave them a part of the connection's window, so that what
// they say does not wait until a peer has taken what others have said.
func TestInlineCallsGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		say := make(chan struct{})
		o := testOptions()
		o.Inline = func(method string) bool { return method == pb.Session_Connect_FullMethodName }
		s := NewServer(t.Context(), o)
		pb.RegisterSessionServer(s, &testServer{connect: func(r rpc) error {
			<-say
			if err := r.Send(&pb.FromHub{Frame: &pb.FromHub_Welcome{Welcome: &pb.Welcome{ClusterName: "tokyo"}}}); err != nil {
				return err
			}
			_, err := r.Recv()
			return err
		}})
		pb.RegisterTunnelServer(s, heavy{})
		mine, its := net.Pipe()
		p := &rawClient{Conn: mine, framer: http2.NewFramer(mine, mine), frames: make(chan string, 10_000)}
		go s.Serve(its, nil)
		taken := 0
		go func() {
			for {
				f, err := p.framer.ReadFrame()
				if err != nil {
					return
				}
				if d, ok := f.(*http2.DataFrame); ok {
					taken += int(d.Length)
				}
				p.frames <- describe(f)
			}
		}()
		defer func() { mine.Close(); s.Stop() }()
		_, _ = p.Write([]byte(http2.ClientPreface))
		_ = p.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
		if err := p.openStream(1, false); err != nil {
			t.Fatal(err)
		}
		for _, id := range []uint32{3, 5, 7} {
			if err := p.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndHeaders: true, BlockFragment: requestBlock(pb.Tunnel_Open_FullMethodName)}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if taken < initialWindow/2 {
			t.Fatalf("tunnels sent %d bytes only", taken)
		}
		for len(p.frames) > 0 {
			<-p.frames
		}
		close(say)
		synctest.Wait()
		if len(p.frames) == 0 {
			t.Errorf("tunnels have sent %d bytes of a window of %d, and the session may say nothing", taken, initialWindow)
		}
		for len(p.frames) > 0 {
			if f := <-p.frames; f != "HEADERS 1" && f != "DATA 1" {
				t.Errorf("%s came before the session's", f)
			}
		}
	})
}

// TestWindowsThatAreToSpare: calls of which much comes get a larger window while there is
// something to spare for all of them, and give it back.
func TestWindowsThatAreToSpare(t *testing.T) {
	const usual, larger = 64 << 10, 256 << 10
	o := testOptions()
	o.Window, o.WindowOf, o.Spare = usual, func(string) int { return larger }, 2*(larger-usual)
	s := NewServer(t.Context(), o)
	defer s.Stop()
	c := &serverConn{server: s, baseContext: t.Context(), recvWindow: usual, recvAvailable: usual}
	c.change.L, c.netConn = &c.mu, &net.TCPConn{}
	w := writers.Get().(*frameWriter)
	defer w.release()
	var all []*serverStream
	for i := range 3 {
		one := newStream(c, uint32(2*i+1), &method{window: larger}, &requestHeaders{})
		c.streams = append(c.streams, one)
		all = append(all, one)
		if err := c.widenWindow(w, one); err != nil || one.window != usual {
			t.Errorf("of one of which nothing came: %d, %v", one.window, err)
		}
	}
	for i, one := range all {
		one.receivedBytes = usual
		want := int64(larger)
		if i == 2 {
			want = usual
		}
		if err := c.widenWindow(w, one); err != nil || one.window != want || one.recvAvailable != want {
			t.Errorf("the window of call %d: %d, %d, %v; wanted %d", i, one.window, one.recvAvailable, err, want)
		}
	}
	c.remove(all[0])
	if err := c.widenWindow(w, all[2]); err != nil || all[2].window != larger {
		t.Errorf("after another has ended: %d, %v", all[2].window, err)
	}
	c.remove(all[1])
	c.remove(all[2])
	if left := s.spare.Load(); left != o.Spare {
		t.Errorf("%d are left of %d", left, o.Spare)
	}
}
