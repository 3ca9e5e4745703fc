package hostilehub

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/tunnel"
	"atoll.dev/atoll/lab"
)

// tunnelAttacks dial as many tunnels as the agent opens.
var tunnelAttacks = []Attack{
	{Name: "unfinished-headers", Summary: "send a header of 30 KiB without its end on each of 1,024 tunnels", act: func(ctx context.Context, s *agentSession) error { return s.sendHeaders(ctx, heldHeader) }},
	{Name: "oversized-headers", Summary: "send a header of 1 MiB without its end on each of 1,024 tunnels", act: func(ctx context.Context, s *agentSession) error { return s.sendHeaders(ctx, oversizedHeader) }},
	{Name: "held-headers", Summary: "watch with a header of 30 KiB on each of 1,024 tunnels", act: watchWithHeaders},
	{Name: "unread-watches", Summary: "watch all pods on each of 1,024 tunnels, and read nothing", act: watchUnread},
	{Name: "unread-lists", Summary: "list all pods and events without an end, and read nothing", act: listUnread},
	{Name: "metadata", Summary: "answer each of 1,024 tunnels with 12 MiB of metadata", act: sendMetadata},
}

const (
	attackedTunnels = 1024
	heldHeader      = 30 << 10
	oversizedHeader = 1<<20 - 1<<10
	metadataBytes   = 12 << 20
	metadataValue   = 1 << 20
)

// dialAll dials tunnels, and dials again when they end.
func (s *agentSession) dialAll(ctx context.Context, serve func(tunnelStream)) error {
	open := make(chan struct{}, attackedTunnels)
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return nil
		case open <- struct{}{}:
		}
		err := s.dialTunnel(func(t tunnelStream) {
			serve(t)
			<-open
			_ = lab.PauseFor(ctx, pollInterval) // it ends with the session
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// sendThenHold sends bytes, and keeps the tunnel open without reading.
func sendThenHold(t tunnelStream, data []byte) {
	for len(data) > 0 {
		piece := data[:min(len(data), tunnel.PieceMost)]
		if t.Send(&wrapperspb.BytesValue{Value: piece}) != nil {
			return
		}
		data = data[len(piece):]
	}
	<-t.Context().Done()
}

// liveRequest returns the head of a request in the hub's own name, without its end.
func liveRequest(path string) string {
	return fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\n", path, atoll.FleetViewHost)
}

// sendHeaders sends a header of so many bytes, without its end, on each tunnel.
func (s *agentSession) sendHeaders(ctx context.Context, size int) error {
	head := []byte(liveRequest("/api/v1/pods") + "X-Attack: " + strings.Repeat("x", size))
	return s.dialAll(ctx, func(t tunnelStream) { sendThenHold(t, head) })
}

func watchWithHeaders(ctx context.Context, s *agentSession) error {
	head := []byte(liveRequest("/api/v1/pods?watch=true") + "X-Attack: " + strings.Repeat("x", heldHeader) + "\r\n\r\n")
	return s.dialAll(ctx, func(t tunnelStream) { sendThenHold(t, head) })
}

func watchUnread(ctx context.Context, s *agentSession) error {
	head := []byte(liveRequest("/api/v1/pods?watch=true") + "\r\n")
	return s.dialAll(ctx, func(t tunnelStream) { sendThenHold(t, head) })
}

func listUnread(ctx context.Context, s *agentSession) error {
	pair := liveRequest("/api/v1/pods") + "\r\n" + liveRequest("/api/v1/events") + "\r\n"
	requests := bytes.Repeat([]byte(pair), 1<<20/len(pair))
	return s.dialAll(ctx, func(t tunnelStream) { sendThenHold(t, requests) })
}

func sendMetadata(ctx context.Context, s *agentSession) error {
	values := metadata.MD{}
	for range metadataBytes / metadataValue {
		values.Append("attack", strings.Repeat("x", metadataValue))
	}
	return s.dialAll(ctx, func(t tunnelStream) {
		if t.SendHeader(values) == nil {
			<-t.Context().Done()
		}
	})
}
