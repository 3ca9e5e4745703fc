package clusterstatus

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"atoll.dev/atoll/internal/pace"
	pb "atoll.dev/atoll/internal/session/sessionpb"
)

// inventoryAsking is a healthy member of 12 CPUs whose pods ask for so much CPU.
func inventoryAsking(milli int) *pb.Inventory {
	inv := healthyInventory()
	inv.Requested = map[string]string{"cpu": fmt.Sprintf("%dm", milli)}
	return inv
}

// TestLoadIsNoWriteOfEachApplication: each raises the requests of a cluster's pods, so that a
// write for each would be one for each row. A larger change is written soon.
func TestLoadIsNoWriteOfEachApplication(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.run(func() {
			w.joinClusters(0, 1)
			advanceClock(time.Minute)
			before, asked := w.writes.Load(), 1500
			for range 50 { // one each 10 s: 8 minutes in all
				asked += 20
				w.RecordInventory("u0", inventoryAsking(asked))
				advanceClock(10 * time.Second)
			}
			if n := w.writes.Load() - before; n != 0 {
				t.Errorf("%d writes for 50 applications in 8 minutes", n)
			}
			advanceClock(loadEvery)
			if n := w.writes.Load() - before; n != 1 {
				t.Errorf("%d writes for 50 applications in 18 minutes, want 1", n)
			}
			requested := func() string {
				c, _ := w.Get("c0")
				return c.Status.Resources.Requested.Cpu().String()
			}
			if got := requested(); got != "2500m" {
				t.Errorf("the status is %s, want the last report", got)
			}
			w.RecordInventory("u0", inventoryAsking(asked+1501)) // more than an eighth of 12 CPUs
			advanceClock(settle)
			if got := requested(); got != "4001m" {
				t.Errorf("%s: a change that matters is not reported soon", got)
			}
			w.RecordInventory("u0", inventoryAsking(1500)) // and so is one that gives as much back
			advanceClock(2 * settle)
			if got := requested(); got != "1500m" {
				t.Errorf("%s: a change that matters is not reported soon", got)
			}
		})
	})
}

// TestLoadOfAFleetHasABound: however many clusters there are.
func TestLoadOfAFleetHasABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clusters = 500
		w := newWorld(t, clusters)
		w.run(func() {
			w.joinClusters(0, clusters)
			advanceClock(time.Minute)
			before := w.writes.Load()
			for i := range clusters {
				w.RecordInventory(fmt.Sprintf("u%d", i), inventoryAsking(9000))
			}
			advanceClock(10 * time.Second)
			if n := w.writes.Load() - before; n == 0 || n > 11*int64(pace.ClusterWrites.TokensPerSecond()) {
				t.Errorf("%d writes in 10 s", n)
			}
			advanceClock(time.Minute)
			if n := w.writes.Load() - before; n != clusters {
				t.Errorf("%d of %d clusters are written in the end", n, clusters)
			}
		})
	})
}

// TestLoadIsNotWrittenByAHubThatStarts: little has changed while it was away.
func TestLoadIsNotWrittenByAHubThatStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clusters = 50
		w := newWorld(t, clusters)
		w.run(func() {
			w.joinClusters(0, clusters)
			advanceClock(time.Minute)
		})
		w.ClusterStatusReconciler = New(Options{Clusters: w, Client: w.client, Logger: w.o.Logger})
		w.writes.Store(0)
		w.run(func() {
			for i := range clusters {
				w.StreamUp(fmt.Sprintf("u%d", i), "TLS")
				w.RecordInventory(fmt.Sprintf("u%d", i), inventoryAsking(1600))
			}
			advanceClock(loadEvery / 2)
			if n := w.writes.Load(); n != 0 {
				t.Errorf("%d writes by a hub that has just started", n)
			}
			advanceClock(loadEvery)
			if n := w.writes.Load(); n != clusters {
				t.Errorf("%d of %d clusters are written in the end", n, clusters)
			}
		})
	})
}

// TestLoadOfNodesIsPacedToo: what they have left is the other side of what pods ask for.
func TestLoadOfNodesIsPacedToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.run(func() {
			leaving := func(cpu int) *pb.Inventory {
				inv := healthyInventory()
				inv.Room = &pb.Room{Classes: []string{fmt.Sprintf("3 cpu=%dm memory=8192Mi pods=90", cpu)}}
				return inv
			}
			w.StreamUp("u0", "TLS")
			w.RecordInventory("u0", leaving(3000))
			advanceClock(time.Minute)
			for _, step := range []struct {
				cpu    int
				after  time.Duration
				writes int64
			}{
				{2990, loadEvery / 2, 0},
				{2980, loadEvery, 1},
				{2500, 2 * settle, 1},
				{3000, 2 * settle, 1},
			} {
				before := w.writes.Load()
				w.RecordInventory("u0", leaving(step.cpu))
				advanceClock(step.after)
				if n := w.writes.Load() - before; n != step.writes {
					t.Errorf("%d writes when the nodes have %d m left, want %d", n, step.cpu, step.writes)
				}
			}
			for _, pool := range []string{"cpu", "gpu"} {
				before, inv := w.writes.Load(), leaving(3000)
				inv.Room.ClassGroups, inv.Room.Groups = []uint32{1}, []*pb.NodeGroup{{Size: "3 cpu=4000m pods=110", Labels: map[string]string{"pool": pool}}}
				w.RecordInventory("u0", inv)
				advanceClock(2 * settle)
				if n := w.writes.Load() - before; n != 1 {
					t.Errorf("%d writes when the nodes have the label %s, want 1", n, pool)
				}
			}
			before, span := w.writes.Load(), 2*time.Hour
			for i := range int(span / time.Minute) { // a label that changes all the time
				inv := leaving(3000)
				inv.Room.ClassGroups, inv.Room.Groups = []uint32{1}, []*pb.NodeGroup{{Size: "3 cpu=4000m pods=110", Labels: map[string]string{"beat": fmt.Sprint(i)}}}
				w.RecordInventory("u0", inv)
				advanceClock(time.Minute)
			}
			if n, most := w.writes.Load()-before, int64(pace.NodeGroupChanges.Burst)+int64(span/loadEvery)+1; n > most || n < int64(span/loadEvery) {
				t.Errorf("%d writes for a label that changes each minute, at most %d", n, most)
			}
		})
	})
}

// TestConditionsThatFlapAreFewWrites: an agent that reports another health each time is written a few
// times and then once an interval, with what it reported last. Its neighbour is written at once.
func TestConditionsThatFlapAreFewWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		w.run(func() {
			w.joinClusters(0, 2)
			advanceClock(time.Minute)
			before := w.writes.Load()
			const span = 5 * time.Minute
			for i := range int(span / (100 * time.Millisecond)) {
				inv := healthyInventory()
				inv.MemberReady = i%2 == 0
				w.RecordInventory("u0", inv)
				advanceClock(100 * time.Millisecond)
			}
			if n, most := w.writes.Load()-before, int64(pace.ConditionChanges.Burst)+int64(span/pace.ConditionChanges.Interval)+1; n > most {
				t.Errorf("%d writes in %s, at most %d are allowed", n, span, most)
			}
			sick := healthyInventory()
			sick.MemberReady = false
			w.RecordInventory("u1", sick)
			before = w.writes.Load()
			advanceClock(500 * time.Millisecond)
			if w.writes.Load() == before {
				t.Error("the change of a neighbour waits")
			}
		})
	})
}
