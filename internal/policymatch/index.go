package policymatch

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

// PolicyIndex finds the policies that may select an object, by its kind and name. The zero value is
// empty. No other method may run while a Set method runs.
type PolicyIndex struct {
	namespaced map[string]*policySet
	cluster    *policySet
	// hubDefault places what no policy and no annotation selects; nil: nothing does.
	hubDefault     *v1alpha1.PropagationSpec
	hubDefaultText string
}

// policySet holds the policies of one kind in one namespace.
type policySet struct {
	all    map[string]*CompiledPolicy
	byKind map[schema.GroupKind]*kindPolicies
}

// kindPolicies are the policies that select objects of one kind.
type kindPolicies struct {
	unnamed map[string]*CompiledPolicy            // by labels, or all of the kind
	byName  map[string]map[string]*CompiledPolicy // by the names of the objects
}

// CompiledPolicy is a propagation policy with parsed selectors.
type CompiledPolicy struct {
	source    v1alpha1.BundleSource
	namespace string // of a PropagationPolicy
	spec      *v1alpha1.PropagationSpec
	created   time.Time
	selectors map[schema.GroupKind]*kindSelectors
}

// kindSelectors are a policy's selectors of one kind.
type kindSelectors struct {
	unnamed []compiledSelector
	byName  map[string][]compiledSelector
}

type compiledSelector struct {
	namespace, name string
	labels          labels.Selector // nil: any
}

// SetNamespacePolicies replaces the PropagationPolicies of a namespace.
func (x *PolicyIndex) SetNamespacePolicies(ns string, policies []*v1alpha1.PropagationPolicy) {
	set := newPolicySet()
	for _, p := range policies {
		set.add(CompilePolicy(v1alpha1.SourcePropagationPolicy, &p.ObjectMeta, &p.Spec))
	}
	if x.namespaced == nil {
		x.namespaced = map[string]*policySet{}
	}
	if x.namespaced[ns] = set; len(set.all) == 0 {
		delete(x.namespaced, ns)
	}
}

// SetClusterPolicies replaces the ClusterPropagationPolicies.
func (x *PolicyIndex) SetClusterPolicies(policies []*v1alpha1.ClusterPropagationPolicy) {
	set := newPolicySet()
	for _, p := range policies {
		set.add(CompilePolicy(v1alpha1.SourceClusterPropagationPolicy, &p.ObjectMeta, &p.Spec))
	}
	x.cluster = set
}

// Clone returns an index of the same policies that changes independently.
func (x *PolicyIndex) Clone() PolicyIndex {
	out := PolicyIndex{cluster: x.cluster.clone(), hubDefault: x.hubDefault, hubDefaultText: x.hubDefaultText}
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
	out := &policySet{all: maps.Clone(s.all), byKind: make(map[schema.GroupKind]*kindPolicies, len(s.byKind))}
	for gk, c := range s.byKind {
		one := &kindPolicies{unnamed: maps.Clone(c.unnamed), byName: make(map[string]map[string]*CompiledPolicy, len(c.byName))}
		for name, set := range c.byName {
			one.byName[name] = maps.Clone(set)
		}
		out.byKind[gk] = one
	}
	return out
}

// SetPolicy replaces the policy of that kind and name, or removes it when now is nil. It returns
// the former policy, or nil.
func (x *PolicyIndex) SetPolicy(kind, namespace, name string, now *CompiledPolicy) (was *CompiledPolicy) {
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
	return &policySet{all: map[string]*CompiledPolicy{}, byKind: map[schema.GroupKind]*kindPolicies{}}
}

func (s *policySet) add(p *CompiledPolicy) {
	s.all[p.source.Name] = p
	for gk, sel := range p.selectors {
		c := s.byKind[gk]
		if c == nil {
			c = &kindPolicies{unnamed: map[string]*CompiledPolicy{}, byName: map[string]map[string]*CompiledPolicy{}}
			s.byKind[gk] = c
		}
		if len(sel.unnamed) > 0 {
			c.unnamed[p.source.Name] = p
			continue // and by name with it
		}
		for name := range sel.byName {
			if c.byName[name] == nil {
				c.byName[name] = map[string]*CompiledPolicy{}
			}
			c.byName[name][p.source.Name] = p
		}
	}
}

