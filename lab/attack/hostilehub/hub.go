package hostilehub

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/session"
	pb "atoll.dev/atoll/internal/session/sessionpb"
)

// hub is the hub's end of the protocol. It keeps honest sessions, or those of an attack. It is safe for
// concurrent use.
type hub struct {
	pb.UnimplementedSessionServer
	pb.UnimplementedRegistrationServer
	pb.UnimplementedTunnelServer

	ca      *authority
	address string
	server  *grpc.Server

	mu       sync.Mutex
	attacks  []Attack // of the sessions that begin; none: they are honest
	sessions map[*agentSession]bool
	begun    int                       // sessions
	rows     map[string]atoll.Manifest // what the honest hub orders, by Bundle
	statuses map[string]atoll.RowStatus
	tunnels  map[string]func(tunnelStream) // by id
	dialled  int
	// agentCertificate is the last one that was signed, in PEM.
	agentCertificate []byte
}

// tunnelStream is the hub's end of a tunnel.
type tunnelStream = grpc.BidiStreamingServer[wrapperspb.BytesValue, wrapperspb.BytesValue]

// agentSession is a session with the agent.
type agentSession struct {
	hub     *hub
	end     context.CancelFunc
	turn    int // number of the session
	stream  grpc.BidiStreamingServer[pb.FromAgent, pb.FromHub]
	sending sync.Mutex
	core    *session.HubSession // of an honest session
}

// startHub starts an honest hub on the loopback address.
func startHub(ctx context.Context) (*hub, error) {
	ca, err := newAuthority()
	if err != nil {
		return nil, err
	}
	config, err := ca.serverTLS()
	if err != nil {
		return nil, err
	}
	var from net.ListenConfig
	listener, err := from.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the agent: %w", err)
	}
	h := &hub{
		ca: ca, address: listener.Addr().String(), sessions: map[*agentSession]bool{},
		rows: map[string]atoll.Manifest{}, statuses: map[string]atoll.RowStatus{}, tunnels: map[string]func(tunnelStream){},
	}
	h.server = grpc.NewServer(grpc.Creds(credentials.NewTLS(config)), grpc.MaxSendMsgSize(2*session.MaxFrameBytes), grpc.MaxRecvMsgSize(2*session.MaxFrameBytes),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: session.KeepaliveMinTime, PermitWithoutStream: true}))
	pb.RegisterSessionServer(h.server, h)
	pb.RegisterRegistrationServer(h.server, h)
	pb.RegisterTunnelServer(h.server, h)
	go func() { _ = h.server.Serve(listener) }() // it ends with Stop
	return h, nil
}

// Join admits every agent.
func (h *hub) Join(_ context.Context, r *pb.JoinRequest) (*pb.JoinReply, error) {
	certificate, err := h.ca.signAgent(r.GetCsr())
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	h.mu.Lock()
	h.agentCertificate = certificate
	h.mu.Unlock()
	return &pb.JoinReply{State: "Accepted", Certificate: certificate, ClusterUid: clusterUID, ClusterName: r.GetName(), HubCa: h.ca.certificatePEM()}, nil
}

// Connect keeps a session: an honest one, or that of the attacks.
func (h *hub) Connect(stream grpc.BidiStreamingServer[pb.FromAgent, pb.FromHub]) error {
	hello, err := stream.Recv()
	if err != nil {
		return err
	}
	ctx, end := context.WithCancel(stream.Context())
	defer end()
	s := &agentSession{hub: h, end: end, stream: stream, turn: h.countSessions()}
	if err := s.sendFrame(&pb.FromHub{Frame: &pb.FromHub_Welcome{Welcome: &pb.Welcome{ClusterName: "attacked", ClusterUid: clusterUID, HubVersion: atoll.Version}}}); err != nil {
		return err
	}
	h.mu.Lock()
	attacks := h.attacks
	h.sessions[s] = true
	h.begun++
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.sessions, s)
	}()
	// The goroutines of the session end when this function has returned.
	if len(attacks) == 0 {
		go s.serveHonestly(hello.GetHello())
	} else {
		s.startAttacks(ctx, attacks)
	}
	<-ctx.Done()
	return status.Error(codes.Unavailable, "the hub ends the session")
}

// startAttacks attacks in a session. Attacks that read nothing have every second session, where others read.
func (s *agentSession) startAttacks(ctx context.Context, attacks []Attack) {
	deaf := 0
	for _, a := range attacks {
		if a.deaf {
			deaf++
		}
	}
	reads := deaf == 0 || deaf < len(attacks) && s.turn%2 == 0
	for _, a := range attacks {
		if a.act != nil && a.deaf != reads {
			go func() {
				if err := a.act(ctx, s); err != nil {
					s.end()
				}
			}()
		}
	}
	if reads {
		go func() {
			defer s.end()
			for err := error(nil); err == nil; {
				_, err = s.stream.Recv()
			}
		}()
	}
}

// sendFrame sends a frame. Several attacks send in one session.
func (s *agentSession) sendFrame(f *pb.FromHub) error {
	s.sending.Lock()
	defer s.sending.Unlock()
	return s.stream.Send(f)
}

// switchAttacks ends all sessions. The next ones are of these attacks, or honest without any.
func (h *hub) switchAttacks(attacks []Attack) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.attacks = attacks
	for s := range h.sessions {
		s.end()
	}
}

// countSessions returns how many sessions have begun.
func (h *hub) countSessions() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.begun
}

// dialTunnel requests a tunnel, and serves it by a function.
func (s *agentSession) dialTunnel(serve func(tunnelStream)) error {
	s.hub.mu.Lock()
	s.hub.dialled++
	id := fmt.Sprint("tunnel-", s.hub.dialled)
	s.hub.tunnels[id] = serve
	s.hub.mu.Unlock()
	return s.sendFrame(&pb.FromHub{Frame: &pb.FromHub_Dial{Dial: &pb.Dial{Id: id}}})
}

// Open serves a tunnel.
func (h *hub) Open(stream tunnelStream) error {
	md, _ := metadata.FromIncomingContext(stream.Context())
	ids := md.Get(session.DialKey)
	if len(ids) != 1 {
		return status.Error(codes.PermissionDenied, "a tunnel has one id")
	}
	h.mu.Lock()
	serve := h.tunnels[ids[0]]
	delete(h.tunnels, ids[0])
	h.mu.Unlock()
	if serve == nil {
		return status.Error(codes.PermissionDenied, "the hub did not dial")
	}
	serve(stream)
	return nil
}

// errNotYet is why a wait goes on.
var errNotYet = errors.New("not yet")

// waitUntil calls a function until it returns nil. It returns the last error when the time is over.
func waitUntil(ctx context.Context, limit time.Duration, what string, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	last := errNotYet
	for {
		err := do(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s, for %s: %w", what, limit, last)
		case <-tick.C:
		}
	}
}
