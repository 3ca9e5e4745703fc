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
	selector
	kind schema.GroupKind
}

// CompileOverride parses the policy's selectors.
func CompileOverride(o CompiledOverride) CompiledOverride {
	for _, rs := range o.Spec.ResourceSelectors {
		if s, ok := compileSelector(rs); ok {
			o.selectors = append(o.selectors, overrideSelector{s, SelectorKind(rs)})
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

// SortOverrides returns the policies in the order in which they apply: ClusterOverridePolicies,
// OverridePolicies of the namespace, enforced ClusterOverridePolicies; within each by priority,
// then name.
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

// SelectsItem returns whether the policy selects the item. A policy without selectors selects all
// items that it may change.
func (o CompiledOverride) SelectsItem(item *atoll.Item, labelsOf func(*atoll.Item) map[string]string) bool {
	if o.Namespace != "" && (item.Key.Namespace != o.Namespace || overrides.IsClusterPolicyOnly(GroupKindOf(item.Key))) {
		return false
	}
	if len(o.Spec.ResourceSelectors) == 0 {
		return true
	}
	return slices.ContainsFunc(o.selectors, func(s overrideSelector) bool {
		return s.kind == GroupKindOf(item.Key) &&
			(s.namespace == "" || s.namespace == item.Key.Namespace) &&
			(s.name == "" || s.name == item.Key.Name) &&
			(s.labels == nil || s.labels.Matches(labels.Set(labelsOf(item))))
	})
}
