package admission

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/assess"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/overrides"
	"atoll.dev/atoll/internal/policycheck"
	"atoll.dev/atoll/internal/policymatch"
)

// validatePropagation is for both propagation policies: they share their fields.
func (p *AdmissionPlugin) validatePropagation(ctx context.Context, a admission.Attributes) error {
	if errs := slices.Concat(checkRemovalBudgetFitsInt32(a.GetObject()), checkRolloutFitsInt32(a.GetObject(), "spec", "rollout"), checkDisruptionBudgetFitsInt32(a.GetObject())); len(errs) > 0 {
		return refuseFields(a, atoll.ReasonInvalidField, errs...)
	}
	now, before, err := typedObjects[v1alpha1.PropagationPolicy](a)
	if err != nil {
		return err
	}
	if now.DeletionTimestamp != nil {
		return nil
	}
	spec := &now.Spec
	at := field.NewPath("spec")
	if errs := p.checkPropagationSpec(spec, a.GetNamespace(), at); len(errs) > 0 {
		return refuseFields(a, atoll.ReasonInvalidField, errs...)
	}
	if before != nil && apiequality.Semantic.DeepEqual(before.Spec, now.Spec) {
		return nil
	}
	if errs := assess.CheckItemRules(spec.ItemRules, at.Child("itemRules")); len(errs) > 0 {
		return refuseFields(a, atoll.ReasonInvalidField, errs...)
	}
	var had []placementReference
	var hadRollout *v1alpha1.Rollout
	if before != nil {
		had, hadRollout = placementReferences(&before.Spec.Placement, at.Child("placement")), before.Spec.Rollout
	}
	if err := p.validatePlacementReferences(a, placementReferences(&spec.Placement, at.Child("placement")), had, at.Child("placement")); err != nil {
		return err
	}
	if err := cmp.Or(p.validateDependencies(a, now, before), p.validatePolicyOverwriteRight(ctx, a, spec), p.validateGateSecrets(ctx, a, spec.Rollout, hadRollout, at.Child("rollout"))); err != nil {
		return err
	}
	if err := p.mayRead(ctx, a.GetUserInfo(), p.requiredPropagationReads(spec, a.GetNamespace())); err != nil {
		return refuseRequest(a, atoll.ReasonPermissionMissing, err)
	}
	warnOfCopies(ctx, spec)
	warnOfOneBundle(ctx, spec)
	warnOfStrictBudget(ctx, spec)
	return nil
}

// requiredPropagationReads is what a propagation policy places: what it selects, and what that takes along.
func (p *AdmissionPlugin) requiredPropagationReads(spec *v1alpha1.PropagationSpec, namespace string) []requiredRead {
	need := p.requiredSelectorReads(namespace, spec.ResourceSelectors)
	if spec.PropagateDeps {
		for _, ns := range selectedNamespaces(namespace, spec.ResourceSelectors) {
			need = append(need, requiredDependencyReads(ns)...)
		}
	}
	return need
}

// checkPropagationSpec returns the fields of a propagation policy's spec that are invalid.
func (p *AdmissionPlugin) checkPropagationSpec(spec *v1alpha1.PropagationSpec, namespace string, at *field.Path) field.ErrorList {
	errs := checkSpecSize(spec, at)
	errs = append(errs, p.checkSelectors(spec.ResourceSelectors, namespace, at.Child("resourceSelectors"))...)
	errs = append(errs, policycheck.CheckPropagation(spec, namespace, p.refuseUnlistedProperties(), at)...)
	for i, rule := range spec.ItemRules {
		errs = append(errs, p.checkSelectors(rule.ResourceSelectors, namespace, at.Child("itemRules").Index(i).Child("resourceSelectors"))...)
	}
	return errs
}

