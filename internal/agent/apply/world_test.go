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
	"atoll.dev/atoll/internal/agent/member"
	"atoll.dev/atoll/internal/agent/observe"
	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/agent/policy"
	"atoll.dev/atoll/internal/agent/store"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rowcodec"
	"atoll.dev/atoll/internal/testwait"
)

var testNow = time.Unix(1_800_000_000, 0)

func TestMain(m *testing.M) { os.Exit(agenttest.RunTestsWithMember(m)) }

// world is an engine on the shared member, with its state in a namespace of its
// own.
type world struct {
	t *testing.T
	// client is the test's own, which no fault hurts.
	client *member.Client
	line   *line  // of the engine to the member
	as     string // the user of the engine in the member; empty: its administrator
	state  string // namespace of the agent's state
	ns     string // namespace that the test's objects live in
	fenced atomic.Bool
	// policy of the member's administrator; see limit.
	policy atomic.Pointer[policy.Policy]
	// changed are the Bundles that the engine reported as changed; reported is the status of each
	// at its last report.
	changedBundles chan string
	mu             sync.Mutex
	reported       map[string]atoll.RowStatus

	*MemberApplier
	stop func()
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldAs(t, "")
}

// newWorldAs is newWorld with an agent that has the rights of a user of the member only.
func newWorldAs(t *testing.T, user string) *world {
	t.Helper()
	agenttest.SkipIfShort(t)
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))
	w := &world{t: t, state: "state-" + name, ns: name, as: user, line: &line{}, changedBundles: make(chan string, 10_000)}
	client, err := member.New(agenttest.StartedMemberConfig())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.DiscoverAPIs(t.Context()); err != nil {
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
	config := agenttest.StartedMemberConfig()
	config.Impersonate.UserName = w.as
	config.Wrap(w.line.wrapTransport)
	client, err := member.New(config)
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := client.DiscoverAPIs(ctx); err != nil {
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
	if err := RecoverRecords(ctx, client, &contents); err != nil {
		w.t.Fatal(err)
	}
	// The member is shared by tests, each of which has an agent of its own.
	contents.Records = slices.DeleteFunc(contents.Records, func(r ownership.Record) bool {
		return r.Key.Namespace != w.ns && r.Key.Name != w.ns && !strings.Contains(r.Key.Name, w.ns+".")
	})
	watcher := observe.NewWatcher(client)
	w.MemberApplier = New(Options{
		Client: client, Store: s, Lease: heldLease(func() bool { return !w.fenced.Load() }),
		Policy: w.policy.Load, Watch: watcher, Changed: func(b string) { w.changedBundles <- b }, Metrics: NewMetrics(prometheus.NewRegistry()),
		Log: slog.New(slog.NewTextHandler(testWriter{w.t}, nil)),
	}, contents)
	w.observeInterval = 50 * time.Millisecond
	var running sync.WaitGroup
	engine := w.MemberApplier
	running.Go(func() { watcher.Run(ctx, engine, engine) })
	running.Go(func() { engine.Run(ctx) })
	w.reported = map[string]atoll.RowStatus{}
	engine.mu.Lock()
	held := engine.book.BundleUIDs()
	engine.mu.Unlock()
	for _, b := range held {
		w.changedBundles <- b
	}
	running.Go(func() { w.reportStatuses(ctx, engine) })
	var once sync.Once
	w.stop = func() { once.Do(func() { cancel(); running.Wait() }) }
}

// reportStatuses reports as the link does: only changed Bundles.
func (w *world) reportStatuses(ctx context.Context, engine *MemberApplier) {
	for {
		select {
		case <-ctx.Done():
			return
		case b := <-w.changedBundles:
			s, held := engine.StatusOf(b, nil, time.Now())
			w.mu.Lock()
			if w.reported[b] = s; !held {
				delete(w.reported, b)
			}
			w.mu.Unlock()
		}
	}
}

// holdFence lets the engine delete, or not.
func (w *world) holdFence(holds bool) { w.fenced.Store(!holds) }

type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

// newItem of a template in YAML, in the test's namespace unless it names one.
func (w *world) newItem(uid, text string) atoll.RenderedItem {
	w.t.Helper()
	var obj map[string]any
	if err := yaml.Unmarshal([]byte(text), &obj); err != nil {
		w.t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: obj}
	if res, ok := w.client.APIs().LookupKind(u.GroupVersionKind()); u.GetNamespace() == "" && (!ok || res.Namespaced) {
		u.SetNamespace(w.ns)
	}
	return renderItem(w.t, uid, u)
}

// newClusterItem is an item of a cluster-scoped kind.
func (w *world) newClusterItem(uid, text string) atoll.RenderedItem {
	w.t.Helper()
	var obj map[string]any
	if err := yaml.Unmarshal([]byte(text), &obj); err != nil {
		w.t.Fatal(err)
	}
	return renderItem(w.t, uid, &unstructured.Unstructured{Object: obj})
}

func renderItem(t *testing.T, uid string, u *unstructured.Unstructured) atoll.RenderedItem {
	t.Helper()
	body, err := json.Marshal(u.Object)
	if err != nil {
		t.Fatal(err)
	}
	gvk := u.GroupVersionKind()
	return atoll.RenderedItem{
		Key:        atoll.ItemKey{Group: gvk.Group, Kind: gvk.Kind, Namespace: u.GetNamespace(), Name: u.GetName()},
		APIVersion: u.GetAPIVersion(), UID: uid, Object: body, Hash: atoll.HashParts(body),
	}
}

// newManifest of a bundle; its content hash follows from what it says.
func newManifest(bundle string, generation int64, items ...atoll.RenderedItem) atoll.Manifest {
	return atoll.Manifest{
		Bundle: bundle, Generation: generation, Items: items,
		ConflictResolution: v1alpha1.ConflictAbort, Removal: v1alpha1.RemoveDelete,
	}
}

func (w *world) storeManifest(m atoll.Manifest) {
	w.t.Helper()
	m.Content = atoll.HashJSON(m)
	if err := w.UpsertManifest(w.t.Context(), m, store.Position{}); err != nil {
		w.t.Fatal(err)
	}
}

// waitForStatus waits until the bundle's reported status is as wanted.
func (w *world) waitForStatus(bundle string, want func(atoll.RowStatus) bool) atoll.RowStatus {
	w.t.Helper()
	var last atoll.RowStatus
	w.waitUntil("status of "+bundle, func() (bool, string) {
		s, isReported := w.lastStatus(bundle)
		last = s
		return isReported && want(s), rowcodec.EncodeStatus(s, nil)
	})
	return last
}

// lastStatus is what was reported of the bundle last.
func (w *world) lastStatus(bundle string) (s atoll.RowStatus, isReported bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s, isReported = w.reported[bundle]
	return s, isReported
}

func (w *world) waitForReady(bundle string, generation int64) atoll.RowStatus {
	w.t.Helper()
	return w.waitForStatus(bundle, func(s atoll.RowStatus) bool {
		return s.Generation == generation && s.State == atoll.RowReady && s.Applied
	})
}

// waitForApplied waits until the member has the content; healthy or not, as autoscalers
// are in a member without metrics.
func (w *world) waitForApplied(bundle string, generation int64) {
	w.t.Helper()
	w.waitForStatus(bundle, func(s atoll.RowStatus) bool { return s.Generation == generation && s.Applied })
}

func (w *world) waitUntil(what string, done func() (bool, string)) {
	w.t.Helper()
	testwait.Until(w.t, what, func(context.Context) (bool, string) { return done() })
}

// expectHolds checks that something stays true for a while.
func (w *world) expectHolds(what string, d time.Duration, ok func() (bool, string)) {
	w.t.Helper()
	_ = wait.PollUntilContextTimeout(w.t.Context(), 50*time.Millisecond, d, true, func(context.Context) (bool, error) {
		if good, last := ok(); !good {
			w.t.Fatalf("%s: %s", what, last)
		}
		return false, nil
	})
}

func (w *world) resourceOf(key atoll.ItemKey) schema.GroupVersionResource {
	res, ok := w.client.APIs().PreferredResource(schema.GroupKind{Group: key.Group, Kind: key.Kind})
	if !ok {
		if _, err := w.client.DiscoverAPIs(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}
		if res, ok = w.client.APIs().PreferredResource(schema.GroupKind{Group: key.Group, Kind: key.Kind}); !ok {
			w.t.Fatalf("the member does not serve %s", key)
		}
	}
	return res.GroupVersionResource
}

func (w *world) get(key atoll.ItemKey) *unstructured.Unstructured {
	w.t.Helper()
	obj, err := w.client.DynamicClient().Resource(w.resourceOf(key)).Namespace(key.Namespace).Get(w.t.Context(), key.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return obj
}

func (w *world) expectExists(key atoll.ItemKey) *unstructured.Unstructured {
	w.t.Helper()
	var obj *unstructured.Unstructured
	w.waitUntil(key.String()+" exists", func() (bool, string) {
		obj = w.get(key)
		return obj != nil, "none"
	})
	return obj
}

func (w *world) expectAbsent(key atoll.ItemKey) {
	w.t.Helper()
	w.waitUntil(key.String()+" is gone", func() (bool, string) {
		obj := w.get(key)
		return obj == nil, fmt.Sprint(obj)
	})
}

// createObject an object by hand, as some other manager would.
func (w *world) createObject(text string) *unstructured.Unstructured {
	w.t.Helper()
	it := w.newItem("", text)
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal(it.Object, &u.Object); err != nil {
		w.t.Fatal(err)
	}
	out, err := w.client.DynamicClient().Resource(w.resourceOf(it.Key)).Namespace(it.Key.Namespace).
		Create(w.t.Context(), u, metav1.CreateOptions{FieldManager: "some-controller"})
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

// makeNamespace by hand.
func (w *world) makeNamespace() {
	w.t.Helper()
	w.createObject("apiVersion: v1\nkind: Namespace\nmetadata: {name: " + w.ns + "}")
}

func (w *world) deleteByHand(key atoll.ItemKey) {
	w.t.Helper()
	err := w.client.DynamicClient().Resource(w.resourceOf(key)).Namespace(key.Namespace).Delete(w.t.Context(), key.Name, metav1.DeleteOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
}

// patchObject by hand with a merge patch.
func (w *world) patchObject(key atoll.ItemKey, patch string) {
	w.t.Helper()
	_, err := w.client.DynamicClient().Resource(w.resourceOf(key)).Namespace(key.Namespace).
		Patch(w.t.Context(), key.Name, "application/merge-patch+json", []byte(patch), metav1.PatchOptions{FieldManager: "some-controller"})
	if err != nil {
		w.t.Fatal(err)
	}
}

// heldLease is held in memory; the function returns whether the member confirms it.
type heldLease func() bool

func (heldLease) IsHeld() bool { return true }

func (l heldLease) ConfirmHeld(context.Context) bool { return l() }