func (s *policySet) remove(p *CompiledPolicy) {
	delete(s.all, p.source.Name)
	for gk, sel := range p.selectors {
		c := s.byKind[gk]
		delete(c.unnamed, p.source.Name)
		for name := range sel.byName {
			if delete(c.byName[name], p.source.Name); len(c.byName[name]) == 0 {
				delete(c.byName, name)
			}
		}
		if len(c.unnamed)+len(c.byName) == 0 {
			delete(s.byKind, gk)
		}
	}
}

// CompilePolicy parses the selectors of a policy. A malformed selector, which admission rejects,
// selects nothing.
func CompilePolicy(kind string, meta *metav1.ObjectMeta, spec *v1alpha1.PropagationSpec) *CompiledPolicy {
	p := &CompiledPolicy{
		source:    v1alpha1.BundleSource{Kind: kind, Name: meta.Name, UID: string(meta.UID)},
		namespace: meta.Namespace, spec: spec, created: meta.CreationTimestamp.Time,
		selectors: map[schema.GroupKind]*kindSelectors{},
	}
	for _, rs := range spec.ResourceSelectors {
		s, ok := compileSelector(rs)
		if !ok {
			continue
		}
		gk := SelectorKind(rs)
		of := p.selectors[gk]
		if of == nil {
			of = &kindSelectors{byName: map[string][]compiledSelector{}}
			p.selectors[gk] = of
		}
		if s.name == "" {
			of.unnamed = append(of.unnamed, s)
		} else {
			of.byName[s.name] = append(of.byName[s.name], s)
		}
	}
	return p
}

// compileSelector returns false for a malformed selector, which admission rejects and which selects
// nothing. A name counts alone: labels are for selectors without a name.
func compileSelector(rs v1alpha1.ResourceSelector) (compiledSelector, bool) {
	s := compiledSelector{namespace: rs.Namespace, name: rs.Name}
	if rs.LabelSelector != nil && rs.Name == "" {
		sel, err := metav1.LabelSelectorAsSelector(rs.LabelSelector)
		if err != nil {
			return s, false
		}
		s.labels = sel
	}
	return s, true
}

// SelectorKind returns the kind that a selector chooses. The kind AllKinds stands for all kinds of the
// group, and the group AllKinds for those of all groups.
func SelectorKind(rs v1alpha1.ResourceSelector) schema.GroupKind {
	if rs.APIVersion == AllKinds {
		return schema.GroupKind{Group: AllKinds, Kind: rs.Kind}
	}
	gv, err := schema.ParseGroupVersion(rs.APIVersion)
	if err != nil {
		return schema.GroupKind{}
	}
	return schema.GroupKind{Group: gv.Group, Kind: rs.Kind}
}

// The parts of a selector's specificity. A name counts more than labels, labels more than a kind, a
// kind more than a whole group, and a group more than everything. A namespace in a cluster policy
// breaks ties.
const (
	specificNamespace = 1 << iota
	specificGroup
	specificKind
	specificLabels
	specificName
)

// matchSubject returns whether the selector of that kind chooses the object, and how specifically.
func (s compiledSelector) matchSubject(sub Subject, kind schema.GroupKind) (specificity int, why string, ok bool) {
	if s.namespace != "" && s.namespace != sub.Key.Namespace {
		return 0, "", false
	}
	if s.namespace != "" {
		specificity += specificNamespace
	}
	if s.name != "" {
		return specificity + specificName, "by name", s.name == sub.Key.Name
	}
	if s.leavesOut(sub, kind) {
		return 0, "", false
	}
	of, why := selectorKindSpecificity(kind)
	specificity += of
	if s.labels != nil {
		return specificity + specificLabels, fmt.Sprintf("by labels %q", s.labels), s.labels.Matches(labels.Set(sub.Labels))
	}
	return specificity, why, true
}