// validatePlacement is for both kinds of Placement: they may hold what a policy's placement may
// hold. A writer of one may steer the policies that refer to it, which are of its namespace, or
// cluster policies.
func (p *AdmissionPlugin) validatePlacement(a admission.Attributes) error {
	now, before, err := typedObjects[v1alpha1.Placement](a)
	if err != nil {
		return err
	}
	if now.DeletionTimestamp != nil {
		return nil
	}
	at := field.NewPath("spec")
	errs := checkSpecSize(&now.Spec, at)
	errs = append(errs, policycheck.CheckPlacement(&now.Spec, p.refuseUnlistedProperties(), at)...)
	errs = append(errs, p.checkRebalance(a)...)
	if len(errs) > 0 {
		return refuseFields(a, atoll.ReasonInvalidField, errs...)
	}
	if before != nil && apiequality.Semantic.DeepEqual(before.Spec, now.Spec) {
		return nil
	}
	var had []placementReference
	if before != nil {
		had = placementReferences(&before.Spec, at)
	}
	return p.validatePlacementReferences(a, placementReferences(&now.Spec, at), had, at)
}

// selectedNamespaces returns the namespaces that a policy reaches: its own, or those that
// its selectors name, "" standing for all.
func selectedNamespaces(own string, selectors []v1alpha1.ResourceSelector) []string {
	if own != "" {
		return []string{own}
	}
	var out []string
	for _, rs := range selectors {
		out = append(out, rs.Namespace)
	}
	return out
}

// checkRemovalBudgetFitsInt32 refuses a budget that the typed object could not hold, which the
// schema of a number or a percentage lets through.
func checkRemovalBudgetFitsInt32(obj runtime.Object) field.ErrorList {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	n, found, err := unstructured.NestedInt64(u.Object, "spec", "removal", "budget")
	if err != nil || !found || n == int64(int32(n)) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("spec", "removal", "budget"), n, fmt.Sprintf("must be from 0 to %d", math.MaxInt32))}
}

// validateOverride is for both override policies; enforced has nothing to check.
func (p *AdmissionPlugin) validateOverride(ctx context.Context, a admission.Attributes) error {
	now, before, err := typedObjects[v1alpha1.OverridePolicy](a)
	if err != nil {
		return err
	}
	if now.DeletionTimestamp != nil {
		return nil
	}
	spec := &now.Spec
	at := field.NewPath("spec")
	if errs := p.checkOverrideSpec(a, spec, at); len(errs) > 0 {
		return refuseFields(a, atoll.ReasonInvalidField, errs...)
	}
	if before != nil && apiequality.Semantic.DeepEqual(before.Spec, now.Spec) {
		return nil
	}
	if errs := p.checkKnownFields(spec, before, at.Child("overrideRules")); len(errs) > 0 {
		return refuseFields(a, atoll.ReasonInvalidField, errs...)
	}
	var had []placementReference
	if before != nil {
		had = ruleReferences(before.Spec.OverrideRules, at.Child("overrideRules"))
	}
	if err := p.validatePlacementReferences(a, ruleReferences(spec.OverrideRules, at.Child("overrideRules")), had, at); err != nil {
		return err
	}
	need := p.requiredSelectorReads(a.GetNamespace(), spec.ResourceSelectors)
	if len(spec.ResourceSelectors) == 0 {
		need = p.requiredNamespaceReads(a.GetNamespace())
	}
	if err := p.mayRead(ctx, a.GetUserInfo(), need); err != nil {
		return refuseRequest(a, atoll.ReasonPermissionMissing, err)
	}
	return nil
}

// checkOverrideSpec returns the fields of an override policy's spec that are invalid.
func (p *AdmissionPlugin) checkOverrideSpec(a admission.Attributes, spec *v1alpha1.OverrideSpec, at *field.Path) field.ErrorList {
	errs := checkSpecSize(spec, at)
	errs = append(errs, p.checkSelectors(spec.ResourceSelectors, a.GetNamespace(), at.Child("resourceSelectors"))...)
	errs = append(errs, forbidAllKindsSelectors(spec, at)...)
	if a.GetKind().Kind == "OverridePolicy" {
		errs = append(errs, forbidClusterOnlyOverrides(spec, at)...)
	}
	if cost, over := overrides.SumExpressionCost(spec.OverrideRules); over {
		errs = append(errs, field.Forbidden(at.Child("overrideRules"),
			fmt.Sprintf("their expressions may cost %d units together, and at most %d are allowed in a cluster", cost, overrides.MaxRowCost)))
	}
	for i := range spec.OverrideRules {
		errs = append(errs, p.checkRule(a, spec, i, at.Child("overrideRules").Index(i))...)
	}
	return errs
}

