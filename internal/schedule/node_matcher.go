package schedule

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"atoll.dev/atoll/internal/freecapacity"
)

// nodeMatcher decides by the labels that pods require of their nodes. Requirements of the names of nodes, and
// of labels that an agent leaves out, count as met. Read-only.
type nodeMatcher struct {
	selector map[string]string
	// terms of the required node affinity, of which one has to match; nil: there is none.
	terms []nodeTerm
}

// nodeTerm is the expressions of a term, which all have to match.
type nodeTerm []nodeExpression

// nodeExpression is a requirement of one label, as Kubernetes compiles it.
type nodeExpression struct {
	key      string
	compiled *nodeaffinity.LazyErrorNodeSelector
}

// compileRequests returns the requests with their matcher.
func compileRequests(r freecapacity.ReplicaRequests) freecapacity.ReplicaRequests {
	if len(r.NodeSelector) == 0 && r.NodeAffinity == nil {
		return r
	}
	m := &nodeMatcher{selector: maps.Clone(r.NodeSelector)}
	if r.NodeAffinity != nil {
		m.terms = []nodeTerm{}
		for i := range r.NodeAffinity.NodeSelectorTerms {
			term := &r.NodeAffinity.NodeSelectorTerms[i]
			if len(term.MatchExpressions)+len(term.MatchFields) > 0 { // an empty term matches no node
				m.terms = append(m.terms, compileTerm(term))
			}
		}
	}
	r.Matcher = m
	return r
}

func compileTerm(term *corev1.NodeSelectorTerm) nodeTerm {
	out := nodeTerm{}
	for _, e := range term.MatchExpressions {
		one := &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{e}}}}
		out = append(out, nodeExpression{e.Key, nodeaffinity.NewLazyErrorNodeSelector(one)})
	}
	return out
}

// MatchesGroup reports whether pods may run on the nodes of a group.
func (m *nodeMatcher) MatchesGroup(g *freecapacity.NodeGroup) bool {
	if g == nil {
		return true
	}
	for key, value := range m.selector {
		if got, has := g.Labels[key]; (!has || got != value) && (has || !g.IsUnreportedLabel(key)) {
			return false
		}
	}
	if m.terms == nil {
		return true
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: g.Labels}}
	return slices.ContainsFunc(m.terms, func(t nodeTerm) bool { return t.matchesNode(node, g) })
}

// matchesNode reports whether all expressions match that can be judged.
func (t nodeTerm) matchesNode(node *corev1.Node, g *freecapacity.NodeGroup) bool {
	for i := range t {
		e := &t[i]
		if _, has := node.Labels[e.key]; !has && g.IsUnreportedLabel(e.key) {
			continue
		}
		if matches, err := e.compiled.Match(node); !matches && err == nil {
			return false // the member judges an expression that cannot be read
		}
	}
	return true
}
