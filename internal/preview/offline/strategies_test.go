package offline

import (
	"strings"
	"testing"
	"time"

	"atoll.dev/atoll/internal/atoll"
)

// Files decide about rollouts as a hub does: by the strategy that is enforced for the namespace, by that of rolloutRef, or by the policy. A policy
// that names a strategy which the files do not have places nothing.
func TestStrategiesOfFiles(t *testing.T) {
	policy := func(name, namespace, spec string) string {
		return objectHeader + "PropagationPolicy\nmetadata: {name: " + name + ", namespace: " + namespace + "}\nspec:\n  resourceSelectors: [{apiVersion: v1, kind: ConfigMap}]\n  " + spec
	}
	clusterPolicy := func(spec string) string {
		return objectHeader + "ClusterPropagationPolicy\nmetadata: {name: all}\nspec:\n  resourceSelectors: [{apiVersion: v1, kind: ConfigMap}, {apiVersion: scheduling.k8s.io/v1, kind: PriorityClass}]\n  " + spec
	}
	strategy := func(namespace, name, spec string) string {
		if namespace == "" {
			return objectHeader + "ClusterRolloutStrategy\nmetadata: {name: " + name + "}\nspec: {" + spec + "}"
		}
		return objectHeader + "RolloutStrategy\nmetadata: {name: " + name + ", namespace: " + namespace + "}\nspec: {" + spec + "}"
	}
	const prod = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {tier: prod}}"
	const byName, byTier = "enforcedFor: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: shop}}}", "enforcedFor: {namespaceSelector: {matchLabels: {tier: prod}}}"
	const priority = "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: high}\nvalue: 1"
	for name, c := range map[string]struct {
		files []string
		want  string
	}{
		"its own":              {[]string{policy("web", "shop", "rollout: {maxUnavailable: 1}")}, "shop: 1"},
		"of the namespace":     {[]string{policy("web", "shop", "rolloutRef: {name: careful}"), strategy("shop", "careful", "maxUnavailable: 2"), strategy("", "careful", "maxUnavailable: 3")}, "shop: 2 of RolloutStrategy careful"},
		"of all namespaces":    {[]string{policy("web", "shop", "rolloutRef: {kind: ClusterRolloutStrategy, name: careful}"), strategy("", "careful", "maxUnavailable: 3")}, "shop: 3 of ClusterRolloutStrategy careful"},
		"of a cluster policy":  {[]string{clusterPolicy("rolloutRef: {name: careful}"), strategy("", "careful", "maxUnavailable: 3")}, "shop: 3 of ClusterRolloutStrategy careful"},
		"of another namespace": {[]string{policy("web", "shop", "rolloutRef: {name: careful}"), strategy("blog", "careful", "maxUnavailable: 2")}, "not placed: the RolloutStrategy careful that its policy refers to is not among the files"},
		"missing":              {[]string{clusterPolicy("rolloutRef: {name: careful}")}, "not placed: the ClusterRolloutStrategy careful that its policy refers to is not among the files"},
		"enforced by a label":  {[]string{prod, policy("web", "shop", "rollout: {maxUnavailable: 1}"), strategy("", "b", "maxUnavailable: 4, "+byTier), strategy("", "c", "maxUnavailable: 5, "+byTier)}, "shop: 4 of ClusterRolloutStrategy b, enforced"},
		"enforced by the name": {[]string{policy("web", "shop", "rolloutRef: {name: none}"), strategy("", "b", "maxUnavailable: 4, "+byName)}, "shop: 4 of ClusterRolloutStrategy b, enforced"},
		"for other namespaces": {[]string{policy("web", "shop", "rollout: {maxUnavailable: 1}"), strategy("", "b", "maxUnavailable: 4, "+byTier)}, "shop: 1"},
		"not for ClusterBundles": {[]string{clusterPolicy("rollout: {maxUnavailable: 1}"), priority, strategy("", "b", "maxUnavailable: 4, enforcedFor: {namespaceSelector: {}}")},
			": 1; shop: 4 of ClusterRolloutStrategy b, enforced"},
		"rollout and rolloutRef":    {[]string{policy("web", "shop", "rollout: {}\n  rolloutRef: {name: careful}")}, "refused: PropagationPolicy shop/web: "},
		"a kind that it cannot use": {[]string{clusterPolicy("rolloutRef: {kind: RolloutStrategy, name: careful}")}, "refused: ClusterPropagationPolicy all: spec.rolloutRef.kind: Forbidden"},
		"a malformed strategy":      {[]string{strategy("shop", "careful", "maxUnavailable: some")}, "refused: RolloutStrategy shop/careful: spec.maxUnavailable: Invalid value"},
		"stages without any":        {[]string{strategy("", "careful", "type: Staged")}, "refused: ClusterRolloutStrategy careful: "},
		"a malformed selector":      {[]string{strategy("", "careful", "enforcedFor: {namespaceSelector: {matchLabels: {a b: c}}}")}, "refused: ClusterRolloutStrategy careful: spec.enforcedFor.namespaceSelector.matchLabels: Invalid value"},
		"one that enforces itself":  {[]string{strategy("shop", "careful", byTier)}, "refused: RolloutStrategy shop/careful: "},
	} {
		t.Run(name, func(t *testing.T) {
			w, err := NewWorld(parseObjects(t, append(c.files, clusterYAML("tokyo", ""), configMapYAML("shop", "c"))...), "default")
			if err != nil {
				if got := "refused: " + err.Error(); !strings.HasPrefix(got, c.want) || c.want == "" {
					t.Errorf("%s, want %s", got, c.want)
				}
				return
			}
			outcome, err := w.DecidePlacements(time.Time{})
			if err != nil {
				t.Fatal(err)
			}
			var out []string
			for i, b := range outcome.Bundles {
				text := b.ID.Namespace + ": " + b.Spec.Rollout.MaxUnavailable.String()
				if s := NewResult(outcome).Bundles[i].RolloutStrategy; s != nil {
					text += " of " + s.String()
					if s.Enforced {
						text += ", enforced"
					}
				}
				out = append(out, text)
			}
			for _, u := range outcome.Unplaced {
				if u.Reason == atoll.ReasonRolloutStrategyMissing {
					out = append(out, "not placed: "+u.Why)
				}
			}
			if got := strings.Join(out, "; "); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}
