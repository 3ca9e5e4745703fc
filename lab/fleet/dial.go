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

// The values of the real agent.
const (
	dialTimeout      = 3500 * time.Millisecond
	connectTimeout   = 20 * time.Second
	joinTimeout      = 90 * time.Second
	backoffFirst     = 200 * time.Millisecond
	backoffMost      = 4 * time.Second
	refusedLeast     = 5 * time.Second
	supersededPause  = time.Minute
	steadySessionAge = 10 * time.Second
)

// connectTLS connects an agent to a hub with TLS.
func (s *simulator) connectTLS(ctx context.Context, a *simulatedAgent, hub string, config *tls.Config) (*cuttableConn, *tls.Conn, error) {
	dialer := net.Dialer{KeepAlive: -1, LocalAddr: a.sourceAddress(net.ParseIP(config.ServerName))}
	dialCtx, cancel := context.WithTimeout(ctx, dialTimeout)
	raw, err := dialer.DialContext(dialCtx, "tcp", hub)
	cancel()
	if err != nil {
		return nil, nil, err
	}
	w := newCuttableConn(raw.(*net.TCPConn), s.ShapeLinks)
	conn := tls.Client(w, config)
	ctx, cancel = context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if err := conn.HandshakeContext(ctx); err != nil {
		w.cutWithReset()
		return nil, nil, err
	}
	return w, conn, nil
}

// dialLoop opens sessions, one at a time.
func (s *simulator) dialLoop(ctx context.Context) {
	for {
		a, ok := s.dialQueue.takeOldest(ctx)
		if !ok {
			return
		}
		if err := s.dialSession(ctx, a); err != nil && ctx.Err() == nil {
			s.countFailure(err)
			a.mu.Lock()
			a.nextHub = (a.nextHub + 1) % len(s.Hubs)
			a.redialAfter(0)
			a.mu.Unlock()
		}
	}
}

// dialSession opens a session of the agent.
func (s *simulator) dialSession(ctx context.Context, a *simulatedAgent) error {
	a.mu.Lock()
	a.dialAt, a.dialQueued = 0, false
	now := time.Now()
	if a.session != nil || now.UnixNano() < a.awayUntil {
		if a.session == nil { // the session was dropped again before it was ready
			a.scheduleDial(0)
		}
		a.mu.Unlock()
		return nil
	}
	if now.Unix() >= a.certNotAfter {
		a.mu.Unlock()
		s.joinQueue.put(a)
		return nil
	}
	hub, identity := a.nextHub, a.identity
	a.mu.Unlock()
	host, _, err := net.SplitHostPort(s.Hubs[hub])
	if err != nil {
		return fmt.Errorf("the hub's address %q is not HOST:PORT: %w", s.Hubs[hub], err)
	}
	w, conn, err := s.connectTLS(ctx, a, s.Hubs[hub], &tls.Config{
		MinVersion: tls.VersionTLS13, ServerName: host, RootCAs: s.roots, NextProtos: alpnProtocols,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return identity.tlsCertificate() },
		ClientSessionCache:   a.ticket.CacheForHub(s.Hubs[hub]),
	})
	if err != nil {
		return fmt.Errorf("dial %s: %w", s.Hubs[hub], err)
	}
	call, err := h2.Open(slimConn{conn, w}, &s.h2Options[hub])
	if err != nil {
		w.cutWithReset()
		return err
	}
	l := &simulatedSession{agent: a, h2Call: call, wire: w, began: now}
	l.sendHello()
	go l.serveUntilEnd()
	return nil
}

var alpnProtocols = []string{"h2"}

// redialAfter dials after a pause: at least the given time, and at least the agent's
// backoff. The caller holds mu.
func (a *simulatedAgent) redialAfter(least time.Duration) {
	a.redialPause = a.checkInSpec().RetryDelay(a.redialPause, backoffFirst, backoffMost)
	a.scheduleDial(max(least, a.redialPause/2+time.Duration(a.drawUniform()*float64(a.redialPause/2))))
}

// scheduleDial dials after a pause, unless a sooner dial is planned. The caller holds mu.
func (a *simulatedAgent) scheduleDial(pause time.Duration) {
	pause = max(pause, time.Until(time.Unix(0, a.awayUntil)))
	at := time.Now().Add(pause).UnixNano()
	if a.dialQueued || a.dialAt != 0 && a.dialAt <= at {
		return
	}
	if a.dialAt = at; pause <= 0 {
		a.dialQueued = true
		a.sim.dialQueue.put(a)
		return
	}
	a.sim.schedule.runAfter(pause, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.dialAt == at && !a.dialQueued {
			a.dialQueued = true
			a.sim.dialQueue.put(a)
		}
	})
}

