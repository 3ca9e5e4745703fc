package link

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	"atoll.dev/atoll/internal/agent/membudget"
	"atoll.dev/atoll/internal/agent/store"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/session"
	pb "atoll.dev/atoll/internal/session/sessionpb"
)

// unlimited is the budget of an agent without a memory limit.
var unlimited = membudget.DivideLimit(0)

// sendUntilEnded sends a frame of the hub again and again, until the agent ends the session. The hub takes
// nothing of it, because the caller holds its lock.
func sendUntilEnded(t *testing.T, h *hub, f *pb.FromHub, most int) {
	t.Helper()
	for range most {
		if h.tell(f) != nil {
			return
		}
	}
	t.Errorf("the session goes on after %d frames", most)
}

// A message over its bounds, and more requests than the hub takes answers of, end the session. The agent
// goes on, and follows the next one.
func TestAMalformedFrameEndsTheSessionAndNotTheAgent(t *testing.T) {
	t.Parallel()
	h, m, _ := newLinkedMember(t, 0, time.Hour)
	m.ready["web"] = true
	prefixes := make([]string, 256)
	for i := range prefixes {
		prefixes[i] = fmt.Sprintf("%032x", i)
	}
	for what, frame := range map[string]*pb.FromHub{
		"a field over its bound": {Frame: &pb.FromHub_Dial{Dial: &pb.Dial{Id: strings.Repeat("x", 1000)}}},
		"a flood of queries":     {Frame: &pb.FromHub_DigestQuery{DigestQuery: &pb.DigestQuery{Prefixes: prefixes}}},
	} {
		sessions := 0
		h.waitUntil("a session", func() bool {
			sessions = len(h.begun)
			return h.tell != nil && h.inventoried
		})
		h.mu.Lock()
		sendUntilEnded(t, h, frame, 1_000_000)
		h.mu.Unlock()
		h.waitUntil("another session after "+what, func() bool { return len(h.begun) > sessions })
	}
	h.waitUntil("a session", func() bool { return h.tell != nil && h.inventoried })
	h.mu.Lock()
	order := &pb.Upsert{Bundle: "web", Generation: 1, Manifest: []byte(`{"content":"c"}`)}
	if err := h.tell(&pb.FromHub{Frame: &pb.FromHub_Upsert{Upsert: order}}); err != nil {
		t.Error(err)
	}
	h.mu.Unlock()
	h.waitUntil("its order is followed", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.held["web"].Generation == 1
	})
}

// An outbox takes frames up to its bound, and beside them what is sent at the first Welcome. Sent frames make
// room.
func TestAnOutboxIsBounded(t *testing.T) {
	large := &pb.FromAgent{Frame: &pb.FromAgent_Report{Report: &pb.Report{Status: make([]byte, unlimited.Unsent/2)}}}
	var ended error
	o := newOutbox(unlimited.Unsent, func(err error) { ended = err })
	o.putWelcomeFrames(large, large, large)
	o.put(large)
	if frames, _ := o.takeFrames(); ended != nil || len(frames) != 4 {
		t.Fatalf("%d frames, ended by %v", len(frames), ended)
	}
	o.recordActivity(large)
	if o.put(large); ended != nil {
		t.Fatalf("a frame that was sent still counts: %v", ended)
	}
	o.putWelcomeFrames(large) // which a hub may send twice
	if frames, _ := o.takeFrames(); !errors.Is(ended, errUnsent) || len(frames) != 0 {
		t.Errorf("%d frames wait, ended by %v", len(frames), ended)
	}
}

// Frames that are short when they are sent count the memory of their messages, lists and maps.
func TestShortFramesCountTheirMemory(t *testing.T) {
	digest, need := &pb.Digest{}, &pb.Need{Bundle: "b"}
	for range 256 {
		digest.Ranges = append(digest.Ranges, &pb.Range{Prefix: "0"})
	}
	for range 10_000 {
		need.Hashes = append(need.Hashes, "h")
	}
	for what, c := range map[string]struct {
		frame *pb.FromAgent
		most  int // frames of the memory that a hub may make an agent hold
	}{
		"acknowledgements": {&pb.FromAgent{Frame: &pb.FromAgent_Stored{Stored: &pb.Stored{Bundle: "b", Generation: 1}}}, unlimited.Unsent / 256},
		"digests":          {&pb.FromAgent{Frame: &pb.FromAgent_Digest{Digest: digest}}, unlimited.Unsent / (256 * 128)},
		"requests":         {&pb.FromAgent{Frame: &pb.FromAgent_Need{Need: need}}, unlimited.Unsent / (10_000 * 32)},
	} {
		ended, frames := false, 0
		o := newOutbox(unlimited.Unsent, func(error) { ended = true })
		for ; !ended && frames <= c.most; frames++ {
			o.put(c.frame)
		}
		if !ended {
			t.Errorf("%s: %d frames wait", what, frames)
		}
		sent := newOutbox(unlimited.Unsent, nil)
		sent.put(c.frame)
		if sent.recordActivity(c.frame); sent.unsent != 0 {
			t.Errorf("%s: a frame that was sent counts %d bytes", what, sent.unsent)
		}
	}
}

