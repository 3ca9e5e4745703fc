package direct

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"
	"sigs.k8s.io/controller-runtime/pkg/client"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/apiserver/etcd"
	"atoll.dev/atoll/internal/testwait"
)

func sampleCluster(name string) *v1alpha1.Cluster {
	return &v1alpha1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u-1", Generation: 3, Labels: map[string]string{"tier": "edge"}},
		Spec:       v1alpha1.ClusterSpec{Accepted: true, Region: "asia"},
		Status: v1alpha1.ClusterStatus{
			KubernetesVersion: "v1.36.3",
			Resources:         v1alpha1.ResourceSummary{Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}},
		},
	}
}

func sampleSlice(name string) *enginev1.TargetSlice {
	return &enginev1.TargetSlice{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{enginev1.LabelBundle: "b"}},
		Spec:       enginev1.TargetSliceSpec{Bundle: enginev1.BundleRef{UID: "b", Name: "n"}, Words: []string{"w"}, Rows: "a 1\n"},
	}
}

// bed is an etcd with a store of Clusters on it.
type bed struct {
	t     *testing.T
	dir   string
	etcd  *etcd.EmbeddedEtcd
	raw   *clientv3.Client
	store *Store
	close func()
}

func newBed(t *testing.T) *bed {
	t.Helper()
	dir, err := os.MkdirTemp("", "e") // short, so that the socket has one name for good
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	b := &bed{t: t, dir: dir}
	b.start()
	t.Cleanup(func() { b.etcd.Stop() })
	if b.raw, err = b.etcd.NewClient(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.raw.Close() })
	b.store, b.close = b.open()
	t.Cleanup(func() { b.close() })
	return b
}

func (b *bed) start() {
	b.t.Helper()
	var err error
	if b.etcd, err = etcd.Start(b.t.Context(), etcd.Options{Dir: b.dir, Logger: slog.New(slog.DiscardHandler), UnsafeNoFsync: true}); err != nil {
		b.t.Fatal(err)
	}
}

