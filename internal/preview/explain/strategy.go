package explain

import (
	"fmt"
	"strings"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// StrategyExplanation is about the strategy that the rollout of a Bundle comes from.
type StrategyExplanation struct {
	// RolloutStrategy that the rollout comes from; nil: the source states the rollout itself, or states none.
	RolloutStrategy *v1alpha1.AppliedStrategy `json:"rolloutStrategy,omitempty"`
	// OutrankedStrategies select the namespace too. The first strategy by name is enforced.
	OutrankedStrategies []string `json:"outrankedStrategies,omitempty"`
}

// explainStrategy explains the strategy of a Bundle, with further ones that the asker may read.
func (in ExplanationInput) explainStrategy(b Bundle) StrategyExplanation {
	out := StrategyExplanation{RolloutStrategy: b.Spec.RolloutStrategy}
	for _, name := range b.Rollout.Outranked {
		if in.mayRead(atoll.ItemKey{Group: v1alpha1.GroupVersion.Group, Kind: v1alpha1.KindClusterRolloutStrategy, Name: name}) {
			out.OutrankedStrategies = append(out.OutrankedStrategies, name)
		}
	}
	return out
}

// writeStrategy writes the strategy that the rollout of the Bundle comes from.
func (x BundleExplanation) writeStrategy(b *strings.Builder) {
	s := x.RolloutStrategy
	switch {
	case s == nil:
		return
	case !s.Enforced:
		fmt.Fprintf(b, "  Its rollout is that of %s.\n", s)
		return
	}
	fmt.Fprintf(b, "  Its rollout is that of %s, which is enforced for namespace %s: it replaces what a policy states.\n", s, x.Namespace)
	if len(x.OutrankedStrategies) > 0 {
		fmt.Fprintf(b, "    %s %s selects the namespace too; the first one by name is enforced.\n", v1alpha1.KindClusterRolloutStrategy, abbreviateNames(x.OutrankedStrategies, maxNames))
	}
}
