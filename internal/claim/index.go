package claim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// Index finds the policies that may select an object, by its kind and its name. The
// zero value is empty. What changes it may not be called while anything else is.
type Index struct {
	namespaced map[string]*policySet
	cluster    *policySet
}

// policySet is the policies of one kind in one namespace.
type policySet struct {
	all   map[string]*Policy
	kinds map[schema.GroupKind]*choosers
}

// choosers of objects of one kind.
type choosers struct {
	open  map[string]*Policy            // by labels, or all of the kind
	named map[string]map[string]*Policy // by the names of the objects
}

// Policy is a propagation policy, ready to match.
type Policy struct {
	source    v1alpha1.BundleSource
	namespace string // of a PropagationPolicy
	spec      *v1alpha1.PropagationSpec
	created   time.Time
	selectors map[schema.GroupKind]*selectors
}

// selectors of one kind.
type selectors struct {
	open  []selector
	named map[string][]selector
}

type selector struct {
	namespace, name string
	labels          labels.Selector // nil: any
}

// SetNamespace replaces the PropagationPolicies of a namespace.
func (x *Index) SetNamespace(ns string, policies []*v1alpha1.PropagationPolicy) {
	set := newPolicySet()
	for _, p := range policies {
		set.add(Compile(v1alpha1.SourcePropagationPolicy, &p.ObjectMeta, &p.Spec))
	}
	if x.namespaced == nil {
		x.namespaced = map[string]*policySet{}
	}
	if x.namespaced[ns] = set; len(set.all) == 0 {
		delete(x.namespaced, ns)
	}
}

// SetCluster replaces the ClusterPropagationPolicies.
func (x *Index) SetCluster(policies []*v1alpha1.ClusterPropagationPolicy) {
	set := newPolicySet()
	for _, p := range policies {
		set.add(Compile(v1alpha1.SourceClusterPropagationPolicy, &p.ObjectMeta, &p.Spec))
	}
	x.cluster = set
}

// Clone gives an index of the same policies that changes apart from this one.
func (x *Index) Clone() Index {
	out := Index{cluster: x.cluster.clone()}
	for ns, set := range x.namespaced {
		if out.namespaced == nil {
			out.namespaced = make(map[string]*policySet, len(x.namespaced))
		}
		out.namespaced[ns] = set.clone()
	}
	return out
}

func (s *policySet) clone() *policySet {
	if s == nil {
		return nil
	}
	out := &policySet{all: maps.Clone(s.all), kinds: make(map[schema.GroupKind]*choosers, len(s.kinds))}
	for gk, c := range s.kinds {
		one := &choosers{open: maps.Clone(c.open), named: make(map[string]map[string]*Policy, len(c.named))}
		for name, set := range c.named {
			one.named[name] = maps.Clone(set)
		}
		out.kinds[gk] = one
	}
	return out
}

// Set the policy of that kind and name, or take it out when now is nil, and give what it
// was; nil if it was not there.
func (x *Index) Set(kind, namespace, name string, now *Policy) (was *Policy) {
	set := x.cluster
	if kind == v1alpha1.SourcePropagationPolicy {
		set = x.namespaced[namespace]
	}
	switch {
	case set != nil:
	case now == nil:
		return nil
	case kind == v1alpha1.SourcePropagationPolicy:
		if x.namespaced == nil {
			x.namespaced = map[string]*policySet{}
		}
		set = newPolicySet()
		x.namespaced[namespace] = set
	default:
		set = newPolicySet()
		x.cluster = set
	}
	if was = set.all[name]; was != nil {
		set.remove(was)
	}
	if now != nil {
		set.add(now)
	}
	if len(set.all) == 0 && kind == v1alpha1.SourcePropagationPolicy {
		delete(x.namespaced, namespace)
	}
	return was
}

func newPolicySet() *policySet {
	return &policySet{all: map[string]*Policy{}, kinds: map[schema.GroupKind]*choosers{}}
}

func (s *policySet) add(p *Policy) {
	s.all[p.source.Name] = p
	for gk, sel := range p.selectors {
		c := s.kinds[gk]
		if c == nil {
			c = &choosers{open: map[string]*Policy{}, named: map[string]map[string]*Policy{}}
			s.kinds[gk] = c
		}
		if len(sel.open) > 0 {
			c.open[p.source.Name] = p
			continue // and by name with it
		}
		for name := range sel.named {
			if c.named[name] == nil {
				c.named[name] = map[string]*Policy{}
			}
			c.named[name][p.source.Name] = p
		}
	}
}

func (s *policySet) remove(p *Policy) {
	delete(s.all, p.source.Name)
	for gk, sel := range p.selectors {
		c := s.kinds[gk]
		delete(c.open, p.source.Name)
		for name := range sel.named {
			if delete(c.named[name], p.source.Name); len(c.named[name]) == 0 {
				delete(c.named, name)
			}
		}
		if len(c.open)+len(c.named) == 0 {
			delete(s.kinds, gk)
		}
	}
}