// open a hub's store.
func (b *bed) open() (*Store, func()) {
	b.t.Helper()
	kind := ClusterKind()
	config := storagebackend.NewDefaultConfig("/registry", nil).ForResource(kind.groupResource())
	config.Transport.ServerList = []string{b.etcd.ClientEndpoint()}
	s, closed, err := Open(kind, Access{
		Options: generic.RESTOptions{StorageConfig: config, ResourcePrefix: "atoll.dev/clusters"},
		Etcd:    b.raw, Writes: NewWriteCounter(), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return s, sync.OnceFunc(closed)
}

// put an object as the API stores it, and give its revision.
func (b *bed) put(obj client.Object) int64 {
	b.t.Helper()
	obj.GetObjectKind().SetGroupVersionKind(ClusterKind().GroupVersionKind)
	data, err := json.Marshal(obj)
	if err != nil {
		b.t.Fatal(err)
	}
	return b.putRaw(obj.GetName(), string(data))
}

func (b *bed) putRaw(name, data string) int64 {
	b.t.Helper()
	resp, err := b.raw.Put(b.t.Context(), clusterKey(name), data)
	if err != nil {
		b.t.Fatal(err)
	}
	return resp.Header.Revision
}

func (b *bed) remove(name string) {
	b.t.Helper()
	if _, err := b.raw.Delete(b.t.Context(), clusterKey(name)); err != nil {
		b.t.Fatal(err)
	}
}

// compactStore everything that was.
func (b *bed) compactStore() {
	b.t.Helper()
	now, err := b.raw.Get(b.t.Context(), "/")
	if err == nil {
		_, err = b.raw.Compact(b.t.Context(), now.Header.Revision)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

func clusterKey(name string) string { return "/registry/atoll.dev/clusters/" + name }

func clusterInRegion(region, name string) *v1alpha1.Cluster {
	c := sampleCluster(name)
	c.Spec.Region = region
	return c
}

// table is an informer's, and what it may ask the API.
type table struct {
	t   *testing.T
	has toolscache.SharedIndexInformer
}

func newTable(t *testing.T, lw toolscache.ListerWatcher) table {
	t.Helper()
	tab := table{t, toolscache.NewSharedIndexInformer(lw, &v1alpha1.Cluster{}, 0, toolscache.Indexers{})}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tab.has.RunWithContext(ctx)
	}()
	t.Cleanup(func() { stop(); <-done })
	if !toolscache.WaitForCacheSync(ctx.Done(), tab.has.HasSynced) {
		t.Fatal("never synced")
	}
	return tab
}

// expectRows waits until the table has these regions by name, and nothing else.
func (tab table) expectRows(want map[string]string) {
	tab.t.Helper()
	testwait.Until(tab.t, fmt.Sprint("the table is ", want), func(context.Context) (bool, string) {
		got := map[string]string{}
		for _, o := range tab.has.GetStore().List() {
			got[o.(*v1alpha1.Cluster).Name] = o.(*v1alpha1.Cluster).Spec.Region
		}
		return fmt.Sprint(got) == fmt.Sprint(want), fmt.Sprint("the table has ", got)
	})
}

// noAPI fails the test when it is asked.
func noAPI(t *testing.T) toolscache.ListerWatcher {
	return &toolscache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			t.Error("the API was asked for a list")
			return &v1alpha1.ClusterList{}, nil
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
			t.Error("the API was asked for a watch")
			return watch.NewFake(), nil
		},
	}
}

func TestATableFollowsTheStoreAndItsRestart(t *testing.T) {
	b := newBed(t)
	b.put(clusterInRegion("asia", "a"))
	tab := newTable(t, Stores{Clusters: b.store}.ListerWatcherFor(&v1alpha1.Cluster{}, noAPI(t)))
	tab.expectRows(map[string]string{"a": "asia"})
	b.put(clusterInRegion("europe", "a"))
	b.put(clusterInRegion("asia", "b"))
	tab.expectRows(map[string]string{"a": "europe", "b": "asia"})
	b.etcd.Stop()
	b.start()
	b.put(clusterInRegion("africa", "b"))
	b.remove("a")
	tab.expectRows(map[string]string{"b": "africa"})
}

// gate is what lists and watches through it can be cut by.
type gate struct {
	toolscache.ListerWatcherWithContext
	mu      sync.Mutex
	open    chan struct{}
	watches []watch.Interface
	begun   []metav1.ListOptions
}

func (g *gate) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	select {
	case <-open:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	w, err := g.WatchWithContext(ctx, o)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.watches, g.begun = append(g.watches, w), append(g.begun, o)
	return w, err
}

// shutGate ends all watches and lets none begin before what it gives is called.
func (g *gate) shutGate() (open func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	again := make(chan struct{})
	g.open = again
	for _, w := range g.watches {
		w.Stop()
	}
	return func() { close(again) }
}

func TestATableWhoseWatchWasDownOverACompaction(t *testing.T) {
	b := newBed(t)
	b.put(clusterInRegion("asia", "a"))
	b.put(clusterInRegion("asia", "b"))
	open := make(chan struct{})
	close(open)
	g := &gate{ListerWatcherWithContext: toolscache.ToListerWatcherWithContext(Stores{Clusters: b.store}.ListerWatcherFor(&v1alpha1.Cluster{}, noAPI(t))), open: open}
	tab := newTable(t, &toolscache.ListWatch{ListWithContextFunc: g.ListWithContext, WatchFuncWithContext: g.watch})
	b.put(clusterInRegion("europe", "b"))
	tab.expectRows(map[string]string{"a": "asia", "b": "europe"})
	reopen := g.shutGate()
	b.remove("a")
	b.put(clusterInRegion("africa", "b"))
	b.put(clusterInRegion("asia", "c"))
	b.compactStore()
	reopen()
	tab.expectRows(map[string]string{"b": "africa", "c": "asia"})
	g.mu.Lock()
	defer g.mu.Unlock()
	// The first list is a stream. The watch of the compacted past fails, then one lists again.
	if n := len(g.begun); n < 3 || g.begun[0].SendInitialEvents == nil || g.begun[n-1].SendInitialEvents == nil {
		t.Errorf("watches began with %+v", g.begun)
	}
}

func TestWatchOfACompactedPastHasExpired(t *testing.T) {
	b := newBed(t)
	first := b.put(clusterInRegion("asia", "a"))
	b.put(clusterInRegion("europe", "a"))
	b.put(clusterInRegion("africa", "a"))
	b.compactStore()
	w, err := b.store.Watch(t.Context(), metav1.ListOptions{ResourceVersion: strconv.FormatInt(first, 10)})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	e := <-w.ResultChan()
	if err := apierrors.FromObject(e.Object); e.Type != watch.Error || !apierrors.IsResourceExpired(err) {
		t.Errorf("reported %v", e)
	}
	_, err = b.store.List(t.Context(), metav1.ListOptions{ResourceVersion: strconv.FormatInt(first, 10), ResourceVersionMatch: metav1.ResourceVersionMatchExact})
	if !apierrors.IsResourceExpired(err) {
		t.Errorf("a list of the past: %v", err)
	}
	_, err = b.store.List(t.Context(), metav1.ListOptions{ResourceVersion: strconv.FormatInt(first+1_000_000, 10)})
	if !apierrors.IsTimeout(err) || !apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
		t.Errorf("a list of the future: %v", err)
	}
}

