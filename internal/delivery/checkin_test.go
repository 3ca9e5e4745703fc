package delivery

import (
	"errors"
	"runtime"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/state"
	"atoll.dev/atoll/internal/testwait"
	"atoll.dev/atoll/internal/trust/handshake"
)

// setCheckIn sets how often a cluster checks in; 0: it holds a stream.
func (h *testHub) setCheckIn(name string, every time.Duration) {
	h.t.Helper()
	var c v1alpha1.Cluster
	if err := h.client.Get(h.t.Context(), client.ObjectKey{Name: name}, &c); err != nil {
		h.t.Fatal(err)
	}
	c.Spec.Connection = nil
	if every > 0 {
		c.Spec.Connection = &v1alpha1.ClusterConnection{Type: v1alpha1.ConnectionCheckIn, Interval: &metav1.Duration{Duration: every}}
	}
	if err := h.client.Update(h.t.Context(), &c); err != nil {
		h.t.Fatal(err)
	}
}

// sendInventory sends the inventory, which agents send first after Welcome.
func (a *testAgent) sendInventory() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.send(a.stream, []*pb.FromAgent{{Frame: &pb.FromAgent_Inventory{Inventory: &pb.Inventory{MemberReady: true}}}})
}

func (a *testAgent) hasReceived(kind string, n int) func() bool {
	return func() bool { return a.checkLocked(func() bool { return a.frames[kind] == n }) }
}

// An agent that checks in gets Idle when everything is sent.
func TestIdleIsSentLast(t *testing.T) {
	h := newTestHub(t)
	uid, id := h.createCluster("shop")
	h.setCheckIn("shop", 90*time.Second)
	h.rows.setRows("web", map[string]atoll.RowSpec{"shop": activeSpec(uid, "r1", 1)})
	a := h.newAgent(id, "one")
	a.connectSession()
	testwait.UntilTrue(t, "the order", a.holdsManifest("web", "r1", 1))
	if a.welcome.GetCheckInSeconds() != 90 || !a.hasReceived("Idle", 0)() {
		t.Errorf("before its inventory the agent got %v and %v", a.welcome, a.frames)
	}
	a.sendInventory()
	testwait.UntilTrue(t, "Idle", a.hasReceived("Idle", 1))
	h.rows.setRows("db", map[string]atoll.RowSpec{"shop": activeSpec(uid, "r1", 1)})
	testwait.UntilTrue(t, "a change during the session", a.holdsManifest("db", "r1", 1))
	a.reportReady("web")
	a.reportReady("db")
	testwait.UntilTrue(t, "acknowledged", func() bool { return a.checkLocked(func() bool { return a.core.CountUnacknowledged() == 0 }) })
	if err := a.stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	<-a.closed
	if a.refused != nil || !a.hasReceived("Idle", 1)() {
		t.Errorf("the session ended with %v, %v; frames %v", a.refused, a.err, a.frames)
	}
	testwait.UntilTrue(t, "the hub sees the end", func() bool { return h.sessions.getByUID(uid) == nil })
}

// An order that cannot be made keeps an agent connected for a few seconds only.
func TestIdleDespiteAnOrderThatCannotBeMade(t *testing.T) {
	h := newTestHub(t)
	uid, id := h.createCluster("shop")
	h.setCheckIn("shop", time.Minute)
	h.content.Store("broken", func(state.Row) (atoll.Manifest, error) { return atoll.Manifest{}, errors.New("no template") })
	h.rows.setRows("web", map[string]atoll.RowSpec{"shop": activeSpec(uid, "broken", 1)})
	a := h.newAgent(id, "one")
	begin := time.Now()
	a.connectSession()
	testwait.UntilTrue(t, "welcome", a.hasReceived("Welcome", 1))
	a.sendInventory()
	testwait.UntilTrue(t, "Idle", a.hasReceived("Idle", 1))
	if d := time.Since(begin); d < 2*time.Second {
		t.Errorf("the agent got Idle after %s, while the order was about to be tried again", d)
	}
}

