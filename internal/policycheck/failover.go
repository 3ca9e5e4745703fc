package policycheck

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"atoll.dev/atoll/api/v1alpha1"
)

// purgeModes are the purge modes, in the words that are accepted.
var purgeModes = []v1alpha1.PurgeMode{
	v1alpha1.PurgeDirectly, v1alpha1.PurgeGracefully, v1alpha1.PurgeNever, v1alpha1.PurgeImmediately, v1alpha1.PurgeGraciously,
}

// checkFailover returns the fields of a failover that could not be honoured. The bounds are those of the schema.
func checkFailover(f *v1alpha1.Failover, at *field.Path) (errs field.ErrorList) {
	a := f.GetApplication()
	if a == nil {
		return nil
	}
	at = at.Child("application")
	if a.DecisionConditions != nil {
		errs = append(errs, checkBounds(a.DecisionConditions.TolerationSeconds, 10, 604800, at.Child("decisionConditions", "tolerationSeconds"))...)
	}
	known := a.PurgeMode == ""
	for _, mode := range purgeModes {
		known = known || a.PurgeMode == mode
	}
	if !known {
		errs = append(errs, field.NotSupported(at.Child("purgeMode"), a.PurgeMode, purgeModes))
	}
	if grace := at.Child("gracePeriodSeconds"); a.GracePeriodSeconds != nil && a.Purge() != v1alpha1.PurgeGracefully {
		errs = append(errs, field.Forbidden(grace, fmt.Sprintf("purgeMode %s has no grace period: leave it out, or state Gracefully", a.PurgeMode)))
	} else {
		errs = append(errs, checkBounds(a.GracePeriodSeconds, 1, 604800, grace)...)
	}
	errs = append(errs, checkBounds(a.BackoffSeconds, 60, 604800, at.Child("backoffSeconds"))...)
	return append(errs, checkBounds(a.MaxAvoidedClusters, 1, v1alpha1.MaxFailoverClusters, at.Child("maxAvoidedClusters"))...)
}

// checkBounds refuses a number outside of its bounds; nil is none.
func checkBounds(n *int32, least, most int32, at *field.Path) field.ErrorList {
	if n == nil || *n >= least && *n <= most {
		return nil
	}
	return field.ErrorList{field.Invalid(at, *n, fmt.Sprintf("give %d to %d", least, most))}
}
