package admission

import (
	"context"
	"fmt"
	"math"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/warning"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/phrase"
)

// checkDisruptionBudgetFitsInt32 refuses bounds that the typed object could not hold, which the schema of a number or a percentage lets
// through.
func checkDisruptionBudgetFitsInt32(obj runtime.Object) (errs field.ErrorList) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	for _, name := range [...]string{"maxUnavailable", "minAvailable"} {
		n, found, err := unstructured.NestedInt64(u.Object, "spec", "disruptionBudget", name)
		if err == nil && found && n != int64(int32(n)) {
			errs = append(errs, field.Invalid(field.NewPath("spec", "disruptionBudget", name), n, fmt.Sprintf("must be from 0 to %d", math.MaxInt32)))
		}
	}
	return errs
}

// manyClusters is more clusters than a placement without a bound chooses.
const manyClusters = 1_000_000

// warnOfStrictBudget warns the author of a policy whose disruption budget lets no copy go, however healthy all are.
func warnOfStrictBudget(ctx context.Context, spec *v1alpha1.PropagationSpec) {
	most := countMostClusters(&spec.Placement)
	if !spec.DisruptionBudget.LetsNoneGo(most) {
		return
	}
	where := "any cluster"
	if most < manyClusters {
		where = phrase.CountNoun(most, "cluster")
	}
	warning.AddWarning(ctx, "", fmt.Sprintf("disruptionBudget: %s lets no copy in %s go, even while all are available: changes of healthy copies wait for an edit of it, and so do drains and moves that do not start a replacement first", spec.DisruptionBudget, where))
}

// countMostClusters returns how many clusters a placement can choose at most.
func countMostClusters(p *v1alpha1.PlacementSpec) int {
	most := manyClusters
	if p.MaxClusters > 0 {
		most = int(p.MaxClusters)
	}
	if p.ClusterAffinity != nil && len(p.ClusterAffinity.ClusterNames) > 0 {
		most = min(most, len(p.ClusterAffinity.ClusterNames))
	}
	return most
}
