package clusterstatus

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
)

// checkInEvery makes Clusters whose agents check in.
func checkInEvery(interval time.Duration) func(*v1alpha1.Cluster) {
	return func(c *v1alpha1.Cluster) {
		c.Spec.Connection = &v1alpha1.ClusterConnection{Type: v1alpha1.ConnectionCheckIn, Interval: &metav1.Duration{Duration: interval}}
	}
}

// visitClusters of some agents, of half a second each.
func (w *world) visitClusters(from, to int) {
	w.joinClusters(from, to)
	advanceClock(500 * time.Millisecond)
	w.loseClusters(from, to)
}

func (w *world) readyMessage(name string) string {
	c, _ := w.Get(name)
	return meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ClusterReady).Message
}

func (w *world) setConnection(name string, connection *v1alpha1.ClusterConnection) {
	w.t.Helper()
	c, _ := w.Get(name)
	c = c.DeepCopy()
	c.Spec.Connection = connection
	if err := w.client.Update(w.t.Context(), c); err != nil {
		w.t.Fatal(err)
	}
	w.putCluster(c)
	advanceClock(settle)
}

func TestReadyFollowsCheckIns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, checkInEvery(15*time.Minute))
		w.run(func() {
			w.expectReady("c0", "none")
			w.visitClusters(0, 1)
			w.expectReady("c0", "True AgentChecksIn")
			if m := w.readyMessage("c0"); m != "the agent checks in every 15m" {
				t.Errorf("message %q", m)
			}
			advanceClock(30*time.Minute + 34*time.Second)
			w.expectReady("c0", "True AgentChecksIn")
			advanceClock(2 * time.Second)
			w.expectReady("c0", "Unknown CheckInsMissed")
			w.visitClusters(0, 1)
			w.expectReady("c0", "True AgentChecksIn")
			advanceClock(20 * time.Minute) // one that was missed counts for nothing
			w.visitClusters(0, 1)
			advanceClock(20 * time.Minute)
			w.expectReady("c0", "True AgentChecksIn")
		})
	})
}

// A report at the end of a short session is written after it.
func TestCheckInsTellOfTheMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, checkInEvery(time.Minute))
		w.run(func() {
			w.visitClusters(0, 1)
			advanceClock(time.Minute)
			broken := healthyInventory()
			broken.MemberReady, broken.MemberMessage, broken.NodesReady = false, "connection refused", 0
			w.StreamUp("u0", "TLS")
			w.RecordInventory("u0", broken)
			w.StreamDown("u0", time.Now())
			synctest.Wait()
			w.expectReady("c0", "False MemberNotReady")
			if c, _ := w.Get("c0"); c.Status.Nodes.Ready != 0 || w.readyMessage("c0") != "connection refused" {
				t.Errorf("status is %+v", c.Status)
			}
			advanceClock(time.Minute)
			w.visitClusters(0, 1)
			advanceClock(settle)
			w.expectReady("c0", "True AgentChecksIn")
			if c, _ := w.Get("c0"); c.Status.Nodes.Ready != 3 {
				t.Errorf("status is %+v", c.Status)
			}
		})
	})
}

func TestCheckInsAreNoWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3, checkInEvery(10*time.Second))
		w.run(func() {
			w.visitClusters(0, 3)
			advanceClock(settle)
			before := w.writes.Load()
			for range 100 {
				advanceClock(9 * time.Second)
				w.visitClusters(0, 3)
			}
			if n := w.writes.Load() - before; n != 0 {
				t.Errorf("%d writes while three agents checked in 100 times and nothing changed", n)
			}
		})
	})
}

// A hub that starts gives everybody two check-ins.
func TestHubStartWaitsForCheckIns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 4, checkInEvery(time.Minute), func(c *v1alpha1.Cluster) {
			for _, kind := range []string{v1alpha1.ClusterJoined, v1alpha1.ClusterReady} {
				meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: "AgentConnected"})
			}
		})
		<-time.After(time.Hour)
		w.run(func() {
			before := w.writes.Load()
			advanceClock(70 * time.Second)
			w.visitClusters(1, 4)
			advanceClock(settle)
			if n := w.writes.Load() - before; n != 3 { // what the three are
				t.Errorf("%d writes", n)
			}
			w.expectReady("c0", "True AgentConnected")
			advanceClock(78 * time.Second)
			w.expectReady("c0", "True AgentConnected")
			advanceClock(3 * time.Second)
			w.expectReady("c0", "Unknown CheckInsMissed")
			w.expectReady("c1", "True AgentChecksIn")
		})
	})
}

