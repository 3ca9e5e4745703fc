package bundlecontent

import (
	"slices"

	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/overrides"
	"atoll.dev/atoll/internal/policymatch"
)

// setRules sets the rules of the content, in the order of their application. A Bundle that an older
// hub ordered by priority and name alone keeps that order until its rules change.
func (p *contentBuilder) setRules(c *atoll.Content) {
	policies := policymatch.SortOverrides(p.in.ClusterOverrides, p.in.NamespaceOverrides)
	c.Rules = rulesForItems(c.Items, policies, p.itemLabels)
	if c.RuleOrder = atoll.RuleOrderByName; len(c.Rules) > 0 {
		c.RuleOrder = atoll.RuleOrderBySelector
	}
	prev := p.in.Previous
	if prev == nil {
		return
	}
	if prev.RuleOrder == atoll.RuleOrderByName {
		if byName := rulesInPolicyOrder(c.Items, policies, p.itemLabels); areRulesUnchanged(byName, prev) {
			c.Rules, c.RuleOrder = byName, atoll.RuleOrderByName
		}
	}
	keepRuleSemantics(c.Rules, prev.Rules)
}

// rulesForItems returns the rules that select any of the items. For each item they are in order: by
// the policies' stage and priority, by how specifically the policies select the item, by name.
// labelsOf returns an item's labels.
func rulesForItems(items []atoll.Item, policies []policymatch.CompiledOverride, labelsOf func(*atoll.Item) map[string]string) (out []atoll.Rule) {
	for len(policies) > 0 {
		equal := 1
		for equal < len(policies) && policies[equal].HasEqualPriority(policies[0]) {
			equal++
		}
		if equal == 1 {
			out = append(out, rulesInPolicyOrder(items, policies[:1], labelsOf)...)
		} else {
			out = append(out, rulesBySpecificity(items, policies[:equal], labelsOf)...)
		}
		policies = policies[equal:]
	}
	return out
}

// rulesInPolicyOrder returns the rules in the order of the policies.
func rulesInPolicyOrder(items []atoll.Item, policies []policymatch.CompiledOverride, labelsOf func(*atoll.Item) map[string]string) (out []atoll.Rule) {
	for i := range policies {
		out = append(out, rulesOfPolicy(&policies[i], items, func(item *atoll.Item) bool { return policies[i].SelectsItem(item, labelsOf) })...)
	}
	return out
}

// rulesBySpecificity returns the rules of policies of equal priority. The rules of a policy that selects
// some items more specifically than others are there once for each specificity.
func rulesBySpecificity(items []atoll.Item, policies []policymatch.CompiledOverride, labelsOf func(*atoll.Item) map[string]string) (out []atoll.Rule) {
	for s := policymatch.SelectedWithAll; s <= policymatch.SelectedByName; s++ {
		for i := range policies {
			out = append(out, rulesOfPolicy(&policies[i], items, func(item *atoll.Item) bool { return policies[i].MatchItem(item, labelsOf) == s })...)
		}
	}
	return out
}

// rulesOfPolicy returns the policy's rules for the items that it selects.
func rulesOfPolicy(o *policymatch.CompiledOverride, items []atoll.Item, selects func(*atoll.Item) bool) (out []atoll.Rule) {
	var chosen []*atoll.Item
	for i := range items {
		if selects(&items[i]) {
			chosen = append(chosen, &items[i])
		}
	}
	if len(chosen) == 0 {
		return nil
	}
	for n := range o.Spec.OverrideRules {
		r := &o.Spec.OverrideRules[n]
		data := o.Namespace != "" && overrides.ChangesSecretData(r.Overriders)
		rule := atoll.Rule{Policy: o.String(), Index: n, Target: r.TargetCluster, Overriders: r.Overriders, OnMissing: r.OnMissing, Atomic: r.Atomic,
			Description: r.Description, Semantics: atoll.CurrentRuleSemantics, Deferred: o.Spec.Apply == v1alpha1.ApplyWithNextChange}
		if o.Spec.AppliedRules == v1alpha1.AppliedRulesFirst {
			// Without the rule, a later one of the policy would apply, so a Secret stays with it and is stopped.
			rule.First, rule.Semantics, data = true, atoll.FirstRuleSemantics, false
		}
		for _, item := range chosen {
			if data && item.Key.Group == "" && item.Key.Kind == "Secret" {
				continue
			}
			rule.Items = append(rule.Items, item.Key)
		}
		if len(rule.Items) > 0 {
			out = append(out, rule)
		}
	}
	return out
}

