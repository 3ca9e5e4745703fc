package schedule

import (
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"atoll.dev/atoll/api/v1alpha1"
)

// SetMembership is which clusters are in which ClusterSets. Make it with NewMembership. It
// is not safe for concurrent use.
type SetMembership struct {
	exclusive map[string]bool
	selecting []selectingSet // by name
	byCluster map[string][]string
	clusters  map[string]int // number of clusters of a set
	// shared lists of names: many clusters are in the same sets.
	shared map[string][]string
}

type selectingSet struct {
	name     string
	selector labels.Selector
}

// NewMembership returns a SetMembership without sets and clusters.
func NewMembership() SetMembership {
	return SetMembership{exclusive: map[string]bool{}, byCluster: map[string][]string{}, clusters: map[string]int{}, shared: map[string][]string{}}
}

// Clone returns an independent copy.
func (m *SetMembership) Clone() SetMembership {
	return SetMembership{
		exclusive: maps.Clone(m.exclusive), selecting: slices.Clone(m.selecting),
		byCluster: maps.Clone(m.byCluster), clusters: maps.Clone(m.clusters), shared: maps.Clone(m.shared),
	}
}

// DefineSet defines a set, or with nil removes it. PutCluster then reports for each cluster
// whether its sets changed.
func (m *SetMembership) DefineSet(name string, s *v1alpha1.ClusterSetSelector) {
	delete(m.exclusive, name)
	m.selecting = slices.DeleteFunc(m.selecting, func(d selectingSet) bool { return d.name == name })
	switch {
	case s == nil:
	case s.SelectorType == v1alpha1.SelectByLabels:
		// Admission keeps malformed selectors out; such a set holds no cluster.
		if sel, err := metav1.LabelSelectorAsSelector(s.LabelSelector); err == nil {
			m.selecting = append(m.selecting, selectingSet{name, sel})
			slices.SortFunc(m.selecting, func(a, b selectingSet) int { return strings.Compare(a.name, b.name) })
		}
	default:
		m.exclusive[name] = true
	}
	m.shared = map[string][]string{}
}

// SetsForLabels lists by name the sets of a cluster with these labels; shared.
func (m *SetMembership) SetsForLabels(of map[string]string) []string {
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
	return m.internSetNames(names)
}

func (m *SetMembership) internSetNames(names []string) []string {
	if len(names) == 0 {
		return nil
	}
	key := strings.Join(names, ",")
	if known, ok := m.shared[key]; ok {
		return known
	}
	return names
}

// PutCluster records a cluster's labels and reports whether its sets changed.
func (m *SetMembership) PutCluster(cluster string, of map[string]string) bool {
	names := m.SetsForLabels(of)
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
	m.countClusters(was, -1)
	m.countClusters(names, 1)
	if m.byCluster[cluster] = names; len(names) == 0 {
		delete(m.byCluster, cluster)
	}
	return true
}

// countClusters adds to the number of clusters of each set.
func (m *SetMembership) countClusters(sets []string, n int) {
	for _, set := range sets {
		if m.clusters[set] += n; m.clusters[set] == 0 {
			delete(m.clusters, set)
		}
	}
}

// RemoveCluster drops a deleted cluster.
func (m *SetMembership) RemoveCluster(cluster string) {
	m.countClusters(m.byCluster[cluster], -1)
	delete(m.byCluster, cluster)
}

// CountClusters returns the number of clusters that are in a set.
func (m *SetMembership) CountClusters(set string) int { return m.clusters[set] }

// SetsOf lists by name the sets that the cluster is in; shared.
func (m *SetMembership) SetsOf(cluster string) []string { return m.byCluster[cluster] }

// NewDefaultSet returns the set that a new hub has: all clusters, for namespaces without
// bindings.
func NewDefaultSet() *v1alpha1.ClusterSet {
	return &v1alpha1.ClusterSet{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.DefaultClusterSet},
		Spec: v1alpha1.ClusterSetSpec{
			ClusterSelector:   v1alpha1.ClusterSetSelector{SelectorType: v1alpha1.SelectByLabels, LabelSelector: &metav1.LabelSelector{}},
			UnboundNamespaces: v1alpha1.UnboundAllow,
		},
	}
}

