package bind

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/api/v1alpha1"
)

// Index finds the policies that may select an object by its kind. The zero value
// is empty; all methods may be called concurrently.
type Index struct {
	mu         sync.RWMutex
	namespaced map[string]map[schema.GroupKind][]*policy
	cluster    map[schema.GroupKind][]*policy
}

// policy is a propagation policy, ready to match.
type policy struct {
	source    v1alpha1.BundleSource
	namespace string // of a PropagationPolicy
	spec      *v1alpha1.PropagationSpec
	created   time.Time
	selectors map[schema.GroupKind][]selector
}

type selector struct {
	namespace, name string
	labels          labels.Selector // nil: any
}

// SetNamespace replaces the PropagationPolicies of a namespace.
func (x *Index) SetNamespace(ns string, policies []*v1alpha1.PropagationPolicy) {
	by := map[schema.GroupKind][]*policy{}
	for _, p := range policies {
		add(by, compile(v1alpha1.SourcePropagationPolicy, &p.ObjectMeta, &p.Spec))
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.namespaced == nil {
		x.namespaced = map[string]map[schema.GroupKind][]*policy{}
	}
	if x.namespaced[ns] = by; len(by) == 0 {
		delete(x.namespaced, ns)
	}
}

// SetCluster replaces the ClusterPropagationPolicies.
func (x *Index) SetCluster(policies []*v1alpha1.ClusterPropagationPolicy) {
	by := map[schema.GroupKind][]*policy{}
	for _, p := range policies {
		add(by, compile(v1alpha1.SourceClusterPropagationPolicy, &p.ObjectMeta, &p.Spec))
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.cluster = by
}

func add(by map[schema.GroupKind][]*policy, p *policy) {
	for gk := range p.selectors {
		by[gk] = append(by[gk], p)
	}
}

func compile(kind string, meta *metav1.ObjectMeta, spec *v1alpha1.PropagationSpec) *policy {
	p := &policy{
		source:    v1alpha1.BundleSource{Kind: kind, Name: meta.Name, UID: string(meta.UID)},
		namespace: meta.Namespace, spec: spec, created: meta.CreationTimestamp.Time,
		selectors: map[schema.GroupKind][]selector{},
	}
	for _, rs := range spec.ResourceSelectors {
		if s, ok := compileSelector(rs); ok {
			gk := kindOf(rs)
			p.selectors[gk] = append(p.selectors[gk], s)
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

func kindOf(rs v1alpha1.ResourceSelector) schema.GroupKind {
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
	gk := groupKind(sub.Key)
	var out []Candidate
	x.mu.RLock()
	if sub.Key.Namespace != "" {
		out = match(out, x.namespaced[sub.Key.Namespace][gk], sub, levelPolicy)
	}
	out = match(out, x.cluster[gk], sub, levelClusterPolicy)
	x.mu.RUnlock()
	slices.SortFunc(out, compare)
	return out
}

func match(out []Candidate, policies []*policy, sub Subject, level int) []Candidate {
	for _, p := range policies {
		best := Candidate{Source: p.source, Spec: p.spec, level: level, created: p.created, specificity: -1}
		for _, s := range p.selectors[groupKind(sub.Key)] {
			if n, why, ok := s.match(sub); ok && n > best.specificity {
				best.specificity, best.Matched = n, why
			}
		}
		if best.specificity >= 0 {
			out = append(out, best)
		}
	}
	return out
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
