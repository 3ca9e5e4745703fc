package policycheck

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"atoll.dev/atoll/api/v1alpha1"
)

// CheckZones refuses the spec of a Cluster that states its zones twice.
func CheckZones(spec *v1alpha1.ClusterSpec, at *field.Path) field.ErrorList {
	if spec.Zone == "" || len(spec.Zones) == 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(at.Child("zones"), spec.Zones, fmt.Sprintf("zone is %q: give zone or zones, which names all of them", spec.Zone))}
}
