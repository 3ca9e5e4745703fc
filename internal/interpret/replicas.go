package interpret

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Replicas that the object states (1 where it states none, as the API server
// would) and the path of the field. ok is false for kinds that have no replicas to
// share out: a Job's parallelism is not one, since its work is not divided by it, nor
// are the workers of a RayCluster, which all belong to one head, or the instances of a
// database, which are copies of one another.
// What has replicas may still have to stay together, as Whole says.
func Replicas(obj *unstructured.Unstructured) (n int64, path []string, ok bool) {
	k := known(obj)
	if k.replicas == nil {
		return 0, nil, false
	}
	return digCount(obj.Object, k.replicas, 1), k.replicas, true
}

// Custom tells whether the kind is not one of those that Kubernetes serves itself.
func Custom(gk schema.GroupKind) bool { return !builtinGroups[gk.Group] }

// Whole tells whether the replicas of the kind's objects are parts of one whole, as those
// of a StatefulSet are, so that they go to one cluster unless somebody says more.
func Whole(gk schema.GroupKind) bool { return of(gk).together }

// OwnVolumes tells whether an object of a kind that is not Whole states volumes that each of
// its replicas has of its own. They would stay behind, or begin empty elsewhere, so that
// such replicas are parts of one whole too.
func OwnVolumes(obj *unstructured.Unstructured) bool {
	k := known(obj)
	own, _ := dig(obj.Object, k.volumes).([]any)
	return k.volumes != nil && len(own) > 0
}

// ReplicaCounts reads of a reflected status how many replicas a cluster was told to
// run of an object of the kind, and how many are ready. ok is false for kinds
// without replicas, and where nothing was reflected.
func ReplicaCounts(gk schema.GroupKind, status json.RawMessage) (desired, ready int64, ok bool) {
	var r reflected
	if of(gk).replicas == nil || json.Unmarshal(status, &r) != nil {
		return 0, 0, false
	}
	return r.n(0), r.n(3), true
}

// Aggregates tells whether Aggregate ever gives a status to templates of the kind.
func Aggregates(gk schema.GroupKind) bool {
	k := of(gk)
	return k.generic || k.aggregate != nil
}
