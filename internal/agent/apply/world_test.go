package apply

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/agent/agenttest"
	"atoll.dev/atoll/internal/agent/claims"
	"atoll.dev/atoll/internal/agent/member"
	"atoll.dev/atoll/internal/agent/observe"
	"atoll.dev/atoll/internal/agent/policy"
	"atoll.dev/atoll/internal/agent/store"
	"atoll.dev/atoll/internal/atoll"
)

var testNow = time.Unix(1_800_000_000, 0)

func TestMain(m *testing.M) { os.Exit(agenttest.Main(m)) }

// world is an engine on the shared member, with its state in a namespace of its
// own.
type world struct {
	t *testing.T
	// client is the test's own, which no fault hurts.
	client *member.Client
	line   *line  // of the engine to the member
	as     string // who the engine is in the member; empty: its administrator
	state  string // namespace of the agent's state
	ns     string // namespace that the test's objects live in
	fenced atomic.Bool
	// policy of the member's administrator; see limit.
	policy atomic.Pointer[policy.Policy]
	// told are the Bundles whose status the engine said may have changed; reported
	// is what the status of each was when that was last said.
	told     chan string
	mu       sync.Mutex
	reported map[string]atoll.RowStatus

	*Engine
	stop func()
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldAs(t, "")
}

// newWorldAs is newWorld with an agent that has the rights of a user of the member only.
func newWorldAs(t *testing.T, user string) *world {
	t.Helper()
	agenttest.Need(t)
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))
	w := &world{t: t, state: "state-" + name, ns: name, as: user, line: &line{}, told: make(chan string, 10_000)}
	client, err := member.New(agenttest.Config())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Discover(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.client = client
	w.start()
	t.Cleanup(func() { w.stop() })
	return w
}

