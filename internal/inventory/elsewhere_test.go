package inventory

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// oneOf makes the world's hub one of several.
func (w *world) oneOf(leads, complete *atomic.Bool) {
	w.o.Leads, w.o.Complete = leads.Load, complete.Load
}

func TestTheHubThatHoldsTheStreamWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		var leads, complete atomic.Bool
		complete.Store(true)
		w.oneOf(&leads, &complete)
		w.run(func() {
			pass(time.Minute)
			if n := w.writes.Load(); n != 0 {
				t.Errorf("a follower wrote %d times of clusters whose streams it does not hold", n)
			}
			w.join(0, 1)
			pass(settle)
			w.expect("c0", "True AgentConnected")
			w.lose(0, 1)
			pass(time.Hour)
			w.expect("c0", "True AgentConnected") // that it is silent is the leader's to say
			leads.Store(true)
			w.Lead()
			pass(w.o.SilentAfter - time.Second)
			w.expect("c0", "True AgentConnected") // it may be about to come back
			pass(2 * time.Second)
			w.expect("c0", "Unknown StreamLost")
		})
	})
}

func TestAStreamElsewhereCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		var leads, complete atomic.Bool
		leads.Store(true)
		w.oneOf(&leads, &complete)
		w.run(func() {
			w.join(0, 1)
			pass(settle)
			before := w.writes.Load()
			w.Elsewhere("u0", true, time.Now()) // the agent goes on to another hub
			w.lose(0, 1)
			pass(time.Hour)
			w.expect("c0", "True AgentConnected")
			heard := time.Now()
			pass(20 * time.Second)
			w.Elsewhere("u0", false, heard)
			pass(w.o.SilentAfter)
			w.expect("c0", "True AgentConnected") // some hub has not told yet what it holds
			complete.Store(true)
			pass(2 * incomplete)
			w.expect("c0", "Unknown StreamLost")
			if n := w.writes.Load() - before; n != 1 {
				t.Errorf("%d writes", n)
			}
			w.Elsewhere("u0", true, time.Now())
			pass(time.Minute)
			w.expect("c0", "Unknown StreamLost") // the other hub writes that it is back
			w.Elsewhere("u0", false, time.Now())
			w.join(0, 1)
			pass(settle)
			w.expect("c0", "True AgentConnected")
		})
	})
}

func TestWhatWasToldBeforeIsNotWrittenAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		var leads, complete atomic.Bool
		leads.Store(true)
		complete.Store(true)
		w.oneOf(&leads, &complete)
		w.run(func() {
			w.join(0, 1)
			pass(settle)
			w.Elsewhere("u0", true, time.Now())
			w.lose(0, 1)
			// The other hub writes what the member is now.
			c, _ := w.Get("c0")
			c = c.DeepCopy()
			c.Status.KubernetesVersion = "v9"
			if err := w.client.Status().Update(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			w.see(c)
			w.Elsewhere("u0", false, time.Now())
			pass(time.Minute)
			w.expect("c0", "Unknown StreamLost")
			if c, _ := w.Get("c0"); c.Status.KubernetesVersion != "v9" {
				t.Errorf("the version went back to %q", c.Status.KubernetesVersion)
			}
		})
	})
}

// Agents that check in now at this hub, now at another, cost no write at the one that
// leads, and are missed two intervals after their last session, wherever it was.
func TestCheckInsAtSeveralHubs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const interval = time.Minute
		w := newWorld(t, 3, every(interval))
		var leads, complete atomic.Bool
		leads.Store(true)
		complete.Store(true)
		w.oneOf(&leads, &complete)
		elsewhere := func(uid string) {
			w.Elsewhere(uid, true, time.Now())
			pass(500 * time.Millisecond)
			w.Elsewhere(uid, false, time.Now())
		}
		w.run(func() {
			w.visit(0, 3)
			pass(settle)
			before := w.writes.Load()
			for round := range 30 {
				elsewhere("u0") // always there
				if round%2 == 0 {
					elsewhere("u1")
				} else {
					w.visit(1, 2)
				}
				w.visit(2, 3) // always here
				pass(interval - 2*time.Second)
			}
			if n := w.writes.Load() - before; n != 0 {
				t.Errorf("%d writes while three agents checked in at two hubs and nothing changed", n)
			}
			elsewhere("u1")
			elsewhere("u2")
			pass(interval)
			elsewhere("u1")
			elsewhere("u2")
			pass(interval)
			w.expect("c0", "Unknown CheckInsMissed")
			w.expect("c1", "True AgentChecksIn")
			w.expect("c2", "True AgentChecksIn")
			if n := w.writes.Load() - before; n != 1 {
				t.Errorf("%d writes for the one that is missed", n)
			}
			w.visit(0, 1)
			pass(settle)
			w.expect("c0", "True AgentChecksIn")
		})
	})
}
