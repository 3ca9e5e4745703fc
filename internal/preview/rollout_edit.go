package preview

import (
	"fmt"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/phrase"
)

// RolloutEdit is which rollout a Bundle would have.
type RolloutEdit struct {
	// Before describes the rollout that the Bundle has; empty for a new Bundle.
	Before string `json:"before,omitempty"`
	// After describes the rollout that it would have.
	After string `json:"after"`
}

// NewRolloutEdit returns which rollout a Bundle would have; nil: it would keep its own. Before is nil for a new Bundle, of which only the
// rollout of a strategy is shown: its policy states any other.
func NewRolloutEdit(before, after *v1alpha1.BundleSpec) *RolloutEdit {
	switch {
	case before == nil && after.RolloutStrategy == nil:
		return nil
	case before == nil:
		return &RolloutEdit{After: describeRollout(after.Rollout, after.RolloutStrategy)}
	case apiequality.Semantic.DeepEqual(before.Rollout, after.Rollout) && apiequality.Semantic.DeepEqual(before.RolloutStrategy, after.RolloutStrategy):
		return nil
	}
	return &RolloutEdit{describeRollout(before.Rollout, before.RolloutStrategy), describeRollout(after.Rollout, after.RolloutStrategy)}
}

// describeRollout returns text such as "stages canary, europe (RolloutStrategy staged)".
func describeRollout(r *v1alpha1.Rollout, strategy *v1alpha1.AppliedStrategy) string {
	text := describeTerms(r)
	if strategy == nil {
		return text
	}
	text += " (" + strategy.String()
	if strategy.Enforced {
		text += ", enforced"
	}
	return text + ")"
}

// describeTerms returns what a rollout states, in a few words.
func describeTerms(r *v1alpha1.Rollout) string {
	if r == nil {
		return "none stated"
	}
	var parts []string
	switch {
	case len(r.AutoStages) > 0:
		var sizes []string
		for _, size := range r.AutoStageSizes() {
			sizes = append(sizes, size.String())
		}
		parts = append(parts, "automatic stages "+strings.Join(sizes, ", "))
	case len(r.Stages) > 0:
		var names []string
		for i := range r.Stages {
			names = append(names, r.Stages[i].Name)
		}
		parts = append(parts, "stages "+phrase.JoinFirst(names, maxNames, len(names)))
	default:
		parts = append(parts, "all clusters at once")
	}
	if r.MaxUnavailable != nil {
		parts = append(parts, "maxUnavailable "+r.MaxUnavailable.String())
	}
	if len(r.Windows) > 0 {
		parts = append(parts, phrase.CountNoun(len(r.Windows), "change window"))
	}
	return strings.Join(parts, ", ")
}

func (e *RolloutEdit) writeText(b *strings.Builder) {
	switch {
	case e == nil:
	case e.Before == "":
		fmt.Fprintf(b, "  Its rollout would be: %s.\n", e.After)
	case e.Before == e.After:
		fmt.Fprintf(b, "  The terms of its rollout would change: %s.\n", e.After)
	default:
		fmt.Fprintf(b, "  Its rollout would change: %s -> %s.\n", e.Before, e.After)
	}
}