// start the engine from what is stored.
func (w *world) start() {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	config := agenttest.Config()
	config.Impersonate.UserName = w.as
	config.Wrap(w.line.wrap)
	client, err := member.New(config)
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := client.Discover(ctx); err != nil {
		w.t.Fatal(err)
	}
	s, err := store.New(config, w.state, func(context.Context) bool { return true })
	if err != nil {
		w.t.Fatal(err)
	}
	contents, err := s.Open(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := Recover(ctx, client, &contents); err != nil {
		w.t.Fatal(err)
	}
	// The member is shared by tests, each of which has an agent of its own.
	contents.Records = slices.DeleteFunc(contents.Records, func(r claims.Record) bool {
		return r.Key.Namespace != w.ns && r.Key.Name != w.ns && !strings.Contains(r.Key.Name, w.ns+".")
	})
	watcher := observe.NewWatcher(client)
	w.Engine = New(Options{
		Client: client, Store: s, Held: func() bool { return true }, Fence: func(context.Context) bool { return !w.fenced.Load() },
		Policy: w.policy.Load, Watch: watcher, Changed: func(b string) { w.told <- b }, Metrics: NewMetrics(prometheus.NewRegistry()),
		Log: slog.New(slog.NewTextHandler(testWriter{w.t}, nil)),
	}, contents)
	var running sync.WaitGroup
	engine := w.Engine
	running.Go(func() { watcher.Run(ctx, engine) })
	running.Go(func() { engine.Run(ctx) })
	w.reported = map[string]atoll.RowStatus{}
	for _, b := range engine.Bundles() {
		w.told <- b
	}
	running.Go(func() { w.report(ctx, engine) })
	var once sync.Once
	w.stop = func() { once.Do(func() { cancel(); running.Wait() }) }
}

// report as the link does: only what it was told of.
func (w *world) report(ctx context.Context, engine *Engine) {
	for {
		select {
		case <-ctx.Done():
			return
		case b := <-w.told:
			s, held := engine.Status(b, nil, time.Now())
			w.mu.Lock()
			if w.reported[b] = s; !held {
				delete(w.reported, b)
			}
			w.mu.Unlock()
		}
	}
}

// fence lets the engine delete, or not.
func (w *world) fence(holds bool) { w.fenced.Store(!holds) }

type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

// item of a template in YAML, in the test's namespace unless it names one.
func (w *world) item(uid, text string) atoll.Rendered {
	w.t.Helper()
	var obj map[string]any
	if err := yaml.Unmarshal([]byte(text), &obj); err != nil {
		w.t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: obj}
	if res, ok := w.client.APIs().Lookup(u.GroupVersionKind()); u.GetNamespace() == "" && (!ok || res.Namespaced) {
		u.SetNamespace(w.ns)
	}
	return rendered(w.t, uid, u)
}

// cluster is an item of a cluster-scoped kind.
func (w *world) cluster(uid, text string) atoll.Rendered {
	w.t.Helper()
	var obj map[string]any
	if err := yaml.Unmarshal([]byte(text), &obj); err != nil {
		w.t.Fatal(err)
	}
	return rendered(w.t, uid, &unstructured.Unstructured{Object: obj})
}

func rendered(t *testing.T, uid string, u *unstructured.Unstructured) atoll.Rendered {
	t.Helper()
	body, err := json.Marshal(u.Object)
	if err != nil {
		t.Fatal(err)
	}
	gvk := u.GroupVersionKind()
	return atoll.Rendered{
		Key:        atoll.ItemKey{Group: gvk.Group, Kind: gvk.Kind, Namespace: u.GetNamespace(), Name: u.GetName()},
		APIVersion: u.GetAPIVersion(), UID: uid, Object: body, Hash: atoll.Hash(body),
	}
}

// manifest of a bundle; its content hash follows from what it says.
func manifest(bundle string, generation int64, items ...atoll.Rendered) atoll.Manifest {
	return atoll.Manifest{
		Bundle: bundle, Generation: generation, Items: items,
		ConflictResolution: v1alpha1.ConflictAbort, Removal: v1alpha1.RemoveDelete,
	}
}

func (w *world) upsert(m atoll.Manifest) {
	w.t.Helper()
	m.Content = atoll.HashJSON(m)
	if err := w.Upsert(w.t.Context(), m, store.Position{}); err != nil {
		w.t.Fatal(err)
	}
}

// status waits until the bundle's reported status is as wanted.
func (w *world) status(bundle string, want func(atoll.RowStatus) bool) atoll.RowStatus {
	w.t.Helper()
	var last atoll.RowStatus
	w.eventually("status of "+bundle, func() (bool, string) {
		s, told := w.said(bundle)
		last = s
		return told && want(s), s.Encode()
	})
	return last
}

// said is what was reported of the bundle last.
func (w *world) said(bundle string) (s atoll.RowStatus, told bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s, told = w.reported[bundle]
	return s, told
}

func (w *world) ready(bundle string, generation int64) atoll.RowStatus {
	w.t.Helper()
	return w.status(bundle, func(s atoll.RowStatus) bool {
		return s.Generation == generation && s.State == atoll.RowReady && s.Applied
	})
}

// applied waits until the member has the content; healthy or not, as autoscalers
// are in a member without metrics.
func (w *world) applied(bundle string, generation int64) {
	w.t.Helper()
	w.status(bundle, func(s atoll.RowStatus) bool { return s.Generation == generation && s.Applied })
}

func (w *world) eventually(what string, done func() (bool, string)) {
	w.t.Helper()
	last := ""
	err := wait.PollUntilContextTimeout(w.t.Context(), 20*time.Millisecond, 2*time.Minute, true, func(context.Context) (ok bool, _ error) {
		ok, last = done()
		return ok, nil
	})
	if err != nil {
		w.t.Fatalf("%s: %v; last: %s", what, err, last)
	}
}

// holds checks that something stays true for a while.
func (w *world) holds(what string, d time.Duration, ok func() (bool, string)) {
	w.t.Helper()
	_ = wait.PollUntilContextTimeout(w.t.Context(), 50*time.Millisecond, d, true, func(context.Context) (bool, error) {
		if good, last := ok(); !good {
			w.t.Fatalf("%s: %s", what, last)
		}
		return false, nil
	})
}

func (w *world) resource(key atoll.ItemKey) schema.GroupVersionResource {
	res, ok := w.client.APIs().Preferred(schema.GroupKind{Group: key.Group, Kind: key.Kind})
	if !ok {
		if _, err := w.client.Discover(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}
		if res, ok = w.client.APIs().Preferred(schema.GroupKind{Group: key.Group, Kind: key.Kind}); !ok {
			w.t.Fatalf("the member does not serve %s", key)
		}
	}
	return res.GroupVersionResource
}

func (w *world) get(key atoll.ItemKey) *unstructured.Unstructured {
	w.t.Helper()
	obj, err := w.client.Dynamic().Resource(w.resource(key)).Namespace(key.Namespace).Get(w.t.Context(), key.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return obj
}

func (w *world) exists(key atoll.ItemKey) *unstructured.Unstructured {
	w.t.Helper()
	var obj *unstructured.Unstructured
	w.eventually(key.String()+" exists", func() (bool, string) {
		obj = w.get(key)
		return obj != nil, "none"
	})
	return obj
}

func (w *world) absent(key atoll.ItemKey) {
	w.t.Helper()
	w.eventually(key.String()+" is gone", func() (bool, string) {
		obj := w.get(key)
		return obj == nil, fmt.Sprint(obj)
	})
}

// make an object by hand, as some other manager would.
func (w *world) make(text string) *unstructured.Unstructured {
	w.t.Helper()
	it := w.item("", text)
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal(it.Object, &u.Object); err != nil {
		w.t.Fatal(err)
	}
	out, err := w.client.Dynamic().Resource(w.resource(it.Key)).Namespace(it.Key.Namespace).
		Create(w.t.Context(), u, metav1.CreateOptions{FieldManager: "somebody"})
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

// makeNamespace by hand.
func (w *world) makeNamespace() {
	w.t.Helper()
	w.make("apiVersion: v1\nkind: Namespace\nmetadata: {name: " + w.ns + "}")
}

func (w *world) deleteByHand(key atoll.ItemKey) {
	w.t.Helper()
	err := w.client.Dynamic().Resource(w.resource(key)).Namespace(key.Namespace).Delete(w.t.Context(), key.Name, metav1.DeleteOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
}

// edit by hand with a merge patch.
func (w *world) edit(key atoll.ItemKey, patch string) {
	w.t.Helper()
	_, err := w.client.Dynamic().Resource(w.resource(key)).Namespace(key.Namespace).
		Patch(w.t.Context(), key.Name, "application/merge-patch+json", []byte(patch), metav1.PatchOptions{FieldManager: "somebody"})
	if err != nil {
		w.t.Fatal(err)
	}
}
