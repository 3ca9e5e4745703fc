package delivery

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/delivery/fairness"
	"atoll.dev/atoll/internal/pace"
	"atoll.dev/atoll/internal/session"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/testwait"
)

// sendFrame sends a frame on the agent's session and waits until the hub has ended it.
func (a *testAgent) sendFrame(t *testing.T, f *pb.FromAgent) {
	t.Helper()
	a.mu.Lock()
	stream, closed := a.stream, a.closed
	a.mu.Unlock()
	_ = stream.Send(f) // the hub may have ended the stream
	select {
	case <-closed:
	case <-time.After(testwait.HangLimit):
		t.Fatal("the session goes on")
	}
}

// A frame with a field over its bound ends the session, changes nothing, and is recorded for the
// Cluster; the frame's content is in no log.
func TestAFrameOverItsBoundsEndsTheSession(t *testing.T) {
	long := strings.Repeat("evil", 20_000)
	for name, f := range map[string]*pb.FromAgent{
		"a status":       {Frame: &pb.FromAgent_Report{Report: &pb.Report{Bundle: "b1", Seq: 1, Status: []byte(long)}}},
		"a version":      {Frame: &pb.FromAgent_Inventory{Inventory: &pb.Inventory{KubernetesVersion: long}}},
		"a bundle":       {Frame: &pb.FromAgent_Stored{Stored: &pb.Stored{Bundle: long}}},
		"a terminal's":   {Frame: &pb.FromAgent_Inventory{Inventory: &pb.Inventory{AgentVersion: "evil\x1b[2J"}}},
		"a negative one": {Frame: &pb.FromAgent_Report{Report: &pb.Report{Bundle: "b1", Seq: -1}}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newTestHub(t)
			uid, a := h.connectAgent("tokyo")
			a.sendFrame(t, f)
			if a.refused.GetReason() != string(atoll.ReasonMisbehaving) || !a.refused.GetFinal() {
				t.Errorf("the session ends with %v", a.refused)
			}
			if what := h.inventory.misbehaviourOf(uid); !strings.HasPrefix(what, "field ") {
				t.Errorf("recorded is %q", what)
			}
			h.inventory.mu.Lock()
			defer h.inventory.mu.Unlock()
			for _, i := range h.inventory.seen[uid] {
				if strings.Contains(i.GetKubernetesVersion()+i.GetAgentVersion(), "evil") {
					t.Error("the inventory was taken")
				}
			}
			if strings.Contains(h.log.String(), "evil") {
				t.Error("the log has what was refused")
			}
		})
	}
}

// A message over the bound of agents is refused by its length, before it is read.
func TestAFrameOverTheLargestIsNotRead(t *testing.T) {
	h := newTestHub(t)
	uid, a := h.connectAgent("tokyo")
	a.sendFrame(t, &pb.FromAgent{Frame: &pb.FromAgent_Report{Report: &pb.Report{Bundle: "b1", Status: make([]byte, session.MaxAgentFrameBytes+1)}}})
	a.mu.Lock()
	defer a.mu.Unlock()
	if status.Code(a.err) != codes.ResourceExhausted {
		t.Errorf("the stream ends with %v", a.err)
	}
	if what := h.inventory.misbehaviourOf(uid); !strings.Contains(what, "more than 1048576 bytes") {
		t.Errorf("recorded is %q", what)
	}
}

// An agent that answers a recall with more removals than agents keep is cut off, and the hub keeps
// none of them.
func TestRememberedRemovalsAreBounded(t *testing.T) {
	remembered := make(chan Remembered, 1)
	h := newTestHub(t, func(o *Options) { o.Restore = &testRestore{recalling: true, remembered: remembered} })
	uid, a := h.connectAgent("tokyo")
	testwait.UntilTrue(t, "it is asked", func() bool { return a.checkLocked(func() bool { return a.frames["Recall"] == 1 }) })
	full := &pb.Remembered{Tombstones: make([]*pb.RememberedTombstone, 500)}
	for i := range full.Tombstones {
		full.Tombstones[i] = &pb.RememberedTombstone{Bundle: "b"}
	}
	a.mu.Lock()
	for range maxRemembered / len(full.Tombstones) {
		a.send(a.stream, []*pb.FromAgent{{Frame: &pb.FromAgent_Remembered{Remembered: full}}})
	}
	a.mu.Unlock()
	a.sendFrame(t, &pb.FromAgent{Frame: &pb.FromAgent_Remembered{Remembered: &pb.Remembered{Tombstones: full.Tombstones[:1], Complete: true}}})
	if a.refused.GetReason() != string(atoll.ReasonMisbehaving) || !a.refused.GetFinal() {
		t.Errorf("the session ends with %v", a.refused)
	}
	if what := h.inventory.misbehaviourOf(uid); !strings.Contains(what, "removals") {
		t.Errorf("recorded is %q", what)
	}
	select {
	case r := <-remembered:
		t.Errorf("%d removals are taken", len(r.Tombstones))
	default:
	}
}

