package place

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

// memory is a hub's tables in memory, with the same fencing as the store's.
type memory struct {
	mu        sync.Mutex
	bundles   map[string]state.Bundle
	rows      map[string]map[string]state.Row
	clusters  map[string]*v1alpha1.Cluster
	online    map[string]bool
	revisions map[string][]*enginev1.Revision
	contents  map[string]*atoll.Content
	spaces    map[string]*corev1.Namespace
	holding   bool

	onBundle  []func(string)
	onRows    []func(string, []string, []string)
	onCluster []func(string)
	onRev     []func(string)
	onSpace   []func(string)
	onHub     []func()

	// writes counts calls of WriteSpecs that changed something; looks counts steps.
	// reads counts rows that were read one by one.
	writes, looks, reads int
	fail                 error
	beforeWrite          func() // once
	warnings             []string
}

func newMemory() *memory {
	return &memory{
		bundles: map[string]state.Bundle{}, rows: map[string]map[string]state.Row{},
		clusters: map[string]*v1alpha1.Cluster{}, online: map[string]bool{},
		revisions: map[string][]*enginev1.Revision{}, contents: map[string]*atoll.Content{},
		spaces: map[string]*corev1.Namespace{},
	}
}

type (
	memBundles    struct{ *memory }
	memRows       struct{ *memory }
	memClusters   struct{ *memory }
	memRevisions  struct{ *memory }
	memNamespaces struct{ *memory }
	memHub        struct{ *memory }
	memEvents     struct{ *memory }
)

func (m *memory) config() Config {
	return Config{
		Bundles: memBundles{m}, Rows: memRows{m}, Clusters: memClusters{m}, Revisions: memRevisions{m},
		Namespaces: memNamespaces{m}, Hub: memHub{m}, Events: memEvents{m},
	}
}

func (m memBundles) Get(uid string) (state.Bundle, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b, ok := m.bundles[uid]
	return b, ok
}

func (m memBundles) List() (out []state.Bundle) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, b := range m.bundles {
		out = append(out, b)
	}
	return out
}

func (m memBundles) InNamespace(ns string) []state.Bundle {
	return slices.DeleteFunc(m.List(), func(b state.Bundle) bool { return b.Ref.Namespace != ns })
}

func (m memBundles) Subscribe(fn func(string)) { m.onBundle = append(m.onBundle, fn) }

func (m memRows) Get(uid, cluster string) (state.Row, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads++
	r, ok := m.rows[uid][cluster]
	return r, ok
}

func (m memRows) OfBundle(uid string) (out []state.Row) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.looks++
	for _, r := range m.rows[uid] {
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b state.Row) int { return strings.Compare(a.Cluster, b.Cluster) })
	return out
}

func (m memRows) OfCluster(uid string) (out []state.Row) {
	m.mu.Lock()
	defer m.mu.Unlock()
	name, _, _ := strings.Cut(strings.TrimPrefix(uid, "uid-"), "-")
	for _, rows := range m.rows {
		if r, ok := rows[name]; ok && r.Spec.UID == uid {
			out = append(out, r)
		}
	}
	return out
}

// PodsOf the rows that are to stay in a cluster.
func (m memRows) PodsOf(uid string) (n int64) {
	for _, r := range m.OfCluster(uid) {
		if r.Spec.Phase == atoll.RowActive {
			n += max(r.Spec.Pods, 1)
		}
	}
	return n
}

func (m memRows) WriteSpecs(_ context.Context, ref enginev1.BundleRef, base []state.Row, changes map[string]*atoll.RowSpec) error {
	if len(changes) == 0 {
		return nil
	}
	m.mu.Lock()
	if err := m.fail; err != nil {
		m.fail = nil
		m.mu.Unlock()
		return err
	}
	if fn := m.beforeWrite; fn != nil {
		m.beforeWrite = nil
		m.mu.Unlock()
		fn()
		m.mu.Lock()
	}
	was := map[string]string{}
	for _, r := range base {
		was[r.Cluster] = r.Spec.Encode()
	}
	var changed []string
	for c := range changes {
		is := ""
		if r, ok := m.rows[ref.UID][c]; ok {
			is = r.Spec.Encode()
		}
		if is != was[c] {
			m.mu.Unlock()
			return fmt.Errorf("cluster %s: %w", c, state.ErrRowsMoved)
		}
	}
	m.writes++
	for c, spec := range changes {
		changed = append(changed, c)
		if spec == nil {
			delete(m.rows[ref.UID], c)
			continue
		}
		r := m.rows[ref.UID][c]
		if r.Spec.UID != spec.UID {
			r.Status = nil
		}
		r.Bundle, r.Cluster, r.Spec = ref, c, *spec
		if m.rows[ref.UID] == nil {
			m.rows[ref.UID] = map[string]state.Row{}
		}
		m.rows[ref.UID][c] = r
	}
	m.mu.Unlock()
	for _, fn := range m.onRows {
		fn(ref.UID, changed, changed)
	}
	return nil
}
func (m memRows) SubscribeOrders(fn func(string, []string, []string)) {
	m.onRows = append(m.onRows, fn)
}

