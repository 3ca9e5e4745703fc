package policycheck

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"atoll.dev/atoll/api/v1alpha1"
)

// maxSuspendedClusters is how many clusters a policy suspends by their names, as in the schema.
const maxSuspendedClusters = 1024

// checkSuspension returns the fields of a suspension that could not be honoured.
func checkSuspension(s *v1alpha1.Suspension, at *field.Path) (errs field.ErrorList) {
	if s == nil || s.DispatchingOnClusters == nil {
		return nil
	}
	at = at.Child("dispatchingOnClusters")
	if s.Dispatching {
		errs = append(errs, field.Forbidden(at, "dispatching suspends all clusters: give one of the two"))
	}
	names := s.DispatchingOnClusters.ClusterNames
	at = at.Child("clusterNames")
	switch {
	case len(names) == 0:
		return append(errs, field.Required(at, "name the clusters, or leave dispatchingOnClusters out"))
	case len(names) > maxSuspendedClusters:
		return append(errs, field.TooMany(at, len(names), maxSuspendedClusters))
	}
	return append(errs, checkClusterNames(names, at)...)
}
