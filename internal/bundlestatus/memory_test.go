package bundlestatus

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
	"atoll.dev/atoll/internal/userfields"
)

// memory is a hub's tables and store in memory, with the same fencing.
type memory struct {
	quarantines Quarantines // nil: none
	mu          sync.Mutex
	version     int
	bundles     map[string]state.Bundle
	rows        map[string]map[string]state.Row
	slices      map[string]*enginev1.TargetSlice
	clusters    map[string]*v1alpha1.Cluster
	online      map[string]bool
	revisions   map[string][]*enginev1.Revision
	contents    map[string]*atoll.Content
	templates   map[atoll.ItemKey]*unstructured.Unstructured
	holding     bool
	doomed      map[string]bool // namespaces that are being deleted
	absent      map[string]bool // namespaces that the table does not have
	deleted     map[string]bool // namespaces that are deleted

	onBundle    []func(string)
	onRows      []func(string, []string)
	onCluster   []func(string)
	onRev       []func(string)
	onTemplate  []func(atoll.ItemKey)
	onHub       []func()
	onNamespace []func(string)

	// writes by what they were, in order; failing and refusing are errors to give
	// once for a kind of write.
	writes  []string
	failing map[string]error
	said    []string
	// afterLook is called once, between a look at a cluster's stream and what follows
	// from it.
	afterLook func()
}

func newMemory() *memory {
	return &memory{
		bundles: map[string]state.Bundle{}, rows: map[string]map[string]state.Row{}, slices: map[string]*enginev1.TargetSlice{},
		clusters: map[string]*v1alpha1.Cluster{}, online: map[string]bool{},
		revisions: map[string][]*enginev1.Revision{}, contents: map[string]*atoll.Content{},
		templates: map[atoll.ItemKey]*unstructured.Unstructured{}, failing: map[string]error{}, doomed: map[string]bool{},
		absent: map[string]bool{}, deleted: map[string]bool{},
	}
}

type (
	memBundles    struct{ *memory }
	memRows       struct{ *memory }
	memClusters   struct{ *memory }
	memRevisions  struct{ *memory }
	memTemplates  struct{ *memory }
	memNamespaces struct{ *memory }
	memHub        struct{ *memory }
	memWriter     struct{ *memory }
	memEvents     struct{ *memory }
	memIntent     struct{}
)

