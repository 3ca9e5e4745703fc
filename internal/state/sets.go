package state

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
)

// membership is which clusters are in which sets. It is guarded by the lock of the
// Clusters that it belongs to.
type membership struct {
	exclusive map[string]bool
	selecting []selectingSet // by name
	byCluster map[string][]string
	// shared lists of names: many clusters are in the same sets.
	shared map[string][]string
}

type selectingSet struct {
	name     string
	selector labels.Selector
}

func newMembership() membership {
	return membership{exclusive: map[string]bool{}, byCluster: map[string][]string{}, shared: map[string][]string{}}
}

// define a set, or with nil take it away. What it changes is for the caller to put.
func (m *membership) define(name string, s *v1alpha1.ClusterSetSelector) {
	delete(m.exclusive, name)
	m.selecting = slices.DeleteFunc(m.selecting, func(d selectingSet) bool { return d.name == name })
	switch {
	case s == nil:
	case s.SelectorType == v1alpha1.SelectByLabels:
		// One that is malformed, which admission keeps out, holds no cluster.
		if sel, err := metav1.LabelSelectorAsSelector(s.LabelSelector); err == nil {
			m.selecting = append(m.selecting, selectingSet{name, sel})
			slices.SortFunc(m.selecting, func(a, b selectingSet) int { return strings.Compare(a.name, b.name) })
		}
	default:
		m.exclusive[name] = true
	}
	m.shared = map[string][]string{}
}

// of a cluster with these labels; shared.
func (m *membership) of(of map[string]string) []string {
	var names []string
	for _, d := range m.selecting {
		if d.selector.Matches(labels.Set(of)) {
			names = append(names, d.name)
		}
	}
	if own := of[v1alpha1.LabelClusterSet]; own != "" && m.exclusive[own] {
		at, _ := slices.BinarySearch(names, own)
		names = slices.Insert(names, at, own)
	}
	return m.share(names)
}

func (m *membership) share(names []string) []string {
	if len(names) == 0 {
		return nil
	}
	key := strings.Join(names, ",")
	if known, ok := m.shared[key]; ok {
		return known
	}
	return names
}

// put notes a cluster's labels and tells whether its sets changed.
func (m *membership) put(cluster string, of map[string]string) bool {
	names := m.of(of)
	if len(names) > 0 {
		m.shared[strings.Join(names, ",")] = names
	}
	was := m.byCluster[cluster]
	if slices.Equal(was, names) {
		if len(names) > 0 {
			m.byCluster[cluster] = names
		}
		return false
	}
	if m.byCluster[cluster] = names; len(names) == 0 {
		delete(m.byCluster, cluster)
	}
	return true
}

func (m *membership) drop(cluster string) { delete(m.byCluster, cluster) }

// Sets is the table of ClusterSets, and of which of them namespaces may place on.
type Sets struct {
	clusters *Clusters
	mu       sync.RWMutex
	byName   map[string]*v1alpha1.ClusterSet
	bound    map[string]map[string]bool // namespace → names of sets
	open     []string                   // sets that need no binding, by name
	notifier[string]
}

func newSets(clusters *Clusters) *Sets {
	return &Sets{clusters: clusters, byName: map[string]*v1alpha1.ClusterSet{}, bound: map[string]map[string]bool{}}
}

// Get a ClusterSet.
func (t *Sets) Get(name string) (*v1alpha1.ClusterSet, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	v, ok := t.byName[name]
	return v, ok
}

// Bound lists by name the sets that the namespace may place on: those of its bindings,
// or without any binding those that need none. The list may be empty, and is shared.
func (t *Sets) Bound(namespace string) []string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if own := t.bound[namespace]; len(own) > 0 {
		return slices.Sorted(maps.Keys(own))
	}
	return t.open
}

// OfCluster lists the sets that the cluster of that name is in; shared.
func (t *Sets) OfCluster(name string) []string { return t.clusters.Sets(name) }

// OfLabels lists the sets that a cluster with these labels would be in.
func (t *Sets) OfLabels(labels map[string]string) []string { return t.clusters.SetsOf(labels) }

// Open lists by name the sets that namespaces without bindings may place on; shared.
func (t *Sets) Open() []string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.open
}

// HoldsAll tells whether one of the sets holds every cluster that there is or will be.
func (t *Sets) HoldsAll(sets []string) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return slices.ContainsFunc(sets, func(name string) bool {
		v, ok := t.byName[name]
		return ok && v.Spec.ClusterSelector.SelectorType == v1alpha1.SelectByLabels && everything(v.Spec.ClusterSelector.LabelSelector)
	})
}

func everything(s *metav1.LabelSelector) bool {
	return s != nil && len(s.MatchLabels)+len(s.MatchExpressions) == 0
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
	was := t.byName[name]
	if v == nil {
		delete(t.byName, name)
	} else {
		t.byName[name] = v
	}
	var open []string
	for _, s := range t.byName {
		if s.Spec.UnboundNamespaces == v1alpha1.UnboundAllow {
			open = append(open, s.Name)
		}
	}
	slices.Sort(open)
	opened := !slices.Equal(open, t.open)
	t.open = open
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
	own := t.bound[namespace]
	changed := own[set] != bound
	switch {
	case !bound:
		if delete(own, set); len(own) == 0 {
			delete(t.bound, namespace)
		}
	case own == nil:
		t.bound[namespace] = map[string]bool{set: true}
	default:
		own[set] = true
	}
	t.mu.Unlock()
	if changed {
		t.notify(namespace)
	}
}