// areRulesUnchanged returns whether the rules are those of the content before, as users stated them:
// those of each of its items that rules still select, in the same order, and of no other policy.
func areRulesUnchanged(rules []atoll.Rule, before *atoll.Content) bool {
	for i := range rules {
		if !slices.ContainsFunc(before.Rules, func(b atoll.Rule) bool { return b.Policy == rules[i].Policy }) {
			return false
		}
	}
	now, was := rulesByItem(rules), rulesByItem(before.Rules)
	for i := range before.Items {
		key := before.Items[i].Key
		if _, selected := now[key]; selected && !slices.EqualFunc(now[key], was[key], isSameRule) {
			return false
		}
	}
	return true
}

func rulesByItem(rules []atoll.Rule) map[atoll.ItemKey][]*atoll.Rule {
	out := map[atoll.ItemKey][]*atoll.Rule{}
	for i := range rules {
		for _, key := range rules[i].Items {
			out[key] = append(out[key], &rules[i])
		}
	}
	return out
}

// isSameRule returns whether users stated both rules alike.
func isSameRule(a, b *atoll.Rule) bool {
	return a.Policy == b.Policy && a.Index == b.Index && a.OnMissing == b.OnMissing && a.Atomic == b.Atomic && a.First == b.First &&
		apiequality.Semantic.DeepEqual(a.Target, b.Target) && apiequality.Semantic.DeepEqual(a.Overriders, b.Overriders)
}

// keepRuleSemantics keeps the semantics of rules that their policy states unchanged, so that a newer
// hub changes nothing in any member.
func keepRuleSemantics(rules, before []atoll.Rule) {
	for i := range rules {
		r := &rules[i]
		for j := range before {
			if b := &before[j]; b.Policy == r.Policy && b.First == r.First && apiequality.Semantic.DeepEqual(b.Target, r.Target) && apiequality.Semantic.DeepEqual(b.Overriders, r.Overriders) {
				r.Semantics = b.Semantics
				break
			}
		}
	}
}

// lowestAcceptableRevision returns the lowest Revision that clusters may keep instead of this content. It is
// not 0 where only rules that apply with the next change differ.
func (p *contentBuilder) lowestAcceptableRevision() int64 {
	prev, next := p.in.Previous, p.out.Content
	if prev == nil || p.in.PreviousNumber == 0 {
		return 0
	}
	later := map[string]bool{} // by policy; its present fields count
	for _, rules := range [][]atoll.Rule{prev.Rules, next.Rules} {
		for i := range rules {
			later[rules[i].Policy] = rules[i].Deferred
		}
	}
	at := func(r atoll.Rule) bool { return later[r.Policy] }
	was := *prev
	was.RuleOrder = next.RuleOrder
	was.Rules = slices.DeleteFunc(slices.Clone(prev.Rules), at)
	next.Rules = slices.DeleteFunc(slices.Clone(next.Rules), at)
	switch {
	case p.needsRevision(next, &was):
		return 0
	case prev.MinRevision != 0:
		return prev.MinRevision
	}
	return p.in.PreviousNumber
}

// parseItemLabels returns the labels that an item's content states; nil: they cannot be read.
func parseItemLabels(item *atoll.Item) map[string]string {
	labels, err := item.ParseLabels()
	if err != nil {
		return nil
	}
	return labels
}
