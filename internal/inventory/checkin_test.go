package inventory

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

// every makes Clusters whose agents check in.
func every(interval time.Duration) func(*v1alpha1.Cluster) {
	return func(c *v1alpha1.Cluster) {
		c.Spec.Connection = &v1alpha1.ClusterConnection{Type: v1alpha1.ConnectionCheckIn, Interval: &metav1.Duration{Duration: interval}}
	}
}

// visit of some agents, of half a second each.
func (w *world) visit(from, to int) {
	w.join(from, to)
	pass(500 * time.Millisecond)
	w.lose(from, to)
}

func (w *world) message(name string) string {
	c, _ := w.Get(name)
	return meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ClusterReady).Message
}

func (w *world) connect(name string, connection *v1alpha1.ClusterConnection) {
	w.t.Helper()
	c, _ := w.Get(name)
	c = c.DeepCopy()
	c.Spec.Connection = connection
	if err := w.client.Update(w.t.Context(), c); err != nil {
		w.t.Fatal(err)
	}
	w.see(c)
	pass(settle)
}

func TestReadyFollowsCheckIns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, every(15*time.Minute))
		w.run(func() {
			w.expect("c0", "none")
			w.visit(0, 1)
			w.expect("c0", "True AgentChecksIn")
			if m := w.message("c0"); m != "the agent checks in every 15m" {
				t.Errorf("message %q", m)
			}
			pass(30*time.Minute + 34*time.Second)
			w.expect("c0", "True AgentChecksIn")
			pass(2 * time.Second)
			w.expect("c0", "Unknown CheckInsMissed")
			w.visit(0, 1)
			w.expect("c0", "True AgentChecksIn")
			pass(20 * time.Minute) // one that was missed counts for nothing
			w.visit(0, 1)
			pass(20 * time.Minute)
			w.expect("c0", "True AgentChecksIn")
		})
	})
}

// What an agent tells at the end of a short session is written after it.
func TestCheckInsTellOfTheMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, every(time.Minute))
		w.run(func() {
			w.visit(0, 1)
			pass(time.Minute)
			broken := healthy()
			broken.MemberReady, broken.MemberMessage, broken.NodesReady = false, "connection refused", 0
			w.StreamUp("u0", "TLS")
			w.Observe("u0", broken)
			w.StreamDown("u0", time.Now())
			synctest.Wait()
			w.expect("c0", "False MemberNotReady")
			if c, _ := w.Get("c0"); c.Status.Nodes.Ready != 0 || w.message("c0") != "connection refused" {
				t.Errorf("status is %+v", c.Status)
			}
			pass(time.Minute)
			w.visit(0, 1)
			pass(settle)
			w.expect("c0", "True AgentChecksIn")
			if c, _ := w.Get("c0"); c.Status.Nodes.Ready != 3 {
				t.Errorf("status is %+v", c.Status)
			}
		})
	})
}

func TestCheckInsAreNoWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3, every(10*time.Second))
		w.run(func() {
			w.visit(0, 3)
			pass(settle)
			before := w.writes.Load()
			for range 100 {
				pass(9 * time.Second)
				w.visit(0, 3)
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
		w := newWorld(t, 4, every(time.Minute), func(c *v1alpha1.Cluster) {
			for _, kind := range []string{v1alpha1.ClusterJoined, v1alpha1.ClusterReady} {
				meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: "AgentConnected"})
			}
		})
		<-time.After(time.Hour)
		w.run(func() {
			before := w.writes.Load()
			pass(70 * time.Second)
			w.visit(1, 4)
			pass(settle)
			if n := w.writes.Load() - before; n != 3 { // what the three are
				t.Errorf("%d writes", n)
			}
			w.expect("c0", "True AgentConnected")
			pass(78 * time.Second)
			w.expect("c0", "True AgentConnected")
			pass(3 * time.Second)
			w.expect("c0", "Unknown CheckInsMissed")
			w.expect("c1", "True AgentChecksIn")
		})
	})
}

