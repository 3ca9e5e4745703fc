package gateway

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
	"atoll.dev/atoll/internal/trust/handshake"
)

// checksIn sets how often a cluster is to check in; 0: it holds a stream.
func (h *testHub) checksIn(name string, every time.Duration) {
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

// tellInventory as the first frame after Welcome.
func (a *testAgent) tellInventory() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.send(a.stream, []*pb.FromAgent{{Frame: &pb.FromAgent_Inventory{Inventory: &pb.Inventory{MemberReady: true}}}})
}

func (a *testAgent) got(kind string, n int) func() bool {
	return func() bool { return a.see(func() bool { return a.frames[kind] == n }) }
}

// An agent that checks in is told when it has all that there is.
func TestIdleAfterAllIsSent(t *testing.T) {
	h := newTestHub(t)
	uid, id := h.cluster("shop")
	h.checksIn("shop", 90*time.Second)
	h.rows.set("web", map[string]atoll.RowSpec{"shop": active(uid, "r1", 1)})
	a := h.agent(id, "one")
	a.connect()
	eventually(t, "the order", a.holds("web", "r1", 1))
	if a.welcome.GetCheckInSeconds() != 90 || !a.got("Idle", 0)() {
		t.Errorf("before its inventory the agent was told %v and %v", a.welcome, a.frames)
	}
	a.tellInventory()
	eventually(t, "Idle", a.got("Idle", 1))
	h.rows.set("db", map[string]atoll.RowSpec{"shop": active(uid, "r1", 1)})
	eventually(t, "a change during the session", a.holds("db", "r1", 1))
	a.ready("web")
	a.ready("db")
	eventually(t, "acknowledged", func() bool { return a.see(func() bool { return a.core.Unacknowledged() == 0 }) })
	if err := a.stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	<-a.closed
	if a.refused != nil || !a.got("Idle", 1)() {
		t.Errorf("the session ended with %v, %v; frames %v", a.refused, a.err, a.frames)
	}
	eventually(t, "the hub sees the end", func() bool { return h.sessions.of(uid) == nil })
}

// An order that cannot be made keeps an agent for a few seconds only.
func TestIdleDespiteAnOrderThatCannotBeMade(t *testing.T) {
	h := newTestHub(t)
	uid, id := h.cluster("shop")
	h.checksIn("shop", time.Minute)
	h.content.Store("broken", func(state.Row) (atoll.Manifest, error) { return atoll.Manifest{}, errors.New("no template") })
	h.rows.set("web", map[string]atoll.RowSpec{"shop": active(uid, "broken", 1)})
	a := h.agent(id, "one")
	begin := time.Now()
	a.connect()
	eventually(t, "welcome", a.got("Welcome", 1))
	a.tellInventory()
	eventually(t, "Idle", a.got("Idle", 1))
	if d := time.Since(begin); d < 2*time.Second {
		t.Errorf("the agent was let go after %s, though the order was about to be tried again", d)
	}
}

// A change of how the cluster connects is told to a session that lives.
func TestConnectionChangesDuringASession(t *testing.T) {
	h := newTestHub(t)
	_, a := h.connected("shop")
	a.tellInventory()
	if a.welcome.GetCheckInSeconds() != 0 {
		t.Errorf("welcome is %v", a.welcome)
	}
	for i, every := range []time.Duration{time.Minute, time.Hour, 0} {
		h.checksIn("shop", every)
		eventually(t, "told of "+every.String(), a.got("Idle", i+1))
	}
	h.checksIn("shop", 0)
	h.checksIn("shop", time.Hour)
	eventually(t, "told of an hour again", a.got("Idle", 4))
}

// So is one that comes before the session's inventory was looked at, even if all else
// was sent by then.
func TestConnectionChangesBeforeTheInventory(t *testing.T) {
	h := newTestHub(t)
	h.inventory.when(nil, func(uid string) {
		for deadline := time.Now().Add(time.Minute); !h.quiet(uid) && time.Now().Before(deadline); {
			runtime.Gosched()
		}
	})
	_, a := h.connected("shop")
	h.checksIn("shop", time.Minute)
	a.tellInventory()
	eventually(t, "told of a minute", a.got("Idle", 1))
}

// Check-ins write nothing while nothing changes.
func TestCheckInsWriteNothing(t *testing.T) {
	h := newTestHub(t)
	uid, id := h.cluster("shop")
	h.checksIn("shop", 10*time.Second)
	h.rows.set("web", map[string]atoll.RowSpec{"shop": active(uid, "r1", 1)})
	a := h.agent(id, "one")
	visit := func(work func()) {
		a.connect()
		eventually(t, "welcome", a.got("Welcome", 1))
		a.tellInventory()
		eventually(t, "Idle", a.got("Idle", 1))
		work()
		if err := a.stream.CloseSend(); err != nil {
			t.Fatal(err)
		}
		<-a.closed
		eventually(t, "the hub sees the end", func() bool { return h.sessions.of(uid) == nil })
	}
	visit(func() {
		a.ready("web")
		eventually(t, "stored", func() bool { return a.see(func() bool { return a.core.Unacknowledged() == 0 }) })
	})
	var before, after v1alpha1.Cluster
	if err := h.client.Get(t.Context(), client.ObjectKey{Name: "shop"}, &before); err != nil {
		t.Fatal(err)
	}
	written := h.rows.written()
	for range 100 {
		visit(func() {})
		if a.frames["DigestQuery"]+a.frames["Upsert"] > 0 {
			t.Fatalf("a check-in without news cost %v", a.frames)
		}
	}
	if err := h.client.Get(t.Context(), client.ObjectKey{Name: "shop"}, &after); err != nil {
		t.Fatal(err)
	}
	if n := h.rows.written() - written; n > 0 || after.ResourceVersion != before.ResourceVersion {
		t.Errorf("100 check-ins wrote %d slices, and the Cluster %s times", n, after.ResourceVersion)
	}
}

func TestTokensTellHowToConnect(t *testing.T) {
	h := newTestHub(t)
	token := h.token(handshake.TokenSpec{Uses: 1, AutoAccept: true, CheckIn: 15 * time.Minute})
	if _, err := h.pinned().Join(t.Context(), joinRequest(t, token.Reveal(), "shop", newKey(t))); err != nil {
		t.Fatal(err)
	}
	c, ok := h.clusters.Get("shop")
	if !ok || c.Spec.CheckIn() != 15*time.Minute {
		t.Errorf("joined as %+v", c)
	}
	for every, ok := range map[time.Duration]bool{0: true, time.Second: false, 25 * time.Hour: false, -time.Minute: false, time.Minute: true} {
		if err := (handshake.TokenSpec{Lifetime: time.Hour, Uses: 1, CheckIn: every}).Validate(); (err == nil) != ok {
			t.Errorf("every %s: %v", every, err)
		}
	}
}
