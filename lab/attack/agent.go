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
	// tunnels takes the tunnels that the hub asks for, and is closed with the session; nil refuses
	// them.
	tunnels *tunnel.Listener

	mu      sync.Mutex
	core    *session.Agent
	orders  []atoll.Manifest // in the order of arrival, without their objects
	arrived chan struct{}
	ended   chan struct{} // closed when the hub ended the session
	why     error         // valid once ended is closed
}

// connectAgent opens a session with the certificate of the attacker's Cluster.
func (t *Target) connectAgent(ctx context.Context) (*agentClient, error) {
	return t.connectServing(ctx, nil)
}

// connectServing does the same for an agent that takes tunnels.
func (t *Target) connectServing(ctx context.Context, tunnels *tunnel.Listener) (*agentClient, error) {
	certificate, _, err := t.agentIdentity(ctx)
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
		a.holdOrders(f)
	}
}

// holdOrders answers a frame as an honest agent does.
func (a *agentClient) holdOrders(f *pb.FromHub) {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := a.core.HandleFrame(f)
	frames := out.Frames
	for i := range out.Store {
		m := &out.Store[i]
		frames = append(frames, a.core.ManifestStored(m.Bundle, m.Generation, m.Content).Frames...)
		a.orders = append(a.orders, atoll.Manifest{Bundle: m.Bundle, Generation: m.Generation, Content: m.Content})
		select {
		case a.arrived <- struct{}{}:
		default:
		}
	}
	for _, frame := range frames {
		_ = a.stream.Send(frame) // the next Recv returns the reason
	}
}

// sendFrame sends one frame.
func (a *agentClient) sendFrame(f *pb.FromAgent) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stream.Send(f)
}

// sendAnyway sends frames for that time, and opens another session each time that the hub ends
// one. It returns how often the hub ended a session, and why it did so last.
func (t *Target) sendAnyway(ctx context.Context, lasts time.Duration, next func(i int) *pb.FromAgent) (string, error) {
	if _, _, err := t.agentIdentity(ctx); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, lasts)
	defer cancel()
	sent, ended, last := 0, 0, error(nil)
	for ctx.Err() == nil {
		a, err := t.connectAgent(ctx)
		if err != nil {
			if last = err; ctx.Err() == nil {
				ended++
				_ = lab.PauseFor(ctx, 100*time.Millisecond)
			}
			continue
		}
		for ctx.Err() == nil && a.sendFrame(next(sent)) == nil {
			sent++
		}
		if ctx.Err() == nil {
			<-a.ended // a failed send means that the stream has ended
			ended, last = ended+1, a.why
		}
		a.closeSession()
	}
	if ended == 0 {
		return fmt.Sprintf("%d frames sent, no session ended", sent), nil
	}
	return fmt.Sprintf("%d frames sent, %d sessions ended or refused, the last with: %v", sent, ended, last), nil
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
	go a.tunnels.AcceptConn(conn)
	_ = conn.PumpMessages() // the hub ends a tunnel when it has what it wanted
}

// waitForOrder returns the manifest that this Cluster received last, without its objects.
func (a *agentClient) waitForOrder(ctx context.Context) (atoll.Manifest, error) {
	for {
		a.mu.Lock()
		if n := len(a.orders); n > 0 {
			defer a.mu.Unlock()
			return a.orders[n-1], nil
		}
		a.mu.Unlock()
		select {
		case <-ctx.Done():
			return atoll.Manifest{}, errors.New("the attacker's Cluster received no Bundle: give the attack more time")
		case <-a.ended:
			return atoll.Manifest{}, fmt.Errorf("the hub ended the session: %w", a.why)
		case <-a.arrived:
		}
	}
}