// verboseHub answers with a header.
type verboseHub struct {
	pb.UnimplementedSessionServer
	header metadata.MD
	sent   chan error
}

func (h *verboseHub) Connect(rpc grpc.BidiStreamingServer[pb.FromAgent, pb.FromHub]) error {
	h.sent <- rpc.SendHeader(h.header)
	return nil
}

// An agent takes a header of 16 KiB of its hub, which it keeps as long as the call.
func TestHeadersOfAHubAreBounded(t *testing.T) {
	ca, caKey := newAuthority(t)
	_, key := newAuthority(t)
	for size, good := range map[int]bool{8 << 10: true, 16 << 10: false} {
		hub := &verboseHub{header: metadata.Pairs("x", strings.Repeat("x", size)), sent: make(chan error, 1)}
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		server := grpc.NewServer(grpc.Creds(credentials.NewServerTLSFromCert(&tls.Certificate{Certificate: [][]byte{ca.Raw}, PrivateKey: caKey})))
		pb.RegisterSessionServer(server, hub)
		go func() { _ = server.Serve(listener) }()
		t.Cleanup(server.Stop)
		l := New(Options{Hub: listener.Addr().String(), Metrics: NewMetrics(prometheus.NewRegistry()), Log: slog.New(slog.DiscardHandler)}, store.StoredContents{})
		l.id = &identity{Identity: store.Identity{
			KeyPEM: keyPEM(t, key), HubCAPEM: signedPEM(ca),
			CertificatePEM: signCertificate(t, ca, caKey, key.Public(), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)),
		}}
		config, err := l.sessionTLS()
		if err != nil {
			t.Fatal(err)
		}
		conn, err := l.dialHub(config)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := pb.NewSessionClient(conn).Connect(t.Context(), grpc.WaitForReady(true)); err != nil {
			t.Fatal(err)
		}
		if err := <-hub.sent; (err == nil) != good {
			t.Errorf("a header of %d bytes: %v", size, err)
		}
		conn.Close()
	}
}

// The queue holds the newest manifest of each Bundle, and the first one, which is being stored.
func TestTheQueueHoldsOneManifestOfABundle(t *testing.T) {
	var q manifestQueue
	manifest := func(bundle string, generation int64) atoll.Manifest {
		return atoll.Manifest{Bundle: bundle, Generation: generation}
	}
	state := func() (out []string) {
		for _, m := range q.list {
			out = append(out, fmt.Sprint(m.Bundle, m.Generation))
		}
		return out
	}
	for _, step := range []struct {
		do   func()
		want []string
	}{
		{func() { q.PutLatest(manifest("a", 1), 10) }, []string{"a1"}},
		{func() { q.PutLatest(manifest("a", 2), 10) }, []string{"a1", "a2"}},
		{func() { q.PutLatest(manifest("b", 1), 10) }, []string{"a1", "a2", "b1"}},
		{func() { q.PutLatest(manifest("a", 3), 10) }, []string{"a1", "b1", "a3"}},
		{func() { q.PutLatest(manifest("b", 2), 10) }, []string{"a1", "a3", "b2"}},
		{func() { m := manifest("b", 2); q.RemoveIfFirst(&m) }, []string{"a1", "a3", "b2"}},
		{func() { m := manifest("a", 1); q.RemoveIfFirst(&m) }, []string{"a3", "b2"}},
		{func() { m := manifest("a", 1); q.RemoveIfFirst(&m) }, []string{"a3", "b2"}},
		{func() { m := manifest("a", 3); q.RemoveIfFirst(&m) }, []string{"b2"}},
		{func() { q.PutLatest(manifest("a", 4), 10); q.PutLatest(manifest("a", 5), 10) }, []string{"b2", "a5"}},
		{func() { q.Clear() }, nil},
		{func() { m := manifest("b", 2); q.RemoveIfFirst(&m) }, nil},
		{func() { q.PutLatest(manifest("b", 3), 10) }, []string{"b3"}},
	} {
		step.do()
		if got := state(); !slices.Equal(got, step.want) {
			t.Fatalf("the queue holds %q, want %q", got, step.want)
		}
		if q.bytes != 10*len(step.want) {
			t.Errorf("%d bytes are counted of %q", q.bytes, step.want)
		}
		if m, waits := q.First(); waits != (len(step.want) > 0) || waits && fmt.Sprint(m.Bundle, m.Generation) != step.want[0] {
			t.Errorf("the first of %q is %s%d, %t", step.want, m.Bundle, m.Generation, waits)
		}
	}
}

// slowMember stores a manifest on the test's command.
type slowMember struct {
	*member
	begun, proceed chan struct{}
}