// leavesOut returns whether a selector without a name passes over the object, because machinery made
// it.
func (s compiledSelector) leavesOut(sub Subject, kind schema.GroupKind) bool {
	if kind.Kind == AllKinds && DefaultExclusionReason(sub) != "" {
		return true
	}
	return UnselectableReason(sub) != "" || s.namespace == "" && systemNamespaces[sub.Key.Namespace]
}

// Candidate is a policy or an annotation that can place an object.
type Candidate struct {
	Source v1alpha1.BundleSource
	// Spec of the policy, or what the annotation stands for.
	Spec *v1alpha1.PropagationSpec
	// MatchedBy is the part of the selector that matched.
	MatchedBy string

	level       int
	specificity int
	// isWide: a selector of all kinds matched.
	isWide  bool
	created time.Time
}

// The levels, in the order in which they win.
const (
	levelHubDefault = iota
	levelClusterPolicy
	levelPolicy
	levelNamespace
	levelObject
)

// findCandidates returns the policies that select the object, best first.
func (x *PolicyIndex) findCandidates(sub Subject) []Candidate {
	var out []Candidate
	if sub.Key.Namespace != "" {
		out = x.namespaced[sub.Key.Namespace].appendMatches(out, sub, levelPolicy)
	}
	out = x.cluster.appendMatches(out, sub, levelClusterPolicy)
	slices.SortFunc(out, compareCandidates)
	return out
}

func (s *policySet) appendMatches(out []Candidate, sub Subject, level int) []Candidate {
	if s == nil {
		return out
	}
	from := len(out)
	for _, gk := range selectingKinds(GroupKindOf(sub.Key)) {
		c := s.byKind[gk]
		if c == nil {
			continue
		}
		for _, policies := range []map[string]*CompiledPolicy{c.unnamed, c.byName[sub.Key.Name]} {
			for _, p := range policies {
				if slices.ContainsFunc(out[from:], func(c Candidate) bool { return c.Source.Name == p.source.Name }) {
					continue // it selects the object by another kind, too
				}
				if best, ok := p.MatchSubject(sub); ok {
					best.level = level
					out = append(out, best)
				}
			}
		}
	}
	return out
}

// MatchSubject returns the policy as a candidate for an object that it selects, by its most
// specific selector.
func (p *CompiledPolicy) MatchSubject(sub Subject) (best Candidate, ok bool) {
	if p == nil {
		return best, false
	}
	best = Candidate{Source: p.source, Spec: p.spec, created: p.created, specificity: -1}
	for _, gk := range selectingKinds(GroupKindOf(sub.Key)) {
		of := p.selectors[gk]
		if of == nil {
			continue
		}
		for _, list := range [][]compiledSelector{of.unnamed, of.byName[sub.Key.Name]} {
			for _, s := range list {
				if n, why, ok := s.matchSubject(sub, gk); ok && n > best.specificity {
					best.specificity, best.MatchedBy, best.isWide = n, why, gk.Kind == AllKinds && s.name == ""
				}
			}
		}
	}
	return best, best.specificity >= 0
}

// compareCandidates sorts the winner first.
func compareCandidates(a, b Candidate) int {
	return cmp.Or(
		cmp.Compare(b.level, a.level),
		cmp.Compare(b.Spec.Priority, a.Spec.Priority),
		cmp.Compare(b.specificity, a.specificity),
		a.created.Compare(b.created),
		strings.Compare(a.Source.Name, b.Source.Name),
	)
}

// SelectedNames returns the names that policies select, without the namespace, and the kinds that
// they select by labels or as a whole.
func SelectedNames(policies ...*CompiledPolicy) (names []atoll.ItemKey, open map[schema.GroupKind]bool) {
	open = map[schema.GroupKind]bool{}
	for _, p := range policies {
		if p == nil {
			continue
		}
		for gk, of := range p.selectors {
			if len(of.unnamed) > 0 {
				open[gk] = true
			}
			for name := range of.byName {
				names = append(names, atoll.ItemKey{Group: gk.Group, Kind: gk.Kind, Name: name})
			}
		}
	}
	return names, open
}
