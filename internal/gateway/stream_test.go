package gateway

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/session"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/state"
	"atoll.dev/atoll/internal/trust"
)

// connected agent of a new cluster.
func (h *testHub) connected(name string) (uid string, a *testAgent) {
	h.t.Helper()
	uid, id := h.cluster(name)
	a = h.agent(id, name+"-1")
	a.connect()
	eventually(h.t, name+" is welcome", func() bool { return a.see(func() bool { return a.welcome != nil }) })
	return uid, a
}

func TestDenyCutsOffAtOnce(t *testing.T) {
	h := newTestHub(t)
	_, a := h.connected("tokyo")
	var c v1alpha1.Cluster
	if err := h.client.Get(t.Context(), client.ObjectKey{Name: "tokyo"}, &c); err != nil {
		t.Fatal(err)
	}
	c.Spec.Accepted = false
	began := time.Now()
	if err := h.client.Update(t.Context(), &c); err != nil {
		t.Fatal(err)
	}
	<-a.closed
	// Sooner than by anything that a stream waits for.
	if a.refused.GetReason() != "NotAccepted" || time.Since(began) > session.KeepaliveHubTime {
		t.Errorf("cut off after %s with %v, %v", time.Since(began), a.refused, a.err)
	}
	a.connect()
	<-a.closed
	if a.refused.GetReason() != "NotAccepted" {
		t.Errorf("comes back: %v, %v", a.refused, a.err)
	}
}

// TestOneSenderPerStream: what happens to a stream before it has answered Hello is left
// to whoever answers. gRPC allows for one at a time.
func TestOneSenderPerStream(t *testing.T) {
	h := newTestHub(t)
	alone := make(chan bool, 1)
	h.inventory.when(func(uid string) {
		s := h.sessions.of(uid)
		s.mu.Lock()
		alone <- s.sending
		s.mu.Unlock()
		h.Supersede(uid, "10.0.0.2:6444")
	}, nil)
	_, id := h.cluster("tokyo")
	a := h.agent(id, "one")
	a.connect()
	<-a.closed
	if !<-alone || a.refused.GetReason() != "Elsewhere" {
		t.Errorf("a sender could be begun beside the one that answers Hello, or the agent was not told: %v, %v", a.refused, a.err)
	}
}