func (s *slowMember) UpsertManifest(ctx context.Context, m atoll.Manifest, at store.Position) error {
	s.begun <- struct{}{}
	<-s.proceed
	return s.member.UpsertManifest(ctx, m, at)
}

// A hub that removes the cluster while a manifest is being stored ends what waits, and not the agent.
func TestARemovalWhileAManifestIsBeingStored(t *testing.T) {
	m := &slowMember{member: &member{held: map[string]atoll.Manifest{}, ready: map[string]bool{}}, begun: make(chan struct{}), proceed: make(chan struct{})}
	l := New(Options{Hub: "hub:1", Store: m, Log: slog.New(slog.DiscardHandler)}, store.StoredContents{})
	m.changed, l.applier, l.holdings, l.id = l.BundleStatusChanged, m, m, &identity{}
	l.newSessionCore()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { l.storeManifestsLoop(ctx); close(ended) }()
	order := func(bundles ...string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, b := range bundles {
			l.applyOutput(session.AgentOutput{Store: []atoll.Manifest{{Bundle: b, Generation: 1}}}, nil)
		}
	}
	order("first", "waiting")
	<-m.begun
	l.restartFromHeldBundles()
	order("next")
	m.proceed <- struct{}{}
	<-m.begun
	m.proceed <- struct{}{}
	stop()
	<-ended
	if _, waiting := m.held["waiting"]; waiting || m.held["first"].Generation != 1 || m.held["next"].Generation != 1 {
		t.Errorf("stored are %v", m.held)
	}
}

// A certificate with which no session could begin is not stored: the agent goes on with the one that it has.
func TestACertificateThatIsOfNoUseIsNotStored(t *testing.T) {
	r := newRenewing(t)
	if err := r.giveCertificate(t, time.Hour, 0); err != nil {
		t.Fatal(err)
	}
	before, stored := r.store.lastCertificate()
	_, other := newAuthority(t)
	sign := func(public any) []byte {
		return signCertificate(t, r.ca, r.caKey, public, time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
	}
	good := sign(r.key.Public())
	block, _ := pem.Decode(good)
	mislabelled := pem.EncodeToMemory(&pem.Block{Type: "TRUSTED CERTIFICATE", Bytes: block.Bytes})
	for what, c := range map[string]struct{ certificate, ca []byte }{
		"no PEM":                          {[]byte("x"), nil},
		"for another key":                 {sign(other.Public()), nil},
		"of another type":                 {mislabelled, nil},
		"of another type before the good": {slices.Concat(mislabelled, sign(r.key.Public())), nil},
		"with a CA that is none":          {good, []byte("x")},
	} {
		if err := r.acceptCertificate(t.Context(), c.certificate, c.ca); err == nil {
			t.Errorf("a certificate %s is accepted", what)
		}
		if now, n := r.store.lastCertificate(); now != before || n != stored || !bytes.Equal(r.id.HubCAPEM, []byte("x")) {
			t.Errorf("a certificate %s is stored", what)
		}
	}
}

// Orders that cannot be followed are logged, the first ones of a session, each cut.
func TestRefusedOrdersDoNotFloodTheLog(t *testing.T) {
	var log strings.Builder
	l := &HubLink{o: Options{Log: slog.New(slog.NewTextHandler(&log, nil))}}
	v := &sessionState{}
	for range 10 {
		l.logRejectedOrders(v, slices.Repeat([]error{errors.New(strings.Repeat("x", 10_000))}, 10))
	}
	if lines := strings.Count(log.String(), "\n"); lines != maxRejectedLogged+1 || log.Len() > 30_000 {
		t.Errorf("%d lines of %d bytes", lines, log.Len())
	}
}

// savingMember counts how often the memory is stored, and the removed bundles that are dropped.
type savingMember struct {
	*member
	saves, drops int
}

func (s *savingMember) PutReports(context.Context, store.Reports) error { s.saves++; return nil }

func (s *savingMember) ForgetRemovedBundle(context.Context, string, time.Time) error {
	s.drops++
	return nil
}

// Removed bundles are dropped from the member's store together: all their generations are one value of it.
func TestRemovedBundlesAreDroppedTogether(t *testing.T) {
	m := &savingMember{member: &member{held: map[string]atoll.Manifest{}}}
	l := New(Options{Hub: "hub:1", Store: m, Log: slog.New(slog.DiscardHandler)}, store.StoredContents{})
	l.applier, l.holdings = m, m
	l.newSessionCore()
	for i := range 1000 {
		l.dropStoredRemovals(map[string]int64{fmt.Sprint("b", i): 1})
	}
	l.dropRemovedBundles(t.Context())
	if m.saves != 1 || m.drops != 1000 || len(l.memory.Gone) != 1000 {
		t.Errorf("%d times stored, %d of %d bundles dropped", m.saves, m.drops, len(l.memory.Gone))
	}
	if l.dropRemovedBundles(t.Context()); m.drops != 1000 {
		t.Errorf("%d bundles dropped", m.drops)
	}
}
