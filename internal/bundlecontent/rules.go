package bundlecontent

import (
	"encoding/json"
	"slices"

	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/overrides"
	"atoll.dev/atoll/internal/policymatch"
)

// rulesForItems returns the rules that select any of the items, in order. labelsOf returns an
// item's labels.
func rulesForItems(items []atoll.Item, policies []policymatch.CompiledOverride, labelsOf func(*atoll.Item) map[string]string) []atoll.Rule {
	var out []atoll.Rule
	for _, o := range policies {
		var chosen []*atoll.Item
		for i := range items {
			if o.SelectsItem(&items[i], labelsOf) {
				chosen = append(chosen, &items[i])
			}
		}
		if len(chosen) == 0 {
			continue
		}
		for n := range o.Spec.OverrideRules {
			r := &o.Spec.OverrideRules[n]
			data := o.Namespace != "" && overrides.ChangesSecretData(r.Overriders)
			rule := atoll.Rule{Policy: o.String(), Index: n, Target: r.TargetCluster, Overriders: r.Overriders, OnMissing: r.OnMissing, Atomic: r.Atomic,
				Semantics: atoll.CurrentRuleSemantics, Deferred: o.Spec.Apply == v1alpha1.ApplyWithNextChange}
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
	}
	return out
}

// keepRuleMeaning keeps the semantics of rules that their policy states unchanged, so that a newer
// hub changes nothing in any member.
func keepRuleMeaning(rules, before []atoll.Rule) {
	for i := range rules {
		r := &rules[i]
		for j := range before {
			if b := &before[j]; b.Policy == r.Policy && apiequality.Semantic.DeepEqual(b.Target, r.Target) && apiequality.Semantic.DeepEqual(b.Overriders, r.Overriders) {
				r.Semantics = b.Semantics
				break
			}
		}
	}
}

// baseRevision returns the lowest Revision that clusters may keep instead of this content. It is
// not 0 where only rules that apply with the next change differ.
func (p *contentBuilder) baseRevision() int64 {
	prev, next := p.in.Previous, p.out.Content
	if prev == nil || p.in.PreviousNumber == 0 {
		return 0
	}
	later := map[string]bool{} // by policy; what it says now counts
	for _, rules := range [][]atoll.Rule{prev.Rules, next.Rules} {
		for i := range rules {
			later[rules[i].Policy] = rules[i].Deferred
		}
	}
	at := func(r atoll.Rule) bool { return later[r.Policy] }
	was := *prev
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

// parseItemLabels returns the labels that an item's content states.
func parseItemLabels(item *atoll.Item) map[string]string {
	var obj struct {
		Metadata struct {
			Labels map[string]string `json:"labels"`
		} `json:"metadata"`
	}
	if json.Unmarshal(item.Object, &obj) != nil {
		return nil
	}
	return obj.Metadata.Labels
}
