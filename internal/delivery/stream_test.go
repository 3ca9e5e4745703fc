package delivery

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
	"atoll.dev/atoll/internal/delivery/payloads"
	"atoll.dev/atoll/internal/session"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/state"
	"atoll.dev/atoll/internal/testwait"
	"atoll.dev/atoll/internal/trust"
)

// connectAgent agent of a new cluster.
func (h *testHub) connectAgent(name string) (uid string, a *testAgent) {
	h.t.Helper()
	uid, id := h.createCluster(name)
	a = h.newAgent(id, name+"-1")
	a.connectSession()
	testwait.UntilTrue(h.t, name+" is welcome", func() bool { return a.checkLocked(func() bool { return a.welcome != nil }) })
	return uid, a
}

func TestDenyCutsOffAtOnce(t *testing.T) {
	h := newTestHub(t)
	_, a := h.connectAgent("tokyo")
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
	a.connectSession()
	<-a.closed
	if a.refused.GetReason() != "NotAccepted" {
		t.Errorf("comes back: %v, %v", a.refused, a.err)
	}
}

// Before Hello is answered, the goroutine that answers Hello sends everything else, too.
// gRPC allows one sender at a time.
func TestOneSenderPerStream(t *testing.T) {
	h := newTestHub(t)
	alone := make(chan bool, 1)
	h.inventory.setHooks(func(uid string) {
		s := h.sessions.getByUID(uid)
		s.mu.Lock()
		alone <- s.senderRunning
		s.mu.Unlock()
		h.SupersedeSession(uid, "10.0.0.2:6444")
	}, nil)
	_, id := h.createCluster("tokyo")
	a := h.newAgent(id, "one")
	a.connectSession()
	<-a.closed
	if !<-alone || a.refused.GetReason() != "Elsewhere" {
		t.Errorf("a second sender could start before Hello is answered, or the agent got no reason: %v, %v", a.refused, a.err)
	}
}

func TestRemovedClusterIsCutOff(t *testing.T) {
	h := newTestHub(t)
	_, a := h.connectAgent("tokyo")
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
	uid, id := h.createCluster("tokyo")
	first, second := h.newAgent(id, "first"), h.newAgent(id, "second")
	first.connectSession()
	testwait.UntilTrue(t, "the first is up", func() bool { return h.sessions.getByUID(uid) != nil })
	for range 2 {
		second.connectSession()
		<-first.closed
		if first.refused.GetReason() != "Superseded" {
			t.Fatalf("the first: %v, %v", first.refused, first.err)
		}
		first.connectSession()
		<-second.closed
	}
	testwait.UntilTrue(t, "the log tells of rivals", func() bool { return strings.Contains(h.log.String(), "two agents take the stream") })
	if !h.clusters.isOnline(uid) {
		t.Error("the cluster is offline though an agent is connected")
	}
	h.inventory.mu.Lock()
	defer h.inventory.mu.Unlock()
	if h.inventory.up[uid] < 1 {
		t.Error("the inventory believes the stream to be down")
	}
}

// The end of an old session is recorded before the start of the new one.
func TestNewSessionDuringTheEndOfAnOldOne(t *testing.T) {
	h := newTestHub(t)
	streams := func(uid string) int {
		h.inventory.mu.Lock()
		defer h.inventory.mu.Unlock()
		return h.inventory.up[uid]
	}
	uid, id := h.createCluster("tokyo")
	goes := make(chan struct{})
	h.clusters.whenDown(func() {
		close(goes)
		for until := time.Now().Add(time.Second); streams(uid) < 2 && time.Now().Before(until); {
			runtime.Gosched() // the new one may not come before this is recorded
		}
	})
	old, a := h.newAgent(id, "one"), h.newAgent(id, "one")
	old.connectSession()
	testwait.UntilTrue(t, "it is welcome", func() bool { return old.checkLocked(func() bool { return old.welcome != nil }) })
	old.cutStream()
	<-goes
	a.connectSession()
	testwait.UntilTrue(t, "the next is welcome", func() bool { return a.checkLocked(func() bool { return a.welcome != nil }) })
	testwait.UntilTrue(t, "and the only one", func() bool { return streams(uid) == 1 })
	if !h.clusters.isOnline(uid) {
		t.Error("the cluster is offline though an agent is connected")
	}
	a.cutStream()
	testwait.UntilTrue(t, "it is gone", func() bool { return streams(uid) == 0 && !h.clusters.isOnline(uid) })
}

