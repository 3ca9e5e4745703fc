package push

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/agent"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/clusterstatus"
)

// sharers are several hubs over one table, whose members have Leases.
type sharers struct {
	*world
	mu      sync.Mutex
	holders map[string]string   // working hubs, by cluster
	starts  map[string]int      // of agents that came to work
	said    map[string][]string // reasons that hubs reported, by cluster
}

// Subscribe more than one hub.
func (s *sharers) Subscribe(fn func(string)) {
	before := s.clusters.fn
	s.clusters.fn = func(name string) { before(name); fn(name) }
}

func (s *sharers) Get(name string) (*v1alpha1.Cluster, bool) { return s.clusters.Get(name) }
func (s *sharers) List() []*v1alpha1.Cluster                 { return s.clusters.List() }

// startHub of them, which ends with stop.
func (s *sharers) startHub(address string) (sup *AgentSupervisor, stop func()) {
	sup = New(Options{
		Clusters: s, Secrets: s.secrets, Hub: address, Self: address, Runner: "fleet@" + address, Credentials: fakeCredentials{},
		Run: s.runAgent, Log: slog.New(slog.DiscardHandler),
		Inventory: pushedFunc(func(uid string, p *clusterstatus.Pushed) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if p != nil {
				s.said[uid] = append(s.said[uid], string(p.Reason))
			}
		}),
	})
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan error, 1)
	go func() { done <- sup.Run(ctx) }()
	return sup, func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Errorf("Run: %v", err)
		}
	}
}

// runAgent works while it has the member's Lease, and stands by before.
func (s *sharers) runAgent(ctx context.Context, o agent.Options) error {
	for {
		s.mu.Lock()
		holder := s.holders[o.Name]
		if holder == "" {
			s.holders[o.Name] = o.Runner
			s.starts[o.Name]++
		}
		s.mu.Unlock()
		if holder == "" {
			break
		}
		o.Stage(agent.Stage{Holder: holder + "_pod_boot_1_2_XYZ"})
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
	}
	o.Stage(agent.Stage{Works: true})
	<-ctx.Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holders[o.Name] = ""
	return nil
}

// agentsByHub which hubs agents work: how many at each.
func (s *sharers) agentsByHub() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]int{}
	for _, holder := range s.holders {
		out[strings.TrimPrefix(holder, "fleet@")]++
	}
	return out
}

// TestHubsShareTheAgents: each works at one hub. When a hub comes or goes, or hubs differ about
// the serving hubs, only the necessary agents move, and nothing is reported that would be a write.
func TestHubsShareTheAgents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const all = 120
		s := &sharers{world: newWorld(t), holders: map[string]string{}, starts: map[string]int{}, said: map[string][]string{}}
		for i := range all {
			name := fmt.Sprintf("m-%d", i)
			s.clusters.put(name, name, pushed)
			s.storeCredentials(name, name, "first")
		}
		a, stopA := s.startHub("a:1")
		b, stopB := s.startHub("b:1")
		c, stopC := s.startHub("c:1")
		defer stopA()
		defer stopB()
		waitForQuiet()
		if at := s.agentsByHub(); len(at) != 0 {
			t.Errorf("agents work at %v before it is known which hubs there are", at)
		}
		share := func(hubs ...string) {
			for _, sup := range []*AgentSupervisor{a, b, c} {
				sup.SetServingHubs(hubs)
			}
			time.Sleep(10 * time.Second)
			synctest.Wait()
		}
		sums := func(when string, hubs ...string) {
			t.Helper()
			at, sum := s.agentsByHub(), 0
			for _, hub := range hubs {
				if sum += at[hub]; at[hub] < all/len(hubs)/2 {
					t.Errorf("%s: agents work at %v", when, at)
				}
			}
			if sum != all {
				t.Errorf("%s: agents work at %v, of %d", when, at, all)
			}
		}
		share("a:1", "b:1", "c:1")
		sums("three hubs", "a:1", "b:1", "c:1")
		before := s.agentsByHub()
		stopC()
		share("a:1", "b:1")
		sums("one is gone", "a:1", "b:1")
		moved := 0
		for _, n := range s.starts {
			moved += n - 1
		}
		if moved != before["c:1"] {
			t.Errorf("%d agents were restarted, when a hub went that ran %d", moved, before["c:1"])
		}
		starts := maps.Clone(s.starts)
		a.SetServingHubs([]string{"a:1"}) // it has no list of the other
		time.Sleep(time.Minute)
		synctest.Wait()
		if at := s.agentsByHub(); at["a:1"]+at["b:1"] != all || !maps.Equal(starts, s.starts) {
			t.Errorf("hubs differ about the serving hubs: agents work at %v, and were started %d times", at, len(s.starts))
		}
		b.SetServingHubs(nil) // it serves no agents
		time.Sleep(10 * time.Second)
		synctest.Wait()
		sums("the other serves no agents", "a:1")
		for cluster, said := range s.said {
			if slices.ContainsFunc(said, func(reason string) bool { return reason != string(atoll.ReasonAgentWorks) }) {
				t.Errorf("the report of %s is %v", cluster, said)
			}
		}
	})
}

