package binder

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/state"
)

// lockedTables are tables that the workers of a running Binder read and write. They report no writes.
type lockedTables struct {
	mu sync.Mutex
	*fakeTables
	numbers map[string]int64 // latest Revision, by Bundle UID
	writes  []string
	fails   error // of reading contents
}

type (
	lockedBundles struct {
		Bundles
		*lockedTables
	}
	lockedRevisions struct {
		Revisions
		*lockedTables
	}
)

func (x lockedBundles) Get(uid string) (state.Bundle, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return bundlesByUID{fakeBundles{nil, x.fakeTables}}.Get(uid)
}

func (x lockedBundles) GetByName(ns, name string) (state.Bundle, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return fakeBundles{nil, x.fakeTables}.GetByName(ns, name)
}

func (x lockedBundles) List() (out []state.Bundle) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, b := range x.bundles {
		out = append(out, b)
	}
	return out
}

func (x lockedBundles) Put(o client.Object) {
	x.mu.Lock()
	defer x.mu.Unlock()
	writtenBundles{fakeBundles{nil, x.fakeTables}}.Put(o)
}
func (lockedBundles) Subscribe(func(string)) {}

func (x lockedRevisions) LatestOfBundle(uid string) (*enginev1.Revision, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	_, ok := x.contents[uid]
	return &enginev1.Revision{ObjectMeta: metav1.ObjectMeta{Name: uid}, Spec: enginev1.RevisionSpec{Number: x.numbers[uid]}}, ok
}

func (x lockedRevisions) GetContent(_ context.Context, name string) (*atoll.Content, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.contents[name], x.fails
}

func (x lockedRevisions) CreateRevision(_ context.Context, ref enginev1.BundleRef, content *atoll.Content) (string, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.contents[ref.UID] = content
	x.numbers[ref.UID]++
	var names []string
	for _, item := range content.Items {
		names = append(names, item.Key.Name)
	}
	x.writes = append(x.writes, fmt.Sprintf("%s: %s", ref.Name, strings.Join(names, " ")))
	return ref.UID, nil
}

// takeWrites takes the Revisions that were written, sorted.
func (x *lockedTables) takeWrites() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := slices.Sorted(slices.Values(x.writes))
	x.writes = nil
	return strings.Join(out, ", ")
}

// runningHub is a Binder that runs over tables whose changes the test reports.
type runningHub struct {
	*lockedTables
	*Binder
	templates *subscribedTemplates
	policies  *subscribedPolicies
	ended     chan error
	stop      context.CancelFunc
}

// newRunningHub makes a Binder over the tables of newShopTables, without its Bundle. It needs the bubble of a synctest.
func newRunningHub(t *testing.T) *runningHub {
	t.Helper()
	l, written, _ := newWritingBinder(t)
	h := &runningHub{lockedTables: &lockedTables{fakeTables: l, numbers: map[string]int64{}}, ended: make(chan error, 1)}
	h.templates, h.policies = &subscribedTemplates{fakeTemplates: fakeTemplates{nil, nil, l}}, &subscribedPolicies{fakePolicies: fakePolicies{nil, nil, l}}
	h.Binder = New(Options{
		Templates: h.templates, Kinds: h.templates, Namespaces: &subscribedNamespaces{fakeNamespaces: fakeNamespaces{l}}, Policies: h.policies, Overrides: fakePolicies{nil, nil, l},
		Bundles: lockedBundles{nil, h.lockedTables}, Rows: &subscribedRows{}, Clusters: &subscribedClusters{}, Revisions: lockedRevisions{nil, h.lockedTables}, Client: written.Client, Log: written.Log,
	})
	return h
}

// startRun runs the Binder until stop or the end of the test.
func (h *runningHub) startRun(t *testing.T) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	h.stop = stop
	go func() { h.ended <- h.Run(ctx) }()
	synctest.Wait()
}

// addBundle adds a Bundle of policy web that has the content of its templates already.
func (h *runningHub) addBundle(t *testing.T) {
	t.Helper()
	_, b := newShopTables(t)
	id := policymatch.BundleID{Namespace: "shop", Name: "web"}
	bundle := &v1alpha1.Bundle{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: v1alpha1.BundleSpec{Source: v1alpha1.BundleSource{Kind: policyKind, Name: "web", UID: "uid-x"}, Placement: atoll.WithPlacementDefaults(v1alpha1.PlacementSpec{})}}
	if err := h.Client.Create(t.Context(), bundle); err != nil {
		t.Fatal(err)
	}
	h.bundles[id], _ = state.BundleOf(bundle)
	h.contents[string(bundle.UID)], _ = b.Revisions.GetContent(t.Context(), "b-1-0")
	h.numbers[string(bundle.UID)] = 7
}