// A new stream of the same process is no rival.
func TestSameAgentReconnects(t *testing.T) {
	h := newTestHub(t)
	_, a := h.connectAgent("tokyo")
	for range 3 {
		old := a.closed
		a.connectSession()
		<-old
		testwait.UntilTrue(t, "welcome again", func() bool { return a.checkLocked(func() bool { return a.welcome != nil }) })
	}
	if strings.Contains(h.log.String(), "two agents") {
		t.Error("a reconnect counts as a rival")
	}
}

// Reports about other clusters' rows are refused.
func TestReportsOfOtherClustersAreRefused(t *testing.T) {
	h := newTestHub(t)
	oslo, _ := h.connectAgent("oslo")
	_, a := h.connectAgent("tokyo")
	h.rows.setRows("b1", map[string]atoll.RowSpec{"oslo": activeSpec(oslo, "r1", 1)})
	a.reportStatus("b1", atoll.RowStatus{UID: oslo, Generation: 1, Content: "r1", State: atoll.RowReady})
	testwait.UntilTrue(t, "the log tells", func() bool { return strings.Contains(h.log.String(), "this cluster has no row") })
	if r, _ := h.rows.Get("b1", "oslo"); r.Status != nil && r.Status.State == atoll.RowReady {
		t.Error("tokyo spoke for oslo")
	}
	if a.checkLocked(func() bool { return a.core.CountUnacknowledged() != 1 }) {
		t.Error("a refused report was acknowledged")
	}
	// A row that is left of an earlier Cluster of the same name is not this one's.
	h.rows.setRows("b2", map[string]atoll.RowSpec{"tokyo": activeSpec("uid-of-before", "r1", 1)})
	a.reportStatus("b2", atoll.RowStatus{Generation: 1, State: atoll.RowReady})
	testwait.UntilTrue(t, "the log tells again", func() bool { return strings.Count(h.log.String(), "this cluster has no row") == 2 })
}

func TestUnclaimedIsKeptAndListed(t *testing.T) {
	h := newTestHub(t)
	uid, id := h.createCluster("tokyo")
	h.rows.setRows("b1", map[string]atoll.RowSpec{"tokyo": activeSpec(uid, "r1", 1)})
	a := h.newAgent(id, "one")
	a.core = session.NewAgent(session.AgentOptions{Instance: "one", Object: a.storedObject}, session.Memory{Held: []session.Entry{{Bundle: "lost", Generation: 3, Content: "x"}}})
	a.stored["lost"] = atoll.Manifest{Bundle: "lost", Generation: 3, Content: "x"}
	a.connectSession()
	testwait.UntilTrue(t, "b1 arrives", a.holdsManifest("b1", "r1", 1))
	testwait.UntilTrue(t, "lost is listed", func() bool { return strings.Join(h.inventory.unclaimedOf(uid), ",") == "lost" })
	if n := testutil.ToFloat64(h.metrics.unclaimed); n != 1 || !strings.Contains(h.log.String(), "without a row") {
		t.Errorf("metric %v", n)
	}
	if !a.holdsManifest("lost", "x", 3)() {
		t.Error("what the hub does not know was removed")
	}
	h.rows.setRows("lost", map[string]atoll.RowSpec{"tokyo": activeSpec(uid, "r9", 4)})
	testwait.UntilTrue(t, "lost is claimed", func() bool { return len(h.inventory.unclaimedOf(uid)) == 0 })
	testwait.UntilTrue(t, "and follows", a.holdsManifest("lost", "r9", 4))
	a.cutStream()
	testwait.UntilTrue(t, "the metric goes", func() bool { return testutil.ToFloat64(h.metrics.unclaimed) == 0 })
}

