package link

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"atoll.dev/atoll/internal/session"
	pb "atoll.dev/atoll/internal/session/sessionpb"
)

// blockedHub never answers the call of a tunnel before its context ends.
type blockedHub struct {
	pb.TunnelClient
	opened chan string

	mu      sync.Mutex
	biggest int
}

func (b *blockedHub) Open(ctx context.Context, options ...grpc.CallOption) (pb.Tunnel_OpenClient, error) {
	for _, o := range options {
		if size, ok := o.(grpc.MaxRecvMsgSizeCallOption); ok {
			b.mu.Lock()
			b.biggest = max(b.biggest, size.MaxRecvMsgSize)
			b.mu.Unlock()
		}
	}
	md, _ := metadata.FromOutgoingContext(ctx)
	b.opened <- md.Get(session.DialKey)[0]
	<-ctx.Done()
	return nil, status.Error(codes.Canceled, "the test ends it")
}

// A hub has at most 1,024 tunnels at an agent, each with messages of 64 KiB. Further ones are not
// opened, which is logged once. A tunnel that ends makes room.
func TestTunnelsOfAHubAreBounded(t *testing.T) {
	hub, log := &blockedHub{opened: make(chan string)}, &strings.Builder{}
	ts := tunnels{client: hub, most: unlimited.Tunnels, log: slog.New(slog.NewTextHandler(log, nil))}
	first, endFirst := context.WithCancel(t.Context())
	rest, endRest := context.WithCancel(t.Context())
	ts.open(first, "first")
	<-hub.opened
	for range 1023 {
		ts.open(rest, "further")
		<-hub.opened
	}
	for range 3 {
		ts.open(rest, "too many")
	}
	if n := ts.count.Load(); n != 1024 {
		t.Errorf("%d tunnels", n)
	}
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "most=1024") {
		t.Errorf("the log is %q", text)
	}
	endFirst()
	for ts.count.Load() != 1023 {
		select {
		case id := <-hub.opened:
			t.Fatalf("the tunnel %q was opened", id)
		default:
		}
	}
	ts.open(rest, "again")
	if id := <-hub.opened; id != "again" {
		t.Errorf("the tunnel %q was opened", id)
	}
	endRest()
	ts.running.Wait()
	if hub.biggest != 64<<10 {
		t.Errorf("a message has at most %d bytes", hub.biggest)
	}
}
