package claim

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/render"
)

// Override is an override policy in its place in the order.
type Override struct {
	Kind      string
	Namespace string // of an OverridePolicy; "" for a ClusterOverridePolicy
	Name      string
	stage     int
	priority  int32
	Spec      *v1alpha1.OverrideSpec
	// selectors that are not malformed.
	selectors []overrideSelector
}

type overrideSelector struct {
	selector
	kind schema.GroupKind
}

// CompileOverride reads the policy's selectors.
func CompileOverride(o Override) Override {
	for _, rs := range o.Spec.ResourceSelectors {
		if s, ok := compileSelector(rs); ok {
			o.selectors = append(o.selectors, overrideSelector{s, KindOf(rs)})
		}
	}
	return o
}

// The stages, in the order of application.
const (
	stageCluster = iota
	stageNamespace
	stageEnforced
)

// InOrder gives the policies in the order in which they apply:
// ClusterOverridePolicies, OverridePolicies of the namespace, enforced
// ClusterOverridePolicies; within each by priority, then name.
func InOrder(cluster []*v1alpha1.ClusterOverridePolicy, namespaced []*v1alpha1.OverridePolicy) []Override {
	out := make([]Override, 0, len(cluster)+len(namespaced))
	for _, p := range cluster {
		stage := stageCluster
		if p.Spec.Enforced {
			stage = stageEnforced
		}
		out = append(out, CompileOverride(Override{Kind: "ClusterOverridePolicy", Name: p.Name, stage: stage, priority: p.Spec.Priority, Spec: &p.Spec.OverrideSpec}))
	}
	for _, p := range namespaced {
		out = append(out, CompileOverride(Override{
			Kind: "OverridePolicy", Namespace: p.Namespace, Name: p.Name,
			stage: stageNamespace, priority: p.Spec.Priority, Spec: &p.Spec,
		}))
	}
	slices.SortFunc(out, func(a, b Override) int {
		return cmp.Or(cmp.Compare(a.stage, b.stage), cmp.Compare(a.priority, b.priority), strings.Compare(a.Name, b.Name))
	})
	return out
}

// String names the policy as atoll.Rule does.
func (o Override) String() string {
	if o.Namespace == "" {
		return o.Kind + "/" + o.Name
	}
	return o.Kind + "/" + o.Namespace + "/" + o.Name
}

// rulesFor gives the rules that select any of the items, in order. labelsOf gives an
// item's labels.
func rulesFor(items []atoll.Item, overrides []Override, labelsOf func(*atoll.Item) map[string]string) []atoll.Rule {
	var out []atoll.Rule
	for _, o := range overrides {
		var chosen []*atoll.Item
		for i := range items {
			if o.Selects(&items[i], labelsOf) {
				chosen = append(chosen, &items[i])
			}
		}
		if len(chosen) == 0 {
			continue
		}
		for n := range o.Spec.OverrideRules {
			r := &o.Spec.OverrideRules[n]
			data := o.Namespace != "" && render.TouchesData(r.Overriders)
			rule := atoll.Rule{Policy: o.String(), Index: n, Target: r.TargetCluster, Overriders: r.Overriders, OnMissing: r.OnMissing, Atomic: r.Atomic,
				Meaning: atoll.RuleMeaning, Later: o.Spec.Apply == v1alpha1.ApplyWithNextChange}
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

// keepMeaning gives rules that a policy states as it did before the meaning in which they
// were rendered then, so that a newer hub changes nothing in any member.
func keepMeaning(rules, before []atoll.Rule) {
	for i := range rules {
		r := &rules[i]
		for j := range before {
			if b := &before[j]; b.Policy == r.Policy && apiequality.Semantic.DeepEqual(b.Target, r.Target) && apiequality.Semantic.DeepEqual(b.Overriders, r.Overriders) {
				r.Meaning = b.Meaning
				break
			}
		}
	}
}

// base of a content that differs from the previous one: not 0 where nothing but rules
// that are applied with the next change tells them apart.
func (p *planner) base() int64 {
	prev, next := p.in.Previous, p.out.Content
	if prev == nil || p.in.Number == 0 {
		return 0
	}
	later := map[string]bool{} // by policy; what it says now counts
	for _, rules := range [][]atoll.Rule{prev.Rules, next.Rules} {
		for i := range rules {
			later[rules[i].Policy] = rules[i].Later
		}
	}
	at := func(r atoll.Rule) bool { return later[r.Policy] }
	was := *prev
	was.Rules = slices.DeleteFunc(slices.Clone(prev.Rules), at)
	next.Rules = slices.DeleteFunc(slices.Clone(next.Rules), at)
	switch {
	case p.differs(next, &was):
		return 0
	case prev.Base != 0:
		return prev.Base
	}
	return p.in.Number
}

// Selects tells whether the policy is about the item. One without selectors is about
// all that it may touch.
func (o Override) Selects(item *atoll.Item, labelsOf func(*atoll.Item) map[string]string) bool {
	if o.Namespace != "" && (item.Key.Namespace != o.Namespace || render.ClusterOnly(GroupKind(item.Key))) {
		return false
	}
	if len(o.Spec.ResourceSelectors) == 0 {
		return true
	}
	return slices.ContainsFunc(o.selectors, func(s overrideSelector) bool {
		return s.kind == GroupKind(item.Key) &&
			(s.namespace == "" || s.namespace == item.Key.Namespace) &&
			(s.name == "" || s.name == item.Key.Name) &&
			(s.labels == nil || s.labels.Matches(labels.Set(labelsOf(item))))
	})
}

// contentLabels are the labels that an item's content states.
func contentLabels(item *atoll.Item) map[string]string {
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
