package gateway

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/apiserver/keys"
	"atoll.dev/atoll/internal/atoll"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/trust"
	"atoll.dev/atoll/internal/trust/handshake"
)

// certificateIn what the hub gave.
func certificateIn(t *testing.T, certPEM []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(certPEM)
	if block == nil {
		t.Fatal("no certificate")
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// welcomed connects and waits until the agent is welcome.
func (a *testAgent) welcomed() {
	a.h.t.Helper()
	a.connect()
	eventually(a.h.t, "the agent is welcome", func() bool { return a.see(func() bool { return a.welcome != nil }) })
}

// renewal is what the agent was given last, after it was given anything.
func (a *testAgent) renewal() *pb.Renewed {
	a.h.t.Helper()
	var r *pb.Renewed
	eventually(a.h.t, "a certificate comes", func() bool {
		return a.see(func() bool { r, a.renewed = a.renewed, nil; return r != nil })
	})
	return r
}

// ask for a certificate.
func (a *testAgent) ask() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.send(a.stream, []*pb.FromAgent{{Frame: &pb.FromAgent_Renew{Renew: &pb.Renew{Csr: signerOf{a.key}.csr(a.h.t.(*testing.T))}}}})
}

// writes of the store that the fake clients have seen.
func (h *testHub) writes(kube *fake.Clientset) (n int) {
	for _, a := range kube.Actions() {
		if !slices.Contains([]string{"get", "list", "watch"}, a.GetVerb()) {
			n++
		}
	}
	var clusters v1alpha1.ClusterList
	if err := h.client.List(h.t.Context(), &clusters); err != nil {
		h.t.Fatal(err)
	}
	for _, c := range clusters.Items {
		var version int
		if _, err := fmt.Sscan(c.ResourceVersion, &version); err != nil {
			h.t.Fatal(err)
		}
		n += version
	}
	return n + h.rows.written()
}

// A certificate is renewed on the stream, which goes on; the one before is good until its
// end; and nothing of it is written.
func TestRenewalOverlapsAndWritesNothing(t *testing.T) {
	h := newTestHub(t, func(o *Options) { o.CertificateLifetime = 2 * time.Hour })
	uid, id := h.cluster("tokyo")
	a := h.agent(id, "one")
	a.welcomed()
	s, before := h.sessions.of(uid), h.writes(h.kube)
	a.ask()
	r := a.renewal()
	cert := certificateIn(t, r.GetCertificate())
	if trust.Life(cert) != 2*time.Hour {
		t.Errorf("it lives %s", trust.Life(cert))
	}
	if h.sessions.of(uid) != s || a.see(func() bool { return a.err != nil }) {
		t.Error("the stream was cut")
	}
	if got := h.inventory.certificateOf(uid); !got.ends.Equal(cert.NotAfter) || got.generation != 1 || got.overdue {
		t.Errorf("the hub knows of %+v", got)
	}
	fresh := h.agent(pair(t, r.GetCertificate(), keyOf(id)), "one")
	for name, agent := range map[string]*testAgent{"the old certificate": a, "the new one": fresh} {
		agent.connect()
		eventually(t, name+" is good", func() bool { return agent.see(func() bool { return agent.welcome != nil }) })
		agent.cut()
	}
	if n := h.writes(h.kube) - before; n != 0 {
		t.Errorf("%d writes", n)
	}
	if strings.Contains(h.log.String(), "level=ERROR") {
		t.Error("the log has errors")
	}
}

// A rotation, as the gateway sees it: agents that are there are given new certificates on
// their streams, and trust both CAs; one that comes by an old certificate, too, before it is
// told that there is nothing more; after its end old certificates and tickets are worth
// nothing, and the key is.
func TestRotation(t *testing.T) {
	h := newTestHub(t)
	first := h.keys.Authorities()
	uid, id := h.cluster("tokyo")
	awayUID, awayID := h.cluster("oslo")
	seldomUID, seldomID := h.cluster("lima")
	h.checksIn("lima", time.Hour)
	a := h.agent(id, "one")
	a.tickets = tls.NewLRUClientSessionCache(0)
	a.welcomed()
	s, before := h.sessions.of(uid), h.writes(h.kube)

	rotating, err := first.Rotate(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	h.trusts(rotating)
	h.TrustChanged()
	r := a.renewal()
	if h.sessions.of(uid) != s {
		t.Error("the stream was cut")
	}
	if cas := strings.Count(string(r.GetHubCa()), "BEGIN"); cas != 2 {
		t.Errorf("the agent is to trust %d CAs", cas)
	}
	if got := h.inventory.certificateOf(uid).generation; got != 2 {
		t.Errorf("the hub knows of a certificate of generation %d", got)
	}

	seldom := h.agent(seldomID, "three")
	seldom.connect()
	seldom.tellInventory()
	eventually(t, "who checks in is let go", seldom.got("Idle", 1))
	if !seldom.got("Renewed", 1)() {
		t.Fatal("who checks in was let go without a new certificate")
	}
	if cert := certificateIn(t, seldom.renewal().GetCertificate()); cert.CheckSignatureFrom(rotating.Agent.Cert) != nil {
		t.Error("who came by an old certificate is given another old one")
	}
	if got := h.inventory.certificateOf(seldomUID).generation; got != 2 {
		t.Errorf("the hub knows of a certificate of generation %d", got)
	}
	seldom.cut()

	a.cut()
	a.welcomed()
	if a.resumed.Load() {
		t.Error("a ticket of before is good")
	}
	a.renewal() // it came by the old certificate
	a.cut()

	finished, err := rotating.Finish()
	if err != nil {
		t.Fatal(err)
	}
	fresh := h.agent(pair(t, r.GetCertificate(), keyOf(id)), "one")
	fresh.roots = r.GetHubCa()
	fresh.welcomed()
	h.trusts(finished)
	h.TrustChanged()
	if cas := strings.Count(string(fresh.renewal().GetHubCa()), "BEGIN"); cas != 1 {
		t.Errorf("the agent is to trust %d CAs", cas)
	}

	h.comesBackByItsKey("oslo", awayUID, awayID)
	if n := h.writes(h.kube) - before; n > 1 { // lima was told to check in
		t.Errorf("%d writes", n)
	}
}

// comesBackByItsKey: an agent whose certificate does not count any more, and that knows the
// old CA's hash alone.
func (h *testHub) comesBackByItsKey(name, uid string, id tls.Certificate) {
	t := h.t
	t.Helper()
	away := h.agent(id, "two")
	away.connect()
	<-away.closed
	// It is not even asked for a certificate of that CA, and so shows none.
	if status.Code(away.err) != codes.Unauthenticated {
		t.Errorf("a certificate of the former CA: %v", away.err)
	}
	reply, err := h.pinned().Join(t.Context(), joinRequest(t, "", name, away.key))
	if err != nil || reply.GetState() != stateAccepted || reply.GetClusterUid() != uid {
		t.Fatalf("it asked by its key: %v, %v", reply, err)
	}
	back := h.agent(pair(t, reply.GetCertificate(), keyOf(id)), "two")
	back.roots = reply.GetHubCa()
	back.welcomed()
}

// Of a fleet that is there, certificates are given at a pace.
func TestRotationIsPaced(t *testing.T) {
	const fleet = 40
	h := newTestHub(t)
	var agents []*testAgent
	for i := range fleet {
		_, id := h.cluster(fmt.Sprintf("c%d", i))
		agents = append(agents, h.agent(id, fmt.Sprint(i)))
		agents[i].welcomed()
	}
	rotating, err := h.keys.Authorities().Rotate(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	h.trusts(rotating)
	h.TrustChanged()
	for _, a := range agents {
		a.renewal()
	}
	if took, least := time.Since(begin), (fleet-2)*time.Second/reissuesPerSecond; took < least {
		t.Errorf("%d agents in %s, which is less than %s", fleet, took, least)
	}
}

// Whoever's clock is wrong by ten minutes, or is said so by a hub whose clock is, comes in;
// what has ended or not begun is refused by TLS, and the key is still good, however long
// ago that was, until its cluster is denied.
func TestClocksAndEndsOfCertificates(t *testing.T) {
	h := newTestHub(t, func(o *Options) { o.JoinWait = 10 * time.Millisecond })
	uid, id := h.cluster("tokyo")
	issued := func(at time.Time, life time.Duration) tls.Certificate {
		cert, err := h.keys.AgentCA.Sign(id.PrivateKey.(crypto.Signer).Public(), keys.Request{
			CommonName: atoll.UserClusterPrefix + uid, Organization: []string{atoll.GroupAgents}, NotBefore: at, Lifetime: life,
		})
		if err != nil {
			t.Fatal(err)
		}
		return pair(t, cert, keyOf(id))
	}
	now := time.Now()
	for name, c := range map[string]struct {
		id   tls.Certificate
		skew time.Duration // of the agent's clock
		in   bool
	}{
		"clocks agree":                         {issued(now, time.Hour), 0, true},
		"the agent is 10 minutes behind":       {issued(now, time.Hour), -10 * time.Minute, true},
		"the agent is 10 minutes ahead":        {issued(now, time.Hour), 10 * time.Minute, true},
		"another hub is 10 minutes ahead":      {issued(now.Add(10*time.Minute), time.Hour), 0, true},
		"another hub is 10 minutes behind":     {issued(now.Add(-10*time.Minute), time.Hour), 0, true},
		"the agent is a day behind":            {issued(now, time.Hour), -24 * time.Hour, false},
		"the certificate has ended":            {issued(now.Add(-2*time.Hour), time.Hour), 0, false},
		"it has ended a year ago":              {issued(now.Add(-366*24*time.Hour), 24*time.Hour), 0, false},
		"the certificate has not begun":        {issued(now.Add(time.Hour), time.Hour), 0, false},
		"ended, and the agent is a day behind": {issued(now.Add(-2*time.Hour), time.Hour), -10 * time.Minute, false},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := greet(h.addr, &tls.Config{
				MinVersion: tls.VersionTLS13, ServerName: "127.0.0.1", RootCAs: h.keys.ClusterCA.Pool(), Certificates: []tls.Certificate{c.id},
				NextProtos: []string{"h2"}, Time: func() time.Time { return now.Add(c.skew) },
			})
			if (err == nil) != c.in {
				t.Errorf("in is %t: %v", err == nil, err)
			}
			reply, err := h.pinned().Join(t.Context(), joinRequest(t, "", "tokyo", id.PrivateKey.(crypto.Signer)))
			if err != nil || reply.GetState() != stateAccepted || reply.GetClusterUid() != uid {
				t.Errorf("by the key: %v, %v", reply, err)
			}
		})
	}
	c := mustGet(t, h, "tokyo")
	c.Spec.Accepted = false
	if err := h.client.Update(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	reply, err := h.pinned().Join(t.Context(), joinRequest(t, "", "tokyo", id.PrivateKey.(crypto.Signer)))
	if err != nil || reply.GetState() != statePending || len(reply.GetCertificate()) > 0 {
		t.Errorf("by the key, when it is denied: %v, %v", reply, err)
	}
}

// TestWhoIsDeniedIsGivenNoCertificate, also by what was asked on the stream before it ended.
func TestWhoIsDeniedIsGivenNoCertificate(t *testing.T) {
	h := newTestHub(t)
	uid, id := h.cluster("tokyo")
	a := h.agent(id, "one")
	a.welcomed()
	s := h.sessions.of(uid)
	c, _ := h.clusters.Get("tokyo")
	c = c.DeepCopy()
	c.Spec.Accepted = false
	if err := h.client.Update(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the table shows it", func() bool { c, _ := h.clusters.Get("tokyo"); return !c.Spec.Accepted })
	s.renew(&pb.Renew{Csr: signerOf{a.key}.csr(t)})
	if n := testutil.ToFloat64(h.metrics.issued.WithLabelValues("renewal")); n != 0 {
		t.Errorf("%v certificates were given", n)
	}
	s.mu.Lock()
	s.renewed = time.Time{}
	s.mu.Unlock()
	c, _ = h.clusters.Get("tokyo")
	c = c.DeepCopy()
	c.Spec.Accepted = true
	if err := h.client.Update(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the table shows that it is accepted", func() bool { c, _ := h.clusters.Get("tokyo"); return c.Spec.Accepted })
	s.renew(&pb.Renew{Csr: signerOf{a.key}.csr(t)})
	if n := testutil.ToFloat64(h.metrics.issued.WithLabelValues("renewal")); n != 1 {
		t.Errorf("%v certificates were given to who is accepted", n)
	}
}

// Whoever is denied is cut off within a second, in tunnels, too.
func TestDenyCutsWithinASecond(t *testing.T) {
	// What else the machine is busy with is in the time, too: one that keeps the promise shows
	// that it can be kept.
	took := time.Hour
	for round := 0; round < 4 && took > time.Second; round++ {
		took = min(took, deniedCutAfter(t))
	}
	if took > time.Second {
		t.Errorf("who is denied was cut off after %s", took)
	}
}

func deniedCutAfter(t *testing.T) time.Duration {
	t.Helper()
	h, a, uid := tunnelled(t, echo)
	conn, err := h.Dial(t.Context(), uid)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	c, _ := h.clusters.Get("tokyo")
	c = c.DeepCopy()
	c.Spec.Accepted = false
	begin := time.Now()
	if err := h.client.Update(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("the tunnel gives something")
	}
	tunnel := time.Since(begin)
	<-a.closed
	stream := time.Since(begin)
	t.Logf("the tunnel was cut after %s, the stream after %s", tunnel, stream)
	if a.refused.GetReason() != "NotAccepted" {
		t.Errorf("told %v", a.refused)
	}
	return max(tunnel, stream)
}

// Who asks for a name that another machine has is told so, and so is the administrator:
// once, though it asks again.
func TestTheAdministratorHearsOfNamesThatAreTaken(t *testing.T) {
	var mu sync.Mutex
	var told []string
	h := newTestHub(t, func(o *Options) {
		o.JoinWait = 10 * time.Millisecond
		o.Tell = func(c *v1alpha1.Cluster, reason, message string) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, c.Name+" "+reason+" "+message)
		}
	})
	_, id := h.cluster("tokyo")
	a := h.agent(id, "one")
	a.welcomed()
	token, other := h.token(handshake.TokenSpec{Uses: 9}), newKey(t)
	for range 3 {
		_, err := h.pinned().Join(t.Context(), joinRequest(t, token.Reveal(), "tokyo", other))
		if err == nil || !strings.Contains(err.Error(), "another agent is connected as tokyo") {
			t.Fatalf("got %v", err)
		}
	}
	a.cut()
	eventually(t, "the stream is down", func() bool { return !h.clusters.isOnline(string(mustGet(t, h, "tokyo").UID)) })
	if _, err := h.pinned().Join(t.Context(), joinRequest(t, token.Reveal(), "tokyo", other)); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(told) != 2 || !strings.HasPrefix(told[0], "tokyo NameTaken ") || !strings.HasPrefix(told[1], "tokyo TakeoverAsked ") || !strings.Contains(told[1], "atoll accept tokyo") {
		t.Errorf("told %q", told)
	}
}

func mustGet(t *testing.T, h *testHub, name string) *v1alpha1.Cluster {
	t.Helper()
	c := &v1alpha1.Cluster{}
	if err := h.client.Get(t.Context(), client.ObjectKey{Name: name}, c); err != nil {
		t.Fatal(err)
	}
	return c
}

// Certificates that are not renewed in time are told of, once, and when that is made good.
func TestOverdueCertificates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type word struct {
			uid     string
			overdue bool
		}
		var mu sync.Mutex
		var words []word
		e := newExpiries(func(uid string, _ time.Time, _ int, overdue bool) {
			mu.Lock()
			defer mu.Unlock()
			words = append(words, word{uid, overdue})
		})
		said := func(want ...word) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(words, want) {
				t.Errorf("told %v, not %v", words, want)
			}
			words = nil
		}
		go e.watch(t.Context())
		lives := func(d time.Duration) certified {
			return certified{ends: time.Now().Add(d).Unix(), overdue: time.Now().Add(d * 3 / 4).Unix()}
		}
		a, b, gone := &stream{id: identity{uid: "a"}}, &stream{id: identity{uid: "b"}}, &stream{id: identity{uid: "gone"}}
		e.put(a, lives(8*time.Hour))
		e.put(b, lives(4*time.Hour))
		e.put(gone, lives(time.Hour))
		said(word{"a", false}, word{"b", false}, word{"gone", false})
		e.remove(gone)
		<-time.After(2 * time.Hour)
		e.renewed(b, lives(4*time.Hour)) // in time
		said(word{"b", false})
		<-time.After(3*time.Hour + time.Minute)
		said(word{"b", true})
		if n, soonest := e.summary(); n != 1 || soonest != b.certificate.ends {
			t.Errorf("%d overdue, the first ends at %d", n, soonest)
		}
		<-time.After(time.Hour)
		said(word{"a", true})
		e.renewed(b, lives(4*time.Hour))
		said(word{"b", false})
		e.remove(a)
		e.remove(a)
		if n, soonest := e.summary(); n != 0 || soonest != b.certificate.ends {
			t.Errorf("%d overdue, the first ends at %d", n, soonest)
		}
		e.put(a, lives(-time.Hour)) // it comes with one that has hardly any time left
		said(word{"a", true})
	})
}

