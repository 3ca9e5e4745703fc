package schedule

import (
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"atoll.dev/atoll/api/v1alpha1"
)

// Membership is which clusters are in which ClusterSets. Make it with NewMembership; not
// for several goroutines at once.
type Membership struct {
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

// NewMembership without sets and clusters.
func NewMembership() Membership {
	return Membership{exclusive: map[string]bool{}, byCluster: map[string][]string{}, shared: map[string][]string{}}
}

// Clone of it, which changes apart.
func (m *Membership) Clone() Membership {
	return Membership{
		exclusive: maps.Clone(m.exclusive), selecting: slices.Clone(m.selecting),
		byCluster: maps.Clone(m.byCluster), shared: maps.Clone(m.shared),
	}
}

// Define a set, or with nil take it away. Which clusters that brings in or out, Put tells
// of each.
func (m *Membership) Define(name string, s *v1alpha1.ClusterSetSelector) {
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

// Of a cluster with these labels: the sets that it would be in, by name; shared.
func (m *Membership) Of(of map[string]string) []string {
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

func (m *Membership) share(names []string) []string {
	if len(names) == 0 {
		return nil
	}
	key := strings.Join(names, ",")
	if known, ok := m.shared[key]; ok {
		return known
	}
	return names
}

// Put notes a cluster's labels and tells whether its sets changed.
func (m *Membership) Put(cluster string, of map[string]string) bool {
	names := m.Of(of)
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

// Drop a cluster that is gone.
func (m *Membership) Drop(cluster string) { delete(m.byCluster, cluster) }

// Sets that the cluster of that name is in, by name; shared.
func (m *Membership) Sets(cluster string) []string { return m.byCluster[cluster] }

// DefaultSet is what a fresh hub has: a set of all clusters, on which namespaces without
// bindings may place.
func DefaultSet() *v1alpha1.ClusterSet {
	return &v1alpha1.ClusterSet{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.DefaultClusterSet},
		Spec: v1alpha1.ClusterSetSpec{
			ClusterSelector:   v1alpha1.ClusterSetSelector{SelectorType: v1alpha1.SelectByLabels, LabelSelector: &metav1.LabelSelector{}},
			UnboundNamespaces: v1alpha1.UnboundAllow,
		},
	}
}

// Grants are the ClusterSets, and which of them namespaces may place on. Make it with
// NewGrants; not for several goroutines at once.
type Grants struct {
	byName map[string]*v1alpha1.ClusterSet
	bound  map[string]map[string]bool // namespace → names of sets
	open   []string                   // sets that need no binding, by name; replaced, never changed
}

// NewGrants of nothing.
func NewGrants() Grants {
	return Grants{byName: map[string]*v1alpha1.ClusterSet{}, bound: map[string]map[string]bool{}}
}

// Clone of it, which changes apart.
func (g *Grants) Clone() Grants {
	out := Grants{byName: maps.Clone(g.byName), bound: make(map[string]map[string]bool, len(g.bound)), open: g.open}
	for ns, own := range g.bound {
		out.bound[ns] = maps.Clone(own)
	}
	return out
}

// Get a ClusterSet.
func (g *Grants) Get(name string) (*v1alpha1.ClusterSet, bool) {
	v, ok := g.byName[name]
	return v, ok
}

// Set a ClusterSet, or with nil take it away; opened tells whether namespaces without
// bindings may place on others than before.
func (g *Grants) Set(name string, v *v1alpha1.ClusterSet) (opened bool) {
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
	opened = !slices.Equal(open, g.open)
	g.open = open
	return opened
}

// Bind a namespace to a set, or take the binding away, and tell whether that is new.
func (g *Grants) Bind(namespace, set string, bound bool) (changed bool) {
	own := g.bound[namespace]
	changed = own[set] != bound
	switch {
	case !bound:
		if delete(own, set); len(own) == 0 {
			delete(g.bound, namespace)
		}
	case own == nil:
		g.bound[namespace] = map[string]bool{set: true}
	default:
		own[set] = true
	}
	return changed
}

// Bound lists by name the sets that the namespace may place on: those of its bindings,
// or without any binding those that need none. The list may be empty, and is shared.
func (g *Grants) Bound(namespace string) []string {
	if own := g.bound[namespace]; len(own) > 0 {
		return slices.Sorted(maps.Keys(own))
	}
	return g.open
}

// BoundBy tells whether the namespace has a binding to the set.
func (g *Grants) BoundBy(namespace, set string) bool { return g.bound[namespace][set] }

// Open lists by name the sets that namespaces without bindings may place on; shared.
func (g *Grants) Open() []string { return g.open }

// HoldsAll tells whether one of the sets holds every cluster that there is or will be.
func (g *Grants) HoldsAll(sets []string) bool {
	return slices.ContainsFunc(sets, func(name string) bool {
		v, ok := g.byName[name]
		return ok && v.Spec.ClusterSelector.SelectorType == v1alpha1.SelectByLabels && everything(v.Spec.ClusterSelector.LabelSelector)
	})
}

func everything(s *metav1.LabelSelector) bool {
	return s != nil && len(s.MatchLabels)+len(s.MatchExpressions) == 0
}

// Limits are the sets that limit what a policy or annotation of such a kind places in a
// namespace: those that it may place on; nil: none do. Who writes cluster policies, or
// places what is in no namespace, is bound to none.
func Limits(namespace, source string, bound func(namespace string) []string) []string {
	if namespace == "" || source == v1alpha1.SourceClusterPropagationPolicy {
		return nil
	}
	return append([]string{}, bound(namespace)...)
}
