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
		o := options()
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
		p := &raw{Conn: mine, framer: http2.NewFramer(mine, mine), got: make(chan string, 10_000)}
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
				p.got <- describe(f)
			}
		}()
		defer func() { mine.Close(); s.Stop() }()
		_, _ = p.Write([]byte(http2.ClientPreface))
		_ = p.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
		if err := p.open(1, false); err != nil {
			t.Fatal(err)
		}
		for _, id := range []uint32{3, 5, 7} {
			if err := p.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndHeaders: true, BlockFragment: ask(pb.Tunnel_Open_FullMethodName)}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if taken < windowStart/2 {
			t.Fatalf("tunnels sent %d bytes only", taken)
		}
		for len(p.got) > 0 {
			<-p.got
		}
		close(say)
		synctest.Wait()
		if len(p.got) == 0 {
			t.Errorf("tunnels have sent %d bytes of a window of %d, and the session may say nothing", taken, windowStart)
		}
		for len(p.got) > 0 {
			if f := <-p.got; f != "HEADERS 1" && f != "DATA 1" {
				t.Errorf("%s came before the session's", f)
			}
		}
	})
}
