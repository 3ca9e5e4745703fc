package policymatch

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/overrides"
)

// CompiledOverride is an override policy with parsed selectors and its place in the order.
type CompiledOverride struct {
	Kind      string
	Namespace string // of an OverridePolicy; "" for a ClusterOverridePolicy
	Name      string
	stage     int
	priority  int32
	Spec      *v1alpha1.OverrideSpec
	// selectors without the malformed ones.
	selectors []overrideSelector
}

type overrideSelector struct {
	compiledSelector
	kind schema.GroupKind
}

// CompileOverride parses the policy's selectors.
func CompileOverride(o CompiledOverride) CompiledOverride {
	o.selectors = compileSelectors(o.Spec.ResourceSelectors)
	return o
}

// compileSelectors parses selectors, and leaves out the malformed ones.
func compileSelectors(list []v1alpha1.ResourceSelector) (out []overrideSelector) {
	for _, rs := range list {
		if s, ok := compileSelector(rs); ok {
			out = append(out, overrideSelector{s, SelectorKind(rs)})
		}
	}
	return out
}

// The stages, in the order of application.
const (
	stageCluster = iota
	stageNamespace
	stageEnforced
)

// SortOverrides returns the policies by stage (ClusterOverridePolicies, OverridePolicies of the
// namespace, enforced ClusterOverridePolicies), then priority, then name. Policies of equal priority
// apply to one object by how specifically they select it, before their names (MatchItem).
func SortOverrides(cluster []*v1alpha1.ClusterOverridePolicy, namespaced []*v1alpha1.OverridePolicy) []CompiledOverride {
	out := make([]CompiledOverride, 0, len(cluster)+len(namespaced))
	for _, p := range cluster {
		stage := stageCluster
		if p.Spec.Enforced {
			stage = stageEnforced
		}
		out = append(out, CompileOverride(CompiledOverride{Kind: "ClusterOverridePolicy", Name: p.Name, stage: stage, priority: p.Spec.Priority, Spec: &p.Spec.OverrideSpec}))
	}
	for _, p := range namespaced {
		out = append(out, CompileOverride(CompiledOverride{
			Kind: "OverridePolicy", Namespace: p.Namespace, Name: p.Name,
			stage: stageNamespace, priority: p.Spec.Priority, Spec: &p.Spec,
		}))
	}
	slices.SortFunc(out, func(a, b CompiledOverride) int {
		return cmp.Or(cmp.Compare(a.stage, b.stage), cmp.Compare(a.priority, b.priority), strings.Compare(a.Name, b.Name))
	})
	return out
}

// String returns the policy's name as atoll.Rule has it.
func (o CompiledOverride) String() string {
	if o.Namespace == "" {
		return o.Kind + "/" + o.Name
	}
	return o.Kind + "/" + o.Namespace + "/" + o.Name
}

// HasEqualPriority returns whether only selectors and names order the two policies.
func (o CompiledOverride) HasEqualPriority(other CompiledOverride) bool {
	return o.stage == other.stage && o.priority == other.priority
}

// Specificity is how specifically an override policy selects an item. The more specific one of two
// policies of equal priority applies later.
type Specificity int

// The degrees of Specificity, in the order of application.
const (
	NotSelected Specificity = iota
	// SelectedWithAll: the policy selects all objects, or all of the kind.
	SelectedWithAll
	SelectedByLabels
	SelectedByName
)

// SelectsItem returns whether the policy selects the item.
func (o CompiledOverride) SelectsItem(item *atoll.Item, labelsOf func(*atoll.Item) map[string]string) bool {
	return o.MatchItem(item, labelsOf) != NotSelected
}

// MatchItem returns how the most specific selector of the policy selects the item. A policy without
// selectors selects all items that it may change.
func (o CompiledOverride) MatchItem(item *atoll.Item, labelsOf func(*atoll.Item) map[string]string) Specificity {
	if o.Namespace != "" && (item.Key.Namespace != o.Namespace || overrides.RequiresClusterOverridePolicy(GroupKindOf(item.Key))) {
		return NotSelected
	}
	if len(o.Spec.ResourceSelectors) == 0 {
		return SelectedWithAll
	}
	most := NotSelected
	for _, s := range o.selectors {
		most = max(most, s.matchItem(item, labelsOf))
	}
	return most
}

func (s overrideSelector) matchItem(item *atoll.Item, labelsOf func(*atoll.Item) map[string]string) Specificity {
	switch {
	case s.kind != GroupKindOf(item.Key), !s.selectsName(item.Key):
		return NotSelected
	case s.name != "":
		return SelectedByName
	case s.labels == nil:
		return SelectedWithAll
	case s.labels.Matches(labels.Set(labelsOf(item))):
		return SelectedByLabels
	}
	return NotSelected
}