// SetGrants are the ClusterSets and the namespaces that may place on them. Make it with
// NewGrants. It is not safe for concurrent use.
type SetGrants struct {
	byName           map[string]*v1alpha1.ClusterSet
	boundByNamespace map[string]map[string]bool // namespace → names of sets
	openSets         []string                   // sets that need no binding, by name; replaced, never changed
}

// NewGrants returns a SetGrants without ClusterSets.
func NewGrants() SetGrants {
	return SetGrants{byName: map[string]*v1alpha1.ClusterSet{}, boundByNamespace: map[string]map[string]bool{}}
}

// Clone returns an independent copy.
func (g *SetGrants) Clone() SetGrants {
	out := SetGrants{byName: maps.Clone(g.byName), boundByNamespace: make(map[string]map[string]bool, len(g.boundByNamespace)), openSets: g.openSets}
	for ns, own := range g.boundByNamespace {
		out.boundByNamespace[ns] = maps.Clone(own)
	}
	return out
}

// Get returns a ClusterSet by name.
func (g *SetGrants) Get(name string) (*v1alpha1.ClusterSet, bool) {
	v, ok := g.byName[name]
	return v, ok
}

// Names returns the names of all ClusterSets, sorted.
func (g *SetGrants) Names() []string { return slices.Sorted(maps.Keys(g.byName)) }

// StoreClusterSet stores a ClusterSet, or removes the ClusterSet when v is nil. opened is true when
// the list of sets open to namespaces without bindings has changed. opened: namespaces without
// bindings may place on other sets than before.
func (g *SetGrants) StoreClusterSet(name string, v *v1alpha1.ClusterSet) (opened bool) {
	if v == nil {
		delete(g.byName, name)
	} else {
		g.byName[name] = v
	}
	var open []string
	for _, s := range g.byName {
		if s.Spec.UnboundNamespaces == v1alpha1.UnboundAllow {
			open = append(open, s.Name)
		}
	}
	slices.Sort(open)
	opened = !slices.Equal(open, g.openSets)
	g.openSets = open
	return opened
}

// BindNamespace binds a namespace to a set, or removes the binding, and reports whether this
// changed something.
func (g *SetGrants) BindNamespace(namespace, set string, bound bool) (changed bool) {
	own := g.boundByNamespace[namespace]
	changed = own[set] != bound
	switch {
	case !bound:
		if delete(own, set); len(own) == 0 {
			delete(g.boundByNamespace, namespace)
		}
	case own == nil:
		g.boundByNamespace[namespace] = map[string]bool{set: true}
	default:
		own[set] = true
	}
	return changed
}

// SetsOfNamespace lists by name the sets that the namespace may place on: those of its
// bindings, or without any binding the open ones. The list may be empty, and is shared.
func (g *SetGrants) SetsOfNamespace(namespace string) []string {
	if own := g.boundByNamespace[namespace]; len(own) > 0 {
		return slices.Sorted(maps.Keys(own))
	}
	return g.openSets
}

// HasBinding reports whether the namespace has a binding to the set.
func (g *SetGrants) HasBinding(namespace, set string) bool { return g.boundByNamespace[namespace][set] }

// OpenSets lists by name the sets that namespaces without bindings may place on; shared.
func (g *SetGrants) OpenSets() []string { return g.openSets }

// IncludesAllClusters reports whether one of the sets holds every present and future
// cluster.
func (g *SetGrants) IncludesAllClusters(sets []string) bool {
	return slices.ContainsFunc(sets, func(name string) bool {
		v, ok := g.byName[name]
		return ok && v.Spec.ClusterSelector.SelectorType == v1alpha1.SelectByLabels && selectsEverything(v.Spec.ClusterSelector.LabelSelector)
	})
}

func selectsEverything(s *metav1.LabelSelector) bool {
	return s != nil && len(s.MatchLabels)+len(s.MatchExpressions) == 0
}

// AllowedClusterSets returns the sets that such a policy or annotation may place on in a
// namespace; nil: it is not limited. Cluster policies and objects without a namespace are
// not limited.
func AllowedClusterSets(namespace, source string, bound func(namespace string) []string) []string {
	if namespace == "" || source == v1alpha1.SourceClusterPropagationPolicy {
		return nil
	}
	return append([]string{}, bound(namespace)...)
}
