package placer

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
	"atoll.dev/atoll/internal/rowcodec"
	"atoll.dev/atoll/internal/state"
)

// fakeHub is a hub's tables in memory, with the same fencing as the store's.
type fakeHub struct {
	mu         sync.Mutex
	bundles    map[string]state.Bundle
	rows       map[string]map[string]state.Row
	clusters   map[string]*v1alpha1.Cluster
	online     map[string]bool
	revisions  map[string][]*enginev1.Revision
	contents   map[string]*atoll.Content
	namespaces map[string]*corev1.Namespace
	holding    bool

	onBundle    []func(string)
	onRows      []func(string, []string, []string)
	onCluster   []func(string)
	onRevision  []func(string)
	onNamespace []func(string)
	onHub       []func()

	// writes counts calls of WriteSpecs that changed something; looks counts steps.
	// reads counts rows that were read one by one.
	writes, rowReads, contentReads int
	// rowsWritten counts the rows in these calls.
	rowsWritten int
	writeError  error
	beforeWrite func() // once
	warnings    []string
}

func newFakeHub() *fakeHub {
	return &fakeHub{
		bundles: map[string]state.Bundle{}, rows: map[string]map[string]state.Row{},
		clusters: map[string]*v1alpha1.Cluster{}, online: map[string]bool{},
		revisions: map[string][]*enginev1.Revision{}, contents: map[string]*atoll.Content{},
		namespaces: map[string]*corev1.Namespace{},
	}
}

type (
	fakeBundles    struct{ *fakeHub }
	fakeRows       struct{ *fakeHub }
	fakeClusters   struct{ *fakeHub }
	fakeRevisions  struct{ *fakeHub }
	fakeNamespaces struct{ *fakeHub }
	fakeHubState   struct{ *fakeHub }
	fakeEvents     struct{ *fakeHub }
)

func (m *fakeHub) reconcilerConfig() Config {
	return Config{
		Bundles: fakeBundles{m}, Rows: fakeRows{m}, RowWriter: fakeRows{m}, Clusters: fakeClusters{m}, Revisions: fakeRevisions{m},
		Namespaces: fakeNamespaces{m}, Hub: fakeHubState{m}, Events: fakeEvents{m},
	}
}

func (m fakeBundles) Get(uid string) (state.Bundle, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b, ok := m.bundles[uid]
	return b, ok
}

func (m fakeBundles) List() (out []state.Bundle) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, b := range m.bundles {
		out = append(out, b)
	}
	return out
}

func (m fakeBundles) InNamespace(ns string) []state.Bundle {
	return slices.DeleteFunc(m.List(), func(b state.Bundle) bool { return b.Ref.Namespace != ns })
}

func (m fakeBundles) Subscribe(fn func(string)) { m.onBundle = append(m.onBundle, fn) }

func (m fakeRows) Get(uid, cluster string) (state.Row, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.contentReads++
	r, ok := m.rows[uid][cluster]
	return r, ok
}

func (m fakeRows) ListOfBundle(uid string) (out []state.Row) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rowReads++
	for _, r := range m.rows[uid] {
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b state.Row) int { return strings.Compare(a.Cluster, b.Cluster) })
	return out
}

