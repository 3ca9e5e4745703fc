package attack

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/session"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/tunnel"
	"atoll.dev/atoll/lab"
)

// agentClient is a session of the attacker's Cluster. It holds what the hub orders, as an honest
// agent does, and sends whatever an attack wants besides.
type agentClient struct {
	conn   *grpc.ClientConn
	stream pb.Session_ConnectClient
	cancel context.CancelFunc
	// tunnels takes the tunnels that the hub requests, and is closed with the session; nil refuses
	// them.
	tunnels *tunnel.Listener

	mu      sync.Mutex
	core    *session.Agent
	orders  []atoll.Manifest // in the order of arrival, their items without the objects
	arrived chan struct{}
	ended   chan struct{} // closed when the hub ended the session
	why     error         // valid once ended is closed
}

// connectAgent opens a session with the certificate of the attacker's Cluster.
func (t *Target) connectAgent(ctx context.Context) (*agentClient, error) {
	return t.connectTunnelAgent(ctx, nil)
}

// connectTunnelAgent does the same for an agent that takes tunnels.
func (t *Target) connectTunnelAgent(ctx context.Context, tunnels *tunnel.Listener) (*agentClient, error) {
	certificate, _, err := t.ensureAgentIdentity(ctx)
	if err != nil {
		return nil, err
	}
	conn, err := t.dialGateway(certificate)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	stream, err := pb.NewSessionClient(conn).Connect(ctx, grpc.WaitForReady(true))
	if err != nil {
		cancel()
		conn.Close()
		return nil, err
	}
	a := &agentClient{
		conn: conn, stream: stream, cancel: cancel, tunnels: tunnels, arrived: make(chan struct{}, 1), ended: make(chan struct{}),
		core: session.NewAgent(session.AgentOptions{Version: atoll.Version, Instance: rand.Text(), Tunnels: tunnels != nil}, session.Memory{}),
	}
	if err := stream.Send(a.core.BeginSession()); err != nil {
		a.closeSession()
		return nil, err
	}
	welcomed := make(chan struct{}, 1)
	go a.receiveFrames(ctx, welcomed)
	select {
	case <-welcomed:
		return a, nil
	case <-a.ended:
		a.closeSession()
		return nil, fmt.Errorf("the hub ended the session: %w", a.why)
	}
}

func (a *agentClient) closeSession() {
	a.cancel()
	a.conn.Close()
	if a.tunnels != nil {
		a.tunnels.Close()
	}
}

// receiveFrames handles the hub's frames until the session ends.
func (a *agentClient) receiveFrames(ctx context.Context, welcomed chan<- struct{}) {
	defer close(a.ended)
	for {
		f, err := a.stream.Recv()
		if err != nil {
			a.why = err
			return
		}
		if r := f.GetRefused(); r != nil {
			a.why = fmt.Errorf("%s: %s", r.GetReason(), r.GetMessage())
			return
		}
		if f.GetWelcome() != nil {
			select {
			case welcomed <- struct{}{}:
			default: // a hub that is attacked may welcome twice
			}
		}
		if d := f.GetDial(); d != nil && a.tunnels != nil {
			go a.openTunnel(ctx, d.GetId())
		}
		a.answerFrameHonestly(f)
	}
}

// answerFrameHonestly answers a frame as an honest agent does.
func (a *agentClient) answerFrameHonestly(f *pb.FromHub) {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := a.core.HandleFrame(f)
	frames := out.Frames
	for i := range out.Store {
		m := &out.Store[i]
		frames = append(frames, a.core.ManifestStored(m.Bundle, m.Generation, m.Content).Frames...)
		a.orders = append(a.orders, atoll.Manifest{Bundle: m.Bundle, Generation: m.Generation, Content: m.Content, Items: withoutObjects(m.Items)})
		select {
		case a.arrived <- struct{}{}:
		default:
		}
	}
	for _, frame := range frames {
		_ = a.stream.Send(frame) // the next Recv returns the reason
	}
}

// withoutObjects returns the keys and the errors of items.
func withoutObjects(items []atoll.RenderedItem) []atoll.RenderedItem {
	out := make([]atoll.RenderedItem, len(items))
	for i, it := range items {
		out[i] = atoll.RenderedItem{Key: it.Key, Error: it.Error}
	}
	return out
}

// sendFrame sends one frame.
func (a *agentClient) sendFrame(f *pb.FromAgent) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stream.Send(f)
}