// An agent keeps the last interval that it received, and so does the hub.
func TestConnectionChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.run(func() {
			w.joinClusters(0, 1)
			w.expectReady("c0", "True AgentConnected")
			w.setConnection("c0", &v1alpha1.ClusterConnection{Type: v1alpha1.ConnectionCheckIn})
			w.expectReady("c0", "True AgentChecksIn")
			if m := w.readyMessage("c0"); !strings.HasSuffix(m, "every 15m") {
				t.Errorf("message %q", m)
			}
			w.loseClusters(0, 1)
			advanceClock(10 * time.Minute)
			w.setConnection("c0", nil) // between two check-ins
			advanceClock(15 * time.Minute)
			w.expectReady("c0", "True AgentChecksIn")
			w.joinClusters(0, 1)
			advanceClock(settle)
			w.expectReady("c0", "True AgentConnected")
			w.loseClusters(0, 1)
			advanceClock(36 * time.Second)
			w.expectReady("c0", "Unknown StreamLost")
		})
	})
}

// A hub with a broken network loses all clusters, one after the other: it must not take the first
// ones for lost before it knows that all are missing.
func TestMassOfMissedCheckIns(t *testing.T) {
	const fleet = 60
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fleet, checkInEvery(15*time.Minute))
		w.run(func() {
			round := func(from, to int) {
				for i := from; i < to; i++ {
					w.visitClusters(i, i+1)
					advanceClock(14500 * time.Millisecond)
				}
			}
			round(0, fleet)
			round(0, fleet)
			before := w.writes.Load()
			advanceClock(2 * time.Hour)
			if n := w.writes.Load() - before; n != 0 || w.CountHeldSilences() != fleet {
				t.Errorf("%d writes, %d held", n, w.CountHeldSilences())
			}
			w.expectReady("c0", "True AgentChecksIn")
			round(0, 47) // 13 of 60 are missing, which is too many
			if w.CountHeldSilences() != 13 {
				t.Errorf("%d held", w.CountHeldSilences())
			}
			round(47, 48)                  // 12 are not
			advanceClock(36 * time.Second) // in which others may come back too
			w.expectReady("c59", "Unknown CheckInsMissed")
			w.expectReady("c47", "True AgentChecksIn")
			if w.CountHeldSilences() != 0 || !slices.Equal(w.silences, []string{"true", "false"}) {
				t.Errorf("%d held, reported %v", w.CountHeldSilences(), w.silences)
			}
		})
	})
}

// Clusters that go missing on their own are written, however many there come to be.
func TestFewMissedCheckInsAreWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 20, checkInEvery(time.Minute))
		w.run(func() {
			w.visitClusters(0, 20)
			for gone := range 15 {
				for range 3 {
					advanceClock(50 * time.Second)
					w.visitClusters(gone+1, 20)
				}
			}
			for i := range 14 {
				w.expectReady(fmt.Sprintf("c%d", i), "Unknown CheckInsMissed")
			}
			w.expectReady("c19", "True AgentChecksIn")
		})
	})
}

// While the table shows an older Cluster than the store has, nothing is tried again and
// again; what is to be said is said when the table has caught up.
func TestAnOldTableIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, checkInEvery(time.Minute))
		w.run(func() {
			c, _ := w.Get("c0")
			newer := c.DeepCopy()
			newer.Labels = map[string]string{"env": "prod"}
			if err := w.client.Update(t.Context(), newer); err != nil {
				t.Fatal(err)
			}
			before := w.writes.Load()
			for range 5 {
				w.visitClusters(0, 1)
				advanceClock(settle)
			}
			if n := w.writes.Load() - before; n > 1 {
				t.Errorf("%d tries of a write that cannot succeed", n)
			}
			w.putCluster(newer)
			advanceClock(settle)
			w.expectReady("c0", "True AgentChecksIn")
			if c, _ := w.Get("c0"); c.Labels["env"] != "prod" {
				t.Errorf("labels are %v", c.Labels)
			}
		})
	})
}

// A session may be over before the hub writes its reports: the cluster has joined all the same, in
// one write, and its next check-in is none.
func TestAShortFirstSessionIsOneWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, checkInEvery(15*time.Minute))
		w.joinClusters(0, 1)
		w.loseClusters(0, 1)
		w.run(func() {
			c, _ := w.Get("c0")
			if !hasJoined(c) {
				t.Errorf("after its first session: %+v", c.Status.Conditions)
			}
			w.expectReady("c0", "True AgentChecksIn")
			advanceClock(time.Minute)
			w.visitClusters(0, 1)
			advanceClock(time.Minute)
			if n := w.writes.Load(); n != 1 {
				t.Errorf("%d writes", n)
			}
		})
	})
}
