package explain

import (
	"slices"
	"strings"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rollout"
)

// An explanation names the strategy of the rollout, whether it is enforced, and those of the others that the asker may read.
func TestStrategyOfABundle(t *testing.T) {
	own := &v1alpha1.AppliedStrategy{Kind: "RolloutStrategy", Name: "careful"}
	enforced := &v1alpha1.AppliedStrategy{Kind: "ClusterRolloutStrategy", Name: "first", Enforced: true}
	const replaces = "  Its rollout is that of ClusterRolloutStrategy first, which is enforced for namespace shop: it replaces what a policy states.\n"
	for name, c := range map[string]struct {
		strategy  *v1alpha1.AppliedStrategy
		outranked []string
		want      string
	}{
		"none":             {nil, nil, ""},
		"of a policy":      {own, nil, "  Its rollout is that of RolloutStrategy careful.\n"},
		"enforced":         {enforced, nil, replaces},
		"before another":   {enforced, []string{"second"}, replaces + "    ClusterRolloutStrategy second selects the namespace too; the first one by name is enforced.\n"},
		"before a hidden":  {enforced, []string{"hidden"}, replaces},
		"before some more": {enforced, []string{"hidden", "second", "third"}, replaces + "    ClusterRolloutStrategy second, third selects the namespace too; the first one by name is enforced.\n"},
	} {
		b := shopBundle()
		b.Spec.RolloutStrategy, b.Rollout = c.strategy, rollout.StrategyChoice{Outranked: c.outranked}
		in := explainInput(webKey, b)
		in.MayRead = func(key atoll.ItemKey) bool {
			return key != atoll.ItemKey{Group: "atoll.dev", Kind: "ClusterRolloutStrategy", Name: "hidden"}
		}
		e := Explain(in)
		if got := e.Bundles[0]; got.RolloutStrategy != c.strategy || slices.Contains(got.OutrankedStrategies, "hidden") {
			t.Errorf("%s: %+v", name, got.StrategyExplanation)
		}
		got := writtenBy(func(b *strings.Builder) { e.Bundles[0].writeStrategy(b) })
		if got != c.want || !strings.Contains(e.FormatText(false), c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
