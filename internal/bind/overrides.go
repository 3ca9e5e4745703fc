package bind

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/render"
)

// override is an override policy in its place in the order.
type override struct {
	kind      string
	namespace string // of an OverridePolicy; "" for a ClusterOverridePolicy
	name      string
	stage     int
	priority  int32
	spec      *v1alpha1.OverrideSpec
	// selectors that are not malformed.
	selectors []overrideSelector
}

type overrideSelector struct {
	selector
	kind schema.GroupKind
}

// compileOverride reads the policy's selectors.
func compileOverride(o override) override {
	for _, rs := range o.spec.ResourceSelectors {
		if s, ok := compileSelector(rs); ok {
			o.selectors = append(o.selectors, overrideSelector{s, kindOf(rs)})
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

// overridesInOrder gives the policies in the order in which they apply:
// ClusterOverridePolicies, OverridePolicies of the namespace, enforced
// ClusterOverridePolicies; within each by priority, then name.
func overridesInOrder(cluster []*v1alpha1.ClusterOverridePolicy, namespaced []*v1alpha1.OverridePolicy) []override {
	out := make([]override, 0, len(cluster)+len(namespaced))
	for _, p := range cluster {
		stage := stageCluster
		if p.Spec.Enforced {
			stage = stageEnforced
		}
		out = append(out, compileOverride(override{kind: "ClusterOverridePolicy", name: p.Name, stage: stage, priority: p.Spec.Priority, spec: &p.Spec.OverrideSpec}))
	}
	for _, p := range namespaced {
		out = append(out, compileOverride(override{
			kind: "OverridePolicy", namespace: p.Namespace, name: p.Name,
			stage: stageNamespace, priority: p.Spec.Priority, spec: &p.Spec,
		}))
	}
	slices.SortFunc(out, func(a, b override) int {
		return cmp.Or(cmp.Compare(a.stage, b.stage), cmp.Compare(a.priority, b.priority), strings.Compare(a.name, b.name))
	})
	return out
}

func (o override) key() policyKey { return policyKey{o.kind, o.namespace, o.name} }

// String names the policy as atoll.Rule does.
func (o override) String() string {
	if o.namespace == "" {
		return o.kind + "/" + o.name
	}
	return o.kind + "/" + o.namespace + "/" + o.name
}

// rulesFor gives the rules that select any of the items, in order. labelsOf gives an
// item's labels.
func rulesFor(items []atoll.Item, overrides []override, labelsOf func(*atoll.Item) map[string]string) []atoll.Rule {
	var out []atoll.Rule
	for _, o := range overrides {
		var chosen []*atoll.Item
		for i := range items {
			if o.selects(&items[i], labelsOf) {
				chosen = append(chosen, &items[i])
			}
		}
		if len(chosen) == 0 {
			continue
		}
		for n := range o.spec.OverrideRules {
			r := &o.spec.OverrideRules[n]
			data := o.namespace != "" && render.TouchesData(r.Overriders)
			rule := atoll.Rule{Policy: o.String(), Index: n, Target: r.TargetCluster, Overriders: r.Overriders}
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

// selects tells whether the policy is about the item. One without selectors is about
// all that it may touch.
func (o override) selects(item *atoll.Item, labelsOf func(*atoll.Item) map[string]string) bool {
	if o.namespace != "" && (item.Key.Namespace != o.namespace || render.ClusterOnly(groupKind(item.Key))) {
		return false
	}
	if len(o.spec.ResourceSelectors) == 0 {
		return true
	}
	return slices.ContainsFunc(o.selectors, func(s overrideSelector) bool {
		return s.kind == groupKind(item.Key) &&
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