// endSession records the end of a session and plans the next dial.
func (a *simulatedAgent) endSession(l *simulatedSession, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.session != l {
		return // the session was dropped, and dropLink plans the next dial
	}
	a.session, a.renewing = nil, false
	a.core = nil // the next session starts from the state that the member stores
	if a.checkInSpec().HasLasted(time.Since(l.began), steadySessionAge) {
		a.redialPause = 0
	}
	switch r := l.refused; {
	case l.leaving:
		a.restUntilCheckIn()
	case l.moved != nil:
		if at := slices.Index(a.sim.Hubs, l.moved.GetHub()); at >= 0 {
			a.nextHub = at
		}
		a.scheduleDial(0)
	case r != nil:
		a.sim.countRefusal(r.GetReason() + ": " + r.GetMessage())
		pause := refusedLeast
		if r.GetReason() == "Superseded" {
			pause = supersededPause
		} else if r.GetFinal() {
			pause = a.sim.RefusedPause
		}
		a.redialAfter(pause)
	default:
		if err != nil {
			a.sim.countFailure(err)
			if strings.Contains(err.Error(), "remote error: tls:") || status.Code(err) == codes.Unauthenticated {
				a.certNotAfter = 0 // request a new certificate
			}
		}
		a.nextHub = (a.nextHub + 1) % len(a.sim.Hubs)
		a.redialAfter(0)
	}
}

// joinLoop joins agents, one at a time.
func (s *simulator) joinLoop(ctx context.Context) {
	for {
		a, ok := s.joinQueue.takeOldest(ctx)
		if !ok || s.handshakeLimit.Wait(ctx) != nil {
			return
		}
		begin := time.Now()
		err := s.joinHub(ctx, a)
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
			a.scheduleDial(0) // like the real agent, which receives its check-in interval then
			a.mu.Unlock()
			continue
		}
		pause := backoffMost
		switch status.Code(err) {
		case codes.PermissionDenied, codes.AlreadyExists, codes.InvalidArgument:
			s.countRefusal(err.Error())
			pause = s.RefusedPause
		default:
			s.countFailure(err)
			a.mu.Lock()
			a.nextHub = (a.nextHub + 1) % len(s.Hubs)
			a.mu.Unlock()
		}
		a.mu.Lock()
		pause = pause/2 + time.Duration(a.drawUniform()*float64(pause/2))
		a.mu.Unlock()
		s.schedule.runAfter(pause, func() { s.joinQueue.put(a) })
	}
}

// joinHub joins the agent by the real handshake.
func (s *simulator) joinHub(ctx context.Context, a *simulatedAgent) error {
	a.mu.Lock()
	hub, known := s.Hubs[a.nextHub], a.identity
	a.mu.Unlock()
	key, err := s.keyToJoin(a, known)
	if err != nil {
		return err
	}
	csr, err := trust.NewCertificateRequest(key, a.clusterName())
	if err != nil {
		return err
	}
	request := &pb.JoinRequest{Name: a.clusterName(), Csr: csr, AgentVersion: atoll.Version}
	if known.length == 0 {
		request.Token = s.Tokens[a.index%len(s.Tokens)]
	}
	reply, err := s.requestJoin(ctx, a, hub, request)
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
	a.storeIdentity(id)
	a.mu.Unlock()
	s.pendingJoinKeys.Delete(a.index)
	return nil
}

// keyToJoin returns the key for joining: the agent's own, or the key of its pending
// request. If the answer to a join was lost, the hub recognises the agent by this key and
// counts no second use of the token.
func (s *simulator) keyToJoin(a *simulatedAgent, known identityLocation) (*ecdsa.PrivateKey, error) {
	if known.length > 0 {
		id, err := known.readIdentity()
		if err != nil {
			return nil, err
		}
		return id.privateKey()
	}
	if key, asked := s.pendingJoinKeys.Load(a.index); asked {
		return key.(*ecdsa.PrivateKey), nil
	}
	key, err := newKey()
	if err == nil {
		s.pendingJoinKeys.Store(a.index, key)
	}
	return key, err
}

// requestJoin sends one join request to the hub.
func (s *simulator) requestJoin(ctx context.Context, a *simulatedAgent, hub string, request *pb.JoinRequest) (*pb.JoinReply, error) {
	host, _, err := net.SplitHostPort(hub)
	if err != nil {
		return nil, fmt.Errorf("the hub's address %q is not HOST:PORT: %w", hub, err)
	}
	config, err := trust.PinnedTLSConfig(host, s.CAHash, nil)
	if err != nil {
		return nil, err
	}
	config.NextProtos = alpnProtocols
	w, conn, err := s.connectTLS(ctx, a, hub, config)
	if err != nil {
		return nil, fmt.Errorf("dial %s to join: %w", hub, err)
	}
	defer w.cutWithReset()
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, w.cutWithReset)
	defer stop()
	call, err := h2.Open(conn, &h2.CallOptions{
		Authority: hub, Method: pb.Registration_Join_FullMethodName, MessageMost: session.MaxFrameBytes, Counts: &s.counts.wire,
	})
	if err != nil {
		return nil, err
	}
	body, err := proto.Marshal(request)
	if err != nil {
		return nil, err
	}
	call.QueueMessages(h2.FrameMessage(body))
	call.CloseSend()
	reply := &pb.JoinReply{}
	if err := call.Serve(func(m []byte) error { return proto.Unmarshal(m, reply) }); err != nil {
		return nil, err
	}
	return reply, nil
}