// An agent that was given its first certificate and lost it, since it ended before its
// member had stored it, is given another for the same key, and its token is charged once.
func TestACertificateThatWasLostIsGivenAgain(t *testing.T) {
	h := newTestHub(t)
	token, key := h.token(handshake.TokenSpec{Uses: 1, AutoAccept: true}), newKey(t)
	var uid string
	for range 3 {
		r, err := h.pinned().Join(t.Context(), joinRequest(t, token.Reveal(), "tokyo", key))
		if err != nil || r.GetState() != stateAccepted || uid != "" && r.GetClusterUid() != uid {
			t.Fatalf("%v, %v", r, err)
		}
		uid = r.GetClusterUid()
	}
	if _, err := h.pinned().Join(t.Context(), joinRequest(t, token.Reveal(), "oslo", newKey(t))); err == nil {
		t.Error("the token is good for another one")
	}
}

// Frames that are sent again, and such as no agent sends, change nothing and harm nobody:
// an older report does not replace a newer one, a second Hello begins nothing, requests
// for certificates are answered once in a while, and what was never asked for is no answer.
func TestReplayedAndForgedFrames(t *testing.T) {
	h := newTestHub(t)
	uid, a := h.connected("tokyo")
	otherUID, other := h.connected("oslo")
	h.rows.set("web", map[string]atoll.RowSpec{"tokyo": active(uid, "r1", 1), "oslo": active(otherUID, "r1", 1)})
	eventually(t, "the orders", func() bool { return a.holds("web", "r1", 1)() && other.holds("web", "r1", 1)() })
	report := func(seq int64, state atoll.RowState) *pb.FromAgent {
		raw, err := json.Marshal(atoll.RowStatus{Generation: 1, Content: "r1", Seq: seq, State: state, Applied: true})
		if err != nil {
			t.Fatal(err)
		}
		return &pb.FromAgent{Frame: &pb.FromAgent_Report{Report: &pb.Report{Bundle: "web", Seq: seq, Status: raw}}}
	}
	says := func(cluster string, state atoll.RowState) func() bool {
		return func() bool { r, _ := h.rows.Get("web", cluster); return r.Status != nil && r.Status.State == state }
	}
	send := func(frames ...*pb.FromAgent) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.send(a.stream, frames)
	}
	old, newest := report(1000, atoll.RowProgressing), report(2000, atoll.RowReady)
	send(old)
	eventually(t, "the first report", says("tokyo", atoll.RowProgressing))
	send(newest)
	eventually(t, "the newest report", says("tokyo", atoll.RowReady))
	written := h.rows.written()
	var hello *pb.FromAgent
	a.see(func() bool { hello = a.core.Hello(); return true })
	send(old, newest, old, hello, &pb.FromAgent{}, &pb.FromAgent{Frame: &pb.FromAgent_Remembered{Remembered: &pb.Remembered{Complete: true}}})
	for range 50 {
		send(&pb.FromAgent{Frame: &pb.FromAgent_Renew{Renew: &pb.Renew{Csr: signerOf{a.key}.csr(t)}}})
	}
	send(&pb.FromAgent{Frame: &pb.FromAgent_Renew{Renew: &pb.Renew{Csr: []byte("garbage")}}})
	other.ready("web")
	eventually(t, "another agent's report", says("oslo", atoll.RowReady))
	eventually(t, "a certificate", func() bool { return a.see(func() bool { return a.renewed != nil }) })
	if !says("tokyo", atoll.RowReady)() || h.rows.written()-written > 1 {
		t.Errorf("tokyo's row, after %d writes: %+v", h.rows.written()-written, h.rows.rows["web"]["tokyo"].Status)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.frames["Renewed"] != 1 {
		t.Errorf("%d certificates for 50 requests", a.frames["Renewed"])
	}
}