// sessionCounts is what became of the frames of an attack.
type sessionCounts struct {
	sent, ended int
	last        error // why the hub ended the last session; nil: it ended none
}

func (c sessionCounts) String() string {
	if c.ended == 0 {
		return fmt.Sprintf("%d frames sent, no session ended", c.sent)
	}
	return fmt.Sprintf("%d frames sent, %d sessions ended or refused, the last with: %v", c.sent, c.ended, c.last)
}

// sendFramesReconnecting sends frames for that time, and opens another session each time that the hub ends
// one.
func (t *Target) sendFramesReconnecting(ctx context.Context, lasts time.Duration, next func(i int) *pb.FromAgent) (c sessionCounts, err error) {
	if _, _, err := t.ensureAgentIdentity(ctx); err != nil {
		return c, err
	}
	ctx, cancel := context.WithTimeout(ctx, lasts)
	defer cancel()
	for ctx.Err() == nil {
		a, err := t.connectAgent(ctx)
		if err != nil {
			if ctx.Err() == nil {
				c.ended, c.last = c.ended+1, err
				_ = lab.PauseFor(ctx, 100*time.Millisecond)
			}
			continue
		}
		for ctx.Err() == nil && a.sendFrame(next(c.sent)) == nil {
			c.sent++
		}
		if ctx.Err() == nil {
			<-a.ended // a failed send means that the stream has ended
			c.ended, c.last = c.ended+1, a.why
		}
		a.closeSession()
	}
	return c, nil
}

// sendForbidden sends frames that no agent may send. The hub must end the sessions, and report it on
// the Cluster.
func (t *Target) sendForbidden(ctx context.Context, lasts time.Duration, next func(i int) *pb.FromAgent) (string, error) {
	c, err := t.sendFramesReconnecting(ctx, lasts, next)
	if err == nil && c.ended == 0 {
		err = errors.New("the hub ended no session of an agent that sends what no agent may send")
	}
	if err == nil {
		err = t.waitForMisbehaving(ctx)
	}
	return c.String(), err
}

// sendLegalFrames sends frames that an agent may send, at another time or about other bundles. The hub may
// keep none of them: its memory is judged.
func (t *Target) sendLegalFrames(ctx context.Context, lasts time.Duration, next func(i int) *pb.FromAgent) (string, error) {
	c, err := t.sendFramesReconnecting(ctx, lasts, next)
	if err == nil && c.sent == 0 {
		err = fmt.Errorf("no frame could be sent: %w", c.last)
	}
	return c.String(), err
}

// openTunnel opens a tunnel that the hub asked for.
func (a *agentClient) openTunnel(ctx context.Context, id string) {
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(ctx, session.DialKey, id))
	defer cancel()
	stream, err := pb.NewTunnelClient(a.conn).Open(ctx)
	if err != nil {
		return
	}
	conn := tunnel.New(stream, cancel, "the hub")
	go a.tunnels.HandOverConn(conn)
	_ = conn.PumpMessages() // the hub ends a tunnel when it has what it wanted
}

// waitForOrder returns the manifest that this Cluster received last, its items without their objects.
func (a *agentClient) waitForOrder(ctx context.Context) (atoll.Manifest, error) {
	return a.waitForOrderThat(ctx, func(atoll.Manifest) bool { return true })
}

// orderTimeout is how long the hub may take until an order reaches the attacker's Cluster.
const orderTimeout = 30 * time.Second

// waitForOrderThat waits until the last manifest that this Cluster received fits, and returns it.
func (a *agentClient) waitForOrderThat(ctx context.Context, fits func(atoll.Manifest) bool) (atoll.Manifest, error) {
	ctx, cancel := context.WithTimeout(ctx, orderTimeout)
	defer cancel()
	for {
		a.mu.Lock()
		if n := len(a.orders); n > 0 && fits(a.orders[n-1]) {
			defer a.mu.Unlock()
			return a.orders[n-1], nil
		}
		a.mu.Unlock()
		select {
		case <-ctx.Done():
			return atoll.Manifest{}, fmt.Errorf("the attacker's Cluster received no such Bundle within %s", orderTimeout)
		case <-a.ended:
			return atoll.Manifest{}, fmt.Errorf("the hub ended the session: %w", a.why)
		case <-a.arrived:
		}
	}
}
