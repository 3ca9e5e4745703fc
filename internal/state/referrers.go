package state

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/rollout"
)

// Referrers is the number of objects of one kind that refer to an object.
type Referrers struct {
	Kind  string
	Count int
}

// FindReferrers counts what refers to a Placement, a ClusterPlacement, a strategy or a ClusterSet, by kind. The namespaces in
// which a strategy is enforced count as Namespaces. It reads all policies that may refer to the object, because only people
// delete such objects. Other kinds have none.
func (t *HubTables) FindReferrers(kind string, key types.NamespacedName) []Referrers {
	switch kind {
	case "Placement", "ClusterPlacement":
		policyKind, policies := PoliciesOfPlacement(t.Policies, key)
		out := withReferrers(nil, policyKind, len(policies))
		if key.Namespace != "" {
			return out
		}
		return t.withHubDefault(out, v1alpha1.DefaultPlacementClusterPlacement, key.Name)
	case v1alpha1.KindRolloutStrategy, v1alpha1.KindClusterRolloutStrategy:
		return t.findStrategyReferrers(key)
	case "ClusterSet":
		return t.findSetReferrers(key.Name)
	}
	return nil
}

// findStrategyReferrers counts the policies that refer to a strategy, and the namespaces in which it is enforced.
func (t *HubTables) findStrategyReferrers(key types.NamespacedName) (out []Referrers) {
	refersFrom := func(kind, namespace string, spec *v1alpha1.PropagationSpec) bool {
		is, refers := rollout.ReferencedStrategy(kind, namespace, spec)
		return refers && is == key
	}
	out = withReferrers(out, v1alpha1.SourcePropagationPolicy, countPolicies(t.Policies, v1alpha1.SourcePropagationPolicy, func(p *v1alpha1.PropagationPolicy) bool {
		return refersFrom(v1alpha1.SourcePropagationPolicy, p.Namespace, &p.Spec)
	}))
	out = withReferrers(out, v1alpha1.SourceClusterPropagationPolicy, countPolicies(t.Policies, v1alpha1.SourceClusterPropagationPolicy, func(p *v1alpha1.ClusterPropagationPolicy) bool {
		return refersFrom(v1alpha1.SourceClusterPropagationPolicy, "", &p.Spec)
	}))
	if key.Namespace != "" {
		return out
	}
	return withReferrers(out, "Namespace", countMatching(t.Namespaces.List(), func(name string) bool {
		ns, ok := t.Namespaces.Get(name)
		if !ok {
			return false
		}
		names := t.Strategies.ListEnforcedFor(ns.Labels)
		return len(names) > 0 && names[0] == key.Name
	}))
}

// findSetReferrers counts what refers to a ClusterSet.
func (t *HubTables) findSetReferrers(set string) (out []Referrers) {
	out = withReferrers(out, "ClusterSetBinding", t.Sets.countBindings(set))
	out = withReferrers(out, "Placement", countMatching(t.Placements.List(), func(p Placement) bool { return p.Meta.Namespace != "" && namesSet(&p.Spec, set) }))
	out = withReferrers(out, "ClusterPlacement", countMatching(t.Placements.List(), func(p Placement) bool { return p.Meta.Namespace == "" && namesSet(&p.Spec, set) }))
	out = withReferrers(out, "PropagationPolicy", countPolicies(t.Policies, "PropagationPolicy", func(p *v1alpha1.PropagationPolicy) bool { return namesSet(&p.Spec.Placement, set) }))
	out = withReferrers(out, "ClusterPropagationPolicy", countPolicies(t.Policies, "ClusterPropagationPolicy", func(p *v1alpha1.ClusterPropagationPolicy) bool { return namesSet(&p.Spec.Placement, set) }))
	out = withReferrers(out, "OverridePolicy", countPolicies(t.Policies, "OverridePolicy", func(p *v1alpha1.OverridePolicy) bool { return rulesNameSet(p.Spec.OverrideRules, set) }))
	out = withReferrers(out, "ClusterOverridePolicy", countPolicies(t.Policies, "ClusterOverridePolicy", func(p *v1alpha1.ClusterOverridePolicy) bool { return rulesNameSet(p.Spec.OverrideRules, set) }))
	return t.withHubDefault(out, v1alpha1.DefaultPlacementClusterSet, set)
}

// withHubDefault adds the HubSettings when the default placement of the hub names the object.
func (t *HubTables) withHubDefault(out []Referrers, as v1alpha1.DefaultPlacementType, name string) []Referrers {
	if d := t.Settings.DefaultPlacement(); d != nil && d.Type == as && d.Name == name {
		return withReferrers(out, v1alpha1.SourceHubSettings, 1)
	}
	return out
}

// withReferrers adds a kind that has objects.
func withReferrers(out []Referrers, kind string, count int) []Referrers {
	if count == 0 {
		return out
	}
	return append(out, Referrers{Kind: kind, Count: count})
}

func countMatching[T any](list []T, matches func(T) bool) (n int) {
	for _, v := range list {
		if matches(v) {
			n++
		}
	}
	return n
}

// countPolicies counts the policies of a kind in all namespaces.
func countPolicies[T client.Object](p *PolicyTable, kind string, matches func(T) bool) (n int) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	for scope, own := range p.byScope {
		if scope.kind != kind {
			continue
		}
		for _, o := range own {
			if v, ok := o.(T); ok && matches(v) {
				n++
			}
		}
	}
	return n
}

// namesSet reports whether a placement names the ClusterSet.
func namesSet(p *v1alpha1.PlacementSpec, set string) bool {
	return slices.Contains(p.ClusterSets, set) || slices.ContainsFunc(p.ClusterAffinities, func(term v1alpha1.ClusterAffinityTerm) bool {
		return slices.Contains(term.ClusterSets, set)
	})
}

// rulesNameSet reports whether a rule is for clusters of the ClusterSet.
func rulesNameSet(rules []v1alpha1.RuleWithCluster, set string) bool {
	return slices.ContainsFunc(rules, func(r v1alpha1.RuleWithCluster) bool {
		return r.TargetCluster != nil && slices.Contains(r.TargetCluster.ClusterSets, set)
	})
}
