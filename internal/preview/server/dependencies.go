package server

import (
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/binder"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/state"
)

// listPlacingPolicies returns the policies that have a Bundle, or would get one.
func (x *userQuery) listPlacingPolicies(foreseen map[policymatch.BundleID]binder.PreviewedBundle) map[v1alpha1.PolicyRef]bool {
	placing := map[v1alpha1.PolicyRef]bool{}
	for _, other := range x.sources.State.Bundles.List() {
		placing[other.Spec.Source.PolicyOf(other.Ref.Namespace)] = true
	}
	for id, f := range foreseen {
		placing[f.Bundle.Spec.Source.PolicyOf(id.Namespace)] = true
	}
	return placing
}

// listUnplacedDependencies returns the policies that a Bundle would depend on and that place nothing.
func listUnplacedDependencies(b state.Bundle, placing map[v1alpha1.PolicyRef]bool) (out []string) {
	own := b.Spec.Source.PolicyOf(b.Ref.Namespace)
	for i := range b.Spec.DependsOn {
		if ref := b.Spec.DependsOn[i].RefFrom(own); !placing[ref] {
			out = append(out, ref.String())
		}
	}
	return out
}