func TestAStreamedListThenEvents(t *testing.T) {
	b := newBed(t)
	b.put(clusterInRegion("asia", "a"))
	last := b.put(clusterInRegion("asia", "b"))
	yes := true
	w, err := b.store.Watch(t.Context(), metav1.ListOptions{
		SendInitialEvents: &yes, AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	next := func(kind watch.EventType, name string) *v1alpha1.Cluster {
		t.Helper()
		e := <-w.ResultChan()
		c, ok := e.Object.(*v1alpha1.Cluster)
		if !ok || e.Type != kind || c.Name != name {
			t.Fatalf("reported %v, want %s of %q", e, kind, name)
		}
		return c
	}
	next(watch.Added, "a")
	next(watch.Added, "b")
	end := next(watch.Bookmark, "")
	if end.Annotations[metav1.InitialEventsAnnotationKey] != "true" || end.ResourceVersion != strconv.FormatInt(last, 10) {
		t.Errorf("the list ends with %+v", end)
	}
	b.put(clusterInRegion("europe", "a"))
	if got := next(watch.Modified, "a"); got.Spec.Region != "europe" {
		t.Errorf("reported %+v", got)
	}
	b.remove("b")
	next(watch.Deleted, "b")
}

func TestAQuietWatchHearsHowFarTheStoreIs(t *testing.T) {
	b := newBed(t)
	b.store.progress = 10 * time.Millisecond
	from := b.put(clusterInRegion("asia", "a"))
	w, err := b.store.Watch(t.Context(), metav1.ListOptions{ResourceVersion: strconv.FormatInt(from, 10), AllowWatchBookmarks: true})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	other, err := b.raw.Put(t.Context(), "/registry/other", "x")
	if err != nil {
		t.Fatal(err)
	}
	for e := range w.ResultChan() {
		if e.Type != watch.Bookmark {
			t.Fatalf("reported %v", e)
		}
		if at, err := strconv.ParseInt(e.Object.(*v1alpha1.Cluster).ResourceVersion, 10, 64); err != nil || at >= other.Header.Revision {
			return
		}
	}
	t.Fatal("the watch ended")
}

func TestAWatchEndsWithItsTime(t *testing.T) {
	b := newBed(t)
	second := int64(1)
	w, err := b.store.Watch(t.Context(), metav1.ListOptions{ResourceVersion: "1", TimeoutSeconds: &second})
	if err != nil {
		t.Fatal(err)
	}
	for e := range w.ResultChan() {
		t.Errorf("reported %v", e)
	}
}

func TestSelectors(t *testing.T) {
	b := newBed(t)
	b.put(clusterInRegion("asia", "a"))
	cloud := clusterInRegion("asia", "b")
	cloud.Labels["tier"] = "cloud"
	b.put(cloud)
	names := func(o metav1.ListOptions) (out string) {
		t.Helper()
		list, err := b.store.List(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range list.(*v1alpha1.ClusterList).Items {
			out += c.Name
		}
		return out
	}
	for want, o := range map[string]metav1.ListOptions{
		"ab": {}, "a": {LabelSelector: "tier=edge"}, "b": {FieldSelector: "metadata.name=b"}, "": {LabelSelector: "tier=edge", FieldSelector: "metadata.name=b"},
	} {
		if got := names(o); got != want {
			t.Errorf("%+v selects %q, want %q", o, got, want)
		}
	}
	yes := true
	for what, o := range map[string]metav1.ListOptions{
		"unknown field": {FieldSelector: "spec.region=asia"}, "no selector": {LabelSelector: "a in ("},
	} {
		if _, err := b.store.List(t.Context(), o); !apierrors.IsBadRequest(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := b.store.List(t.Context(), metav1.ListOptions{SendInitialEvents: &yes}); !apierrors.IsInvalid(err) {
		t.Errorf("a list that streams: %v", err)
	}
	w, err := b.store.Watch(t.Context(), metav1.ListOptions{ResourceVersion: "1", LabelSelector: "tier=cloud"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	cloud.Labels["tier"] = "edge"
	b.put(cloud)
	for _, want := range []watch.EventType{watch.Added, watch.Deleted} {
		if e := <-w.ResultChan(); e.Type != want || e.Object.(*v1alpha1.Cluster).Name != "b" {
			t.Errorf("reported %v, want %s of b", e, want)
		}
	}
}

// createClusters the store with that many Clusters.
func (b *bed) createClusters(n int) {
	b.t.Helper()
	var puts []clientv3.Op
	for i := range n {
		if len(puts) == 1000 {
			b.commit(puts)
			puts = nil
		}
		c := clusterInRegion("asia", fmt.Sprintf("c-%05d", i))
		c.SetGroupVersionKind(ClusterKind().GroupVersionKind)
		data, err := json.Marshal(c)
		if err != nil {
			b.t.Fatal(err)
		}
		puts = append(puts, clientv3.OpPut(clusterKey(c.Name), string(data)))
	}
	b.commit(puts)
}

func (b *bed) commit(puts []clientv3.Op) {
	b.t.Helper()
	if _, err := b.raw.Txn(b.t.Context()).Then(puts...).Commit(); err != nil {
		b.t.Fatal(err)
	}
}

func TestPages(t *testing.T) {
	const many = 10_000
	b := newBed(t)
	b.createClusters(many)
	t.Run("one moment in all", func(t *testing.T) {
		pages := 0
		list, _, err := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			page, err := b.store.List(ctx, o)
			if pages++; pages == 3 {
				b.put(clusterInRegion("europe", "c-09999"))
			}
			return page, err
		}).List(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			t.Fatal(err)
		}
		region, n := regionOf(t, list, "c-09999")
		if n != many || pages != many/500 || region != "asia" {
			t.Errorf("%d in %d pages, the last one in %s", n, pages, region)
		}
	})
	t.Run("compacted between pages", func(t *testing.T) {
		pages := 0
		list, _, err := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			if pages++; pages == 3 {
				b.put(clusterInRegion("africa", "c-00000"))
				b.compactStore()
			}
			return b.store.List(ctx, o)
		}).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if region, n := regionOf(t, list, "c-00000"); n != many || region != "africa" || pages != 4 {
			t.Errorf("%d after %d asked, the first one in %s", n, pages, region)
		}
	})
	t.Run("the hub ends between pages", func(t *testing.T) {
		hub, end := b.open()
		pages := 0
		_, _, err := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			if pages++; pages == 3 {
				end()
			}
			return hub.List(ctx, o)
		}).List(t.Context(), metav1.ListOptions{})
		if err == nil {
			t.Error("a list that was cut off counts as whole")
		}
		next, endNext := b.open()
		defer endNext()
		if tab := newTable(t, Stores{Clusters: next}.ListerWatcherFor(&v1alpha1.Cluster{}, noAPI(t))); len(tab.has.GetStore().List()) != many {
			t.Errorf("the next hub has %d", len(tab.has.GetStore().List()))
		}
	})
}

// regionOf one of a list's, and how many there are.
func regionOf(t *testing.T, list runtime.Object, name string) (region string, n int) {
	t.Helper()
	err := (&pager.ListPager{PageFn: func(context.Context, metav1.ListOptions) (runtime.Object, error) { return list, nil }}).EachListItem(t.Context(), metav1.ListOptions{}, func(o runtime.Object) error {
		if c := o.(*v1alpha1.Cluster); c.Name == name {
			region = c.Spec.Region
		}
		n++
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return region, n
}

// byAPI stands for the API, which converts what another version stored.
type byAPI struct {
	mu     sync.Mutex
	lists  int
	events *watch.FakeWatcher
}

func (a *byAPI) list(context.Context, metav1.ListOptions) (runtime.Object, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lists++
	return &v1alpha1.ClusterList{ListMeta: metav1.ListMeta{ResourceVersion: "100"}, Items: []v1alpha1.Cluster{*clusterInRegion("converted", "a"), *clusterInRegion("converted", "b")}}, nil
}

// watch does not stream lists.
func (a *byAPI) watch(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if o.SendInitialEvents != nil {
		return nil, apierrors.NewBadRequest("no")
	}
	return a.events, nil
}

func TestAnObjectOfAnotherVersionIsLeftToTheAPI(t *testing.T) {
	const newer = `{"apiVersion":"atoll.dev/v2","kind":"Cluster","metadata":{"name":"b"},"spec":{"region":"asia"}}`
	for when, later := range map[string]bool{"at the first list": false, "in the watch": true} {
		t.Run(when, func(t *testing.T) {
			b := newBed(t)
			b.put(clusterInRegion("asia", "a"))
			api := &byAPI{events: watch.NewFake()}
			lw := Stores{Clusters: b.store}.ListerWatcherFor(&v1alpha1.Cluster{}, &toolscache.ListWatch{ListWithContextFunc: api.list, WatchFuncWithContext: api.watch})
			if !later {
				b.putRaw("b", newer)
			}
			tab := newTable(t, lw)
			if later {
				tab.expectRows(map[string]string{"a": "asia"})
				b.putRaw("b", newer)
			}
			tab.expectRows(map[string]string{"a": "converted", "b": "converted"})
			api.events.Modify(clusterInRegion("watched", "b"))
			tab.expectRows(map[string]string{"a": "converted", "b": "watched"})
		})
	}
}
