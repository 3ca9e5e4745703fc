package binder

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/state"
)

// missingOverridesReason explains which override policies of dependentOverrides do not exist, and what to do; empty: all exist. A policy of a
// namespace names those of its namespace, and a cluster policy the cluster-scoped ones.
func (b *Binder) missingOverridesReason(kind, namespace string, spec *v1alpha1.PropagationSpec) string {
	overrideKind, exists := kindOverridePolicy, func(name string) bool {
		return slices.ContainsFunc(b.Overrides.OverridePolicies(namespace), func(p *v1alpha1.OverridePolicy) bool { return p.Name == name })
	}
	if kind != v1alpha1.SourcePropagationPolicy {
		overrideKind, exists = kindClusterOverridePolicy, func(name string) bool {
			return slices.ContainsFunc(b.Overrides.ClusterOverridePolicies(), func(p *v1alpha1.ClusterOverridePolicy) bool { return p.Name == name })
		}
	}
	missing := slices.DeleteFunc(slices.Clone(spec.DependentOverrides), exists)
	if len(missing) == 0 {
		return ""
	}
	return fmt.Sprintf("nothing is sent before each %s of dependentOverrides exists; missing: %s. Create what is missing, or edit dependentOverrides", overrideKind, strings.Join(missing, ", "))
}

// MissingOverridesReason explains for which override policies the first Revision of a Bundle waits; empty: for none.
func (b *Binder) MissingOverridesReason(id policymatch.BundleID, source v1alpha1.BundleSource) string {
	spec := b.policySpecOf(id, source)
	if spec == nil || len(spec.DependentOverrides) == 0 || b.hasRevision(id) {
		return ""
	}
	return b.missingOverridesReason(source.Kind, id.Namespace, spec)
}

// policySpecOf returns the spec of the policy that a Bundle comes from; nil: it comes from no policy, or the policy is gone.
func (b *Binder) policySpecOf(id policymatch.BundleID, source v1alpha1.BundleSource) *v1alpha1.PropagationSpec {
	switch source.Kind {
	case v1alpha1.SourcePropagationPolicy:
		if p, ok := b.Policies.GetPropagationPolicy(id.Namespace, source.Name); ok {
			return &p.Spec
		}
	case v1alpha1.SourceClusterPropagationPolicy:
		if p, ok := b.Policies.GetClusterPropagationPolicy(source.Name); ok {
			return &p.Spec
		}
	}
	return nil
}

// updateOverridesWait records whether a Bundle waits for override policies, and explains for which; empty: for none. The wait is recorded before
// the check, so that an override policy that comes at that time finds it.
func (b *Binder) updateOverridesWait(id policymatch.BundleID, source v1alpha1.BundleSource) string {
	if spec := b.policySpecOf(id, source); spec == nil || len(spec.DependentOverrides) == 0 {
		b.missingOverrides.endWait(id)
		return ""
	}
	b.missingOverrides.startWait(id, time.Now())
	why := b.MissingOverridesReason(id, source)
	if why == "" {
		b.missingOverrides.endWait(id)
	}
	return why
}

// awaitOverrides reports that the first Revision of a Bundle waits for override policies, on the policy at once, and on the objects after a
// while: one command may create all of them. An override policy that is created touches the Bundle.
func (b *Binder) awaitOverrides(ctx context.Context, id policymatch.BundleID, bundle state.Bundle, p bundlePlan, why string) (again time.Duration, err error) {
	if b.ReadOnly {
		return 0, nil
	}
	b.policyStatus.enqueuePolicy(PolicyKey{p.origin.source.Kind, policyNamespace(p.origin.source.Kind, id), p.origin.source.Name})
	now := time.Now()
	if now.Sub(b.missingOverrides.startWait(id, now)) < reportWaitAfter {
		return reportWaitAfter, nil
	}
	chosen := p.input.Chosen[:min(len(p.input.Chosen), maxMissingPlacementEvents)]
	b.policyStatus.setProblems(id, atoll.ReasonOverridesMissing, newProblems(chosen, why))
	if bundle.Ref.UID == "" {
		return 0, nil
	}
	return 0, b.setUnboundCondition(ctx, id, bundle, p.origin, atoll.ReasonOverridesMissing, why)
}

// overridesWaitOf explains for which override policies Bundles of a policy wait; empty: none waits.
func (b *Binder) overridesWaitOf(key PolicyKey, spec *v1alpha1.PropagationSpec) string {
	if len(spec.DependentOverrides) == 0 {
		return ""
	}
	waits := func(id policymatch.BundleID) bool { return b.missingOverrides.isWaiting(id) }
	if !slices.ContainsFunc(b.ownership.bundlesOfSource(key.Kind, key.Namespace, key.Name), waits) {
		return ""
	}
	return b.missingOverridesReason(key.Kind, key.Namespace, spec)
}

// bundlesAwaitingOverride lists the Bundles that wait for an override policy.
func (b *Binder) bundlesAwaitingOverride(key PolicyKey) []policymatch.BundleID {
	return slices.DeleteFunc(b.missingOverrides.pendingKeys(), func(id policymatch.BundleID) bool {
		from, _ := b.ownership.originAndPlacedKeys(id)
		spec := b.policySpecOf(id, from.source)
		isOfKind := (from.source.Kind == v1alpha1.SourcePropagationPolicy) == (key.Kind == kindOverridePolicy)
		return spec == nil || !isOfKind || key.Namespace != "" && key.Namespace != id.Namespace || !slices.Contains(spec.DependentOverrides, key.Name)
	})
}
