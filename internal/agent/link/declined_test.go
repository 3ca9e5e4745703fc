package link

import (
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/agent/store"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/session"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/wakeup"
)

// An order for which there is no memory is reported as failed, by its generation. When there is memory, a new session
// begins, in which the hub sends the order again.
func TestAnOrderWithoutMemoryIsReportedAndTakenLater(t *testing.T) {
	t.Parallel()
	h, m, _ := newLinkedMember(t, 0, time.Hour)
	h.waitUntil("a session", func() bool { return h.tell != nil && h.inventoried })
	order := func(bundle string) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if err := h.tell(&pb.FromHub{Frame: &pb.FromHub_Upsert{Upsert: &pb.Upsert{Bundle: bundle, Generation: 3, Manifest: []byte(`{"content":"c"}`)}}}); err != nil {
			t.Error(err)
		}
	}
	m.full.Store(&store.MemoryFullError{})
	order("web")
	h.waitUntil("the refusal is reported", func() bool {
		s := h.statuses["web"]
		return s.State == atoll.RowFailed && s.Reason == atoll.ReasonAgentMemoryFull && s.Generation == 3 && s.Content == "" && s.Message != ""
	})
	h.orderBundle("web", 3)
	m.full.Store(nil)
	order("other")
	h.waitUntil("another order is taken in the same session", func() bool { return h.statuses["other"].Generation == 3 && len(h.begun) == 1 })
	m.hasMemory.Store(true)
	order("third")
	h.waitUntil("the order is taken in another session", func() bool {
		return h.statuses["web"].State == atoll.RowProgressing && h.statuses["web"].Generation == 3 && len(h.begun) == 2
	})
}

// The memory of a link for its own tests, without a hub.
func newLink(t *testing.T, remembered store.Reports) *HubLink {
	m := &member{held: map[string]atoll.Manifest{}, ready: map[string]bool{}}
	l := New(Options{Hub: "hub:1", Store: m, Log: slog.New(slog.DiscardHandler)}, store.StoredContents{Reports: remembered})
	m.changed, l.applier, l.holdings, l.id = l.BundleStatusChanged, m, m, &identity{}
	l.newSessionCore()
	return l
}

// While many manifests wait to be stored, no frame is received.
func TestReceivingWaitsForTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLink(t, store.Reports{})
		large := atoll.Manifest{Bundle: "a", Generation: 1}
		for _, ends := range []func(){
			func() { l.mu.Lock(); l.pending.RemoveIfFirst(&large); l.mu.Unlock(); wakeup.WakeReader(l.stored) },
			l.restartFromHeldBundles,
		} {
			l.restartFromHeldBundles()
			l.applyOutput(session.AgentOutput{Store: []atoll.Manifest{large}, StoreBytes: unlimited.Queued}, nil)
			l.waitForQueueSpace(t.Context())
			l.applyOutput(session.AgentOutput{Store: []atoll.Manifest{{Bundle: "b", Generation: 1}}, StoreBytes: 1}, nil)
			goesOn := make(chan struct{})
			go func() { l.waitForQueueSpace(t.Context()); close(goesOn) }()
			synctest.Wait()
			select {
			case <-goesOn:
				t.Error("frames are received while the queue is full")
			default:
			}
			ends()
			<-goesOn
		}
	})
}

// Orders that never fit are reported, a bounded number at a time, and begin no session.
func TestDeclinedOrdersAreBounded(t *testing.T) {
	l := newLink(t, store.Reports{})
	l.out = newOutbox(unlimited.Unsent, func(err error) { t.Errorf("the session ends: %v", err) })
	var orders []session.OversizedOrder
	for i := range maxDeclined + 10 {
		orders = append(orders, session.OversizedOrder{Bundle: fmt.Sprint(i), Generation: 1})
	}
	l.applyOutput(session.AgentOutput{Oversized: orders}, l.out)
	l.endSessionIfOrdersFit()
	if len(l.declined) != maxDeclined {
		t.Errorf("%d orders are remembered", len(l.declined))
	}
	d := l.declined["0"]
	if s := d.statusOfDeclined(atoll.RowStatus{Generation: 7, Content: "old", Total: 3, Ready: 2, State: atoll.RowReady, Applied: true}); s.Generation != 1 || s.Content != "" || s.Applied || s.Total != 3 || s.Ready != 2 {
		t.Errorf("the status is %+v", s)
	}
}

// An order that was postponed is asked for by another session, as soon as no order waits for objects.
func TestPostponedOrdersBeginASession(t *testing.T) {
	l := newLink(t, store.Reports{})
	var ended error
	l.out = newOutbox(unlimited.Unsent, func(err error) { ended = err })
	if l.endSessionIfOrdersFit(); ended != nil {
		t.Errorf("the session ends by %v", ended)
	}
	l.applyOutput(session.AgentOutput{Postponed: true}, l.out)
	if l.endSessionIfOrdersFit(); ended != errOrdersFit {
		t.Errorf("the session ends by %v", ended)
	}
	ended = nil
	if l.endSessionIfOrdersFit(); ended != nil {
		t.Errorf("another session ends by %v", ended)
	}
}

// The newest removals are remembered. The session core forgets the others, too.
func TestRememberedRemovalsAreBounded(t *testing.T) {
	now := time.Now()
	remembered := store.Reports{Gone: map[string]store.Gone{"ancient": {At: now.Add(-rememberFor - time.Hour).Unix()}}}
	for i := range ownership.MaxRemoved {
		remembered.Gone[fmt.Sprint(i)] = store.Gone{Generation: 1, At: now.Unix() - int64(i)}
	}
	l := newLink(t, remembered)
	if len(l.memory.Gone) != ownership.MaxRemoved*9/10 {
		t.Errorf("%d removals are remembered after a start", len(l.memory.Gone))
	}
	if _, newest := l.memory.Gone["0"]; !newest {
		t.Error("the newest removal is forgotten")
	}
	if forgotten := l.dropOldRemovals(now); len(forgotten) != 0 {
		t.Errorf("%d more removals are forgotten", len(forgotten))
	}
}

// A tombstone of the declined order may have the ID of one that an earlier order carried out: the object came back since.
func TestADeclinedOrderCarriesOutNoTombstone(t *testing.T) {
	gone := atoll.Tombstone{Key: atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "a"}, UID: "u1"}
	d := declinedOrder{generation: 8}
	spec := atoll.RowSpec{Phase: atoll.RowActive, Generation: 8, Revision: "r2"}
	for name, held := range map[string]atoll.RowStatus{
		"listed": {Generation: 7, DoneTombstones: []string{gone.ID()}},
		"all":    {Generation: 7, AllTombstonesDone: true},
	} {
		if s := d.statusOfDeclined(held); s.Generation != 8 || gone.IsDoneInRow("r2", spec, &s) {
			t.Errorf("%s: the tombstone of an order that was not taken counts as carried out: %+v", name, s)
		}
	}
}