func (m *memory) newConfig() Config {
	return Config{
		Quarantines: m.quarantines,
		Bundles:     memBundles{m}, Rows: memRows{m}, RowSlices: memRows{m}, Clusters: memClusters{m}, Revisions: memRevisions{m}, Templates: memTemplates{m},
		Namespaces: memNamespaces{m}, Hub: memHub{m}, Intent: memIntent{}, Writer: memWriter{m}, Events: memEvents{m},
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
}

// run a Reconciler over the memory in a bubble; do acts, and step lets things settle.
func run(t *testing.T, m *memory, do func(step func(d time.Duration))) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r := New(m.newConfig())
		done := make(chan error)
		go func() { done <- r.Run(ctx) }()
		synctest.Wait()
		do(func(d time.Duration) {
			synctest.Wait()
			<-time.After(d)
			synctest.Wait()
		})
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// noteWrite a write; the error is the one that is due.
func (m *memory) noteWrite(what string) error {
	if err := m.failing[what]; err != nil {
		delete(m.failing, what)
		return err
	}
	m.writes = append(m.writes, what)
	return nil
}

// countWrites counts writes of a kind, and forgets them.
func (m *memory) countWrites(what string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := len(m.writes)
	m.writes = slices.DeleteFunc(m.writes, func(w string) bool { return w == what })
	return n - len(m.writes)
}

func (m *memory) next() string {
	m.version++
	return strconv.Itoa(m.version)
}

func conflictError(what string) error {
	return apierrors.NewConflict(schema.GroupResource{Resource: what}, what, fmt.Errorf("changed since"))
}

// Tables.

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

func (m memBundles) Put(client.Object)          {}
func (m memBundles) Subscribe(fn func(string))  { m.onBundle = append(m.onBundle, fn) }
func (m memClusters) Subscribe(fn func(string)) { m.onCluster = append(m.onCluster, fn) }
func (m memRows) Subscribe(fn func(string, []string)) {
	m.onRows = append(m.onRows, fn)
}
func (m memRevisions) Subscribe(fn func(string))        { m.onRev = append(m.onRev, fn) }
func (m memTemplates) Subscribe(fn func(atoll.ItemKey)) { m.onTemplate = append(m.onTemplate, fn) }
func (m memHub) Subscribe(fn func())                    { m.onHub = append(m.onHub, fn) }

// keepRow with its status, in the one slice that new rows go to.
func (m memClusters) Get(name string) (*v1alpha1.Cluster, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, ok := m.clusters[name]
	return c, ok
}

func (m memClusters) GetByUID(uid string) (*v1alpha1.Cluster, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, ok := m.clusters[strings.TrimPrefix(uid, "uid-")]
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

func (m memClusters) IsOnline(uid string) bool {
	m.mu.Lock()
	is, fn := m.online[uid], m.afterLook
	m.afterLook = nil
	m.mu.Unlock()
	if fn != nil {
		fn()
	}
	return is
}

func (m memRevisions) OfBundle(uid string) []*enginev1.Revision {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.revisions[uid])
}

func (m memRevisions) GetContent(_ context.Context, name string) (*atoll.Content, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, ok := m.contents[name]
	if !ok {
		return nil, fmt.Errorf("read revision %s: not found", name)
	}
	return c, nil
}

func (m memRevisions) DropRevisions(_ context.Context, revisions []*enginev1.Revision) error {
	for _, r := range revisions {
		m.dropRevision(r)
	}
	return nil
}

func (m memRevisions) DropAll(_ context.Context, uid string) error {
	for _, r := range m.OfBundle(uid) {
		m.dropRevision(r)
	}
	return nil
}

func (m memRevisions) dropRevision(r *enginev1.Revision) {
	m.mu.Lock()
	uid := r.Spec.Bundle.UID
	m.revisions[uid] = slices.DeleteFunc(slices.Clone(m.revisions[uid]), func(o *enginev1.Revision) bool { return o.Name == r.Name })
	delete(m.contents, r.Name)
	m.writes = append(m.writes, "revision")
	m.mu.Unlock()
	for _, fn := range m.onRev {
		fn(uid)
	}
}

func (m memTemplates) Get(key atoll.ItemKey) (*unstructured.Unstructured, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t, ok := m.templates[key]
	return t, ok
}

func (m memTemplates) ResourceOfKey(key atoll.ItemKey) (schema.GroupVersionResource, bool) {
	return schema.GroupVersionResource{}, false
}

func (m memNamespaces) Subscribe(fn func(string)) { m.onNamespace = append(m.onNamespace, fn) }

func (m memNamespaces) Get(name string) (*corev1.Namespace, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("ns-" + name)}}
	if m.absent[name] {
		return nil, false
	}
	if m.doomed[name] {
		now := metav1.Now()
		ns.DeletionTimestamp = &now
	}
	return ns, true
}

// markDeleted deletes a namespace, as a user would.
func (m *memory) markDeleted(name string) {
	m.mu.Lock()
	m.doomed[name] = true
	m.mu.Unlock()
	for _, fn := range m.onNamespace {
		fn(name)
	}
}

// removeCluster a namespace from the table; it is deleted, or the table is wrong.
func (m *memory) removeCluster(name string, deleted bool) {
	m.mu.Lock()
	m.absent[name], m.deleted[name] = true, deleted
	m.mu.Unlock()
	for _, fn := range m.onNamespace {
		fn(name)
	}
}

func (m memWriter) NamespaceExists(_ context.Context, name, uid string) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.deleted[name] && uid == "ns-"+name, nil
}

func (m memHub) GenerationFloor() int64 { return 0 }

func (m memHub) HoldReason() (string, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return "set back", m.holding
}

// StatesItem as in these tests: the template's label "content" is its content.
func (memIntent) StatesItem(t *unstructured.Unstructured, item *atoll.Item) bool {
	return t.GetLabels()["content"] == item.Hash
}

func (m memEvents) RecordRefusal(key atoll.ItemKey, reason atoll.Reason, message string) {
	m.addEvent(key.String() + " " + string(reason) + ": " + message)
}

func (m memEvents) Warn(b enginev1.BundleRef, reason atoll.Reason, message string) {
	m.addEvent(b.Name + " " + string(reason) + ": " + message)
}