// Compile a policy of the kind, to match objects by. A selector that is malformed, which
// admission keeps out, selects nothing.
func Compile(kind string, meta *metav1.ObjectMeta, spec *v1alpha1.PropagationSpec) *Policy {
	p := &Policy{
		source:    v1alpha1.BundleSource{Kind: kind, Name: meta.Name, UID: string(meta.UID)},
		namespace: meta.Namespace, spec: spec, created: meta.CreationTimestamp.Time,
		selectors: map[schema.GroupKind]*selectors{},
	}
	for _, rs := range spec.ResourceSelectors {
		s, ok := compileSelector(rs)
		if !ok {
			continue
		}
		gk := KindOf(rs)
		of := p.selectors[gk]
		if of == nil {
			of = &selectors{named: map[string][]selector{}}
			p.selectors[gk] = of
		}
		if s.name == "" {
			of.open = append(of.open, s)
		} else {
			of.named[s.name] = append(of.named[s.name], s)
		}
	}
	return p
}

// compileSelector is false for a malformed selector, which admission keeps out and
// which selects nothing.
func compileSelector(rs v1alpha1.ResourceSelector) (selector, bool) {
	s := selector{namespace: rs.Namespace, name: rs.Name}
	if rs.LabelSelector != nil {
		sel, err := metav1.LabelSelectorAsSelector(rs.LabelSelector)
		if err != nil {
			return s, false
		}
		s.labels = sel
	}
	return s, true
}

// KindOf a selector chooses.
func KindOf(rs v1alpha1.ResourceSelector) schema.GroupKind {
	gv, err := schema.ParseGroupVersion(rs.APIVersion)
	if err != nil {
		return schema.GroupKind{}
	}
	return schema.GroupKind{Group: gv.Group, Kind: rs.Kind}
}

// match tells whether the selector chooses the object and how specifically: a name
// counts more than labels, those more than a kind; a namespace in a cluster policy
// breaks ties.
func (s selector) match(sub Subject) (specificity int, why string, ok bool) {
	if s.namespace != "" && s.namespace != sub.Key.Namespace {
		return 0, "", false
	}
	if s.namespace != "" {
		specificity++
	}
	if s.name != "" {
		return specificity + 4, "by name", s.name == sub.Key.Name
	}
	if beyond := Beyond(sub); beyond != "" {
		return 0, "", false
	}
	if s.namespace == "" && systemNamespaces[sub.Key.Namespace] {
		return 0, "", false
	}
	if s.labels != nil {
		return specificity + 2, fmt.Sprintf("by labels %q", s.labels), s.labels.Matches(labels.Set(sub.Labels))
	}
	return specificity, "by kind", true
}

// Candidate is something that wants to place an object.
type Candidate struct {
	Source v1alpha1.BundleSource
	// Spec of the policy, or what the annotation stands for.
	Spec *v1alpha1.PropagationSpec
	// Matched says by what it selects the object.
	Matched string

	level       int
	specificity int
	created     time.Time
}

// The levels, in the order in which they win.
const (
	levelClusterPolicy = iota + 1
	levelPolicy
	levelNamespace
	levelObject
)

// candidates gives the policies that select the object, best first.
func (x *Index) candidates(sub Subject) []Candidate {
	var out []Candidate
	if sub.Key.Namespace != "" {
		out = x.namespaced[sub.Key.Namespace].match(out, sub, levelPolicy)
	}
	out = x.cluster.match(out, sub, levelClusterPolicy)
	slices.SortFunc(out, compare)
	return out
}

func (s *policySet) match(out []Candidate, sub Subject, level int) []Candidate {
	if s == nil {
		return out
	}
	c := s.kinds[GroupKind(sub.Key)]
	if c == nil {
		return out
	}
	for _, policies := range []map[string]*Policy{c.open, c.named[sub.Key.Name]} {
		for _, p := range policies {
			if best, ok := p.Match(sub); ok {
				best.level = level
				out = append(out, best)
			}
		}
	}
	return out
}

// Match gives the policy as a candidate for an object that it selects, by the most
// specific of its selectors.
func (p *Policy) Match(sub Subject) (best Candidate, ok bool) {
	if p == nil {
		return best, false
	}
	of := p.selectors[GroupKind(sub.Key)]
	if of == nil {
		return best, false
	}
	best = Candidate{Source: p.source, Spec: p.spec, created: p.created, specificity: -1}
	for _, list := range [][]selector{of.open, of.named[sub.Key.Name]} {
		for _, s := range list {
			if n, why, ok := s.match(sub); ok && n > best.specificity {
				best.specificity, best.Matched = n, why
			}
		}
	}
	return best, best.specificity >= 0
}

// compare sorts who wins first.
func compare(a, b Candidate) int {
	return cmp.Or(
		cmp.Compare(b.level, a.level),
		cmp.Compare(b.Spec.Priority, a.Spec.Priority),
		cmp.Compare(b.specificity, a.specificity),
		a.created.Compare(b.created),
		strings.Compare(a.Source.Name, b.Source.Name),
	)
}

// Named lists what policies select by name, without the namespace, and the kinds of
// which they select by labels, or all.
func Named(policies ...*Policy) (names []atoll.ItemKey, open map[schema.GroupKind]bool) {
	open = map[schema.GroupKind]bool{}
	for _, p := range policies {
		if p == nil {
			continue
		}
		for gk, of := range p.selectors {
			if len(of.open) > 0 {
				open[gk] = true
			}
			for name := range of.named {
				names = append(names, atoll.ItemKey{Group: gk.Group, Kind: gk.Kind, Name: name})
			}
		}
	}
	return names, open
}
