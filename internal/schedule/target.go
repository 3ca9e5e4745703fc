package schedule

import (
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// ClusterTarget is what a rule selects clusters by, compiled. It applies the filter table to
// selectors, so that the same words mean the same clusters as in a placement. Read-only.
type ClusterTarget struct {
	clusterSelectors
	rules []*filterRule
}

// CompileTarget compiles the target of a rule; nil selects every cluster. A malformed
// target selects none; admission keeps it out.
func CompileTarget(from *v1alpha1.ClusterTarget) *ClusterTarget {
	t := &ClusterTarget{}
	if from == nil {
		return t
	}
	t.setAffinity(&from.ClusterAffinity)
	t.setClusterSets(from.ClusterSets)
	t.setExpression(from.CELSelector)
	for i := range filterTable {
		if r := &filterTable[i]; r.refuseView != nil && !r.isPlacementWide && r.isStated(&t.clusterSelectors) {
			t.rules = append(t.rules, r)
		}
	}
	return t
}

// MatchesCluster reports whether the target selects the cluster.
func (t *ClusterTarget) MatchesCluster(c *atoll.ClusterView) bool {
	for _, r := range t.rules {
		if _, refused := r.refuseView(&t.clusterSelectors, c, false); refused {
			return false
		}
	}
	return true
}

// onlyLabel returns the label that the target requires, if it requires one and nothing else.
func (t *ClusterTarget) onlyLabel() (label labelPair, only bool) {
	if len(t.rules) != 1 || !t.onlyEqual || len(t.equalLabels) != 1 || t.labelSelector == nil || t.labelsError != nil {
		return labelPair{}, false
	}
	return t.equalLabels[0], true
}