func (m memClusters) Get(name string) (*v1alpha1.Cluster, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, ok := m.clusters[name]
	return c, ok
}

func (m memClusters) List() (out []*v1alpha1.Cluster) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.clusters {
		out = append(out, c)
	}
	return out
}

func (m memClusters) Online(uid string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.online[uid]
}
func (m memClusters) Subscribe(fn func(string)) { m.onCluster = append(m.onCluster, fn) }

func (m memRevisions) Latest(uid string) (*enginev1.Revision, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.revisions[uid]
	if len(all) == 0 {
		return nil, false
	}
	return all[len(all)-1], true
}

func (m memRevisions) Content(_ context.Context, name string) (*atoll.Content, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c, ok := m.contents[name]; ok {
		return c, nil
	}
	return nil, fmt.Errorf("no revision %s", name)
}
func (m memRevisions) Subscribe(fn func(string)) { m.onRev = append(m.onRev, fn) }

func (m memNamespaces) Get(name string) (*corev1.Namespace, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ns, ok := m.spaces[name]
	return ns, ok
}
func (m memNamespaces) Subscribe(fn func(string)) { m.onSpace = append(m.onSpace, fn) }

func (m memHub) Holding() (string, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return "restored", m.holding
}
func (m memHub) GenerationFloor() int64 { return 7 }
func (m memHub) Subscribe(fn func())    { m.onHub = append(m.onHub, fn) }

func (m memEvents) Warn(b enginev1.BundleRef, reason, message string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.warnings = append(m.warnings, b.Name+" "+reason+": "+message)
}

// told are the warnings so far.
func (m *memory) told() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.warnings)
}

// What users, members and other parts of the hub do.

func (m *memory) cluster(name string, change func(*v1alpha1.Cluster)) {
	m.mu.Lock()
	c := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)}, Spec: v1alpha1.ClusterSpec{Accepted: true}}
	if old, ok := m.clusters[name]; ok {
		c = old.DeepCopy()
	} else {
		m.online["uid-"+name] = true
	}
	if change != nil {
		change(c)
	}
	m.clusters[name] = c
	m.mu.Unlock()
	for _, fn := range m.onCluster {
		fn(name)
	}
}

func (m *memory) deleteCluster(name string) {
	m.mu.Lock()
	delete(m.clusters, name)
	m.mu.Unlock()
	for _, fn := range m.onCluster {
		fn(name)
	}
}

func (m *memory) setOnline(name string, on bool) {
	m.mu.Lock()
	m.online["uid-"+name] = on
	m.mu.Unlock()
	for _, fn := range m.onCluster {
		fn(name)
	}
}

func (m *memory) bundle(uid string, change func(*state.Bundle)) {
	m.mu.Lock()
	b, ok := m.bundles[uid]
	if !ok {
		b = state.Bundle{Ref: enginev1.BundleRef{UID: uid, Namespace: "shop", Name: uid}}
		b.Meta.UID = types.UID(uid)
	}
	if change != nil {
		change(&b)
	}
	m.bundles[uid] = b
	m.mu.Unlock()
	for _, fn := range m.onBundle {
		fn(uid)
	}
}

func (m *memory) cut(uid string, content *atoll.Content) {
	m.mu.Lock()
	n := len(m.revisions[uid]) + 1
	name := fmt.Sprintf("%s-%d-r%d", uid, n, n)
	m.contents[name] = content
	m.revisions[uid] = append(m.revisions[uid], &enginev1.Revision{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       enginev1.RevisionSpec{Bundle: enginev1.BundleRef{UID: uid}, Number: int64(n), Base: content.Base},
	})
	m.mu.Unlock()
	for _, fn := range m.onRev {
		fn(uid)
	}
}