// A hub that starts binds what changed while it was away, and writes nothing else. Its end ends Run, and later events
// are dropped.
func TestAStartBindsWhatChangedMeanwhile(t *testing.T) {
	web := atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}
	for what, tc := range map[string]struct {
		change func(h *runningHub)
		want   string
	}{
		"nothing":       {func(*runningHub) {}, ""},
		"another image": {func(h *runningHub) { h.fakeTables.templates[web] = newDeployment("shop", "web", "web:2", 2) }, "web: api web"},
		"one object more": {func(h *runningHub) {
			h.putObject("Deployment", "shop", "db", nil).SetFinalizers([]string{atoll.Finalizer})
		}, "web: api db web"},
	} {
		synctest.Test(t, func(t *testing.T) {
			h := newRunningHub(t)
			h.addBundle(t)
			tc.change(h)
			h.startRun(t)
			time.Sleep(time.Second)
			synctest.Wait()
			if got := h.takeWrites(); got != tc.want || !h.IsLoaded() {
				t.Errorf("%s: revisions %q, want %q; loaded %t", what, got, tc.want, h.IsLoaded())
			}
			h.stop()
			if err := <-h.ended; err != nil {
				t.Errorf("%s: Run ends with %v", what, err)
			}
			h.templates.changed(web)
			if e, ok := h.events.takeNext(); ok {
				t.Errorf("%s: after its end it takes %+v", what, e)
			}
		})
	}
}

// A Bundle that exists is bound at its first change, and 200 ms after the last one of several. A new Bundle waits for
// all its objects, unless it is one object.
func TestWhenABundleIsBound(t *testing.T) {
	api, web := atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "api"}, atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}
	synctest.Test(t, func(t *testing.T) {
		h := newRunningHub(t)
		h.startRun(t)
		expect := func(what string, after time.Duration, want string) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			if got := h.takeWrites(); !matchesExpected(want, got) {
				t.Errorf("%s: revisions %q, want %q", what, got, want)
			}
		}
		expect("a new Bundle", 200*time.Millisecond-1, "")
		expect("a new Bundle, later", 1, "web: api web")
		time.Sleep(time.Second)
		edit := func(key atoll.ItemKey, generation int64) {
			h.fakeTables.templates[key] = newDeployment("shop", key.Name, "i", generation)
			h.templates.changed(key)
			synctest.Wait()
		}
		edit(web, 2)
		expect("its first change", 0, "web: api web")
		edit(api, 2)
		expect("the second", 200*time.Millisecond-1, "")
		edit(web, 3)
		expect("the third", 200*time.Millisecond-1, "")
		expect("the third, later", 1, "web: api web")
		time.Sleep(time.Second)
		one := h.putObject("ConfigMap", "shop", "one", nil)
		one.SetAnnotations(map[string]string{atoll.AnnotationClusters: "oslo"})
		one.SetFinalizers([]string{atoll.Finalizer})
		h.templates.changed(policymatch.ItemKeyOf(one))
		expect("a Bundle of one object", 0, "configmap-one-*: one")
	})
}

// A hub that does not lead plans the same and writes nothing, not even a status.
func TestAHubThatDoesNotLeadWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newRunningHub(t)
		h.ReadOnly = true
		h.overrides = []*v1alpha1.OverridePolicy{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "o"}}}
		h.startRun(t)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := h.takeWrites(); got != "" || len(h.bundles) > 0 || h.policyStatus.loop.CountReady() > 0 {
			t.Errorf("revisions %q, bundles %v", got, h.bundles)
		}
		if from, keys := h.ownership.originAndPlacedKeys(policymatch.BundleID{Namespace: "shop", Name: "web"}); len(keys) != 2 || from.source.Name != "web" {
			t.Errorf("it places %v by %+v", keys, from)
		}
	})
}

// A hub that cannot read the contents of its Bundles ends with an error that names the Bundle.
func TestAStartFailsWithoutTheContents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newRunningHub(t)
		h.addBundle(t)
		h.fails = errors.New("the store is away")
		h.startRun(t)
		if err := <-h.ended; err == nil || err.Error() != "bind: read the latest content of bundle shop/web: the store is away" || h.IsLoaded() {
			t.Errorf("Run ends with %v, loaded %t", err, h.IsLoaded())
		}
	})
}

