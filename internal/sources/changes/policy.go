package changes

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// policyName returns the name of the policy that places the objects of a Source.
func policyName(s *v1alpha1.Source) string { return "source-" + s.Name }

// newPolicy returns the policy that places the objects of a Source in its namespace; nil when the Source states no
// placement.
func newPolicy(s *v1alpha1.Source, keys []v1alpha1.SourceObject) *unstructured.Unstructured {
	if s.Spec.Placement == nil && s.Spec.PlacementRef == nil {
		return nil
	}
	p := &v1alpha1.PropagationPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "PropagationPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: policyName(s), Namespace: s.Namespace, Labels: map[string]string{v1alpha1.LabelSource: s.Name}},
	}
	if s.Spec.Placement != nil {
		p.Spec.Placement = *s.Spec.Placement
	}
	p.Spec.PlacementRef = s.Spec.PlacementRef
	var kinds []schema.GroupVersionKind
	for _, o := range slices.Concat(keys, s.Status.Inventory) {
		gvk := schema.FromAPIVersionAndKind(o.APIVersion, o.Kind)
		if o.Namespace == s.Namespace && !atoll.IsHubOwnedKind(gvk.GroupKind()) && !slices.ContainsFunc(kinds, func(k schema.GroupVersionKind) bool { return k.GroupKind() == gvk.GroupKind() }) {
			kinds = append(kinds, gvk)
		}
	}
	if len(kinds) == 0 {
		return nil
	}
	slices.SortFunc(kinds, func(a, b schema.GroupVersionKind) int { return cmp.Compare(a.String(), b.String()) })
	for _, k := range kinds {
		p.Spec.ResourceSelectors = append(p.Spec.ResourceSelectors, v1alpha1.ResourceSelector{
			APIVersion: k.GroupVersion().String(), Kind: k.Kind, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{v1alpha1.LabelSource: s.Name}},
		})
	}
	out := newPolicyObject(p)
	for _, empty := range []string{"groupBy", "removal"} {
		unstructured.RemoveNestedField(out.Object, "spec", empty)
	}
	return out
}