func (m memEvents) Inform(b enginev1.BundleRef, reason atoll.Reason, message string) {
	m.Warn(b, reason, message)
}

func (m memEvents) addEvent(s string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.said = append(m.said, s)
}

// Writer.

func (m memWriter) WriteBundleStatus(_ context.Context, b state.Bundle, status v1alpha1.BundleStatus) error {
	m.mu.Lock()
	if err := m.noteWrite("bundle"); err != nil {
		m.mu.Unlock()
		return err
	}
	now := m.bundles[b.Ref.UID]
	if now.Meta.ResourceVersion != b.Meta.ResourceVersion {
		m.mu.Unlock()
		return conflictError("bundles")
	}
	now.Status = status
	now.Meta.ResourceVersion = m.next()
	m.bundles[b.Ref.UID] = now
	m.mu.Unlock()
	m.tellBundle(b.Ref.UID)
	return nil
}

func (m memWriter) WriteTemplateStatus(_ context.Context, t *unstructured.Unstructured, status map[string]any) (*unstructured.Unstructured, error) {
	m.mu.Lock()
	key := keyOf(t)
	if err := m.noteWrite("template"); err != nil {
		m.mu.Unlock()
		return nil, err
	}
	if m.templates[key] == nil || m.templates[key].GetResourceVersion() != t.GetResourceVersion() {
		m.mu.Unlock()
		return nil, conflictError("templates")
	}
	next := m.templates[key].DeepCopy()
	next.Object["status"] = runtime.DeepCopyJSON(status)
	next.SetResourceVersion(m.next())
	m.templates[key] = next
	m.mu.Unlock()
	m.tellTemplate(key)
	return next, nil
}

func (m memWriter) RemoveFinalizer(_ context.Context, obj client.Object, finalizer string) error {
	m.mu.Lock()
	if err := m.noteWrite("release"); err != nil {
		m.mu.Unlock()
		return err
	}
	t, ok := obj.(*unstructured.Unstructured)
	if !ok {
		delete(m.bundles, string(obj.GetUID()))
		m.mu.Unlock()
		m.tellBundle(string(obj.GetUID()))
		return nil
	}
	delete(m.templates, keyOf(t))
	m.mu.Unlock()
	m.tellTemplate(keyOf(t))
	return nil
}

func (m memWriter) DeleteSlice(_ context.Context, s *enginev1.TargetSlice) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.slices, s.Name)
	return m.noteWrite("slice")
}

func keyOf(t *unstructured.Unstructured) atoll.ItemKey {
	gk := t.GroupVersionKind().GroupKind()
	return atoll.ItemKey{Group: gk.Group, Kind: gk.Kind, Namespace: t.GetNamespace(), Name: t.GetName()}
}

// The hub's inputs in the tests.

func (m *memory) tellBundle(uid string) {
	for _, fn := range m.onBundle {
		fn(uid)
	}
}

func (m *memory) tellTemplate(key atoll.ItemKey) {
	for _, fn := range m.onTemplate {
		fn(key)
	}
}

// addCluster that is Ready and holds a stream; its UID is "uid-" and its name.
func (m *memory) addCluster(name string) {
	c := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)}}
	meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{Type: v1alpha1.ClusterReady, Status: metav1.ConditionTrue})
	m.mu.Lock()
	m.clusters[name] = c
	m.online["uid-"+name] = true
	m.mu.Unlock()
	m.tellCluster(name)
}

func (m *memory) tellCluster(name string) {
	for _, fn := range m.onCluster {
		fn(name)
	}
}

// setStream of a cluster comes or goes.
func (m *memory) setStream(name string, on bool) {
	m.mu.Lock()
	m.online["uid-"+name] = on
	m.mu.Unlock()
	m.tellCluster(name)
}

// checkInInterval: a cluster is to check in from now on.
func (m *memory) checkIn(name string) {
	m.mu.Lock()
	c := m.clusters[name].DeepCopy()
	c.Spec.Connection = &v1alpha1.ClusterConnection{Type: v1alpha1.ConnectionCheckIn}
	m.clusters[name] = c
	m.mu.Unlock()
	m.tellCluster(name)
}