// report what an agent would, for the row as it is.
func (m *memory) report(uid, cluster string, st atoll.RowState) {
	m.mu.Lock()
	r := m.rows[uid][cluster]
	r.Status = &atoll.RowStatus{UID: r.Spec.UID, Generation: r.Spec.Generation, State: st, Applied: st == atoll.RowReady, Total: 1, Ready: 1}
	m.rows[uid][cluster] = r
	m.mu.Unlock()
	for _, fn := range m.onRows {
		fn(uid, []string{cluster}, nil)
	}
}

func (m *memory) drop(uid, cluster string) {
	m.mu.Lock()
	delete(m.rows[uid], cluster)
	m.mu.Unlock()
	for _, fn := range m.onRows {
		fn(uid, []string{cluster}, []string{cluster})
	}
}

// settle lets everybody finish, and reports every reachable row that is behind as
// Ready, or Removed and collected, until nothing moves.
func (m *memory) settle(uid string) {
	for range 20 {
		synctest.Wait()
		moved := false
		for _, r := range (memRows{m}).OfBundle(uid) {
			if !(memClusters{m}).Online(r.Spec.UID) {
				continue
			}
			switch {
			case r.Spec.Phase == atoll.RowRemoving:
				m.drop(uid, r.Cluster)
				moved = true
			case r.Status == nil || r.Status.Generation != r.Spec.Generation:
				m.report(uid, r.Cluster, atoll.RowReady)
				moved = true
			}
		}
		if !moved {
			return
		}
	}
}

// show the Bundle's rows: "cluster phase revision", shares behind.
func (m *memory) show(uid string) string {
	var out []string
	for _, r := range (memRows{m}).OfBundle(uid) {
		s := fmt.Sprintf("%s %s %s", r.Cluster, r.Spec.Phase, r.Spec.Revision[strings.LastIndexByte(r.Spec.Revision, '-')+1:])
		for _, n := range r.Spec.Assigned {
			s += fmt.Sprint(" ", n)
		}
		out = append(out, s)
	}
	return strings.Join(out, ", ")
}

func (m *memory) counts() (writes, looks int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.writes, m.looks
}

// run a Reconciler over the tables inside a bubble of virtual time.
func run(t *testing.T, m *memory, test func(t *testing.T, r *Reconciler)) {
	t.Helper()
	runWith(t, m, func(*Config) {}, test)
}

// unworked gives a Reconciler whose queues take what comes and that nobody works on: the
// test steps. shutDown ends the queues.
func unworked(m *memory) (r *Reconciler, shutDown func()) {
	r = New(m.config())
	bundles, clusters, scores := r.open()
	return r, func() {
		scores.ShutDown()
		clusters.ShutDown()
		bundles.ShutDown()
		// Queues end their goroutines a moment after they are shut down.
		time.Sleep(time.Minute)
	}
}

func runWith(t *testing.T, m *memory, change func(*Config), test func(t *testing.T, r *Reconciler)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cfg := m.config()
		change(&cfg)
		r := New(cfg)
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		synctest.Wait()
		test(t, r)
		// A queue that is shut down while it hands something out goes on waiting for a
		// worker to take it.
		synctest.Wait()
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		// Queues end their goroutines a moment after they are shut down.
		time.Sleep(time.Minute)
	})
}

func want(t *testing.T, m *memory, uid, rows string) {
	t.Helper()
	synctest.Wait()
	if got := m.show(uid); got != rows {
		t.Fatalf("rows are\n  %s\nwant\n  %s", got, rows)
	}
}

func names(clusters ...string) v1alpha1.PlacementSpec {
	return v1alpha1.PlacementSpec{ClusterAffinity: &v1alpha1.ClusterAffinity{ClusterNames: clusters}}
}

func labelled(sel map[string]string) v1alpha1.PlacementSpec {
	return v1alpha1.PlacementSpec{ClusterAffinity: &v1alpha1.ClusterAffinity{LabelSelector: &metav1.LabelSelector{MatchLabels: sel}}}
}
