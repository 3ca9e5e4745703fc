package link

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"atoll.dev/atoll/internal/agent/crash"
	"atoll.dev/atoll/internal/session"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/tunnel"
)

// maxPieceBytes is the largest message of a tunnel: a piece with what protobuf adds.
const maxPieceBytes = 2 * tunnel.PieceMost

// tunnels of one session, which end with it.
type tunnels struct {
	client  pb.TunnelClient
	share   tunnel.SendBudget
	take    func(net.Conn)
	log     *slog.Logger
	most    int // tunnels at a time, those that are being opened included
	running sync.WaitGroup
	count   atomic.Int64 // of tunnels that are open or being opened
	refused bool         // a tunnel was refused; only open reads it
}

// open opens a tunnel that the hub requested, unless the hub has the most already. The session calls it, for
// one tunnel after the other.
func (t *tunnels) open(ctx context.Context, id string) {
	if t.count.Load() >= int64(t.most) {
		if !t.refused {
			t.refused = true
			t.log.Warn("the hub requests more tunnels than a hub may have; further ones are not opened, and this is logged once for the session", "most", t.most)
		}
		return
	}
	t.count.Add(1)
	t.running.Go(func() {
		defer t.count.Add(-1)
		defer crash.RecoverContained(ctx)
		ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(ctx, session.DialKey, id))
		defer cancel()
		stream, err := t.share.OpenStream(func(o ...grpc.CallOption) (tunnel.ClientStream, error) {
			return t.client.Open(ctx, append(o, grpc.MaxCallRecvMsgSize(maxPieceBytes))...)
		})
		if err != nil {
			t.log.Debug("the hub does not take a tunnel that it requested", "err", err)
			return
		}
		conn := tunnel.New(stream, cancel, "the hub")
		t.running.Go(func() { defer crash.RecoverContained(ctx); t.take(conn) })
		if err := conn.PumpMessages(); err != nil && ctx.Err() == nil {
			t.log.Debug("a tunnel broke", "err", err)
		}
	})
}
