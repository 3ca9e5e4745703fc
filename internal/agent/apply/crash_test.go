package apply

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/agent/agenttest"
	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/agent/store"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rowcodec"
)

// line is what the engine and its store reach the member by. It can go dead at a
// write, as if the agent were killed there: nothing comes through afterwards, and
// what the member did is not known.
type line struct {
	mu     sync.Mutex
	writes int
	dies   func(*http.Request) bool
	after  bool
	dead   bool
	died   chan struct{}
	// late is called when the member has answered a write, before the answer goes on.
	late func(*http.Request)
}

var errDead = errors.New("the agent was killed")

func (l *line) wrapTransport(next http.RoundTripper) http.RoundTripper { return &end{l, next} }

// cutAfter before or after the first write that matches; the channel is closed then.
func (l *line) cutAfter(after bool, dies func(*http.Request) bool) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dies, l.after, l.died = dies, after, make(chan struct{})
	return l.died
}

// dieAt the n-th write from now.
func (l *line) dieAt(n int, after bool) {
	l.mu.Lock()
	l.writes = 0
	l.mu.Unlock()
	l.cutAfter(after, func(*http.Request) bool { return l.writes == n })
}

func (l *line) restoreLine() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dies, l.dead = nil, false
}

type end struct {
	line *line
	next http.RoundTripper
}

// RoundTrip is one at a time for writes, so that there is an order of them.
func (e *end) RoundTrip(r *http.Request) (*http.Response, error) {
	l := e.line
	if r.Method == http.MethodGet {
		l.mu.Lock()
		dead := l.dead
		l.mu.Unlock()
		if dead {
			return nil, errDead
		}
		return e.next.RoundTrip(r)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		return nil, errDead
	}
	l.writes++
	if l.dies == nil || !l.dies(r) {
		resp, err := e.next.RoundTrip(r)
		if l.late != nil {
			l.late(r)
		}
		return resp, err
	}
	l.dead = true
	defer close(l.died)
	if l.after {
		if resp, err := e.next.RoundTrip(r); err == nil {
			resp.Body.Close()
		}
	}
	return nil, errDead
}

func (l *line) isDead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead
}

// countRuns counts the Jobs that were made for each template, from now until the
// function is called.
func (w *world) countRuns() func() map[string]int {
	w.t.Helper()
	jobs := schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}
	got, err := w.client.DynamicClient().Resource(jobs).Namespace(w.ns).Watch(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	var running sync.WaitGroup
	counts := map[string]int{}
	running.Go(func() {
		for event := range got.ResultChan() {
			if obj, ok := event.Object.(*unstructured.Unstructured); ok && event.Type == watch.Added {
				counts[obj.GetLabels()[ownership.LabelTemplateUID]]++
			}
		}
	})
	return func() map[string]int { got.Stop(); running.Wait(); return counts }
}

// chapter is one thing that the hub says, and what has to come true of it.
type chapter struct {
	manifest atoll.Manifest
	want     func(atoll.RowStatus) bool
}

// listChapters of a Bundle's life: created, changed and created again, partly removed, removed.
func (w *world) listChapters() []chapter {
	conf, web, once := w.newItem("t-conf", configMap), w.newItem("t-web", deployment), w.newItem("t-job", job)
	next, again := w.newItem("t-conf", strings.ReplaceAll(configMap, `"1"`, `"2"`)), w.newItem("t-job-2", job)
	fresh := w.newItem("t-web-2", deployment)
	done := func(generation int64, gone int) func(atoll.RowStatus) bool {
		return func(s atoll.RowStatus) bool {
			return s.Generation == generation && s.Applied && len(s.DoneTombstones) == gone
		}
	}
	return []chapter{
		{newManifest("b1", 1, conf, web, once), done(1, 0)},
		{withTombstones(newManifest("b1", 2, next, fresh, again), tombstoneOf(web), tombstoneOf(once)), done(2, 2)},
		{withTombstones(newManifest("b1", 3, fresh), tombstoneOf(conf), tombstoneOf(web), tombstoneOf(once), tombstoneOf(again)), done(3, 4)},
		{remove("b1", 4), func(s atoll.RowStatus) bool { return s.State == atoll.RowRemoved }},
	}
}

// runUntilKilled the story, with a restart after the agent's death. As the hub does, it says
// everything again to an agent that was restarted.
func (w *world) runUntilKilled() (killed bool) {
	w.t.Helper()
	for _, c := range w.listChapters() {
		c.manifest.Content = atoll.HashJSON(c.manifest)
		said := false
		w.waitUntil(fmt.Sprintf("generation %d", c.manifest.Generation), func() (bool, string) {
			if w.line.isDead() {
				w.restartAgent()
				killed, said = true, false
			}
			if !said {
				said = w.UpsertManifest(w.t.Context(), c.manifest, store.Position{}) == nil
			}
			s, isReported := w.lastStatus("b1")
			return isReported && c.want(s), rowcodec.EncodeStatus(s, nil)
		})
	}
	return killed
}

