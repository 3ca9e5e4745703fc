package inventory

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"atoll.dev/atoll/internal/agent/member"
)

// TestAChangeThatTheEngineSawFirst: the engine discovers, too, when a kind is missing. Followers
// of the member's kinds are informed all the same, as an AgentPolicy's new definition must act.
func TestAChangeThatSomebodyElseSawFirst(t *testing.T) {
	var kind atomic.Value
	kind.Store("Widget")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/version":
			fmt.Fprint(w, `{"gitVersion": "v1.36.3"}`)
		case "/api":
			fmt.Fprint(w, `{"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2"}`)
		default:
			fmt.Fprintf(w, `{"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": [{"metadata": {"name": "example"},
				"versions": [{"version": "v1", "resources": [{"resource": "things", "responseKind": {"kind": %q}, "scope": "Namespaced", "verbs": ["list"]}]}]}]}`, kind.Load())
		}
	}))
	defer server.Close()
	config := &rest.Config{Host: server.URL}
	client, err := member.New(config)
	if err != nil {
		t.Fatal(err)
	}
	i, err := New(Options{Config: config, Client: client, Changed: func() {}, Served: func() {}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	asked := func() bool {
		changed, err := i.discoverOnce(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return changed
	}
	if !asked() {
		t.Fatal("what is known first is nothing new")
	}
	for _, unread := range []string{countNodes, countPods, countProperties} {
		i.read = map[string]bool{countNodes: true, countPods: true, countProperties: true}
		delete(i.read, unread)
		if i.updateSnapshot() || i.CurrentSnapshot().Version != "" {
			t.Errorf("the member is reported before its %s are read", unread)
		}
	}
	i.read = map[string]bool{countNodes: true, countPods: true, countProperties: true}
	i.updateSnapshot()
	if asked() {
		t.Error("the same is something new")
	}
	kind.Store("Gadget")
	if changed, err := client.DiscoverAPIs(t.Context()); err != nil || !changed {
		t.Fatalf("%t, %v", changed, err)
	}
	if !asked() {
		t.Error("a kind that the engine discovered is nothing new")
	}
}

// TestNothingIsToldBeforeAllIsRead: an agent that starts would else tell of a member without
// nodes, and the hub would take that for what became of it.
func TestNothingIsToldBeforeAllIsRead(t *testing.T) {
	const about = `{"metadata": {"name": "about.k8s.io"}, "versions": [{"version": "v1alpha1", "resources":
		[{"resource": "clusterproperties", "responseKind": {"kind": "ClusterProperty"}, "scope": "Cluster", "verbs": ["list", "watch"]}]}]}`
	for name, tc := range map[string]struct {
		status map[string]int
		groups string
		want   Snapshot
	}{
		"all":                        {want: Snapshot{Nodes: 1, Properties: map[string]string{propertyVersion: "v1.36.3", propertyNodes: "1"}}},
		"the agent may list nothing": {status: map[string]int{"nodes": 403, "pods": 403}, want: Snapshot{Properties: map[string]string{propertyVersion: "v1.36.3"}}},
		"pods that cannot be listed": {status: map[string]int{"pods": 500}, want: Snapshot{Nodes: 1, Properties: map[string]string{
			propertyVersion: "v1.36.3", propertyNodes: "1",
		}, Trouble: "the agent cannot read the member's pods and counts none: "}},
		"properties": {groups: about, want: Snapshot{Nodes: 1, Properties: map[string]string{
			propertyVersion: "v1.36.3", propertyNodes: "1", "tier": "gold",
		}}},
		"properties that it may not see": {groups: about, status: map[string]int{"clusterproperties": 403}, want: Snapshot{Nodes: 1, Properties: map[string]string{
			propertyVersion: "v1.36.3", propertyNodes: "1",
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := aMember{status: tc.status, groups: tc.groups, asked: make(chan string), answer: make(chan struct{})}
			server := httptest.NewServer(m)
			defer server.Close()
			config := &rest.Config{Host: server.URL}
			client, err := member.New(config)
			if err != nil {
				t.Fatal(err)
			}
			changed := make(chan struct{}, 8)
			i, err := New(Options{Config: config, Client: client, Changed: func() { changed <- struct{}{} }, Served: func() {}, Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			if tc.want.Trouble != "" {
				i.patience = 2 * time.Second
			}
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { i.Run(ctx) })
			defer running.Wait()
			defer cancel()
			answered := map[string]bool{}
			for first := true; first || i.CurrentSnapshot().Version == ""; {
				select {
				case kind := <-m.asked:
					// A failing read is repeated after it is no longer awaited.
					wasAnswered := answered[kind]
					answered[kind] = true
					if got := i.CurrentSnapshot(); !wasAnswered && tc.want.Trouble == "" && (got.Version != "" || got.Nodes != 0 || len(got.Properties) != 0) {
						t.Fatalf("reported before everything was read: %+v", got)
					}
					m.answer <- struct{}{}
				case <-changed:
					first = false
				}
			}
			got := i.CurrentSnapshot()
			if got.Version != "v1.36.3" || !got.Answers || got.Nodes != tc.want.Nodes || !maps.Equal(got.Properties, tc.want.Properties) ||
				!strings.HasPrefix(got.Trouble, tc.want.Trouble) || tc.want.Trouble == "" && got.Trouble != "" {
				t.Errorf("the first report is %+v, not %+v", got, tc.want)
			}
		})
	}
}

// aMember answers a list after the test has seen the request. A watch that begins with a list is answered at once, by a refusal
// of that, after which the agent lists.
type aMember struct {
	// status of lists, by the last word of their path; 0: 200.
	status map[string]int
	// groups that it serves beside the first, as discovery has them.
	groups string
	asked  chan string
	answer chan struct{}
}

// ServeHTTP serves watches in which nothing happens, too.
func (m aMember) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	begins := r.URL.Query().Has("sendInitialEvents")
	what := path.Base(r.URL.Path)
	switch {
	case r.URL.Query().Has("watch") && !begins:
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		return
	case (what == "nodes" || what == "pods" || what == "clusterproperties") && (!begins || m.status[what] != 0):
		select {
		case m.asked <- what:
		case <-r.Context().Done():
			return
		}
		select {
		case <-m.answer:
		case <-r.Context().Done():
			return
		}
	}
	if status := m.status[what]; status != 0 {
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": %d, "reason": %q}`, status, map[int]string{403: "Forbidden", 500: "InternalError"}[status])
		return
	}
	if begins { // as servers of before 1.32
		w.WriteHeader(http.StatusUnprocessableEntity)
		fmt.Fprint(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 422, "reason": "Invalid"}`)
		return
	}
	switch r.URL.Path {
	case "/version":
		fmt.Fprint(w, `{"gitVersion": "v1.36.3"}`)
	case "/api":
		fmt.Fprint(w, `{"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2"}`)
	case "/apis":
		fmt.Fprintf(w, `{"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": [%s]}`, m.groups)
	case "/api/v1/nodes":
		fmt.Fprint(w, `{"kind": "NodeList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": [{"metadata": {"name": "one"}}]}`)
	case "/api/v1/pods":
		fmt.Fprint(w, `{"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": []}`)
	case "/apis/about.k8s.io/v1alpha1/clusterproperties":
		fmt.Fprint(w, `{"kind": "ClusterPropertyList", "apiVersion": "about.k8s.io/v1alpha1", "metadata": {"resourceVersion": "7"}, "items": [
			{"kind": "ClusterProperty", "apiVersion": "about.k8s.io/v1alpha1", "metadata": {"name": "tier"}, "spec": {"value": "gold"}}]}`)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// TestAMemberThatRefusesItsAgentDoesAnswer: what is looked for then is the credentials, not the
// way.
func TestAMemberThatRefusesItsAgentDoesAnswer(t *testing.T) {
	i := &Inventory{rescan: make(chan struct{}, 1), wake: make(chan struct{}, 1)}
	i.ReportAPIAnswer(apierrors.NewUnauthorized("Unauthorized"))
	if want := "the member's API does not accept the agent's credentials: Unauthorized"; i.trouble != want {
		t.Errorf("%q, want %q", i.trouble, want)
	}
	i.ReportAPIAnswer(errors.New("connection refused"))
	if want := "the member's API does not answer the agent: connection refused"; i.trouble != want {
		t.Errorf("%q, want %q", i.trouble, want)
	}
}
