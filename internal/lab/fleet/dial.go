package fleet

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/h2"
	"atoll.dev/atoll/internal/session"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/trust"
)

// As the agent has them.
const (
	dialTimeout     = 3500 * time.Millisecond
	connectTimeout  = 20 * time.Second
	joinTimeout     = 90 * time.Second
	backoffFirst    = 200 * time.Millisecond
	backoffMost     = 4 * time.Second
	refusedLeast    = 5 * time.Second
	supersededPause = time.Minute
	steady          = 10 * time.Second
)

// connect an agent to a hub with TLS.
func (s *sim) connect(ctx context.Context, a *agent, hub string, config *tls.Config) (*wire, *tls.Conn, error) {
	dialer := net.Dialer{KeepAlive: -1}
	if source := a.source(net.ParseIP(config.ServerName)); source != nil {
		dialer.LocalAddr = source
	}
	dialCtx, cancel := context.WithTimeout(ctx, dialTimeout)
	raw, err := dialer.DialContext(dialCtx, "tcp", hub)
	cancel()
	if err != nil {
		return nil, nil, err
	}
	w := newWire(raw.(*net.TCPConn), s.Link)
	conn := tls.Client(w, config)
	ctx, cancel = context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if err := conn.HandshakeContext(ctx); err != nil {
		w.cut()
		return nil, nil, err
	}
	return w, conn, nil
}

// dialLoop opens sessions, one at a time.
func (s *sim) dialLoop(ctx context.Context) {
	for {
		a, ok := s.dials.take(ctx)
		if !ok {
			return
		}
		if err := s.dial(ctx, a); err != nil && ctx.Err() == nil {
			s.failed(err)
			a.mu.Lock()
			a.hub = (a.hub + 1) % len(s.Hubs)
			a.again(0)
			a.mu.Unlock()
		}
	}
}

// dial a session of the agent.
func (s *sim) dial(ctx context.Context, a *agent) error {
	a.mu.Lock()
	a.due, a.waiting = 0, false
	now := time.Now()
	if a.link != nil || now.UnixNano() < a.away {
		if a.link == nil { // it was dropped once more before it was back
			a.dialIn(0)
		}
		a.mu.Unlock()
		return nil
	}
	if now.Unix() >= a.until {
		a.mu.Unlock()
		s.joins.put(a)
		return nil
	}
	hub, identity := a.hub, a.identity
	a.mu.Unlock()
	host, _, err := net.SplitHostPort(s.Hubs[hub])
	if err != nil {
		return fmt.Errorf("the hub's address %q is not HOST:PORT: %w", s.Hubs[hub], err)
	}
	w, conn, err := s.connect(ctx, a, s.Hubs[hub], &tls.Config{
		MinVersion: tls.VersionTLS13, ServerName: host, RootCAs: s.roots, NextProtos: protocols,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return identity.certificate() },
		ClientSessionCache:   a.ticket.With(s.Hubs[hub]),
	})
	if err != nil {
		return fmt.Errorf("dial %s: %w", s.Hubs[hub], err)
	}
	call, err := h2.Open(slim{conn, w}, &s.options[hub])
	if err != nil {
		w.cut()
		return err
	}
	l := &link{agent: a, call: call, wire: w, began: now}
	l.greet()
	go l.serve()
	return nil
}

var protocols = []string{"h2"}

// again dials after a pause: at least so long, and by the agent's backoff. The caller
// holds mu.
func (a *agent) again(least time.Duration) {
	a.wait = a.rhythm().Retry(a.wait, backoffFirst, backoffMost)
	a.dialIn(max(least, a.wait/2+time.Duration(a.draw()*float64(a.wait/2))))
}

// dialIn dials after a pause, unless it dials sooner anyway. The caller holds mu.
func (a *agent) dialIn(pause time.Duration) {
	pause = max(pause, time.Until(time.Unix(0, a.away)))
	at := time.Now().Add(pause).UnixNano()
	if a.waiting || a.due != 0 && a.due <= at {
		return
	}
	if a.due = at; pause <= 0 {
		a.waiting = true
		a.sim.dials.put(a)
		return
	}
	a.sim.schedule.in(pause, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.due == at && !a.waiting {
			a.waiting = true
			a.sim.dials.put(a)
		}
	})
}

// ended takes note that a session is over, and dials anew.
func (a *agent) ended(l *link, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.link != l {
		return // it was dropped, and is taken care of
	}
	a.link, a.renewing = nil, false
	a.core = nil // the next session begins with what the member stores
	if a.rhythm().Lasted(time.Since(l.began), steady) {
		a.wait = 0
	}
	switch r := l.refused; {
	case l.leaving:
		a.goToRest()
	case l.moved != nil:
		if at := slices.Index(a.sim.Hubs, l.moved.GetHub()); at >= 0 {
			a.hub = at
		}
		a.dialIn(0)
	case r != nil:
		a.sim.refused(r.GetReason() + ": " + r.GetMessage())
		pause := refusedLeast
		if r.GetReason() == "Superseded" {
			pause = supersededPause
		} else if r.GetFinal() {
			pause = a.sim.RefusedPause
		}
		a.again(pause)
	default:
		if err != nil {
			a.sim.failed(err)
			if strings.Contains(err.Error(), "remote error: tls:") || status.Code(err) == codes.Unauthenticated {
				a.until = 0 // ask for a new certificate
			}
		}
		a.hub = (a.hub + 1) % len(a.sim.Hubs)
		a.again(0)
	}
}