func TestRemovedClusterIsCutOff(t *testing.T) {
	h := newTestHub(t)
	_, a := h.connected("tokyo")
	c, _ := h.clusters.Get("tokyo")
	if err := h.client.Delete(t.Context(), c.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	<-a.closed
	if a.refused.GetReason() != "Unknown" {
		t.Errorf("%v, %v", a.refused, a.err)
	}
}

func TestNewestWinsAndRivalsAreLogged(t *testing.T) {
	h := newTestHub(t)
	uid, id := h.cluster("tokyo")
	first, second := h.agent(id, "first"), h.agent(id, "second")
	first.connect()
	eventually(t, "the first is up", func() bool { return h.sessions.of(uid) != nil })
	for range 2 {
		second.connect()
		<-first.closed
		if first.refused.GetReason() != "Superseded" {
			t.Fatalf("the first: %v, %v", first.refused, first.err)
		}
		first.connect()
		<-second.closed
	}
	eventually(t, "the log tells of rivals", func() bool { return strings.Contains(h.log.String(), "two agents take the stream") })
	if !h.clusters.isOnline(uid) {
		t.Error("the cluster is offline though an agent is connected")
	}
	h.inventory.mu.Lock()
	defer h.inventory.mu.Unlock()
	if h.inventory.up[uid] < 1 {
		t.Error("the inventory believes the stream to be down")
	}
}

// TestAStreamThatComesWhileAnotherGoesIsUp: that the old one went is told before.
func TestAStreamThatComesWhileAnotherGoesIsUp(t *testing.T) {
	h := newTestHub(t)
	streams := func(uid string) int {
		h.inventory.mu.Lock()
		defer h.inventory.mu.Unlock()
		return h.inventory.up[uid]
	}
	uid, id := h.cluster("tokyo")
	goes := make(chan struct{})
	h.clusters.whenDown(func() {
		close(goes)
		for until := time.Now().Add(time.Second); streams(uid) < 2 && time.Now().Before(until); {
			runtime.Gosched() // the new one may not come before this is told
		}
	})
	old, a := h.agent(id, "one"), h.agent(id, "one")
	old.connect()
	eventually(t, "it is welcome", func() bool { return old.see(func() bool { return old.welcome != nil }) })
	old.cut()
	<-goes
	a.connect()
	eventually(t, "the next is welcome", func() bool { return a.see(func() bool { return a.welcome != nil }) })
	eventually(t, "and the only one", func() bool { return streams(uid) == 1 })
	if !h.clusters.isOnline(uid) {
		t.Error("the cluster is offline though an agent is connected")
	}
	a.cut()
	eventually(t, "it is gone", func() bool { return streams(uid) == 0 && !h.clusters.isOnline(uid) })
}

// TestSameAgentReconnects: a new stream of the same process is no rival.
func TestSameAgentReconnects(t *testing.T) {
	h := newTestHub(t)
	_, a := h.connected("tokyo")
	for range 3 {
		old := a.closed
		a.connect()
		<-old
		eventually(t, "welcome again", func() bool { return a.see(func() bool { return a.welcome != nil }) })
	}
	if strings.Contains(h.log.String(), "two agents") {
		t.Error("a reconnect counts as a rival")
	}
}

// TestSpeaksForItselfOnly: reports about other clusters' rows go nowhere.
func TestSpeaksForItselfOnly(t *testing.T) {
	h := newTestHub(t)
	oslo, _ := h.connected("oslo")
	_, a := h.connected("tokyo")
	h.rows.set("b1", map[string]atoll.RowSpec{"oslo": active(oslo, "r1", 1)})
	a.report("b1", atoll.RowStatus{UID: oslo, Generation: 1, Content: "r1", State: atoll.RowReady})
	eventually(t, "the log tells", func() bool { return strings.Contains(h.log.String(), "this cluster has no row") })
	if r, _ := h.rows.Get("b1", "oslo"); r.Status != nil && r.Status.State == atoll.RowReady {
		t.Error("tokyo spoke for oslo")
	}
	if a.see(func() bool { return a.core.Unacknowledged() != 1 }) {
		t.Error("a refused report was acknowledged")
	}
	// A row that is left of an earlier Cluster of the same name is not this one's.
	h.rows.set("b2", map[string]atoll.RowSpec{"tokyo": active("uid-of-before", "r1", 1)})
	a.report("b2", atoll.RowStatus{Generation: 1, State: atoll.RowReady})
	eventually(t, "the log tells again", func() bool { return strings.Count(h.log.String(), "this cluster has no row") == 2 })
}

func TestUnclaimedIsKeptAndListed(t *testing.T) {
	h := newTestHub(t)
	uid, id := h.cluster("tokyo")
	h.rows.set("b1", map[string]atoll.RowSpec{"tokyo": active(uid, "r1", 1)})
	a := h.agent(id, "one")
	a.core = session.NewAgent(session.AgentOptions{Instance: "one", Object: a.object}, session.Memory{Held: []session.Entry{{Bundle: "lost", Generation: 3, Content: "x"}}})
	a.stored["lost"] = atoll.Manifest{Bundle: "lost", Generation: 3, Content: "x"}
	a.connect()
	eventually(t, "b1 arrives", a.holds("b1", "r1", 1))
	eventually(t, "lost is listed", func() bool { return strings.Join(h.inventory.unclaimedOf(uid), ",") == "lost" })
	if n := testutil.ToFloat64(h.metrics.unclaimed); n != 1 || !strings.Contains(h.log.String(), "no row asks for") {
		t.Errorf("metric %v", n)
	}
	if !a.holds("lost", "x", 3)() {
		t.Error("what the hub does not know was removed")
	}
	h.rows.set("lost", map[string]atoll.RowSpec{"tokyo": active(uid, "r9", 4)})
	eventually(t, "lost is claimed", func() bool { return len(h.inventory.unclaimedOf(uid)) == 0 })
	eventually(t, "and follows", a.holds("lost", "r9", 4))
	a.cut()
	eventually(t, "the metric goes", func() bool { return testutil.ToFloat64(h.metrics.unclaimed) == 0 })
}

// TestRenderedOnce: a thousand clusters of equal content cost one rendering and one
// encoding; a second cost one of each again.
func TestRenderedOnce(t *testing.T) {
	h := newTestHub(t)
	var wg sync.WaitGroup
	var bytes sync.Map
	for i := range 1000 {
		wg.Go(func() {
			row := state.Row{Bundle: enginev1.BundleRef{UID: "b"}, Cluster: fmt.Sprint(i), Spec: active(fmt.Sprint(i), "r1", int64(i+1))}
			p, err := h.parcels.of(row)
			if err != nil {
				t.Error(err)
				return
			}
			b, err := p.encode(base{})
			if err != nil {
				t.Error(err)
			}
			bytes.Store(&b[0], true)
		})
	}
	wg.Wait()
	distinct := 0
	bytes.Range(func(_, _ any) bool { distinct++; return true })
	if h.renders.Load() != 1 || testutil.ToFloat64(h.metrics.encodes) != 1 || distinct != 1 {
		t.Errorf("%d renderings, %v encodings, %d copies", h.renders.Load(), testutil.ToFloat64(h.metrics.encodes), distinct)
	}
	for name, change := range map[string]func(*atoll.RowSpec){
		"revision": func(s *atoll.RowSpec) { s.Revision = "r2" },
		"variant":  func(s *atoll.RowSpec) { s.Variant = "v" },
		"assigned": func(s *atoll.RowSpec) { s.Assigned = map[string]int64{"x": 2} },
		"phase":    func(s *atoll.RowSpec) { s.Phase = atoll.RowRemoving },
	} {
		before := h.renders.Load()
		spec := active("x", "r1", 1)
		change(&spec)
		if _, err := h.parcels.of(state.Row{Bundle: enginev1.BundleRef{UID: "b"}, Spec: spec}); err != nil || h.renders.Load() != before+1 {
			t.Errorf("another %s: %d renderings, %v", name, h.renders.Load()-before, err)
		}
	}
}

func TestCacheIsBounded(t *testing.T) {
	h := newTestHub(t, func(o *Options) { o.CacheBytes = 20_000 })
	for i := range 100 {
		if _, err := h.parcels.of(state.Row{Bundle: enginev1.BundleRef{UID: "b"}, Spec: active("x", fmt.Sprint(i), 1)}); err != nil {
			t.Fatal(err)
		}
	}
	h.parcels.mu.Lock()
	defer h.parcels.mu.Unlock()
	if h.parcels.bytes > 20_000 || len(h.parcels.entries) != h.parcels.recent.Len() || len(h.parcels.entries) < 2 {
		t.Errorf("%d bytes in %d entries", h.parcels.bytes, len(h.parcels.entries))
	}
}

// TestHeldObjectsAreNotSentAgain: within a session and over reconnects.
func TestHeldObjectsAreNotSentAgain(t *testing.T) {
	h := newTestHub(t)
	content := func(names ...string) func(state.Row) (atoll.Manifest, error) {
		return func(r state.Row) (atoll.Manifest, error) {
			return manifest(r.Bundle.UID, r.Spec.Revision, names...), nil
		}
	}
	h.content.Store("r1", content("l1*50000", "l2*50000"))
	h.content.Store("r2", content("l1*50000", "l2*50000", "small"))
	h.content.Store("r3", content("l2*50000", "other"))
	uid, a := h.connected("tokyo")
	h.rows.set("b", map[string]atoll.RowSpec{"tokyo": active(uid, "r1", 1)})
	eventually(t, "r1", a.holds("b", "r1", 1))
	before := a.received()
	h.rows.set("b", map[string]atoll.RowSpec{"tokyo": active(uid, "r2", 2)})
	eventually(t, "r2", a.holds("b", "r2", 2))
	if n := a.received() - before; n > 2000 {
		t.Errorf("%d bytes for a change of a few", n)
	}
	a.cut()
	h.rows.set("b", map[string]atoll.RowSpec{"tokyo": active(uid, "r3", 3)})
	a.connect()
	eventually(t, "r3", a.holds("b", "r3", 3))
	a.see(func() bool {
		if a.bytes > 2000 || a.frames["Objects"] != 1 {
			t.Errorf("%d bytes after the reconnect, frames %v", a.bytes, a.frames)
		}
		return true
	})
	a.cut()
	a.ready("b")
	a.connect() // unequal: the report is not stored yet
	eventually(t, "the report is stored", func() bool { return a.see(func() bool { return a.core.Unacknowledged() == 0 }) })
	a.cut()
	a.connect()
	eventually(t, "welcome", func() bool { return a.see(func() bool { return a.welcome != nil }) })
	eventually(t, "the streams compared equal", func() bool { return testutil.ToFloat64(h.metrics.resyncs.WithLabelValues("true")) >= 1 })
	a.see(func() bool {
		if len(a.frames) != 1 {
			t.Errorf("a reconnect of equal ends took %v", a.frames)
		}
		return true
	})
}

// TestSlowAgentGetsTheLatest: what an agent does not read is not queued but coalesced.
func TestSlowAgentGetsTheLatest(t *testing.T) {
	h := newTestHub(t)
	uid, a := h.connected("tokyo")
	a.mu.Lock() // the agent stops reading
	for i := range 300 {
		name := fmt.Sprintf("r%d", i)
		h.content.Store(name, func(r state.Row) (atoll.Manifest, error) {
			return manifest(r.Bundle.UID, r.Spec.Revision, name+"*12000"), nil
		})
		h.rows.set("b", map[string]atoll.RowSpec{"tokyo": active(uid, name, int64(i+1))})
		if i%50 == 0 {
			a.mu.Unlock()
			eventually(t, "it reads once in a while", func() bool { return a.see(func() bool { return a.stored["b"].Generation > 0 }) })
			a.mu.Lock()
		}
	}
	a.mu.Unlock()
	eventually(t, "the last", a.holds("b", "r299", 300))
	a.see(func() bool {
		if n := a.frames["Upsert"]; n > 250 {
			t.Errorf("%d of 300 changes were sent to an agent that did not read", n)
		}
		return true
	})
}

func TestRenderErrorsAreRetried(t *testing.T) {
	h := newTestHub(t)
	fails := errors.New("the revision cannot be read")
	var mu sync.Mutex
	left := 1
	h.content.Store("r1", func(r state.Row) (atoll.Manifest, error) {
		mu.Lock()
		defer mu.Unlock()
		if left--; left >= 0 {
			return atoll.Manifest{}, fails
		}
		return manifest("b", "r1", "a"), nil
	})
	uid, a := h.connected("tokyo")
	h.rows.set("b", map[string]atoll.RowSpec{"tokyo": active(uid, "r1", 1)})
	eventually(t, "the order comes in the end", a.holds("b", "r1", 1))
	if !strings.Contains(h.log.String(), fails.Error()) {
		t.Error("the log does not say why it waited")
	}
}

// TestRewind finds out that the hub was set back, and holds.
func TestRewind(t *testing.T) {
	h := newTestHub(t)
	uid, id := h.cluster("tokyo")
	h.rows.set("b", map[string]atoll.RowSpec{"tokyo": active(uid, "r1", 1)})
	other, bystander := h.connected("oslo")
	position := signPosition(h.keys.HubKey, "a-start-that-was-lost", 500, time.Now())
	forged := signPosition([]byte("an agent's idea of a key"), "x", 500, time.Now())
	withPosition := func(p *pb.Position) *testAgent {
		a := h.agent(id, "one")
		a.core = session.NewAgent(session.AgentOptions{Instance: "one", Object: a.object}, session.Memory{Position: p, Held: []session.Entry{{Bundle: "new", Generation: 70, Content: "y"}}})
		a.connect()
		eventually(t, "welcome", func() bool { return a.see(func() bool { return a.welcome != nil }) })
		return a
	}
	a := withPosition(forged)
	if h.Holding() || a.welcome.GetHolding() {
		t.Fatal("a forged position makes the hub hold")
	}
	eventually(t, "orders flow", a.holds("b", "r1", 1))
	a.cut()
	a = withPosition(position)
	if reason := <-h.rewinds; !strings.Contains(reason, "a-start-that-was-lost") {
		t.Errorf("reason %q", reason)
	}
	if !a.welcome.GetHolding() || a.welcome.GetPosition() != nil || !h.Holding() || h.HighestGeneration() != 70 {
		t.Errorf("welcome %v, highest %d", a.welcome, h.HighestGeneration())
	}
	h.rows.set("b2", map[string]atoll.RowSpec{"oslo": active(other, "r2", 1)})
	bystander.report("nothing", atoll.RowStatus{State: atoll.RowRemoved}) // answered, so the stream lives
	eventually(t, "the bystander is heard", func() bool { return bystander.see(func() bool { return bystander.core.Unacknowledged() == 0 }) })
	if bystander.see(func() bool { return len(bystander.stored) > 0 }) {
		t.Error("a hub that holds gives orders")
	}
	// An administrator decides; the hub's state covers this rewind from now on.
	st := h.hub.Load().DeepCopy()
	st.Rewound = &enginev1.Rewound{Since: metav1.NewTime(time.Now().Add(time.Second)), Accepted: "hub"}
	h.hub.Store(st)
	h.Reset("the restore was accepted")
	<-a.closed
	<-bystander.closed
	a.connect()
	bystander.connect()
	eventually(t, "orders flow again", bystander.holds("b2", "r2", 1))
	eventually(t, "to who proved the rewind, too", a.holds("b", "r1", 1))
	select {
	case reason := <-h.rewinds:
		t.Errorf("the same rewind is found again: %s", reason)
	default:
	}
}

// TestAhead tells that a member holds a generation above its row's.
func TestAhead(t *testing.T) {
	h := newTestHub(t)
	uid, id := h.cluster("tokyo")
	h.rows.set("b", map[string]atoll.RowSpec{"tokyo": active(uid, "old", 5)})
	a := h.agent(id, "one")
	a.core = session.NewAgent(session.AgentOptions{Instance: "one", Object: a.object}, session.Memory{Held: []session.Entry{{Bundle: "b", Generation: 7, Content: "new"}}})
	a.connect()
	if got := <-h.ahead; got != "b tokyo 7" {
		t.Errorf("told %q", got)
	}
	h.rows.set("b", map[string]atoll.RowSpec{"tokyo": active(uid, "old", 8)})
	eventually(t, "the raised row counts", a.holds("b", "old", 8))
}

func TestRenew(t *testing.T) {
	h := newTestHub(t)
	_, a := h.connected("tokyo")
	renew := func(key interface{ csr(*testing.T) []byte }) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.send(a.stream, []*pb.FromAgent{{Frame: &pb.FromAgent_Renew{Renew: &pb.Renew{Csr: key.csr(t)}}}})
	}
	renew(signerOf{a.key})
	eventually(t, "a certificate", func() bool { return a.see(func() bool { return len(a.renewed.GetCertificate()) > 0 }) })
	pool, err := trust.PoolFromPEM(a.renewed.GetHubCa())
	if err != nil || pool == nil {
		t.Errorf("the hub's CA: %v", err)
	}
	h2 := newTestHub(t)
	_, a = h2.connected("tokyo")
	renew(signerOf{newKey(t)})
	eventually(t, "the log tells of the other key", func() bool { return strings.Contains(h2.log.String(), "another key") })
	if a.see(func() bool { return a.renewed != nil }) {
		t.Error("a certificate for another key")
	}
}