// A thousand clusters of equal content cost one rendering and one encoding. A second
// content costs one of each again.
func TestRenderedOnce(t *testing.T) {
	h := newTestHub(t)
	var wg sync.WaitGroup
	var bytes sync.Map
	for i := range 1000 {
		wg.Go(func() {
			row := state.Row{Bundle: enginev1.BundleRef{UID: "b"}, Cluster: fmt.Sprint(i), Spec: activeSpec(fmt.Sprint(i), "r1", int64(i+1))}
			p, err := h.payloads.GetOrRender(row)
			if err != nil {
				t.Error(err)
				return
			}
			b, err := p.EncodeFor(payloads.Base{})
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
		spec := activeSpec("x", "r1", 1)
		change(&spec)
		if _, err := h.payloads.GetOrRender(state.Row{Bundle: enginev1.BundleRef{UID: "b"}, Spec: spec}); err != nil || h.renders.Load() != before+1 {
			t.Errorf("another %s: %d renderings, %v", name, h.renders.Load()-before, err)
		}
	}
}

// Objects that an agent holds are not sent again, within a session and over reconnects.
func TestHeldObjectsAreNotSentAgain(t *testing.T) {
	h := newTestHub(t)
	content := func(names ...string) func(state.Row) (atoll.Manifest, error) {
		return func(r state.Row) (atoll.Manifest, error) {
			return testManifest(r.Bundle.UID, r.Spec.Revision, names...), nil
		}
	}
	h.content.Store("r1", content("l1*50000", "l2*50000"))
	h.content.Store("r2", content("l1*50000", "l2*50000", "small"))
	h.content.Store("r3", content("l2*50000", "other"))
	uid, a := h.connectAgent("tokyo")
	h.rows.setRows("b", map[string]atoll.RowSpec{"tokyo": activeSpec(uid, "r1", 1)})
	testwait.UntilTrue(t, "r1", a.holdsManifest("b", "r1", 1))
	before := a.receivedBytes()
	h.rows.setRows("b", map[string]atoll.RowSpec{"tokyo": activeSpec(uid, "r2", 2)})
	testwait.UntilTrue(t, "r2", a.holdsManifest("b", "r2", 2))
	if n := a.receivedBytes() - before; n > 2000 {
		t.Errorf("%d bytes for a change of a few", n)
	}
	a.cutStream()
	h.rows.setRows("b", map[string]atoll.RowSpec{"tokyo": activeSpec(uid, "r3", 3)})
	a.connectSession()
	testwait.UntilTrue(t, "r3", a.holdsManifest("b", "r3", 3))
	a.checkLocked(func() bool {
		if a.bytes > 2000 || a.frames["Objects"] != 1 {
			t.Errorf("%d bytes after the reconnect, frames %v", a.bytes, a.frames)
		}
		return true
	})
	a.cutStream()
	a.reportReady("b")
	a.connectSession() // unequal: the report is not stored yet
	testwait.UntilTrue(t, "the report is stored", func() bool { return a.checkLocked(func() bool { return a.core.CountUnacknowledged() == 0 }) })
	a.cutStream()
	a.connectSession()
	testwait.UntilTrue(t, "welcome", func() bool { return a.checkLocked(func() bool { return a.welcome != nil }) })
	testwait.UntilTrue(t, "the streams compared equal", func() bool { return testutil.ToFloat64(h.metrics.resyncs.WithLabelValues("true")) >= 1 })
	a.checkLocked(func() bool {
		if len(a.frames) != 1 {
			t.Errorf("a reconnect of equal ends took %v", a.frames)
		}
		return true
	})
}

// Changes that an agent does not read are coalesced, not queued.
func TestSlowAgentGetsTheLatest(t *testing.T) {
	h := newTestHub(t)
	uid, a := h.connectAgent("tokyo")
	a.mu.Lock() // the agent stops reading
	for i := range 300 {
		name := fmt.Sprintf("r%d", i)
		h.content.Store(name, func(r state.Row) (atoll.Manifest, error) {
			return testManifest(r.Bundle.UID, r.Spec.Revision, name+"*12000"), nil
		})
		h.rows.setRows("b", map[string]atoll.RowSpec{"tokyo": activeSpec(uid, name, int64(i+1))})
		if i%50 == 0 {
			a.mu.Unlock()
			testwait.UntilTrue(t, "it reads once in a while", func() bool { return a.checkLocked(func() bool { return a.stored["b"].Generation > 0 }) })
			a.mu.Lock()
		}
	}
	a.mu.Unlock()
	testwait.UntilTrue(t, "the last", a.holdsManifest("b", "r299", 300))
	a.checkLocked(func() bool {
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
		return testManifest("b", "r1", "a"), nil
	})
	uid, a := h.connectAgent("tokyo")
	h.rows.setRows("b", map[string]atoll.RowSpec{"tokyo": activeSpec(uid, "r1", 1)})
	testwait.UntilTrue(t, "the order comes in the end", a.holdsManifest("b", "r1", 1))
	if !strings.Contains(h.log.String(), fails.Error()) {
		t.Error("the log does not say why it waited")
	}
}

// A hub that was set back detects it, and holds.
func TestSetBackStoreIsDetected(t *testing.T) {
	h := newTestHub(t)
	uid, id := h.createCluster("tokyo")
	h.rows.setRows("b", map[string]atoll.RowSpec{"tokyo": activeSpec(uid, "r1", 1)})
	other, bystander := h.connectAgent("oslo")
	position := signPosition(h.keys.HubKey, "a-start-that-was-lost", 500, time.Now())
	forged := signPosition([]byte("an agent's idea of a key"), "x", 500, time.Now())
	withPosition := func(p *pb.Position) *testAgent {
		a := h.newAgent(id, "one")
		a.core = session.NewAgent(session.AgentOptions{Instance: "one", Object: a.storedObject}, session.Memory{Position: p, Held: []session.Entry{{Bundle: "new", Generation: 70, Content: "y"}}})
		a.connectSession()
		testwait.UntilTrue(t, "welcome", func() bool { return a.checkLocked(func() bool { return a.welcome != nil }) })
		return a
	}
	a := withPosition(forged)
	if h.IsHolding() || a.welcome.GetHolding() {
		t.Fatal("a forged position makes the hub hold")
	}
	testwait.UntilTrue(t, "orders flow", a.holdsManifest("b", "r1", 1))
	a.cutStream()
	a = withPosition(position)
	if reason := <-h.rewinds; !strings.Contains(reason, "a-start-that-was-lost") {
		t.Errorf("reason %q", reason)
	}
	if !a.welcome.GetHolding() || a.welcome.GetPosition() != nil || !h.IsHolding() || h.HighestReportedGeneration() != 70 {
		t.Errorf("welcome %v, highest %d", a.welcome, h.HighestReportedGeneration())
	}
	h.rows.setRows("b2", map[string]atoll.RowSpec{"oslo": activeSpec(other, "r2", 1)})
	bystander.reportStatus("nothing", atoll.RowStatus{State: atoll.RowRemoved}) // answered, so the stream lives
	testwait.UntilTrue(t, "the bystander is heard", func() bool {
		return bystander.checkLocked(func() bool { return bystander.core.CountUnacknowledged() == 0 })
	})
	if bystander.checkLocked(func() bool { return len(bystander.stored) > 0 }) {
		t.Error("a hub that holds gives orders")
	}
	// An administrator decides; the hub's state covers this rewind from now on.
	st := h.hub.Load().DeepCopy()
	st.Rewound = &enginev1.Rewound{Since: metav1.NewTime(time.Now().Add(time.Second)), Accepted: "hub"}
	h.hub.Store(st)
	h.ResetSessions("the restore was accepted")
	<-a.closed
	<-bystander.closed
	a.connectSession()
	bystander.connectSession()
	testwait.UntilTrue(t, "orders flow again", bystander.holdsManifest("b2", "r2", 1))
	testwait.UntilTrue(t, "orders flow to the agent that proved the restore, too", a.holdsManifest("b", "r1", 1))
	select {
	case reason := <-h.rewinds:
		t.Errorf("the same rewind is found again: %s", reason)
	default:
	}
}

// A generation of a member above its row's is reported.
func TestGenerationAheadIsReported(t *testing.T) {
	h := newTestHub(t)
	uid, id := h.createCluster("tokyo")
	h.rows.setRows("b", map[string]atoll.RowSpec{"tokyo": activeSpec(uid, "old", 5)})
	a := h.newAgent(id, "one")
	a.core = session.NewAgent(session.AgentOptions{Instance: "one", Object: a.storedObject}, session.Memory{Held: []session.Entry{{Bundle: "b", Generation: 7, Content: "new"}}})
	a.connectSession()
	if got := <-h.ahead; got != "b tokyo 7" {
		t.Errorf("reported %q", got)
	}
	h.rows.setRows("b", map[string]atoll.RowSpec{"tokyo": activeSpec(uid, "old", 8)})
	testwait.UntilTrue(t, "the raised row counts", a.holdsManifest("b", "old", 8))
}

func TestCertificateRenewal(t *testing.T) {
	h := newTestHub(t)
	_, a := h.connectAgent("tokyo")
	renew := func(key interface{ createCSR(*testing.T) []byte }) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.send(a.stream, []*pb.FromAgent{{Frame: &pb.FromAgent_Renew{Renew: &pb.Renew{Csr: key.createCSR(t)}}}})
	}
	renew(csrSigner{a.key})
	testwait.UntilTrue(t, "a certificate", func() bool { return a.checkLocked(func() bool { return len(a.renewed.GetCertificate()) > 0 }) })
	pool, err := trust.PoolFromPEM(a.renewed.GetHubCa())
	if err != nil || pool == nil {
		t.Errorf("the hub's CA: %v", err)
	}
	h2 := newTestHub(t)
	_, a = h2.connectAgent("tokyo")
	renew(csrSigner{newKey(t)})
	testwait.UntilTrue(t, "the log tells of the other key", func() bool { return strings.Contains(h2.log.String(), "another key") })
	if a.checkLocked(func() bool { return a.renewed != nil }) {
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
	first, a := h.connectAgent("tokyo")
	send(a, &pb.Inventory{KubernetesVersion: "v1.36.3", ApisHash: hash})
	testwait.UntilTrue(t, "the hub asks for the APIs", func() bool { return a.checkLocked(func() bool { return a.sendAPI }) })
	send(a, &pb.Inventory{KubernetesVersion: "v1.36.3", ApisHash: hash, Apis: apis})
	testwait.UntilTrue(t, "they arrive", func() bool { return len(h.inventory.inventoriesOf(first)) == 2 })
	second, b := h.connectAgent("oslo")
	send(b, &pb.Inventory{KubernetesVersion: "v1.36.3", ApisHash: hash})
	testwait.UntilTrue(t, "the second's arrives", func() bool { return len(h.inventory.inventoriesOf(second)) == 1 })
	b.reportStatus("nothing", atoll.RowStatus{State: atoll.RowRemoved})
	testwait.UntilTrue(t, "the stream went on", func() bool { return b.checkLocked(func() bool { return b.core.CountUnacknowledged() == 0 }) })
	if b.checkLocked(func() bool { return b.sendAPI }) {
		t.Error("a set that the hub knows is asked for")
	}
}

// One agent compares at a time.
func TestResyncsArePaced(t *testing.T) {
	h := newTestHub(t, func(o *Options) { o.MaxResyncs = 1 })
	h.resyncSlots <- struct{}{} // another session compares
	uid, id := h.createCluster("tokyo")
	a := h.newAgent(id, "one")
	a.connectSession()
	testwait.UntilTrue(t, "the stream is up", func() bool { return h.clusters.isOnline(uid) })
	a.mu.Lock()
	a.send(a.stream, []*pb.FromAgent{{Frame: &pb.FromAgent_Inventory{Inventory: &pb.Inventory{KubernetesVersion: "v1"}}}})
	a.mu.Unlock()
	testwait.UntilTrue(t, "its inventory is heard", func() bool { return len(h.inventory.inventoriesOf(uid)) == 1 })
	if a.checkLocked(func() bool { return a.welcome != nil }) {
		t.Error("it compares out of turn")
	}
	<-h.resyncSlots
	testwait.UntilTrue(t, "its turn comes", func() bool { return a.checkLocked(func() bool { return a.welcome != nil }) })
	testwait.UntilTrue(t, "and it gives its place back", func() bool { return len(h.resyncSlots) == 0 })
}
