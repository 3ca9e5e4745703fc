package inventory

import (
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"atoll.dev/atoll/api/v1alpha1"
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

// TestHowAgentsComeIsKnown: to whichever hub, while they are there; a move leaves what the
// hub says that has it now, and nothing is written for it.
func TestHowAgentsComeIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seldom := &v1alpha1.ClusterConnection{Type: v1alpha1.ConnectionCheckIn}
		w := newWorld(t, 3, func(c *v1alpha1.Cluster) {
			switch c.Name {
			case "c1":
				c.Spec.Mode = v1alpha1.ModePush
			case "c2":
				c.Spec.Connection = seldom
			}
		})
		w.run(func() {
			says := func(when string, want ...string) {
				t.Helper()
				if got := []string{w.CarriageOf("u0"), w.CarriageOf("u1"), w.CarriageOf("u2")}; !slices.Equal(got, want) {
					t.Errorf("%s: %q, wanted %q", when, got, want)
				}
			}
			says("before", "", "", "CheckIn")
			w.join(0, 3)
			says("here", "TLS", "Push", "TLS")
			pass(settle)
			before := w.writes.Load()
			w.StreamUp("u0", "WebSocket")
			says("by another way", "WebSocket", "Push", "TLS")
			w.Elsewhere("u0", true, time.Now())
			w.Carriage("u0", "TLS")
			w.StreamDown("u0", time.Now())
			says("elsewhere", "TLS", "Push", "TLS")
			pass(settle)
			if n := w.writes.Load() - before; n != 0 {
				t.Errorf("%d writes", n)
			}
			w.Elsewhere("u0", false, time.Now())
			w.StreamDown("u1", time.Now())
			w.StreamDown("u2", time.Now())
			says("after", "", "", "CheckIn")
		})
	})
}

// TestWhenCertificatesEndIsKnownWhereverAgentsAre: in whatever order hubs tell that an agent
// has moved, its newest certificate is known here; and nothing is written for it, nor is what
// the hub has written that holds the stream.
func TestWhenCertificatesEndIsKnownWhereverAgentsAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		var leads, complete atomic.Bool
		leads.Store(true)
		complete.Store(true)
		w.oneOf(&leads, &complete)
		first := time.Now().Add(time.Hour).Truncate(time.Second)
		says := func(when string, ends time.Time, generation int) {
			t.Helper()
			if got, of, ok := w.CertificateOf("u0"); !ok || !got.Equal(ends) || of != generation {
				t.Errorf("%s: the certificate ends at %v, generation %d, %t; wanted %v, %d", when, got, of, ok, ends, generation)
			}
		}
		w.run(func() {
			w.join(0, 1)
			w.Certificate("u0", first, 1, true)
			pass(settle)
			says("here", first, 1)
			before := w.writes.Load()

			w.Elsewhere("u0", true, time.Now()) // before the stream here is gone
			w.CertificateElsewhere("u0", first.Add(time.Hour), 2)
			w.lose(0, 1)
			pass(settle)
			says("elsewhere", first.Add(time.Hour), 2)

			w.Elsewhere("u0", false, time.Now())
			w.Elsewhere("u0", true, time.Now())
			says("at a third hub, which has not told yet", first.Add(time.Hour), 2)
			w.CertificateElsewhere("u0", first.Add(2*time.Hour), 3)
			pass(settle)
			says("renewed there", first.Add(2*time.Hour), 3)

			for range 20 { // to and fro
				w.Elsewhere("u0", false, time.Now())
				w.join(0, 1)
				w.Certificate("u0", first, 3, true)
				pass(settle)
				w.lose(0, 1)
				w.Elsewhere("u0", true, time.Now())
				w.CertificateElsewhere("u0", first, 3)
				pass(settle)
			}
			if n := w.writes.Load() - before; n != 0 {
				t.Errorf("%d writes", n)
			}
			w.Elsewhere("u0", false, time.Now())
			pass(time.Minute)
			says("away", first, 3)
			w.expect("c0", "Unknown StreamLost")
			if c, _ := w.Get("c0"); meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ClusterCertificateExpiring) == nil {
				t.Error("who is away has renewed, as it seems")
			}
			if n := w.writes.Load() - before; n != 1 {
				t.Errorf("%d writes", n)
			}
		})
	})
}
