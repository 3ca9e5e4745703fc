package policycheck

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"atoll.dev/atoll/api/v1alpha1"
)

// CheckPlacement checks the placement of a propagation policy.
func CheckPlacement(pl *v1alpha1.PlacementSpec, refused PropertyRefusal, at *field.Path) field.ErrorList {
	errs := checkAffinity(pl.ClusterAffinity, at.Child("clusterAffinity"))
	errs = append(errs, checkFilters(pl, refused, at)...)
	errs = append(errs, checkSpreadScoresAndGroups(pl, refused, at)...)
	for i, t := range pl.ClusterTolerations {
		errs = append(errs, checkToleration(t, at.Child("clusterTolerations").Index(i))...)
	}
	if w := pl.ReplicaScheduling.WeightPreference; w != nil {
		list := at.Child("replicaScheduling", "weightPreference", "staticWeightList")
		for i := range w.StaticWeightList {
			entry := &w.StaticWeightList[i]
			target := list.Index(i).Child("targetCluster")
			errs = append(errs, checkAffinity(&entry.TargetCluster, target)...)
			errs = append(errs, checkFieldKeys(entry.TargetCluster.FieldSelector, target.Child("fieldSelector"), refused)...)
		}
	}
	return errs
}

func checkAffinity(a *v1alpha1.ClusterAffinity, at *field.Path) field.ErrorList {
	if a == nil {
		return nil
	}
	errs := CheckLabelSelector(a.LabelSelector, at.Child("labelSelector"))
	errs = append(errs, checkClusterNames(a.ClusterNames, at.Child("clusterNames"))...)
	errs = append(errs, checkClusterNames(a.ExcludeClusters, at.Child("exclude"))...)
	excluded := map[string]bool{}
	for _, n := range a.ExcludeClusters {
		excluded[n] = true
	}
	for i, n := range a.ClusterNames {
		if excluded[n] {
			errs = append(errs, field.Invalid(at.Child("clusterNames").Index(i), n, "is named in exclude too"))
		}
	}
	return append(errs, checkFields(a.FieldSelector, at.Child("fieldSelector"))...)
}

func checkToleration(t corev1.Toleration, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if t.Key != "" {
		for _, msg := range validation.IsQualifiedName(t.Key) {
			errs = append(errs, field.Invalid(at.Child("key"), t.Key, msg))
		}
	}
	switch t.Operator {
	case corev1.TolerationOpEqual, "":
		if t.Key == "" {
			errs = append(errs, field.Invalid(at.Child("operator"), t.Operator, "must be Exists when there is no key, which tolerates every taint"))
		}
		for _, msg := range validation.IsValidLabelValue(t.Value) {
			errs = append(errs, field.Invalid(at.Child("value"), t.Value, msg))
		}
	case corev1.TolerationOpExists:
		if t.Value != "" {
			errs = append(errs, field.Invalid(at.Child("value"), t.Value, "must be empty with operator Exists"))
		}
	default:
		errs = append(errs, field.NotSupported(at.Child("operator"), t.Operator, []corev1.TolerationOperator{corev1.TolerationOpEqual, corev1.TolerationOpExists}))
	}
	switch t.Effect {
	case "", corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
	default:
		errs = append(errs, field.NotSupported(at.Child("effect"), t.Effect,
			[]corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}))
	}
	if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
		errs = append(errs, field.Invalid(at.Child("tolerationSeconds"), *t.TolerationSeconds, "needs effect NoExecute"))
	}
	return errs
}