// forbidAllKindsSelectors refuses selectors of all kinds: what an override changes is known by its kind.
func forbidAllKindsSelectors(spec *v1alpha1.OverrideSpec, at *field.Path) (errs field.ErrorList) {
	for i, rs := range spec.ResourceSelectors {
		if rs.Kind == policymatch.AllKinds {
			errs = append(errs, field.Forbidden(at.Child("resourceSelectors").Index(i).Child("kind"), "an override policy names its kinds; without resourceSelectors it selects everything"))
		}
	}
	return errs
}

// forbidClusterOnlyOverrides refuses what only a ClusterOverridePolicy may change.
func forbidClusterOnlyOverrides(spec *v1alpha1.OverrideSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, rs := range spec.ResourceSelectors {
		gk := selectorKind(rs)
		if overrides.RequiresClusterOverridePolicy(gk) {
			errs = append(errs, field.Forbidden(at.Child("resourceSelectors").Index(i),
				fmt.Sprintf("only a ClusterOverridePolicy may change a %s", rs.Kind)))
		}
		if gk.Group != "" || gk.Kind != "Secret" {
			continue
		}
		for j, r := range spec.OverrideRules {
			if overrides.ChangesSecretData(r.Overriders) {
				errs = append(errs, field.Forbidden(at.Child("overrideRules").Index(j).Child("overriders"),
					"only a ClusterOverridePolicy may change the data of Secrets, which resourceSelectors chooses"))
			}
		}
	}
	return errs
}

func (p *AdmissionPlugin) checkRule(a admission.Attributes, spec *v1alpha1.OverrideSpec, i int, at *field.Path) field.ErrorList {
	r := &spec.OverrideRules[i]
	errs := policycheck.CheckTarget(r.TargetCluster, at.Child("targetCluster"))
	o := &r.Overriders
	in := at.Child("overriders")
	if spec.AppliedRules != v1alpha1.AppliedRulesFirst && apiequality.Semantic.DeepEqual(*o, v1alpha1.Overriders{}) {
		errs = append(errs, field.Required(in, "a rule without overriders does nothing"))
	}
	for _, problem := range overrides.CheckOverridersOnWrite(*o) {
		errs = append(errs, field.Invalid(in.Child(problem.Path), field.OmitValueType{}, problem.Reason))
	}
	errs = append(errs, checkStrategicMergeSupport(spec, *o, in)...)
	// A plan calls it once all of its files are merged: one of them may hand replicas over.
	if overrides.CanSetReplicas(*o) && !(a.IsDryRun() && isPlanDryRun(a)) {
		if hub, ok := p.currentHub(); ok {
			if key, divided := hub.Templates.FirstDividedWithoutReplicaOverrides(a.GetNamespace(), spec.ResourceSelectors); divided {
				errs = append(errs, DividedReplicasError(*o, key, in))
			}
		}
	}
	return errs
}

// DividedReplicasError is the refusal of overriders that set replicas which the placement divides,
// with what to write instead.
func DividedReplicasError(o v1alpha1.Overriders, key atoll.ItemKey, at *field.Path) *field.Error {
	rest, why := o, "so that no override can set them"
	rest.NotHere = nil
	switch {
	case o.Replicas != nil:
		at = at.Child("replicas")
	case !overrides.CanSetReplicas(rest):
		at, why = at.Child("notHere"), "and so shows which clusters have any: exclude clusters there"
	}
	return field.Forbidden(at, fmt.Sprintf("the placement of %s %s divides its replicas, %s, unless its replicaScheduling has replicaOverrides: Allow", key.Kind, key.Name, why))
}

// checkStrategicMergeSupport refuses strategic merge patches of kinds that do not define how their
// lists are merged.
func checkStrategicMergeSupport(spec *v1alpha1.OverrideSpec, o v1alpha1.Overriders, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, path := range overrides.BuiltInOnlyOverriders(o) {
		for _, rs := range spec.ResourceSelectors {
			if gk := selectorKind(rs); !overrides.SupportsStrategicMerge(gk) {
				errs = append(errs, field.Forbidden(at.Child(path), fmt.Sprintf("%s, which resourceSelectors chooses, is no built-in kind, so that nothing defines how its lists are merged: use mergePatch", gk)))
			}
		}
	}
	return errs
}
