package clusterstatus

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
			advanceClock(time.Minute)
			if n := w.writes.Load(); n != 0 {
				t.Errorf("a follower wrote %d times of clusters whose streams it does not hold", n)
			}
			w.joinClusters(0, 1)
			advanceClock(settle)
			w.expectReady("c0", "True AgentConnected")
			w.loseClusters(0, 1)
			advanceClock(time.Hour)
			w.expectReady("c0", "True AgentConnected") // that it is silent is the leader's to say
			leads.Store(true)
			w.BecomeLeader()
			advanceClock(w.o.SilentAfter - time.Second)
			w.expectReady("c0", "True AgentConnected") // it may be about to come back
			advanceClock(2 * time.Second)
			w.expectReady("c0", "Unknown StreamLost")
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
			w.joinClusters(0, 1)
			advanceClock(settle)
			before := w.writes.Load()
			w.SetRemoteStream("u0", true, time.Now()) // the agent goes on to another hub
			w.loseClusters(0, 1)
			advanceClock(time.Hour)
			w.expectReady("c0", "True AgentConnected")
			heard := time.Now()
			advanceClock(20 * time.Second)
			w.SetRemoteStream("u0", false, heard)
			advanceClock(w.o.SilentAfter)
			w.expectReady("c0", "True AgentConnected") // some hub has not sent its list yet
			complete.Store(true)
			advanceClock(2 * incomplete)
			w.expectReady("c0", "Unknown StreamLost")
			if n := w.writes.Load() - before; n != 1 {
				t.Errorf("%d writes", n)
			}
			w.SetRemoteStream("u0", true, time.Now())
			advanceClock(time.Minute)
			w.expectReady("c0", "Unknown StreamLost") // the other hub writes that it is back
			w.SetRemoteStream("u0", false, time.Now())
			w.joinClusters(0, 1)
			advanceClock(settle)
			w.expectReady("c0", "True AgentConnected")
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
			w.joinClusters(0, 1)
			advanceClock(settle)
			w.SetRemoteStream("u0", true, time.Now())
			w.loseClusters(0, 1)
			// The other hub writes what the member is now.
			c, _ := w.Get("c0")
			c = c.DeepCopy()
			c.Status.KubernetesVersion = "v9"
			if err := w.client.Status().Update(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			w.putCluster(c)
			w.SetRemoteStream("u0", false, time.Now())
			advanceClock(time.Minute)
			w.expectReady("c0", "Unknown StreamLost")
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
		w := newWorld(t, 3, checkInEvery(interval))
		var leads, complete atomic.Bool
		leads.Store(true)
		complete.Store(true)
		w.oneOf(&leads, &complete)
		elsewhere := func(uid string) {
			w.SetRemoteStream(uid, true, time.Now())
			advanceClock(500 * time.Millisecond)
			w.SetRemoteStream(uid, false, time.Now())
		}
		w.run(func() {
			w.visitClusters(0, 3)
			advanceClock(settle)
			before := w.writes.Load()
			for round := range 30 {
				elsewhere("u0") // always there
				if round%2 == 0 {
					elsewhere("u1")
				} else {
					w.visitClusters(1, 2)
				}
				w.visitClusters(2, 3) // always here
				advanceClock(interval - 2*time.Second)
			}
			if n := w.writes.Load() - before; n != 0 {
				t.Errorf("%d writes while three agents checked in at two hubs and nothing changed", n)
			}
			elsewhere("u1")
			elsewhere("u2")
			advanceClock(interval)
			elsewhere("u1")
			elsewhere("u2")
			advanceClock(interval)
			w.expectReady("c0", "Unknown CheckInsMissed")
			w.expectReady("c1", "True AgentChecksIn")
			w.expectReady("c2", "True AgentChecksIn")
			if n := w.writes.Load() - before; n != 1 {
				t.Errorf("%d writes for the one that is missed", n)
			}
			w.visitClusters(0, 1)
			advanceClock(settle)
			w.expectReady("c0", "True AgentChecksIn")
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
				if got := []string{w.TransportOf("u0"), w.TransportOf("u1"), w.TransportOf("u2")}; !slices.Equal(got, want) {
					t.Errorf("%s: %q, wanted %q", when, got, want)
				}
			}
			says("before", "", "", "CheckIn")
			w.joinClusters(0, 3)
			says("here", "TLS", "Push", "TLS")
			advanceClock(settle)
			before := w.writes.Load()
			w.StreamUp("u0", "WebSocket")
			says("by another way", "WebSocket", "Push", "TLS")
			w.SetRemoteStream("u0", true, time.Now())
			w.SetRemoteTransport("u0", "TLS")
			w.StreamDown("u0", time.Now())
			says("elsewhere", "TLS", "Push", "TLS")
			advanceClock(settle)
			if n := w.writes.Load() - before; n != 0 {
				t.Errorf("%d writes", n)
			}
			w.SetRemoteStream("u0", false, time.Now())
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
			w.joinClusters(0, 1)
			w.RecordCertificate("u0", first, 1, true)
			advanceClock(settle)
			says("here", first, 1)
			before := w.writes.Load()

			w.SetRemoteStream("u0", true, time.Now()) // before the stream here is gone
			w.RecordRemoteCertificate("u0", first.Add(time.Hour), 2)
			w.loseClusters(0, 1)
			advanceClock(settle)
			says("elsewhere", first.Add(time.Hour), 2)

			w.SetRemoteStream("u0", false, time.Now())
			w.SetRemoteStream("u0", true, time.Now())
			says("at a third hub, which has not sent its list yet", first.Add(time.Hour), 2)
			w.RecordRemoteCertificate("u0", first.Add(2*time.Hour), 3)
			advanceClock(settle)
			says("renewed there", first.Add(2*time.Hour), 3)

			for range 20 { // to and fro
				w.SetRemoteStream("u0", false, time.Now())
				w.joinClusters(0, 1)
				w.RecordCertificate("u0", first, 3, true)
				advanceClock(settle)
				w.loseClusters(0, 1)
				w.SetRemoteStream("u0", true, time.Now())
				w.RecordRemoteCertificate("u0", first, 3)
				advanceClock(settle)
			}
			if n := w.writes.Load() - before; n != 0 {
				t.Errorf("%d writes", n)
			}
			w.SetRemoteStream("u0", false, time.Now())
			advanceClock(time.Minute)
			says("away", first, 3)
			w.expectReady("c0", "Unknown StreamLost")
			if c, _ := w.Get("c0"); !meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ClusterCertificateExpiring) {
				t.Error("a disconnected agent has renewed, as it seems")
			}
			if n := w.writes.Load() - before; n != 1 {
				t.Errorf("%d writes", n)
			}
		})
	})
}
