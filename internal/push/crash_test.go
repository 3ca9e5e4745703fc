package push

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/agent"
	"atoll.dev/atoll/internal/agent/crash"
	"atoll.dev/atoll/internal/atoll"
)

// TestAPanicEndsItsAgentAlone: one in the agent's own goroutine, one in another that it
// started, and one after which the agent does not end.
func TestAPanicEndsItsAgentAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		metrics := prometheus.NewRegistry()
		w.metrics = metrics
		var mu sync.Mutex
		var events []string
		w.tell = func(c *v1alpha1.Cluster, reason atoll.Reason, message string) {
			mu.Lock()
			defer mu.Unlock()
			events = append(events, c.Name+" "+string(reason)+": "+message)
		}
		var maps map[string]int
		w.agents.run["own"] = func(context.Context, agent.Options) error { maps["x"] = 1; return nil }
		w.agents.run["deep"] = func(ctx context.Context, o agent.Options) error {
			o.Stage(agent.Stage{Works: true})
			var running sync.WaitGroup
			running.Go(func() { defer crash.RecoverContained(ctx); maps["x"] = 1 })
			running.Wait()
			began := time.Now()
			if <-ctx.Done(); !time.Now().Equal(began) {
				t.Errorf("what is left of it goes on for %s", time.Since(began))
			}
			return nil
		}
		locked := make(chan struct{})
		w.agents.run["stuck"] = func(ctx context.Context, o agent.Options) error {
			w.agents.mu.Lock()
			delete(w.agents.running, "stuck") // what is left does not count as running
			w.agents.mu.Unlock()
			go func() { defer crash.RecoverContained(ctx); maps["x"] = 1 }()
			<-locked
			o.Stage(agent.Stage{Works: true}) // which is not to be logged
			return nil
		}
		stop := w.startSupervisor()
		defer stop()
		for _, name := range []string{"own", "deep", "stuck", "oslo"} {
			w.clusters.put(name, name, pushed)
			w.storeCredentials(name, name, "first")
		}
		time.Sleep(10*time.Minute + 30*time.Second)
		for _, name := range []string{"own", "deep", "stuck"} {
			if n := w.agents.startsOf(name); n < 5 || n > 25 {
				t.Errorf("the agent of %s, which panics, was started %d times in 10 minutes", name, n)
			}
			w.expectStatus("it panics", name, atoll.ReasonAgentFailed)
			w.mu.Lock()
			if said := w.reported[name].Message; !strings.Contains(said, "panic: assignment to entry in nil map") {
				t.Errorf("the report of %s is %q", name, said)
			}
			w.mu.Unlock()
		}
		if n, want := gatherValue(t, metrics, "atoll_push_panics_total"), w.agents.startsOf("own")+w.agents.startsOf("deep")+w.agents.startsOf("stuck"); n != float64(want) {
			t.Errorf("%v panics are counted of %d", n, want)
		}
		if n := w.agents.startsOf("oslo"); n != 1 {
			t.Errorf("another agent was started %d times", n)
		}
		w.expectStatus("in between", "oslo", atoll.ReasonAgentWorks)
		close(locked)
		synctest.Wait()
		w.expectStatus("what is left of it speaks", "stuck", atoll.ReasonAgentFailed)
		mu.Lock()
		defer mu.Unlock()
		if !strings.Contains(strings.Join(events, "\n"), "deep AgentPanicked: ") {
			t.Errorf("events: %v", events)
		}
	})
}

// TestAPanicAtTheEndKeepsNobody: one in an agent that is ending already, what is left of which
// does not end. The next one is not kept by it.
func TestAPanicAtTheEndKeepsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		locked := make(chan struct{})
		w.agents.run["late"] = func(ctx context.Context, o agent.Options) error {
			<-ctx.Done()
			w.agents.mu.Lock()
			delete(w.agents.running, "late") // what is left does not count as running
			w.agents.mu.Unlock()
			go func() { defer crash.RecoverContained(ctx); panic("late") }()
			<-locked
			return nil
		}
		stop := w.startSupervisor()
		defer stop()
		defer close(locked)
		w.clusters.put("late", "late", pushed)
		w.storeCredentials("late", "late", "first")
		time.Sleep(time.Minute)
		w.storeCredentials("late", "late", "second")
		time.Sleep(2 * leaveBehind)
		if n := w.agents.startsOf("late"); n != 2 {
			t.Errorf("with new credentials the agent was started %d times", n)
		}
	})
}