func TestInventoryAndAPIs(t *testing.T) {
	h := newTestHub(t)
	apis := []string{"/v1/Pod"}
	hash := session.APIsHash(apis)
	send := func(a *testAgent, i *pb.Inventory) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.send(a.stream, []*pb.FromAgent{{Frame: &pb.FromAgent_Inventory{Inventory: i}}})
	}
	first, a := h.connected("tokyo")
	send(a, &pb.Inventory{KubernetesVersion: "v1.36.3", ApisHash: hash})
	eventually(t, "the hub asks for the APIs", func() bool { return a.see(func() bool { return a.sendAPI }) })
	send(a, &pb.Inventory{KubernetesVersion: "v1.36.3", ApisHash: hash, Apis: apis})
	eventually(t, "they arrive", func() bool { return len(h.inventory.inventories(first)) == 2 })
	second, b := h.connected("oslo")
	send(b, &pb.Inventory{KubernetesVersion: "v1.36.3", ApisHash: hash})
	eventually(t, "the second's arrives", func() bool { return len(h.inventory.inventories(second)) == 1 })
	b.report("nothing", atoll.RowStatus{State: atoll.RowRemoved})
	eventually(t, "the stream went on", func() bool { return b.see(func() bool { return b.core.Unacknowledged() == 0 }) })
	if b.see(func() bool { return b.sendAPI }) {
		t.Error("a set that the hub knows is asked for")
	}
}

// TestResyncsArePaced lets one agent compare at a time.
func TestResyncsArePaced(t *testing.T) {
	h := newTestHub(t, func(o *Options) { o.MaxResyncs = 1 })
	h.resyncs <- struct{}{} // somebody compares
	uid, id := h.cluster("tokyo")
	a := h.agent(id, "one")
	a.connect()
	eventually(t, "the stream is up", func() bool { return h.clusters.isOnline(uid) })
	a.mu.Lock()
	a.send(a.stream, []*pb.FromAgent{{Frame: &pb.FromAgent_Inventory{Inventory: &pb.Inventory{KubernetesVersion: "v1"}}}})
	a.mu.Unlock()
	eventually(t, "its inventory is heard", func() bool { return len(h.inventory.inventories(uid)) == 1 })
	if a.see(func() bool { return a.welcome != nil }) {
		t.Error("it compares out of turn")
	}
	<-h.resyncs
	eventually(t, "its turn comes", func() bool { return a.see(func() bool { return a.welcome != nil }) })
	eventually(t, "and it gives its place back", func() bool { return len(h.resyncs) == 0 })
}