func (m fakeRows) ListOfCluster(uid string) (out []state.Row) {
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
func (m fakeRows) RequestedPodsOf(uid string) (n int64) {
	for _, r := range m.ListOfCluster(uid) {
		if r.Spec.Phase == atoll.RowActive || r.Spec.Phase == atoll.RowPending {
			n += max(r.Spec.RequestedPods, 1)
		}
	}
	return n
}

func (m fakeRows) WriteSpecs(_ context.Context, ref enginev1.BundleRef, base []state.Row, changes map[string]*atoll.RowSpec) error {
	if len(changes) == 0 {
		return nil
	}
	m.mu.Lock()
	if err := m.writeError; err != nil {
		m.writeError = nil
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
		was[r.Cluster] = rowcodec.EncodeSpec(r.Spec, nil)
	}
	var changed []string
	for c := range changes {
		is := ""
		if r, ok := m.rows[ref.UID][c]; ok {
			is = rowcodec.EncodeSpec(r.Spec, nil)
		}
		if is != was[c] {
			m.mu.Unlock()
			return fmt.Errorf("cluster %s: %w", c, state.ErrRowsMoved)
		}
	}
	m.writes++
	m.rowsWritten += len(changes)
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
func (m fakeRows) SubscribeWithChangedOrders(fn func(string, []string, []string)) {
	m.onRows = append(m.onRows, fn)
}

func (m fakeClusters) Get(name string) (*v1alpha1.Cluster, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, ok := m.clusters[name]
	return c, ok
}

func (m fakeClusters) List() (out []*v1alpha1.Cluster) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.clusters {
		out = append(out, c)
	}
	return out
}

func (m fakeClusters) IsOnline(uid string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.online[uid]
}
func (m fakeClusters) Subscribe(fn func(string)) { m.onCluster = append(m.onCluster, fn) }

func (m fakeRevisions) LatestOfBundle(uid string) (*enginev1.Revision, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.revisions[uid]
	if len(all) == 0 {
		return nil, false
	}
	return all[len(all)-1], true
}

func (m fakeRevisions) GetContent(_ context.Context, name string) (*atoll.Content, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c, ok := m.contents[name]; ok {
		return c, nil
	}
	return nil, fmt.Errorf("no revision %s", name)
}
func (m fakeRevisions) Subscribe(fn func(string)) { m.onRevision = append(m.onRevision, fn) }

func (m fakeNamespaces) Get(name string) (*corev1.Namespace, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ns, ok := m.namespaces[name]
	return ns, ok
}
func (m fakeNamespaces) Subscribe(fn func(string)) { m.onNamespace = append(m.onNamespace, fn) }

func (m fakeHubState) HoldReason() (string, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return "restored", m.holding
}
func (m fakeHubState) GenerationFloor() int64 { return 7 }
func (m fakeHubState) Subscribe(fn func())    { m.onHub = append(m.onHub, fn) }

func (m fakeEvents) Warn(b enginev1.BundleRef, reason atoll.Reason, message string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.warnings = append(m.warnings, b.Name+" "+string(reason)+": "+message)
}

func (m fakeEvents) Inform(b enginev1.BundleRef, reason atoll.Reason, message string) {
	m.Warn(b, reason, message)
}

// takeWarnings are the warnings so far.
func (m *fakeHub) takeWarnings() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.warnings)
}

// The acts of users, members and other parts of the hub.

