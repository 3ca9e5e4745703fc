package kinds

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ReplicasOf returns the replicas of the object, 1 where it states none, and the path of the
// field. ok is false for kinds whose replicas cannot be divided. Examples are a Job's
// parallelism, the workers of a RayCluster and the instances of a database. NeedsOneCluster can
// still keep divisible replicas together.
func ReplicasOf(obj *unstructured.Unstructured) (n int64, path []string, ok bool) {
	k := traitsOf(obj)
	if k.replicasPath == nil {
		return 0, nil, false
	}
	return countAt(obj.Object, k.replicasPath, 1), k.replicasPath, true
}

// IsCustomKind reports whether Kubernetes does not serve the kind itself.
func IsCustomKind(gk schema.GroupKind) bool { return !builtinGroups[gk.Group] }

// NeedsOneCluster reports whether the replicas of an object form one unit, as those of a
// StatefulSet do. They go to one cluster unless a policy states otherwise.
func NeedsOneCluster(gk schema.GroupKind) bool { return traitsOfKind(gk).needsOneCluster }

// NeedsOneClusterForVolumes reports whether each replica of the object has volumes of its own, for a
// kind that does not NeedsOneCluster. Volumes would stay behind in a move, so such replicas form
// one unit too.
func NeedsOneClusterForVolumes(obj *unstructured.Unstructured) bool {
	k := traitsOf(obj)
	own, _ := valueAt(obj.Object, k.volumesPath).([]any)
	return k.volumesPath != nil && len(own) > 0
}

// MayHaveVolumesOfReplicas reports whether NeedsOneClusterForVolumes can be true of the kind.
func MayHaveVolumesOfReplicas(gk schema.GroupKind) bool {
	return traitsOfKind(gk).volumesPath != nil
}

// ReplicaCounts returns the desired and the ready replicas of a reflected status. ok is false
// for kinds without replicas, and where nothing was reflected.
func ReplicaCounts(gk schema.GroupKind, status json.RawMessage) (desired, ready int64, ok bool) {
	var r reflectedStatus
	if traitsOfKind(gk).replicasPath == nil || json.Unmarshal(status, &r) != nil {
		return 0, 0, false
	}
	return r.countAt(0), r.countAt(3), true
}

// AllowsNoDisruption reports whether a reflected status is one of a PodDisruptionBudget that has pods and allows no disruption of
// them. It is false for other kinds, and where the member's controller has not observed the object.
func AllowsNoDisruption(gk schema.GroupKind, status json.RawMessage) bool {
	var r reflectedStatus
	if gk.Group != "policy" || gk.Kind != "PodDisruptionBudget" || json.Unmarshal(status, &r) != nil || r.hasFlag(flagOutdated) {
		return false
	}
	return r.countAt(0) == 0 && r.countAt(3) > 0
}

// HasAggregatedStatus reports whether AggregateStatus can return a status for the kind.
func HasAggregatedStatus(gk schema.GroupKind) bool {
	k := traitsOfKind(gk)
	return k.usesGenericStatus || k.aggregate != nil
}