// restartAgent from the dead.
func (w *world) restartAgent() {
	w.t.Helper()
	w.stop()
	w.line.restoreLine()
	w.start()
}

// listLabelled lists what carries the label of the Bundle.
func (w *world) listLabelled() (out []string) {
	w.t.Helper()
	for _, resource := range []schema.GroupVersionResource{
		{Version: "v1", Resource: "configmaps"}, {Group: "apps", Version: "v1", Resource: "deployments"}, {Group: "batch", Version: "v1", Resource: "jobs"},
	} {
		list, err := w.client.DynamicClient().Resource(resource).Namespace(w.ns).List(w.t.Context(), metav1.ListOptions{LabelSelector: atoll.LabelBundleUID})
		if err != nil {
			w.t.Fatal(err)
		}
		for _, o := range list.Items {
			out = append(out, o.GetKind()+" "+o.GetName())
		}
	}
	return out
}

// listStored lists what lies in the agent's store, but for the namespace that it made.
func (w *world) listStored() (out []string) {
	w.t.Helper()
	s, err := store.New(agenttest.StartedMemberConfig(), w.state, func(context.Context) bool { return true })
	if err != nil {
		w.t.Fatal(err)
	}
	contents, err := s.Open(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, b := range contents.Bundles {
		out = append(out, "bundle "+b.Holding.Manifest.Bundle)
	}
	for _, r := range contents.Records {
		if r.Key != atoll.NamespaceKey(w.ns) {
			out = append(out, r.Key.String())
		}
	}
	return out
}

// killStride is how many tests at a time share the writes.
const killStride = 4

// Killed at any write, to its store or to an object, before or after the member
// took it, and started again, the agent ends where it would have ended: with
// exactly the objects that are wanted, Jobs run once, and nothing left behind.
func TestKilledAtEveryWrite(t *testing.T) {
	agenttest.SkipIfShort(t)
	for _, after := range []bool{false, true} {
		for first := range killStride {
			t.Run(fmt.Sprintf("%s-%d", map[bool]string{false: "before", true: "after"}[after], first+1), func(t *testing.T) {
				t.Parallel()
				killed := true
				for n := first + 1; killed; n += killStride {
					t.Run(strconv.Itoa(n), func(t *testing.T) { killed = killedAt(t, n, after) && !t.Failed() })
				}
			})
		}
	}
}

// An object that existed before stays after the removal, also when the agent is killed during the
// adoption, or when its records are lost.
func TestAdoptedStaysWhateverIsLost(t *testing.T) {
	for name, lose := range map[string]func(*world){"killed": func(*world) {}, "state-lost": (*world).forgetState} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.makeNamespace()
			uid := w.createObject("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: conf}\ndata: {a: \"9\"}").GetUID()
			conf := w.newItem("t-conf", configMap)
			m := newManifest("b1", 1, conf)
			m.ConflictResolution = v1alpha1.ConflictOverwrite
			taken := w.line.cutAfter(true, func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/configmaps/conf") })
			w.storeManifest(m)
			<-taken
			w.restartAgent()
			w.waitForReady("b1", 1)
			w.stop()
			lose(w)
			w.start()
			w.storeManifest(remove("b1", 2))
			w.waitForRemoval("b1")
			if live := w.expectExists(conf.Key); live.GetUID() != uid || len(live.GetLabels()) > 0 {
				t.Fatalf("labels %v", live.GetLabels())
			}
		})
	}
}

// forgetState deletes the agent's Secrets in the member, as a user might.
func (w *world) forgetState() {
	w.t.Helper()
	secrets := schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	err := w.client.DynamicClient().Resource(secrets).Namespace(w.state).DeleteCollection(w.t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
}

// killedAt lives a story with a death at the n-th write, if there are so many.
func killedAt(t *testing.T, n int, after bool) bool {
	w := newWorld(t)
	runs := w.countRuns()
	w.line.dieAt(n, after)
	killed := w.runUntilKilled()
	if left := w.listLabelled(); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	w.waitUntil("the store is empty", func() (bool, string) {
		if w.line.isDead() {
			w.restartAgent()
			killed = true
		}
		_ = w.ForgetRemovedBundle(t.Context(), "b1", testNow) // once it is removed again
		left := w.listStored()
		return len(left) == 0 && !w.line.isDead(), fmt.Sprint(left)
	})
	for template, n := range runs() {
		if n > 1 {
			t.Errorf("%s was run %d times", template, n)
		}
	}
	return killed
}