// Acknowledgements and needs that an agent causes without reading are bounded.
func TestWhatAnAgentMakesTheHubKeepIsBounded(t *testing.T) {
	inventory := &memInventory{}
	s := &agentSession{gateway: &Gateway{options: Options{Inventory: inventory}}, id: identity{uid: "u"},
		senderRunning: true, ended: make(chan struct{}), cancelCall: func() {}} // the sender is stuck
	for i := range ackMargin {
		s.queueAck(fmt.Sprint(i), 1)
	}
	if s.queueAck("0", 2); s.done {
		t.Fatal("acknowledgements within the bound end the session")
	}
	if s.queueAck("one more", 1); !s.done || len(s.queue.acks) != ackMargin {
		t.Errorf("done: %t, %d acknowledgements wait", s.done, len(s.queue.acks))
	}
	if what := inventory.misbehaviourOf("u"); !strings.Contains(what, "reads answers") {
		t.Errorf("recorded is %q", what)
	}
	var q sendQueue
	need := func(bundle string) *pb.Need { return &pb.Need{Bundle: bundle, Hashes: make([]string, 10_000)} }
	for i := range maxNeedHashes / 10_000 {
		for range 2 { // the second replaces the first
			if !q.queueNeededObjects(need(fmt.Sprint(i))) {
				t.Fatal("a need within the bound is refused")
			}
		}
	}
	if q.queueNeededObjects(need("one more")) {
		t.Error("needs have no bound")
	}
	for range len(q.needs) {
		q.nextTask(false)
	}
	if q.needHashes != 0 {
		t.Errorf("%d hashes are counted of no need", q.needHashes)
	}
}

// A connection that sends nothing, or no handshake, takes no turn of those that wait for one.
func TestSilentConnectionsTakeNoTurn(t *testing.T) {
	d := &tlsAcceptor{queue: fairness.NewQueue(pace.PerSecond(1, 1), time.Millisecond), silent: fairness.NewPlaces(1)}
	for name, sent := range map[string]string{"nothing": "", "HTTP": "GET / HTTP/1.1\r\n\r\n", "half a record": "\x16\x03\x01\x02", "a long record": "\x16\x03\x01\xff\xff"} {
		peer, raw := net.Pipe()
		go func() {
			_, _ = io.WriteString(peer, sent)
			_ = peer.Close()
		}()
		conn := &limitedConn{trackedConn: &trackedConn{Conn: raw, onClose: func() {}}}
		if _, _, err := d.ServerHandshake(conn); err == nil {
			t.Errorf("%s: the handshake succeeds", name)
		}
	}
	if err := d.queue.Wait("a", false); err != nil {
		t.Errorf("the turn is taken: %v", err)
	}
	if n := d.silent.Taken(); n != 0 {
		t.Errorf("%d connections count as silent", n)
	}
}

// Connections without a certificate have places of their own, a part of which one address may take.
func TestStrangersHaveFewPlaces(t *testing.T) {
	taken := make(chan net.Conn, 2*maxStrangers)
	l := newUncertifiedConnServer(func(c net.Conn, _ credentials.AuthInfo) { taken <- c })
	dial := func(address string) error {
		return l.serveConn(addressedConn{address}, &peerAuth{})
	}
	for i := range maxStrangersPerNetwork {
		if err := dial("10.0.0.1"); err == errStrangersFull {
			t.Fatalf("connection %d of one address is refused", i)
		}
	}
	if err := dial("10.0.0.1"); err != errStrangersFull {
		t.Errorf("one more of that address: %v", err)
	}
	for i := range maxStrangers - maxStrangersPerNetwork {
		if err := dial(fmt.Sprintf("10.0.1.%d", i)); err == errStrangersFull {
			t.Fatalf("connection %d of other addresses is refused", i)
		}
	}
	if err := dial("10.0.2.1"); err != errStrangersFull {
		t.Errorf("one more than all: %v", err)
	}
	if err := (<-taken).Close(); err != nil {
		t.Error(err)
	}
	if err := dial("10.0.2.1"); err == errStrangersFull {
		t.Error("a place that is free again is not given")
	}
}

// addressedConn is a connection of an address that is never read.
type addressedConn struct{ host string }

func (c addressedConn) RemoteAddr() net.Addr           { return &net.TCPAddr{IP: net.ParseIP(c.host), Port: 1} }
func (addressedConn) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (addressedConn) Read([]byte) (int, error)         { return 0, io.EOF }
func (addressedConn) Write(b []byte) (int, error)      { return len(b), nil }
func (addressedConn) Close() error                     { return nil }
func (addressedConn) SetDeadline(time.Time) error      { return nil }
func (addressedConn) SetReadDeadline(time.Time) error  { return nil }
func (addressedConn) SetWriteDeadline(time.Time) error { return nil }

// A caller without a certificate cannot send a large message, and gets no session.
func TestStrangersSendLittle(t *testing.T) {
	h := newTestHub(t, func(o *Options) { o.JoinWait = time.Millisecond })
	r := joinRequest(t, "", "tokyo", newKey(t))
	r.AgentVersion = strings.Repeat("x", strangerMessageBytes)
	if _, err := h.pinnedClient().Join(t.Context(), r); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a large message: %v", err)
	}
	conn := h.dialHub(&tls.Config{MinVersion: tls.VersionTLS13, ServerName: "127.0.0.1", RootCAs: h.keys.ClusterCA.CertPool()})
	stream, err := pb.NewSessionClient(conn).Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a session without a certificate: %v", err)
	}
}
