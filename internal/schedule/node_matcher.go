package schedule

import (
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"atoll.dev/atoll/internal/freecapacity"
)

// nodeMatcher decides by what pods require of the labels of their nodes. What they require of the names of
// nodes, and of labels that an agent leaves out, counts as met. Safe for concurrent use.
type nodeMatcher struct {
	selector map[string]string
	affinity *corev1.NodeSelector
	// keys of the labels that are required, and the whole requirement.
	keys  []string
	whole nodeaffinity.RequiredNodeAffinity

	mu sync.Mutex
	// partial requirements by the unknown keys, as bits.
	partial map[uint64]*nodeaffinity.RequiredNodeAffinity
}

// maxMatchedKeys is how many labels pods may require. More count as met.
const maxMatchedKeys = 64

// compileRequests returns the requests with their matcher.
func compileRequests(r freecapacity.ReplicaRequests) freecapacity.ReplicaRequests {
	if len(r.NodeSelector) == 0 && r.NodeAffinity == nil {
		return r
	}
	m := &nodeMatcher{selector: r.NodeSelector, affinity: r.NodeAffinity, partial: map[uint64]*nodeaffinity.RequiredNodeAffinity{}}
	keys := slices.Collect(maps.Keys(r.NodeSelector))
	if r.NodeAffinity != nil {
		for i := range r.NodeAffinity.NodeSelectorTerms {
			for _, e := range r.NodeAffinity.NodeSelectorTerms[i].MatchExpressions {
				keys = append(keys, e.Key)
			}
		}
	}
	slices.Sort(keys)
	if m.keys = slices.Compact(keys); len(m.keys) > maxMatchedKeys {
		return r
	}
	m.whole, r.Matcher = m.compileWithout(0), m
	return r
}

// nodePool has empty nodes for the labels of a group: a Node is large, and groups are many.
var nodePool = sync.Pool{New: func() any { return &corev1.Node{} }}

// MatchesGroup reports whether pods may run on the nodes of a group.
func (m *nodeMatcher) MatchesGroup(g *freecapacity.NodeGroup) bool {
	if g == nil {
		return true
	}
	unknown := uint64(0)
	for i, key := range m.keys {
		if _, has := g.Labels[key]; !has && g.IsUnreportedLabel(key) {
			unknown |= 1 << i
		}
	}
	required := &m.whole
	if unknown != 0 {
		required = m.requirementWithout(unknown)
	}
	node := nodePool.Get().(*corev1.Node)
	node.Labels = g.Labels
	matches, err := required.Match(node)
	node.Labels = nil
	nodePool.Put(node)
	return matches || err != nil // the member judges what cannot be read
}

func (m *nodeMatcher) requirementWithout(unknown uint64) *nodeaffinity.RequiredNodeAffinity {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.partial[unknown]
	if r == nil {
		compiled := m.compileWithout(unknown)
		r = &compiled
		m.partial[unknown] = r
	}
	return r
}

// compileWithout compiles the requirement without the unknown keys, and without names of nodes.
func (m *nodeMatcher) compileWithout(unknown uint64) nodeaffinity.RequiredNodeAffinity {
	isUnknown := func(key string) bool {
		at, found := slices.BinarySearch(m.keys, key)
		return found && unknown&(1<<at) != 0
	}
	pod := &corev1.Pod{}
	pod.Spec.NodeSelector = maps.Clone(m.selector)
	maps.DeleteFunc(pod.Spec.NodeSelector, func(key, _ string) bool { return isUnknown(key) })
	if terms, all := m.knownTerms(isUnknown); !all {
		pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}}}
	}
	return nodeaffinity.GetRequiredNodeAffinity(pod)
}

// knownTerms returns the terms of the affinity without what is unknown. all: every node may match.
func (m *nodeMatcher) knownTerms(isUnknown func(key string) bool) (terms []corev1.NodeSelectorTerm, all bool) {
	if m.affinity == nil {
		return nil, true
	}
	for i := range m.affinity.NodeSelectorTerms {
		term := m.affinity.NodeSelectorTerms[i]
		if len(term.MatchExpressions)+len(term.MatchFields) == 0 {
			continue // an empty term matches no node
		}
		known := slices.DeleteFunc(slices.Clone(term.MatchExpressions), func(e corev1.NodeSelectorRequirement) bool { return isUnknown(e.Key) })
		if len(known) == 0 {
			return nil, true
		}
		terms = append(terms, corev1.NodeSelectorTerm{MatchExpressions: known})
	}
	return terms, false
}
