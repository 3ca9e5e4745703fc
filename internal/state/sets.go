package state

import (
	"reflect"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/schedule"
)

// Sets is the table of ClusterSets, and of which of them namespaces may place on.
type Sets struct {
	clusters *Clusters
	mu       sync.RWMutex
	grants   schedule.Grants
	notifier[string]
}

func newSets(clusters *Clusters) *Sets {
	return &Sets{clusters: clusters, grants: schedule.NewGrants()}
}

// Get a ClusterSet.
func (t *Sets) Get(name string) (*v1alpha1.ClusterSet, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.grants.Get(name)
}

// Bound lists by name the sets that the namespace may place on: those of its bindings,
// or without any binding those that need none. The list may be empty, and is shared.
func (t *Sets) Bound(namespace string) []string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.grants.Bound(namespace)
}

// BoundBy tells whether the namespace has a binding to the set.
func (t *Sets) BoundBy(namespace, set string) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.grants.BoundBy(namespace, set)
}

// OfCluster lists the sets that the cluster of that name is in; shared.
func (t *Sets) OfCluster(name string) []string { return t.clusters.Sets(name) }

// OfLabels lists the sets that a cluster with these labels would be in.
func (t *Sets) OfLabels(labels map[string]string) []string { return t.clusters.SetsOf(labels) }

// Open lists by name the sets that namespaces without bindings may place on; shared.
func (t *Sets) Open() []string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.grants.Open()
}

// HoldsAll tells whether one of the sets holds every cluster that there is or will be.
func (t *Sets) HoldsAll(sets []string) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.grants.HoldsAll(sets)
}

// Subscribe to namespaces that may place on other sets than before; "" stands for all
// that have no binding. That the clusters in a set change, Clusters tells.
func (t *Sets) Subscribe(fn func(namespace string)) { t.subscribe(fn) }

func (t *Sets) put(obj client.Object) {
	switch v := obj.(type) {
	case *v1alpha1.ClusterSet:
		t.set(v.Name, v)
	case *v1alpha1.ClusterSetBinding:
		t.bind(v.Namespace, v.Spec.ClusterSet, true)
	}
}

func (t *Sets) drop(obj client.Object) {
	switch v := obj.(type) {
	case *v1alpha1.ClusterSet:
		t.set(v.Name, nil)
	case *v1alpha1.ClusterSetBinding:
		t.bind(v.Namespace, v.Spec.ClusterSet, false)
	}
}

func (t *Sets) set(name string, v *v1alpha1.ClusterSet) {
	t.mu.Lock()
	was, _ := t.grants.Get(name)
	opened := t.grants.Set(name, v)
	t.mu.Unlock()
	switch {
	case v == nil:
		t.clusters.define(name, nil)
	case was == nil || !reflect.DeepEqual(was.Spec.ClusterSelector, v.Spec.ClusterSelector):
		t.clusters.define(name, &v.Spec.ClusterSelector)
	}
	if opened {
		t.notify("")
	}
}

func (t *Sets) bind(namespace, set string, bound bool) {
	t.mu.Lock()
	changed := t.grants.Bind(namespace, set, bound)
	t.mu.Unlock()
	if changed {
		t.notify(namespace)
	}
}