// An agent keeps to what it was told last, and so does the hub.
func TestConnectionChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.run(func() {
			w.join(0, 1)
			w.expect("c0", "True AgentConnected")
			w.connect("c0", &v1alpha1.ClusterConnection{Type: v1alpha1.ConnectionCheckIn})
			w.expect("c0", "True AgentChecksIn")
			if m := w.message("c0"); !strings.HasSuffix(m, "every 15m") {
				t.Errorf("message %q", m)
			}
			w.lose(0, 1)
			pass(10 * time.Minute)
			w.connect("c0", nil) // between two check-ins
			pass(15 * time.Minute)
			w.expect("c0", "True AgentChecksIn")
			w.join(0, 1)
			pass(settle)
			w.expect("c0", "True AgentConnected")
			w.lose(0, 1)
			pass(36 * time.Second)
			w.expect("c0", "Unknown StreamLost")
		})
	})
}

// A hub whose network is cut hears of nobody, one after the other: it must not take
// the first ones for lost before it knows that all are missing.
func TestMassOfMissedCheckIns(t *testing.T) {
	const fleet = 60
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fleet, every(15*time.Minute))
		w.run(func() {
			round := func(from, to int) {
				for i := from; i < to; i++ {
					w.visit(i, i+1)
					pass(14500 * time.Millisecond)
				}
			}
			round(0, fleet)
			round(0, fleet)
			before := w.writes.Load()
			pass(2 * time.Hour)
			if n := w.writes.Load() - before; n != 0 || w.Silent() != fleet {
				t.Errorf("%d writes, %d held", n, w.Silent())
			}
			w.expect("c0", "True AgentChecksIn")
			round(0, 47) // 13 of 60 are missing, which is too many
			if w.Silent() != 13 {
				t.Errorf("%d held", w.Silent())
			}
			round(47, 48)          // 12 are not
			pass(36 * time.Second) // in which others may come back too
			w.expect("c59", "Unknown CheckInsMissed")
			w.expect("c47", "True AgentChecksIn")
			if w.Silent() != 0 || !slices.Equal(w.told, []string{"true", "false"}) {
				t.Errorf("%d held, told %v", w.Silent(), w.told)
			}
		})
	})
}

// Clusters that go missing on their own are written, however many there come to be.
func TestFewMissedCheckInsAreWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 20, every(time.Minute))
		w.run(func() {
			w.visit(0, 20)
			for gone := range 15 {
				for range 3 {
					pass(50 * time.Second)
					w.visit(gone+1, 20)
				}
			}
			for i := range 14 {
				w.expect(fmt.Sprintf("c%d", i), "Unknown CheckInsMissed")
			}
			w.expect("c19", "True AgentChecksIn")
		})
	})
}

// While the table shows an older Cluster than the store has, nothing is tried again and
// again; what is to be said is said when the table has caught up.
func TestAnOldTableIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, every(time.Minute))
		w.run(func() {
			c, _ := w.Get("c0")
			newer := c.DeepCopy()
			newer.Labels = map[string]string{"env": "prod"}
			if err := w.client.Update(t.Context(), newer); err != nil {
				t.Fatal(err)
			}
			before := w.writes.Load()
			for range 5 {
				w.visit(0, 1)
				pass(settle)
			}
			if n := w.writes.Load() - before; n > 1 {
				t.Errorf("%d tries of a write that cannot succeed", n)
			}
			w.see(newer)
			pass(settle)
			w.expect("c0", "True AgentChecksIn")
			if c, _ := w.Get("c0"); c.Labels["env"] != "prod" {
				t.Errorf("labels are %v", c.Labels)
			}
		})
	})
}

// A session may be over before the hub comes to write what it told: the cluster has
// joined all the same, in one write, and its next check-in is none.
func TestAShortFirstSessionIsOneWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, every(15*time.Minute))
		w.join(0, 1)
		w.lose(0, 1)
		w.run(func() {
			c, _ := w.Get("c0")
			if !joined(c) {
				t.Errorf("after its first session: %+v", c.Status.Conditions)
			}
			w.expect("c0", "True AgentChecksIn")
			pass(time.Minute)
			w.visit(0, 1)
			pass(time.Minute)
			if n := w.writes.Load(); n != 1 {
				t.Errorf("%d writes", n)
			}
		})
	})
}
