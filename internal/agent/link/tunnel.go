package link

import (
	"context"
	"log/slog"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"atoll.dev/atoll/internal/agent/crash"
	"atoll.dev/atoll/internal/session"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/tunnel"
)

// tunnels of one session, which end with it.
type tunnels struct {
	client  pb.TunnelClient
	share   tunnel.Share
	take    func(net.Conn)
	log     *slog.Logger
	running sync.WaitGroup
}

// open a tunnel that the hub asked for.
func (t *tunnels) open(ctx context.Context, id string) {
	t.running.Go(func() {
		defer crash.Recover(ctx)
		ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(ctx, session.DialKey, id))
		defer cancel()
		stream, err := t.share.Open(func(o ...grpc.CallOption) (tunnel.ClientStream, error) { return t.client.Open(ctx, o...) })
		if err != nil {
			t.log.Debug("the hub does not take a tunnel that it asked for", "err", err)
			return
		}
		conn := tunnel.New(stream, cancel, "the hub")
		t.running.Go(func() { defer crash.Recover(ctx); t.take(conn) })
		if err := conn.Pump(); err != nil && ctx.Err() == nil {
			t.log.Debug("a tunnel broke", "err", err)
		}
	})
}
