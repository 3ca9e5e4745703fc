package streams

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"atoll.dev/atoll/internal/delivery"
	"atoll.dev/atoll/internal/peer"
)

// fakeGateway records calls, in their order.
type fakeGateway struct {
	delivery.Clusters
	delivery.StreamTracker
	calls   []string
	surplus int
	rooms   []peer.StreamDeficit
	movable int
}

func (f *fakeGateway) recordCall(parts ...any) {
	f.calls = append(f.calls, strings.TrimSpace(fmt.Sprintln(parts...)))
}

func (f *fakeGateway) StreamOpened(uid string)                         { f.recordCall("opened", uid) }
func (f *fakeGateway) StreamClosed(uid string, _ time.Time)            { f.recordCall("closed", uid) }
func (f *fakeGateway) CertificateRenewed(uid string)                   { f.recordCall("renewed", uid) }
func (f *fakeGateway) StreamDown(uid string, _ time.Time)              { f.recordCall("down", uid) }
func (f *fakeGateway) SurplusStreams(bool) (int, []peer.StreamDeficit) { return f.surplus, f.rooms }

func (f *fakeGateway) RecordCertificate(uid string, _ time.Time, generation int, _ bool) {
	f.recordCall("certificate", uid, generation)
}

func (f *fakeGateway) MoveAgents(n int, hub string, _ func(string) bool) int {
	n = min(n, f.movable)
	f.movable -= n
	f.surplus -= n
	f.recordCall("move", n, hub)
	return n
}

func TestOtherHubsAreInformed(t *testing.T) {
	f := &fakeGateway{}
	clusters, tracker := StreamOpenBroadcaster{f, f}, BroadcastingTracker{f, f}
	clusters.SetOnline("a", true)
	clusters.SetOnline("a", false)
	tracker.RecordCertificate("a", time.Time{}, 3, false)
	tracker.StreamDown("a", time.Time{})
	if want := []string{"opened a", "certificate a 3", "renewed a", "closed a", "down a"}; !slices.Equal(f.calls, want) {
		t.Errorf("%q", f.calls)
	}
}

// A hub moves its surplus in batches, to the hubs with free places, and stops when nothing is left
// or when it does not serve.
func TestSurplusMovesInBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeGateway{surplus: 70, movable: 1000, rooms: []peer.StreamDeficit{{Address: "b:1", Streams: 30}, {Address: "c:1", Streams: 60}}}
		var serving atomic.Bool
		b := &StreamBalancer{Surplus: f, Agents: f, IsServing: serving.Load, Hubs: "a:1,b:1,c:1", Log: slog.New(slog.DiscardHandler)}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- b.Run(ctx) }()
		time.Sleep(3 * balanceInterval)
		synctest.Wait()
		if len(f.calls) > 0 {
			t.Errorf("moved while it did not serve: %q", f.calls)
		}
		serving.Store(true)
		time.Sleep(5 * balanceInterval)
		synctest.Wait()
		if want := []string{"move 30 b:1", "move 20 c:1", "move 20 b:1", "move 0 c:1"}; !slices.Equal(f.calls, want) {
			t.Errorf("%q", f.calls)
		}
		if b.moving {
			t.Error("it still moves")
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// Each agent prefers exactly one of the hubs.
func TestPreferredHubs(t *testing.T) {
	b := &StreamBalancer{Hubs: "a:1,b:1,c:1"}
	counts := map[string]int{}
	for i := range 300 {
		for hub := range strings.SplitSeq(b.Hubs, ",") {
			if b.prefersHub(hub)(fmt.Sprint("cluster", i)) {
				counts[hub]++
			}
		}
	}
	if counts["a:1"]+counts["b:1"]+counts["c:1"] != 300 || len(counts) != 3 {
		t.Errorf("%v", counts)
	}
}
