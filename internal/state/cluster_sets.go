package state

import (
	"reflect"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/schedule"
)

// ClusterSetTable is the table of ClusterSets, and of which of them namespaces may place on.
type ClusterSetTable struct {
	clusters *ClusterTable
	mu       sync.RWMutex
	grants   schedule.SetGrants
	// bindings by ClusterSet and namespace.
	bindings map[string]map[string]*v1alpha1.ClusterSetBinding
	notifier[string]
	bindingChanges notifier[types.NamespacedName]
}

func newSets(clusters *ClusterTable) *ClusterSetTable {
	return &ClusterSetTable{clusters: clusters, grants: schedule.NewGrants(), bindings: map[string]map[string]*v1alpha1.ClusterSetBinding{}}
}

// Get returns a ClusterSet.
func (t *ClusterSetTable) Get(name string) (*v1alpha1.ClusterSet, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.grants.Get(name)
}

// AllowedSets lists by name the sets that the namespace may place on: those of its bindings,
// or without any binding those that need none. The list may be empty, and is shared.
func (t *ClusterSetTable) AllowedSets(namespace string) []string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.grants.SetsOfNamespace(namespace)
}

// IsBound reports whether the namespace has a binding to the set.
func (t *ClusterSetTable) IsBound(namespace, set string) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.grants.HasBinding(namespace, set)
}

// OfCluster lists the sets that the cluster of that name is in; shared.
func (t *ClusterSetTable) OfCluster(name string) []string { return t.clusters.SetsOfCluster(name) }

// OfLabels lists the sets that a cluster with these labels would be in.
func (t *ClusterSetTable) OfLabels(labels map[string]string) []string {
	return t.clusters.SetsOfLabels(labels)
}

// OpenSets lists by name the sets that namespaces without bindings may place on; shared.
func (t *ClusterSetTable) OpenSets() []string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.grants.OpenSets()
}

// HasUniversalSet reports whether one of the sets holds every cluster that there is or will be.
func (t *ClusterSetTable) HasUniversalSet(sets []string) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.grants.IncludesAllClusters(sets)
}

// Subscribe subscribes to namespaces that may place on other sets than before; "" stands for all that have
// no binding. Changes of the clusters in a set are notified by Clusters.
func (t *ClusterSetTable) Subscribe(fn func(namespace string)) { t.addSubscriber(fn) }

func (t *ClusterSetTable) put(obj client.Object) {
	switch v := obj.(type) {
	case *v1alpha1.ClusterSet:
		t.putSet(v.Name, v)
	case *v1alpha1.ClusterSetBinding:
		t.putBinding(v, true)
	}
}

func (t *ClusterSetTable) removeObject(obj client.Object) {
	switch v := obj.(type) {
	case *v1alpha1.ClusterSet:
		t.putSet(v.Name, nil)
	case *v1alpha1.ClusterSetBinding:
		t.putBinding(v, false)
	}
}

func (t *ClusterSetTable) putSet(name string, v *v1alpha1.ClusterSet) {
	var was *v1alpha1.ClusterSet
	opened := false
	var bound []types.NamespacedName
	runLocked(&t.mu, func() {
		was, _ = t.grants.Get(name)
		opened = t.grants.StoreClusterSet(name, v)
		if (was == nil) != (v == nil) {
			for ns := range t.bindings[name] {
				bound = append(bound, types.NamespacedName{Namespace: ns, Name: name})
			}
		}
	})
	if opened {
		defer t.notifyAll("") // also when another subscriber panics
	}
	defer t.bindingChanges.notifyEach(bound)
	if v != nil && (was == nil || was.UID != v.UID || was.Generation != v.Generation) {
		defer t.clusters.setChanges.notifyAll(name)
	}
	switch {
	case v == nil:
		t.clusters.defineSet(name, nil)
	case was == nil || !reflect.DeepEqual(was.Spec.ClusterSelector, v.Spec.ClusterSelector):
		t.clusters.defineSet(name, &v.Spec.ClusterSelector)
	}
}

// putBinding stores a binding, or removes it where it is not bound. A change of the status alone
// notifies no subscriber.
func (t *ClusterSetTable) putBinding(b *v1alpha1.ClusterSetBinding, bound bool) {
	set := b.Spec.ClusterSet
	changed, old := t.replaceBinding(b, bound)
	if bound && (old == nil || old.UID != b.UID || old.Generation != b.Generation) {
		defer t.bindingChanges.notifyAll(types.NamespacedName{Namespace: b.Namespace, Name: set})
	}
	if changed {
		t.notifyAll(b.Namespace)
	}
}

// replaceBinding stores a binding, or removes it where it is not bound. It reports whether the
// namespace is granted other clusters, and returns the binding that was there.
func (t *ClusterSetTable) replaceBinding(b *v1alpha1.ClusterSetBinding, bound bool) (changed bool, old *v1alpha1.ClusterSetBinding) {
	set := b.Spec.ClusterSet
	t.mu.Lock()
	defer t.mu.Unlock()
	changed = t.grants.BindNamespace(b.Namespace, set, bound)
	old = t.bindings[set][b.Namespace]
	if bound {
		if t.bindings[set] == nil {
			t.bindings[set] = map[string]*v1alpha1.ClusterSetBinding{}
		}
		t.bindings[set][b.Namespace] = b
	} else if delete(t.bindings[set], b.Namespace); len(t.bindings[set]) == 0 {
		delete(t.bindings, set)
	}
	return changed, old
}

// GetBinding returns the binding of a namespace to the ClusterSet of the same name.
func (t *ClusterSetTable) GetBinding(key types.NamespacedName) (*v1alpha1.ClusterSetBinding, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	b, ok := t.bindings[key.Name][key.Namespace]
	return b, ok
}

// countBindings counts the bindings to a set.
func (t *ClusterSetTable) countBindings(set string) int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.bindings[set])
}

// ListBindings lists the keys of all bindings.
func (t *ClusterSetTable) ListBindings() (out []types.NamespacedName) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for set, own := range t.bindings {
		for ns := range own {
			out = append(out, types.NamespacedName{Namespace: ns, Name: set})
		}
	}
	return out
}

// CountClusters returns the number of clusters that are in the set.
func (t *ClusterSetTable) CountClusters(set string) int { return t.clusters.CountClusters(set) }

// ListSets lists the names of all ClusterSets.
func (t *ClusterSetTable) ListSets() []string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.grants.Names()
}

// SubscribeSets subscribes to ClusterSets that are new or edited, and to those whose number of clusters
// may have changed. The name may be that of a ClusterSet that does not exist.
func (t *ClusterSetTable) SubscribeSets(fn func(set string)) { t.clusters.setChanges.addSubscriber(fn) }

// SubscribeBindings subscribes to bindings that are new, or whose ClusterSet was created or
// deleted.
func (t *ClusterSetTable) SubscribeBindings(fn func(key types.NamespacedName)) {
	t.bindingChanges.addSubscriber(fn)
}
