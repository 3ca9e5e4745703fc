package delivery

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
	"atoll.dev/atoll/internal/testwait"
	"atoll.dev/atoll/internal/trust"
	"atoll.dev/atoll/internal/trust/handshake"
)

// A Cluster may change after the session has read it, and before the session can be found.
// The change counts.
func TestChangesDuringSessionStartCount(t *testing.T) {
	edit := func(h *testHub, change func(*v1alpha1.Cluster)) {
		c := mustGetCluster(t, h, "tokyo")
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
				c.Annotations[handshake.AnnotationAgentKey] = trust.SealKeyHash(h.keys.HubKey, "tokyo", "sha256:other")
			})
		},
		"Unknown": func(h *testHub) {
			if err := h.client.Delete(t.Context(), mustGetCluster(t, h, "tokyo")); err != nil {
				t.Error(err)
			}
		},
		"": func(h *testHub) { serves.Store(false); h.EndSessions() }, // out of touch with its store
	} {
		t.Run(reason, func(t *testing.T) {
			serves.Store(true)
			var h *testHub
			var once sync.Once
			h = newTestHub(t, func(o *Options) {
				o.HA.Hub = fakeHAHub{
					serving: serves.Load,
					behind:  func(int64) bool { once.Do(func() { change(h) }); return false }, // between the two
				}
			})
			uid, id := h.createCluster("tokyo")
			a := h.newAgent(id, "one")
			a.connectSession()
			testwait.UntilTrue(t, "it is over", func() bool {
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
			testwait.UntilTrue(t, "it is down", func() bool { return h.sessions.getByUID(uid) == nil && !h.clusters.isOnline(uid) })
		})
	}
}

// Frames that come while the agent is sent the reason of the end are ignored.
func TestFramesAfterTheEndAreIgnored(t *testing.T) {
	h := newTestHub(t)
	uid, a := h.connectAgent("tokyo")
	s := h.sessions.getByUID(uid)
	recorded := func() int {
		h.inventory.mu.Lock()
		defer h.inventory.mu.Unlock()
		return len(h.inventory.seen[uid])
	}
	said := &pb.FromAgent{Frame: &pb.FromAgent_Inventory{Inventory: &pb.Inventory{KubernetesVersion: "v1.99"}}}
	before := recorded()
	if s.handleFrame(said); recorded() != before+1 {
		t.Fatalf("%d inventories came after %d", recorded(), before)
	}
	s.endSession(&pb.Refused{Reason: "NotAccepted"})
	if s.handleFrame(said); recorded() != before+1 {
		t.Error("a frame after the end of the session is handled")
	}
	<-a.closed
}

// Answers that an agent does not read are bounded.
func TestFloodingAgentIsDisconnected(t *testing.T) {
	inventory := &memInventory{}
	s := &agentSession{gateway: &Gateway{options: Options{Inventory: inventory}}, id: identity{uid: "u"},
		senderRunning: true, ended: make(chan struct{}), cancelCall: func() {}} // the sender is stuck
	for range maxControlFrames {
		s.queueControl(&pb.FromHub{})
	}
	if s.done {
		t.Fatal("a slow agent is disconnected")
	}
	for range 10 {
		s.queueControl(&pb.FromHub{})
	}
	if !s.done || s.closeFrame.GetRefused().GetReason() != "Flooding" || len(s.queue.control) != maxControlFrames {
		t.Errorf("done: %t, last frame %v, %d answers wait", s.done, s.closeFrame, len(s.queue.control))
	}
	if inventory.misbehaviourOf("u") == "" {
		t.Error("the Cluster does not show it")
	}
}

// TestImpossibleGenerationIsIgnored: all rows would be raised above what one agent
// says, to where there is no room.
func TestImpossibleGenerationIsIgnored(t *testing.T) {
	h := newTestHub(t)
	uid, _ := h.connectAgent("tokyo")
	s, now := h.sessions.getByUID(uid), time.Now().UnixMilli()
	for _, c := range []struct{ said, highest int64 }{{now, now}, {now - 1, now}, {now + 1000, now + 1000}, {generationLimit, now + 1000}, {math.MaxInt64, now + 1000}, {-1, now + 1000}} {
		if h.recordHello(s, &pb.Hello{Highest: c.said}); h.HighestReportedGeneration() != c.highest {
			t.Errorf("after %d was said the highest is %d, not %d", c.said, h.HighestReportedGeneration(), c.highest)
		}
	}
}