// A change of the check-in interval is sent within the session.
func TestConnectionChangesDuringASession(t *testing.T) {
	h := newTestHub(t)
	_, a := h.connectAgent("shop")
	a.sendInventory()
	if a.welcome.GetCheckInSeconds() != 0 {
		t.Errorf("welcome is %v", a.welcome)
	}
	for i, every := range []time.Duration{time.Minute, time.Hour, 0} {
		h.setCheckIn("shop", every)
		testwait.UntilTrue(t, "the interval "+every.String(), a.hasReceived("Idle", i+1))
	}
	h.setCheckIn("shop", 0)
	h.setCheckIn("shop", time.Hour)
	testwait.UntilTrue(t, "the interval of an hour again", a.hasReceived("Idle", 4))
}

// A change before the inventory is recorded is sent, too, even if everything else was sent
// before.
func TestConnectionChangesBeforeTheInventory(t *testing.T) {
	h := newTestHub(t)
	h.inventory.setHooks(nil, func(uid string) {
		for deadline := time.Now().Add(time.Minute); !h.isQuiet(uid) && time.Now().Before(deadline); {
			runtime.Gosched()
		}
	})
	_, a := h.connectAgent("shop")
	h.setCheckIn("shop", time.Minute)
	a.sendInventory()
	testwait.UntilTrue(t, "the interval of a minute", a.hasReceived("Idle", 1))
}

// Check-ins write nothing while nothing changes.
func TestCheckInsWriteNothing(t *testing.T) {
	h := newTestHub(t)
	uid, id := h.createCluster("shop")
	h.setCheckIn("shop", 10*time.Second)
	h.rows.setRows("web", map[string]atoll.RowSpec{"shop": activeSpec(uid, "r1", 1)})
	a := h.newAgent(id, "one")
	visit := func(work func()) {
		a.connectSession()
		testwait.UntilTrue(t, "welcome", a.hasReceived("Welcome", 1))
		a.sendInventory()
		testwait.UntilTrue(t, "Idle", a.hasReceived("Idle", 1))
		work()
		if err := a.stream.CloseSend(); err != nil {
			t.Fatal(err)
		}
		<-a.closed
		testwait.UntilTrue(t, "the hub sees the end", func() bool { return h.sessions.getByUID(uid) == nil })
	}
	visit(func() {
		a.reportReady("web")
		testwait.UntilTrue(t, "stored", func() bool { return a.checkLocked(func() bool { return a.core.CountUnacknowledged() == 0 }) })
	})
	var before, after v1alpha1.Cluster
	if err := h.client.Get(t.Context(), client.ObjectKey{Name: "shop"}, &before); err != nil {
		t.Fatal(err)
	}
	written := h.rows.countWrites()
	for range 100 {
		visit(func() {})
		if a.frames["DigestQuery"]+a.frames["Upsert"] > 0 {
			t.Fatalf("a check-in without news cost %v", a.frames)
		}
	}
	if err := h.client.Get(t.Context(), client.ObjectKey{Name: "shop"}, &after); err != nil {
		t.Fatal(err)
	}
	if n := h.rows.countWrites() - written; n > 0 || after.ResourceVersion != before.ResourceVersion {
		t.Errorf("100 check-ins wrote %d slices, and the Cluster %s times", n, after.ResourceVersion)
	}
}

func TestTokensSetTheConnection(t *testing.T) {
	h := newTestHub(t)
	token := h.createToken(handshake.TokenSpec{Uses: 1, AutoAccept: true, CheckIn: 15 * time.Minute})
	if _, err := h.pinnedClient().Join(t.Context(), joinRequest(t, token.RevealSecret(), "shop", newKey(t))); err != nil {
		t.Fatal(err)
	}
	c, ok := h.clusters.Get("shop")
	if !ok || c.Spec.CheckInInterval() != 15*time.Minute {
		t.Errorf("joined as %+v", c)
	}
	for every, ok := range map[time.Duration]bool{0: true, time.Second: false, 25 * time.Hour: false, -time.Minute: false, time.Minute: true} {
		if err := (handshake.TokenSpec{Lifetime: time.Hour, Uses: 1, CheckIn: every}).Validate(); (err == nil) != ok {
			t.Errorf("every %s: %v", every, err)
		}
	}
}