// A start changes no item before it has decided about it: one is Unclaimed once nothing places its template.
func TestAStartCallsNothingUnclaimedBeforeItIsDecided(t *testing.T) {
	h := newRunningHub(t)
	h.addBundle(t)
	id := policymatch.BundleID{Namespace: "shop", Name: "web"}
	api, web := atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "api"}, atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}
	if err := h.loadInitialState(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.loaded.Store(true)
	for _, step := range []struct {
		what   string
		change func()
		want   string
		states string // of api and web
	}{
		{"nothing is decided", func() {}, "", " "},
		{"one is decided", func() { h.handleEvent(tableEvent{template: api}) }, "", " "},
		{"both are decided", func() { h.handleEvent(tableEvent{template: web}) }, "", " "},
		{"nothing selects one", func() {
			h.lockedTables.policies[0] = newPolicy("web", "web")
			h.handleEvent(tableEvent{policy: PolicyKey{policyKind, "shop", "web"}})
			for _, e := range takeAllEvents(h.events) {
				h.handleEvent(e)
			}
		}, "web: api web", "Unclaimed "},
	} {
		step.change()
		if _, err := h.reconcileBundle(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		items := h.contents[h.bundles[id].Ref.UID].Items
		if got, states := h.takeWrites(), string(items[0].State)+" "+string(items[1].State); got != step.want || states != step.states {
			t.Errorf("%s: revisions %q, want %q; states %q, want %q", step.what, got, step.want, states, step.states)
		}
	}
	if undecided := h.ownership.bundles[id].undecided; len(undecided) > 0 {
		t.Errorf("%v are not decided", undecided)
	}
}

// A template that is gone when the hub starts is not chosen, and nothing of it is kept: it has no place to wait for.
// While its kind is not read, its absence proves nothing: it is chosen once it is read.
func TestAStartChoosesNothingThatIsGone(t *testing.T) {
	for what, tc := range map[string]struct {
		unread         string // kind, while the first plan is made
		want, wantRead int    // undecided items after the first plan; chosen items after all kinds are read
	}{
		"all is read": {"", 0, 0}, "the kind is not read": {"Deployment", 2, 2},
	} {
		h := newRunningHub(t)
		h.addBundle(t)
		id := policymatch.BundleID{Namespace: "shop", Name: "web"}
		templates := maps.Clone(h.fakeTables.templates)
		clear(h.fakeTables.templates)
		if err := h.loadInitialState(t.Context()); err != nil {
			t.Fatal(err)
		}
		all := h.templates.fakeTemplates
		h.Kinds = unsyncedKind{all, tc.unread}
		p, err := h.preparePlan(t.Context(), id, h.bundles[id], true)
		if undecided := h.ownership.bundles[id].undecided; err != nil || len(p.input.Chosen) > 0 || len(undecided) != tc.want {
			t.Errorf("%s: it chooses %v, %v; undecided are %v", what, p.input.Chosen, err, undecided)
		}
		h.Kinds = all
		maps.Copy(h.fakeTables.templates, templates)
		if p, err = h.preparePlan(t.Context(), id, h.bundles[id], true); err != nil || len(p.input.Chosen) != tc.wantRead {
			t.Errorf("%s: when they are read it chooses %v, %v", what, p.input.Chosen, err)
		}
	}
}

// A hub that leads writes the statuses of override policies and of policies after its start. Another hub writes none.
func TestOnlyALeaderWritesStatuses(t *testing.T) {
	for readOnly, want := range map[bool]string{false: "all own web", true: ""} {
		synctest.Test(t, func(t *testing.T) {
			h := newRunningHub(t)
			var mu sync.Mutex
			var written []string
			h.ReadOnly, h.Client = readOnly, fake.NewClientBuilder().WithScheme(h.Client.Scheme()).WithInterceptorFuncs(interceptor.Funcs{
				SubResourcePatch: func(_ context.Context, _ client.Client, _ string, o client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
					mu.Lock()
					defer mu.Unlock()
					written = append(written, o.GetName())
					return nil
				},
			}).Build()
			h.overrides = []*v1alpha1.OverridePolicy{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "own"}}}
			h.Overrides = overrideTable{Overrides: h.Overrides, own: h.overrides, all: []*v1alpha1.ClusterOverridePolicy{{ObjectMeta: metav1.ObjectMeta{Name: "all"}}}}
			h.startRun(t)
			time.Sleep(time.Minute)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			slices.Sort(written)
			if got := strings.Join(slices.Compact(written), " "); got != want {
				t.Errorf("a hub that only reads %t writes the statuses of %q, want %q", readOnly, got, want)
			}
		})
	}
}

// A Binder makes a cache of fingerprints of its own, or uses the one that others share.
func TestABinderHasACacheOfFingerprints(t *testing.T) {
	h := newRunningHub(t)
	if h.Fingerprints == nil {
		t.Error("it has none")
	}
	shared := &FingerprintCache{}
	o := h.Options
	if o.Fingerprints = shared; New(o).Fingerprints != shared {
		t.Error("it does not use the shared one")
	}
}

// A fingerprint stays while only machinery writes, changes with a user's write, and is kept for the table's object.
func TestFingerprintsFollowUsers(t *testing.T) {
	cache := &FingerprintCache{}
	web := newDeployment("shop", "web", "web:1", 1)
	first := cache.FingerprintOf(web)
	status := web.DeepCopy()
	status.Object["status"] = map[string]any{"replicas": int64(1)}
	if cache.FingerprintOf(web) != first || cache.FingerprintOf(status) != first || cache.entries[policymatch.ItemKeyOf(web)].template != status {
		t.Error("a status changes the fingerprint, or is not remembered")
	}
	var none *FingerprintCache
	edited := newDeployment("shop", "web", "web:2", 2)
	if got := cache.FingerprintOf(edited); got == first || got != none.FingerprintOf(edited) || first != none.FingerprintOf(web) {
		t.Errorf("the fingerprints are %q and %q", first, got)
	}
	none.removeTemplate(policymatch.ItemKeyOf(web))
	if cache.removeTemplate(policymatch.ItemKeyOf(web)); len(cache.entries) > 0 {
		t.Error("a deleted template is remembered")
	}
}
