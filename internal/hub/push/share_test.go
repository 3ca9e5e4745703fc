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
	"atoll.dev/atoll/internal/inventory"
)

// sharers are several hubs over one table, whose members have Leases.
type sharers struct {
	*world
	mu      sync.Mutex
	holders map[string]string   // who works, by cluster
	starts  map[string]int      // of agents that came to work
	said    map[string][]string // reasons that hubs told, by cluster
}

// Subscribe more than one hub.
func (s *sharers) Subscribe(fn func(string)) {
	before := s.clusters.fn
	s.clusters.fn = func(name string) { before(name); fn(name) }
}

func (s *sharers) Get(name string) (*v1alpha1.Cluster, bool) { return s.clusters.Get(name) }
func (s *sharers) List() []*v1alpha1.Cluster                 { return s.clusters.List() }

// hub of them, which ends with stop.
func (s *sharers) hub(address string) (sup *Supervisor, stop func()) {
	sup = New(Options{
		Clusters: s, Secrets: s.secrets, Hub: address, Self: address, Runner: "fleet@" + address, Pins: func() []string { return []string{"sha256:00"} },
		Voucher: func(cluster, uid string) string { return cluster + "/" + uid }, Run: s.agent, Log: slog.New(slog.DiscardHandler),
		Pushed: func(uid string, p *inventory.Pushed) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if p != nil {
				s.said[uid] = append(s.said[uid], p.Reason)
			}
		},
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

// agent works while it has the member's Lease, and stands by before.
func (s *sharers) agent(ctx context.Context, o agent.Options) error {
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

// at which hubs agents work: how many at each.
func (s *sharers) at() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]int{}
	for _, holder := range s.holders {
		out[strings.TrimPrefix(holder, "fleet@")]++
	}
	return out
}

// TestHubsShareTheAgents: each works at one hub; when a hub comes or goes, or hubs differ in
// who is there, only what has to move does, and nothing is told that would be a write.
func TestHubsShareTheAgents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const all = 120
		s := &sharers{world: newWorld(t), holders: map[string]string{}, starts: map[string]int{}, said: map[string][]string{}}
		for i := range all {
			name := fmt.Sprintf("m-%d", i)
			s.clusters.put(name, name, pushed)
			s.give(name, name, "first")
		}
		a, stopA := s.hub("a:1")
		b, stopB := s.hub("b:1")
		c, stopC := s.hub("c:1")
		defer stopA()
		defer stopB()
		settle()
		if at := s.at(); len(at) != 0 {
			t.Errorf("agents work at %v before it is known which hubs there are", at)
		}
		share := func(hubs ...string) {
			for _, sup := range []*Supervisor{a, b, c} {
				sup.Share(hubs)
			}
			time.Sleep(10 * time.Second)
			synctest.Wait()
		}
		sums := func(when string, hubs ...string) {
			t.Helper()
			at, sum := s.at(), 0
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
		before := s.at()
		stopC()
		share("a:1", "b:1")
		sums("one is gone", "a:1", "b:1")
		moved := 0
		for _, n := range s.starts {
			moved += n - 1
		}
		if moved != before["c:1"] {
			t.Errorf("%d agents were started anew, when a hub went that ran %d", moved, before["c:1"])
		}
		starts := maps.Clone(s.starts)
		a.Share([]string{"a:1"}) // it does not hear of the other
		time.Sleep(time.Minute)
		synctest.Wait()
		if at := s.at(); at["a:1"]+at["b:1"] != all || !maps.Equal(starts, s.starts) {
			t.Errorf("hubs differ in who is there: agents work at %v, and were started %d times", at, len(s.starts))
		}
		b.Share(nil) // it serves nobody
		time.Sleep(10 * time.Second)
		synctest.Wait()
		sums("the other serves nobody", "a:1")
		for cluster, said := range s.said {
			if slices.ContainsFunc(said, func(reason string) bool { return reason != ReasonWorks }) {
				t.Errorf("of %s was told %v", cluster, said)
			}
		}
	})
}

// TestAConditionThatNobodyKeepsGoes, by the hub whose share the Cluster is.
func TestAConditionThatNobodyKeepsGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sharers{world: newWorld(t), holders: map[string]string{}, starts: map[string]int{}, said: map[string][]string{}}
		left := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "oslo", UID: types.UID("u1")}, Spec: pulled}
		left.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ClusterPushed, Reason: ReasonCredentialsUnused}}
		s.clusters.byName["oslo"] = left
		a, stopA := s.hub("a:1")
		b, stopB := s.hub("b:1")
		defer stopA()
		defer stopB()
		a.Share([]string{"a:1", "b:1"})
		b.Share([]string{"a:1", "b:1"})
		settle()
		if said := s.said["u1"]; !slices.Equal(said, []string{""}) {
			t.Errorf("told %q, want once that there is nothing", said)
		}
	})
}

// TestWhatASisterHoldsIsHersToTell: an agent that worked, and lost the member's Lease to one of
// another hub on the store, takes its word back, and gives it anew when it works again; one of
// another fleet it is told of, however alike the fleets' names are.
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
		stop := w.supervise()
		defer stop()
		defer close(holder)
		w.clusters.put("oslo", "u1", pushed)
		w.give("oslo", "u1", "first")
		settle()
		w.says("at first", "u1", ReasonWorks)
		holder <- "fleet@b:1"
		settle()
		w.says("a sister works", "u1", "")
		holder <- ""
		settle()
		w.says("it works again", "u1", ReasonWorks)
		holder <- "fleet@b:1"
		settle()
		w.says("the sister does again", "u1", "")
		holder <- "fleet2@b:1"
		settle()
		w.says("a stranger works", "u1", ReasonStandsBy)
	})
}
