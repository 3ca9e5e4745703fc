package overrides

import (
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
)

// CompiledRule is a rule whose parts are parsed at their first use.
type CompiledRule struct {
	*atoll.Rule
	target      *schedule.ClusterTarget // nil before its first use
	steps       []overrideStep
	expressions []string
	// isParsed: steps and expressions are set.
	isParsed bool
}

// MatchesCluster returns whether the rule targets the cluster.
func (r *CompiledRule) MatchesCluster(c *atoll.ClusterView) bool {
	if r.target == nil {
		r.target = schedule.CompileTarget(r.Target)
	}
	return r.target.MatchesCluster(c)
}

// parseStepsAndExpressions returns the steps of the rule in the order of their application, and the expressions
// of which it takes values.
func (r *CompiledRule) parseStepsAndExpressions() (does []overrideStep, texts []string) {
	if !r.isParsed {
		r.steps, r.expressions, r.isParsed = listSteps(&r.Overriders), ListExpressions(&r.Overriders), true
	}
	return r.steps, r.expressions
}

// Expressions returns the expressions of the rule, for the policy's common cost bound.
func (r *CompiledRule) Expressions() []string {
	_, texts := r.parseStepsAndExpressions()
	return texts
}