// setReady a cluster's Ready condition.
func (m *memory) setReady(name string, status metav1.ConditionStatus) {
	m.mu.Lock()
	c := m.clusters[name].DeepCopy()
	meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{Type: v1alpha1.ClusterReady, Status: status})
	m.clusters[name] = c
	m.mu.Unlock()
	m.tellCluster(name)
}

func (m *memory) giveUp(name string) {
	m.mu.Lock()
	delete(m.clusters, name)
	delete(m.online, "uid-"+name)
	m.mu.Unlock()
	m.tellCluster(name)
}

func (m *memory) setBundle(uid string, change func(*state.Bundle)) {
	m.mu.Lock()
	b, ok := m.bundles[uid]
	if !ok {
		b = state.Bundle{Ref: enginev1.BundleRef{UID: uid, Namespace: "shop", Name: "web"}}
		b.Meta = metav1.ObjectMeta{
			UID: types.UID(uid), Namespace: "shop", Name: "web", Generation: 1,
			CreationTimestamp: metav1.Now(), Finalizers: []string{atoll.FinalizerBundle},
		}
	}
	if change != nil {
		change(&b)
	}
	b.Meta.ResourceVersion = m.next()
	m.bundles[uid] = b
	m.mu.Unlock()
	m.tellBundle(uid)
}

// cutRevision a Revision and give its name.
func (m *memory) cutRevision(uid string, content *atoll.Content) string {
	m.mu.Lock()
	number := int64(1)
	if all := m.revisions[uid]; len(all) > 0 {
		number = all[len(all)-1].Spec.Number + 1
	}
	rev := &enginev1.Revision{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-r%d", uid, number)},
		Spec:       enginev1.RevisionSpec{Bundle: enginev1.BundleRef{UID: uid}, Number: number, Items: int32(len(content.Items))},
	}
	m.revisions[uid] = append(m.revisions[uid], rev)
	m.contents[rev.Name] = content
	m.mu.Unlock()
	for _, fn := range m.onRev {
		fn(uid)
	}
	return rev.Name
}

func (m *memory) setRow(uid, cluster string, change func(*state.Row)) {
	m.mu.Lock()
	if m.rows[uid] == nil {
		m.rows[uid] = map[string]state.Row{}
	}
	r, ok := m.rows[uid][cluster]
	if !ok {
		r = state.Row{Bundle: enginev1.BundleRef{UID: uid, Namespace: "shop", Name: "web"}, Cluster: cluster, Slice: fmt.Sprintf("%s-%d", uid, len(m.rows[uid])/200)}
		r.Spec = atoll.RowSpec{UID: "uid-" + cluster, Generation: 1, Phase: atoll.RowActive}
	}
	if r.Status != nil {
		st := *r.Status
		r.Status = &st
	}
	change(&r)
	m.rows[uid][cluster] = r
	if m.slices[r.Slice] == nil {
		m.slices[r.Slice] = &enginev1.TargetSlice{ObjectMeta: metav1.ObjectMeta{Name: r.Slice}, Spec: enginev1.TargetSliceSpec{Bundle: r.Bundle}}
	}
	if !ok {
		setLine(m.slices[r.Slice], cluster, "x")
	}
	m.mu.Unlock()
	for _, fn := range m.onRows {
		fn(uid, []string{cluster})
	}
}

func (m *memory) setTemplate(t *unstructured.Unstructured) {
	m.mu.Lock()
	key := keyOf(t)
	t = t.DeepCopy()
	t.SetResourceVersion(m.next())
	m.templates[key] = t
	m.mu.Unlock()
	m.tellTemplate(key)
}

// change a template as it is.
func (m *memory) editTemplate(key atoll.ItemKey, change func(*unstructured.Unstructured)) {
	m.mu.Lock()
	t := m.templates[key].DeepCopy()
	m.mu.Unlock()
	change(t)
	m.setTemplate(t)
}

// itemOf a template, as bind makes it.
func itemOf(t *testing.T, obj *unstructured.Unstructured) atoll.Item {
	t.Helper()
	pruned, err := userfields.ExtractUserFields(obj, nil)
	if err != nil {
		t.Fatal(err)
	}
	return atoll.Item{Key: keyOf(obj), UID: string(obj.GetUID()), Object: pruned, Hash: atoll.HashParts(pruned), SourceFingerprint: userfields.FingerprintUserFields(obj)}
}
