package gateway

import (
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"atoll.dev/atoll/api/v1alpha1"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/trust"
	"atoll.dev/atoll/internal/trust/handshake"
)

// TestWhatChangesWhileAStreamComesUpCounts: after its Cluster was looked at, and before the
// stream can be found by whom the change is told.
func TestWhatChangesWhileAStreamComesUpCounts(t *testing.T) {
	edit := func(h *testHub, change func(*v1alpha1.Cluster)) {
		c := mustGet(t, h, "tokyo")
		change(c)
		if err := h.client.Update(t.Context(), c); err != nil {
			t.Error(err)
		}
	}
	var serves atomic.Bool
	for reason, change := range map[string]func(h *testHub){
		"NotAccepted": func(h *testHub) { edit(h, func(c *v1alpha1.Cluster) { c.Spec.Accepted = false }) },
		"Replaced": func(h *testHub) {
			edit(h, func(c *v1alpha1.Cluster) {
				c.Annotations[handshake.AnnotationAgentKey] = trust.SealKey(h.keys.HubKey, "tokyo", "sha256:other")
			})
		},
		"Unknown": func(h *testHub) {
			if err := h.client.Delete(t.Context(), mustGet(t, h, "tokyo")); err != nil {
				t.Error(err)
			}
		},
		"": func(h *testHub) { serves.Store(false); h.CutOff() }, // out of touch with its store
	} {
		t.Run(reason, func(t *testing.T) {
			serves.Store(true)
			var h *testHub
			var once sync.Once
			h = newTestHub(t, func(o *Options) {
				o.Several.Serves = serves.Load
				o.Several.Behind = func(int64) bool { once.Do(func() { change(h) }); return false } // between the two
			})
			uid, id := h.cluster("tokyo")
			a := h.agent(id, "one")
			a.connect()
			eventually(t, "it is over", func() bool {
				select {
				case <-a.closed:
					return true
				default:
					return false
				}
			})
			if a.refused.GetReason() != reason || reason == "" && status.Code(a.err) != codes.Unavailable {
				t.Errorf("it ends with %v, %v", a.refused, a.err)
			}
			eventually(t, "it is down", func() bool { return h.sessions.of(uid) == nil && !h.clusters.isOnline(uid) })
		})
	}
}

// TestWhoWasCutOffSaysNothingMore: what comes while an agent is told why counts for nothing.
func TestWhoWasCutOffSaysNothingMore(t *testing.T) {
	h := newTestHub(t)
	uid, a := h.connected("tokyo")
	s := h.sessions.of(uid)
	told := func() int {
		h.inventory.mu.Lock()
		defer h.inventory.mu.Unlock()
		return len(h.inventory.seen[uid])
	}
	said := &pb.FromAgent{Frame: &pb.FromAgent_Inventory{Inventory: &pb.Inventory{KubernetesVersion: "v1.99"}}}
	before := told()
	if s.take(said); told() != before+1 {
		t.Fatalf("%d inventories came after %d", told(), before)
	}
	s.end(&pb.Refused{Reason: "NotAccepted"})
	if s.take(said); told() != before+1 {
		t.Error("who is cut off is heard")
	}
	<-a.closed
}

// TestWhoAsksFasterThanHeReadsIsCutOff: what the hub has to say to him has a bound.
func TestWhoAsksFasterThanHeReadsIsCutOff(t *testing.T) {
	s := &stream{sending: true, ended: make(chan struct{}), hangUp: func() {}} // the sender is stuck
	for range controlLimit {
		s.control(&pb.FromHub{})
	}
	if s.done {
		t.Fatal("who is slow is cut off")
	}
	for range 10 {
		s.control(&pb.FromHub{})
	}
	if !s.done || s.bye.GetRefused().GetReason() != "Flooding" || len(s.queue.control) != controlLimit {
		t.Errorf("done: %t, told %v, %d answers wait", s.done, s.bye, len(s.queue.control))
	}
}

// TestAGenerationThatNoHubGivesOutIsNotBelieved: all rows would be raised above what one agent
// says, to where there is no room.
func TestAGenerationThatNoHubGivesOutIsNotBelieved(t *testing.T) {
	h := newTestHub(t)
	uid, _ := h.connected("tokyo")
	s, now := h.sessions.of(uid), time.Now().UnixMilli()
	for _, c := range []struct{ said, highest int64 }{{now, now}, {now - 1, now}, {now + 1000, now + 1000}, {generationLimit, now + 1000}, {math.MaxInt64, now + 1000}, {-1, now + 1000}} {
		if h.seen(s, &pb.Hello{Highest: c.said}); h.HighestGeneration() != c.highest {
			t.Errorf("after %d was said the highest is %d, not %d", c.said, h.HighestGeneration(), c.highest)
		}
	}
}
