package schedule

import (
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// Target is what a rule selects clusters by, made ready to be asked: by the selectors of
// placements, so that the same words mean the same clusters.
type Target struct{ selectors }

// CompileTarget of a rule; nil selects every cluster. What is malformed selects none;
// admission keeps it out.
func CompileTarget(t *v1alpha1.ClusterTarget) *Target {
	if t == nil {
		return &Target{}
	}
	out := &Target{}
	out.choose(&t.ClusterAffinity)
	if len(t.ClusterSets) > 0 {
		out.sets = set(t.ClusterSets)
	}
	out.compileCEL(t.CELSelector)
	return out
}

// Matches a cluster.
func (t *Target) Matches(c *atoll.ClusterView) bool { return t.matches(c) }