// TestAConditionThatNobodyKeepsGoes, by the hub whose share the Cluster is.
func TestAConditionThatNobodyKeepsGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sharers{world: newWorld(t), holders: map[string]string{}, starts: map[string]int{}, said: map[string][]string{}}
		left := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "oslo", UID: types.UID("u1")}, Spec: pulled}
		left.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ClusterPushed, Reason: string(atoll.ReasonCredentialsNotUsed)}}
		s.clusters.byName["oslo"] = left
		a, stopA := s.startHub("a:1")
		b, stopB := s.startHub("b:1")
		defer stopA()
		defer stopB()
		a.SetServingHubs([]string{"a:1", "b:1"})
		b.SetServingHubs([]string{"a:1", "b:1"})
		waitForQuiet()
		if said := s.said["u1"]; !slices.Equal(said, []string{""}) {
			t.Errorf("reported %q, want once that there is nothing", said)
		}
	})
}

// TestWhatASisterHoldsIsHersToTell: an agent that lost the member's Lease to one of another hub on
// the store withdraws its report, and reports again when it works again. A holder of another fleet
// is reported, however similar the fleets' names are.
func TestWhatASisterHoldsIsHersToTell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		holder := make(chan string)
		w.agents.run["oslo"] = func(ctx context.Context, o agent.Options) error {
			o.Stage(agent.Stage{Works: true})
			for h := range holder {
				if h == "" {
					o.Stage(agent.Stage{Works: true})
					continue
				}
				o.Stage(agent.Stage{Holder: h + "_pod_boot_1_2_XYZ"})
			}
			<-ctx.Done()
			return nil
		}
		w.runner = "fleet@a:1"
		stop := w.startSupervisor()
		defer stop()
		defer close(holder)
		w.clusters.put("oslo", "u1", pushed)
		w.storeCredentials("oslo", "u1", "first")
		waitForQuiet()
		w.expectStatus("at first", "u1", atoll.ReasonAgentWorks)
		holder <- "fleet@b:1"
		waitForQuiet()
		w.expectStatus("a sister works", "u1", "")
		holder <- ""
		waitForQuiet()
		w.expectStatus("it works again", "u1", atoll.ReasonAgentWorks)
		holder <- "fleet@b:1"
		waitForQuiet()
		w.expectStatus("the sister does again", "u1", "")
		holder <- "fleet2@b:1"
		waitForQuiet()
		w.expectStatus("a stranger works", "u1", atoll.ReasonStandsBy)
	})
}

// fakeHubs is what a hub knows of the others.
type fakeHubs struct {
	complete bool
	serving  []string
}

func (f *fakeHubs) IsComplete() bool { return f.complete }

func (f *fakeHubs) ServingHubs() []string { return f.serving }

// A hub that has just started runs no agents of others: it waits for their lists, or for grace.
func TestAShareWaitsForOtherHubs(t *testing.T) {
	const grace = 10 * time.Second
	for _, c := range []struct {
		name     string
		complete bool
		at       time.Duration
		want     bool
	}{
		{"complete at once", true, 0, true},
		{"incomplete within grace", false, grace - time.Second, false},
		{"incomplete after grace", false, grace + 2*time.Second, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := New(Options{Self: "a:1", Clusters: &table{}, Log: slog.New(slog.DiscardHandler)})
			hubs := &fakeHubs{complete: c.complete, serving: []string{"a:1", "b:1"}}
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- s.FollowServingHubs(ctx, hubs, grace) }()
			time.Sleep(c.at)
			synctest.Wait()
			if got := s.hubs.Load(); (got != nil && slices.Equal(*got, hubs.serving)) != c.want {
				t.Errorf("%s: %v", c.name, got)
			}
			stop()
			<-done
		})
	}
}

func TestOnlyHubsOfOneKeyShareAName(t *testing.T) {
	a, b := FleetName([]byte("a")), FleetName([]byte("b"))
	if a == b || a != FleetName([]byte("a")) || !strings.HasPrefix(a, "atoll-hub-") {
		t.Errorf("%s and %s", a, b)
	}
}
