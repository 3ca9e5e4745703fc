package interpret

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var replicated = map[schema.GroupKind]bool{
	{Group: "apps", Kind: "Deployment"}:  true,
	{Group: "apps", Kind: "StatefulSet"}: true,
	{Group: "apps", Kind: "ReplicaSet"}:  true,
	{Kind: "ReplicationController"}:      true,
}

// Replicas that the object states (1 where it states none, as the API server
// would) and the path of the field. ok is false for kinds that have no replicas to
// share out: a Job's parallelism is not one, since its work is not divided by it.
// A StatefulSet has replicas; that they stay together is the caller's to know.
func Replicas(obj *unstructured.Unstructured) (n int64, path []string, ok bool) {
	if !replicated[groupKind(obj)] {
		return 0, nil, false
	}
	return countOr(spec(obj), "replicas", 1), []string{"spec", "replicas"}, true
}

// ReplicaCounts reads of a reflected status how many replicas a cluster was told to
// run of an object of the kind, and how many are ready. ok is false for kinds
// without replicas, and where nothing was reflected.
func ReplicaCounts(gk schema.GroupKind, status json.RawMessage) (desired, ready int64, ok bool) {
	var r reflected
	if !replicated[gk] || json.Unmarshal(status, &r) != nil {
		return 0, 0, false
	}
	return r.n(0), r.n(3), true
}

// Aggregates tells whether Aggregate ever gives a status to templates of the kind.
func Aggregates(gk schema.GroupKind) bool {
	k, known := kinds[gk]
	return k.aggregate != nil || !known && !builtinGroups[gk.Group]
}
