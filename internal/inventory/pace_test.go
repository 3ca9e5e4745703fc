package inventory

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"atoll.dev/atoll/internal/atoll"
	pb "atoll.dev/atoll/internal/session/sessionpb"
)

// asking is a healthy member of 12 CPUs whose pods ask for so much CPU.
func asking(milli int) *pb.Inventory {
	inv := healthy()
	inv.Requested = map[string]string{"cpu": fmt.Sprintf("%dm", milli)}
	return inv
}

// TestLoadIsNoWriteOfEachApplication: each raises what a cluster's pods ask for, so that a
// write for each would be one per row. What says more is written soon.
func TestLoadIsNoWriteOfEachApplication(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.run(func() {
			w.join(0, 1)
			pass(time.Minute)
			before, asked := w.writes.Load(), 1500
			for range 50 { // one each 10 s: 8 minutes in all
				asked += 20
				w.Observe("u0", asking(asked))
				pass(10 * time.Second)
			}
			if n := w.writes.Load() - before; n != 0 {
				t.Errorf("%d writes for 50 applications in 8 minutes", n)
			}
			pass(loadEvery)
			if n := w.writes.Load() - before; n != 1 {
				t.Errorf("%d writes for 50 applications in 18 minutes, want 1", n)
			}
			requested := func() string {
				c, _ := w.Get("c0")
				return c.Status.Resources.Requested.Cpu().String()
			}
			if got := requested(); got != "2500m" {
				t.Errorf("the status says %s, want what was told last", got)
			}
			w.Observe("u0", asking(asked+1501)) // more than an eighth of 12 CPUs
			pass(settle)
			if got := requested(); got != "4001m" {
				t.Errorf("%s: a change that matters is not told soon", got)
			}
			w.Observe("u0", asking(1500)) // and so is one that gives as much back
			pass(2 * settle)
			if got := requested(); got != "1500m" {
				t.Errorf("%s: a change that matters is not told soon", got)
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
			w.join(0, clusters)
			pass(time.Minute)
			before := w.writes.Load()
			for i := range clusters {
				w.Observe(fmt.Sprintf("u%d", i), asking(9000))
			}
			pass(10 * time.Second)
			if n := w.writes.Load() - before; n == 0 || n > 11*atoll.UpkeepClusters {
				t.Errorf("%d writes in 10 s", n)
			}
			pass(time.Minute)
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
			w.join(0, clusters)
			pass(time.Minute)
		})
		w.Reconciler = New(Options{Clusters: w, Client: w.client, Logger: w.o.Logger})
		w.writes.Store(0)
		w.run(func() {
			for i := range clusters {
				w.StreamUp(fmt.Sprintf("u%d", i), "TLS")
				w.Observe(fmt.Sprintf("u%d", i), asking(1600))
			}
			pass(loadEvery / 2)
			if n := w.writes.Load(); n != 0 {
				t.Errorf("%d writes by a hub that has just started", n)
			}
			pass(loadEvery)
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
				inv := healthy()
				inv.Room = &pb.Room{Classes: []string{fmt.Sprintf("3 cpu=%dm memory=8192Mi pods=90", cpu)}}
				return inv
			}
			w.StreamUp("u0", "TLS")
			w.Observe("u0", leaving(3000))
			pass(time.Minute)
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
				w.Observe("u0", leaving(step.cpu))
				pass(step.after)
				if n := w.writes.Load() - before; n != step.writes {
					t.Errorf("%d writes when the nodes have %d m left, want %d", n, step.cpu, step.writes)
				}
			}
		})
	})
}