func (m *fakeHub) changeCluster(name string, change func(*v1alpha1.Cluster)) {
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

func (m *fakeHub) deleteCluster(name string) {
	m.mu.Lock()
	delete(m.clusters, name)
	m.mu.Unlock()
	for _, fn := range m.onCluster {
		fn(name)
	}
}

func (m *fakeHub) setOnline(name string, on bool) {
	m.mu.Lock()
	m.online["uid-"+name] = on
	m.mu.Unlock()
	for _, fn := range m.onCluster {
		fn(name)
	}
}

func (m *fakeHub) changeBundle(uid string, change func(*state.Bundle)) {
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

func (m *fakeHub) cutRevision(uid string, content *atoll.Content) {
	m.mu.Lock()
	n := len(m.revisions[uid]) + 1
	name := fmt.Sprintf("%s-%d-r%d", uid, n, n)
	m.contents[name] = content
	m.revisions[uid] = append(m.revisions[uid], &enginev1.Revision{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       enginev1.RevisionSpec{Bundle: enginev1.BundleRef{UID: uid}, Number: int64(n), Base: content.MinRevision, Items: int32(len(content.Items))},
	})
	m.mu.Unlock()
	for _, fn := range m.onRevision {
		fn(uid)
	}
}

// reportState what an agent would, for the row as it is.
func (m *fakeHub) reportState(uid, cluster string, st atoll.RowState) {
	m.mu.Lock()
	r := m.rows[uid][cluster]
	r.Status = &atoll.RowStatus{UID: r.Spec.UID, Generation: r.Spec.Generation, State: st, Applied: st == atoll.RowReady, Total: 1, Ready: 1}
	m.rows[uid][cluster] = r
	m.mu.Unlock()
	for _, fn := range m.onRows {
		fn(uid, []string{cluster}, nil)
	}
}

func (m *fakeHub) dropRow(uid, cluster string) {
	m.mu.Lock()
	delete(m.rows[uid], cluster)
	m.mu.Unlock()
	for _, fn := range m.onRows {
		fn(uid, []string{cluster}, []string{cluster})
	}
}

// settleRows lets everybody finish, and reports every reachable row that is behind as
// Ready, or Removed and collected, until nothing moves.
func (m *fakeHub) settleRows(uid string) {
	for range 20 {
		synctest.Wait()
		moved := false
		for _, r := range (fakeRows{m}).ListOfBundle(uid) {
			if !(fakeClusters{m}).IsOnline(r.Spec.UID) {
				continue
			}
			switch {
			case r.Spec.Phase == atoll.RowRemoving:
				m.dropRow(uid, r.Cluster)
				moved = true
			case r.Status == nil || r.Status.Generation != r.Spec.Generation:
				m.reportState(uid, r.Cluster, atoll.RowReady)
				moved = true
			}
		}
		if !moved {
			return
		}
	}
}

// rowsOf the Bundle's rows: "cluster phase revision", shares behind.
func (m *fakeHub) rowsOf(uid string) string {
	var out []string
	for _, r := range (fakeRows{m}).ListOfBundle(uid) {
		s := fmt.Sprintf("%s %s %s", r.Cluster, r.Spec.Phase, r.Spec.Revision[strings.LastIndexByte(r.Spec.Revision, '-')+1:])
		for _, n := range r.Spec.Assigned {
			s += fmt.Sprint(" ", n)
		}
		out = append(out, s)
	}
	return strings.Join(out, ", ")
}

func (m *fakeHub) countsAfterWait() (writes, looks int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.writes, m.rowReads
}

// runReconciler a Reconciler over the tables inside a bubble of virtual time.
func runReconciler(t *testing.T, m *fakeHub, test func(t *testing.T, r *PlacementReconciler)) {
	t.Helper()
	runWith(t, m, func(*Config) {}, test)
}

// startReconciler starts a Reconciler over the tables, in a bubble of virtual time. stop waits until it has ended.
// Its queues end a minute later.
func startReconciler(t *testing.T, m *fakeHub) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, done := New(m.reconcilerConfig()), make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	synctest.Wait()
	return func() {
		synctest.Wait()
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		m.forgetCounts()
	}
}

// newIdleReconciler returns a Reconciler with open queues and no workers: the test makes the
// steps. shutDown ends the queues.
func newIdleReconciler(m *fakeHub) (r *PlacementReconciler, shutDown func()) {
	r = New(m.reconcilerConfig())
	r.startAcceptingChanges()
	return r, func() {
		r.bundleLoop.Close()
		r.clusterLoop.Close()
		r.scoreLoop.Close()
		// Queues end their goroutines a moment after they are shut down.
		time.Sleep(time.Minute)
	}
}

func runWith(t *testing.T, m *fakeHub, change func(*Config), test func(t *testing.T, r *PlacementReconciler)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cfg := m.reconcilerConfig()
		change(&cfg)
		r := New(cfg)
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		synctest.Wait()
		test(t, r)
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		// Queues end their goroutines a moment after they are shut down.
		time.Sleep(time.Minute)
	})
}

func expectRows(t *testing.T, m *fakeHub, uid, rows string) {
	t.Helper()
	synctest.Wait()
	if got := m.rowsOf(uid); got != rows {
		t.Fatalf("rows are\n  %s\nwant\n  %s", got, rows)
	}
}

func placementNamed(clusters ...string) v1alpha1.PlacementSpec {
	return v1alpha1.PlacementSpec{ClusterAffinity: &v1alpha1.ClusterAffinity{ClusterNames: clusters}}
}

func placementLabelled(sel map[string]string) v1alpha1.PlacementSpec {
	return v1alpha1.PlacementSpec{ClusterAffinity: &v1alpha1.ClusterAffinity{LabelSelector: &metav1.LabelSelector{MatchLabels: sel}}}
}
