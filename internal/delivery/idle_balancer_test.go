package delivery

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"atoll.dev/atoll/internal/session"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/tunnel"
	"atoll.dev/atoll/internal/tunnel/websocket"
)

// silentServer sessions say nothing.
type silentServer struct{ pb.UnimplementedSessionServer }

func (silentServer) Connect(rpc grpc.BidiStreamingServer[pb.FromAgent, pb.FromHub]) error {
	for {
		if _, err := rpc.Recv(); err != nil {
			return err
		}
	}
}

// idleClosingDialer passes connections on to a listener, and closes those on which nothing is said
// for so long, in either direction, as balancers do.
func idleClosingDialer(to *tunnel.Listener, limit time.Duration) func(context.Context, string) (net.Conn, error) {
	return func(context.Context, string) (net.Conn, error) {
		agent, front := net.Pipe()
		back, hub := net.Pipe()
		go to.HandOverConn(hub)
		var last atomic.Int64
		last.Store(time.Now().UnixNano())
		pass := func(dst, src net.Conn) {
			defer dst.Close()
			defer src.Close()
			b := make([]byte, 16<<10)
			for {
				_ = src.SetReadDeadline(time.Unix(0, last.Load()).Add(limit))
				n, err := src.Read(b)
				if n > 0 {
					last.Store(time.Now().UnixNano())
					_, _ = dst.Write(b[:n])
				} else if !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(time.Unix(0, last.Load())) >= limit {
					return
				}
			}
		}
		go pass(back, front)
		go pass(front, back)
		return agent, nil
	}
}

// TestBalancersKeepAgentConnections: those that close what is quiet for a minute see the pings of
// what the WebSocket carries.
func TestBalancersKeepAgentConnections(t *testing.T) {
	for limit, lives := range map[time.Duration]bool{time.Minute: true, 30 * time.Second: true, 5 * time.Second: false} {
		synctest.Test(t, func(t *testing.T) {
			agents := (&Gateway{lifetime: t.Context()}).newAgentServer()
			agents.RegisterService(&pb.Session_ServiceDesc, silentServer{})
			came := tunnel.NewListener("hub")
			server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if conn, err := websocket.UpgradeRequest(w, r); err == nil {
					agents.Serve(conn, nil)
				}
			})}
			var serving sync.WaitGroup
			serving.Go(func() { _ = server.Serve(came) })
			d := websocket.WebSocketDialer{Plain: true, Dial: idleClosingDialer(came, limit)}
			conn, err := grpc.NewClient("passthrough:///hub", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(d.Open),
				grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: session.KeepaliveAgentTime, Timeout: session.KeepaliveAgentTimeout, PermitWithoutStream: true}))
			if err != nil {
				t.Fatal(err)
			}
			stream, err := pb.NewSessionClient(conn).Connect(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var over atomic.Bool
			go func() {
				_, _ = stream.Recv() // nothing comes
				over.Store(true)
			}()
			time.Sleep(time.Hour)
			if lived := !over.Load(); lived != lives {
				t.Errorf("a balancer that closes after %v: after an hour the session lives: %v", limit, lived)
			}
			conn.Close()
			agents.Stop()
			server.Close()
			serving.Wait()
		})
	}
}
