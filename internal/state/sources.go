package state

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
)

// RepositoryTable is the table of Repositories.
type RepositoryTable struct {
	specTable[*v1alpha1.Repository]
}

// SourceTable is the table of Sources.
type SourceTable struct{ specTable[*v1alpha1.Source] }

func newSourceTables() (*RepositoryTable, *SourceTable) {
	return &RepositoryTable{specTable[*v1alpha1.Repository]{byKey: map[types.NamespacedName]*v1alpha1.Repository{}, isNews: isOtherRequest}},
		&SourceTable{specTable[*v1alpha1.Source]{byKey: map[types.NamespacedName]*v1alpha1.Source{}}}
}

// isOtherRequest reports whether a git server requested another check of a Repository.
func isOtherRequest(old, now *v1alpha1.Repository) bool {
	return now.Status.WebhookTime != nil && !now.Status.WebhookTime.Equal(old.Status.WebhookTime)
}

// specTable is the table of a namespaced kind, which notifies of changes of specs.
type specTable[T client.Object] struct {
	mu    sync.RWMutex
	byKey map[types.NamespacedName]T
	// isNews reports whether the subscribers are notified of a change of the status, too; nil for none.
	isNews func(old, now T) bool
	notifier[types.NamespacedName]
	// changes notifies of every change, also of the status.
	changes notifier[types.NamespacedName]
}

// Get returns an object, which is not to be changed.
func (t *specTable[T]) Get(key types.NamespacedName) (T, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	o, ok := t.byKey[key]
	return o, ok
}

// InNamespace lists the objects of a namespace by name; of all namespaces for "".
func (t *specTable[T]) InNamespace(namespace string) (out []T) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for key, o := range t.byKey {
		if namespace == "" || key.Namespace == namespace {
			out = append(out, o)
		}
	}
	slices.SortFunc(out, func(a, b T) int { return compareNames(client.ObjectKeyFromObject(a), client.ObjectKeyFromObject(b)) })
	return out
}

// Put stores what a writer got back from the API server, so that it reads its own write.
func (t *specTable[T]) Put(o T) { t.put(o) }

// Subscribe subscribes to objects whose spec changed, that were added or deleted, and to Repositories of which a git server
// requested a check. Other changes of their status are in the table and notify no subscriber.
func (t *specTable[T]) Subscribe(fn func(key types.NamespacedName)) { t.addSubscriber(fn) }

// SubscribeChanges subscribes to objects that changed in any way, were added or deleted.
func (t *specTable[T]) SubscribeChanges(fn func(key types.NamespacedName)) {
	t.changes.addSubscriber(fn)
}

func (t *specTable[T]) put(obj client.Object) {
	key := client.ObjectKeyFromObject(obj)
	t.mu.Lock()
	old, had := t.byKey[key]
	if had && old.GetUID() == obj.GetUID() && !isOlderVersion(old.GetResourceVersion(), obj.GetResourceVersion()) {
		t.mu.Unlock()
		return
	}
	t.byKey[key] = obj.(T)
	t.mu.Unlock()
	defer t.changes.notifyAll(key) // also when another subscriber panics
	if !had || old.GetUID() != obj.GetUID() || old.GetGeneration() != obj.GetGeneration() || t.isNews != nil && t.isNews(old, obj.(T)) {
		t.notifyAll(key)
	}
}

func (t *specTable[T]) removeObject(obj client.Object) {
	key := client.ObjectKeyFromObject(obj)
	t.mu.Lock()
	if old, had := t.byKey[key]; had && old.GetUID() == obj.GetUID() {
		delete(t.byKey, key)
	}
	t.mu.Unlock()
	defer t.changes.notifyAll(key)
	t.notifyAll(key)
}