// joinLoop joins agents, one at a time.
func (s *sim) joinLoop(ctx context.Context) {
	for {
		a, ok := s.joins.take(ctx)
		if !ok || s.limit.Wait(ctx) != nil {
			return
		}
		begin := time.Now()
		err := s.join(ctx, a)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			s.counts.joins.Add(1)
			s.counts.mu.Lock()
			s.counts.joinTime.add(time.Since(begin))
			s.counts.mu.Unlock()
			a.mu.Lock()
			a.interval = s.CheckIn
			a.dialIn(0) // as the agent does, which learns then how often it is to check in
			a.mu.Unlock()
			continue
		}
		pause := backoffMost
		switch status.Code(err) {
		case codes.PermissionDenied, codes.AlreadyExists, codes.InvalidArgument:
			s.refused(err.Error())
			pause = s.RefusedPause
		default:
			s.failed(err)
			a.mu.Lock()
			a.hub = (a.hub + 1) % len(s.Hubs)
			a.mu.Unlock()
		}
		a.mu.Lock()
		pause = pause/2 + time.Duration(a.draw()*float64(pause/2))
		a.mu.Unlock()
		s.schedule.in(pause, func() { s.joins.put(a) })
	}
}

// join by the real handshake.
func (s *sim) join(ctx context.Context, a *agent) error {
	a.mu.Lock()
	hub, known := s.Hubs[a.hub], a.identity
	a.mu.Unlock()
	key, err := s.keyToJoin(a, known)
	if err != nil {
		return err
	}
	csr, err := trust.NewRequest(key, a.name())
	if err != nil {
		return err
	}
	request := &pb.JoinRequest{Name: a.name(), Csr: csr, AgentVersion: atoll.Version}
	if known.length == 0 {
		request.Token = s.Tokens[a.index%len(s.Tokens)]
	}
	reply, err := s.ask(ctx, a, hub, request)
	if err != nil {
		return err
	}
	if reply.GetState() != "Accepted" {
		return fmt.Errorf("the hub answered a join with auto-acceptance: %s: %s", reply.GetState(), reply.GetMessage())
	}
	id, err := newIdentity(reply.GetClusterName(), reply.GetClusterUid(), key, reply.GetCertificate())
	if err != nil {
		return err
	}
	a.mu.Lock()
	a.keep(id)
	a.mu.Unlock()
	s.joining.Delete(a.index)
	return nil
}

// keyToJoin with: the agent's, or one that it asks with until it is let in. A hub that
// could not say that it has made a Cluster knows who asks again by it, and takes no second
// use of the token.
func (s *sim) keyToJoin(a *agent, known place) (*ecdsa.PrivateKey, error) {
	if known.length > 0 {
		id, err := known.get()
		if err != nil {
			return nil, err
		}
		return id.key()
	}
	if key, asked := s.joining.Load(a.index); asked {
		return key.(*ecdsa.PrivateKey), nil
	}
	key, err := newKey()
	if err == nil {
		s.joining.Store(a.index, key)
	}
	return key, err
}

// ask the hub once to let the agent join.
func (s *sim) ask(ctx context.Context, a *agent, hub string, request *pb.JoinRequest) (*pb.JoinReply, error) {
	host, _, err := net.SplitHostPort(hub)
	if err != nil {
		return nil, fmt.Errorf("the hub's address %q is not HOST:PORT: %w", hub, err)
	}
	config, err := trust.PinnedConfig(host, s.CAHash, nil)
	if err != nil {
		return nil, err
	}
	config.NextProtos = protocols
	w, conn, err := s.connect(ctx, a, hub, config)
	if err != nil {
		return nil, fmt.Errorf("dial %s to join: %w", hub, err)
	}
	defer w.cut()
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, w.cut)
	defer stop()
	call, err := h2.Open(conn, &h2.Options{
		Authority: hub, Method: pb.Registration_Join_FullMethodName, MessageMost: session.MaxFrameBytes, Counts: &s.counts.wire,
	})
	if err != nil {
		return nil, err
	}
	body, err := proto.Marshal(request)
	if err != nil {
		return nil, err
	}
	call.Queue(h2.Frame(body))
	call.CloseSend()
	reply := &pb.JoinReply{}
	if err := call.Serve(func(m []byte) error { return proto.Unmarshal(m, reply) }); err != nil {
		return nil, err
	}
	return reply, nil
}
