package delivery

import (
	"crypto/tls"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/testwait"
)

// blackHole forwards TCP until it swallows: connections then live on and carry nothing.
type blackHole struct {
	net.Listener
	swallow atomic.Bool
	wg      sync.WaitGroup
}

func newBlackHole(t *testing.T, to string) *blackHole {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &blackHole{Listener: l}
	var mu sync.Mutex
	var open []net.Conn
	h.wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				in.Close()
				continue
			}
			mu.Lock()
			open = append(open, in, out)
			mu.Unlock()
			h.wg.Go(func() { h.copyBytes(out, in) })
			h.wg.Go(func() { h.copyBytes(in, out) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for _, c := range open {
			c.Close()
		}
		mu.Unlock()
		h.wg.Wait()
	})
	return h
}

func (h *blackHole) copyBytes(to io.Writer, from io.Reader) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if h.swallow.Load() {
			continue
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// TestHalfOpenLinksAreFound by the hub, in the time that the design gives it, and what a
// slow machine may add.
func TestHalfOpenLinksAreFound(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 20 s of real time")
	}
	t.Parallel()
	h := newTestHub(t)
	uid, id := h.createCluster("tokyo")
	relay := newBlackHole(t, h.addr)
	conn, err := grpc.NewClient(relay.Addr().String(), grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, ServerName: "127.0.0.1", RootCAs: h.keys.ClusterCA.CertPool(), Certificates: []tls.Certificate{id},
	})))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stream, err := pb.NewSessionClient(conn).Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(h.newAgent(id, "one").core.BeginSession()); err != nil {
		t.Fatal(err)
	}
	testwait.UntilTrue(t, "the stream is up", func() bool { return h.clusters.isOnline(uid) })
	relay.swallow.Store(true)
	testwait.UntilTrue(t, "the half-open link is found", func() bool { return !h.clusters.isOnline(uid) })
}

// A stream that does not begin with Hello is ended.
func TestSilentCallers(t *testing.T) {
	h := newTestHub(t)
	_, id := h.createCluster("tokyo")
	conn := h.dialHub(&tls.Config{MinVersion: tls.VersionTLS13, ServerName: "127.0.0.1", RootCAs: h.keys.ClusterCA.CertPool(), Certificates: []tls.Certificate{id}})
	stream, err := pb.NewSessionClient(conn).Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&pb.FromAgent{Frame: &pb.FromAgent_Stored{Stored: &pb.Stored{Bundle: "b", Generation: 1}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("got %v", err)
	}
}
