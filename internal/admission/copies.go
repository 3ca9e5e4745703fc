package admission

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/warning"

	"atoll.dev/atoll/api/v1alpha1"
)

const (
	warnStopsInMoves = "a move from one cluster to another stops the workload for a while: the old copy is removed before its replacement starts, because copies of a PersistentVolumeClaim or a StatefulSet should not run side by side. moveOrder: Surge starts the replacement first, and moveOrder: Recreate states this order"
	warnOrphanRunsOn = "an orphaned copy runs on in the old cluster: with removal mode Orphan, moveOrder: Recreate starts the replacement when the agent has released the old copy, and both run"
	warnOwnVolumes   = "each chosen cluster runs a whole StatefulSet of its own, with volumes of its own: placement.maxClusters: 1 keeps it in one cluster, and replicaScheduling.ordinals divides it over clusters"
	warnOneBundle    = "workloadAffinity.antiAffinity keeps Bundles apart, and the objects of one Bundle are placed together: groupBy: {type: Object} makes each object a Bundle of its own"
	warnOwnScaling   = "each chosen cluster scales by the load of its own pods: the HorizontalPodAutoscaler has no sum over clusters. placement.maxClusters: 1 keeps it in one cluster"
)

// warnOfCopies warns the author of a policy about what several copies, or a move, mean for the kinds that
// the policy names.
func warnOfCopies(ctx context.Context, spec *v1alpha1.PropagationSpec) {
	sets, ranged := selectsKind(spec, "apps", "StatefulSet"), spec.Placement.ReplicaScheduling.Ordinals != nil
	if spec.MoveOrder == "" && (sets && !ranged || selectsKind(spec, "", "PersistentVolumeClaim")) {
		warning.AddWarning(ctx, "", warnStopsInMoves)
	}
	if spec.MoveOrder == v1alpha1.MoveRecreate && spec.Removal.Mode == v1alpha1.RemoveOrphan {
		warning.AddWarning(ctx, "", warnOrphanRunsOn)
	}
	if spec.Placement.ReplicaScheduling.ReplicaSchedulingType == v1alpha1.Divided || isForOneCluster(&spec.Placement) {
		return
	}
	if sets {
		warning.AddWarning(ctx, "", warnOwnVolumes)
	}
	if selectsKind(spec, "autoscaling", "HorizontalPodAutoscaler") {
		warning.AddWarning(ctx, "", warnOwnScaling)
	}
}

// warnOfOneBundle warns the author of a policy whose antiAffinity cannot keep its objects apart, because they are one Bundle.
func warnOfOneBundle(ctx context.Context, spec *v1alpha1.PropagationSpec) {
	if a := spec.Placement.WorkloadAffinity; a != nil && a.AntiAffinity != nil && mayGroupObjects(spec) {
		warning.AddWarning(ctx, "", warnOneBundle)
	}
}

// mayGroupObjects reports whether a Bundle of the policy may have several of the objects that it selects.
func mayGroupObjects(spec *v1alpha1.PropagationSpec) bool {
	return (spec.GroupBy.Type == "" || spec.GroupBy.Type == v1alpha1.GroupByNamespace) &&
		(len(spec.ResourceSelectors) > 1 || slices.ContainsFunc(spec.ResourceSelectors, func(s v1alpha1.ResourceSelector) bool { return s.Name == "" }))
}

// selectsKind reports whether a selector names the kind.
func selectsKind(spec *v1alpha1.PropagationSpec, group, kind string) bool {
	return slices.ContainsFunc(spec.ResourceSelectors, func(s v1alpha1.ResourceSelector) bool {
		gv, err := schema.ParseGroupVersion(s.APIVersion)
		return err == nil && gv.Group == group && s.Kind == kind
	})
}

// isForOneCluster reports whether a placement states that it chooses one cluster at most.
func isForOneCluster(p *v1alpha1.PlacementSpec) bool {
	return p.MaxClusters == 1 || p.ClusterAffinity != nil && len(p.ClusterAffinity.ClusterNames) == 1
}
