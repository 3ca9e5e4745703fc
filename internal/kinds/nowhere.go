package kinds

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// replicaKinds are the workloads whose status counts replicas, or pods on nodes.
var replicaKinds = []schema.GroupKind{
	{Group: "apps", Kind: "Deployment"}, {Group: "apps", Kind: "StatefulSet"}, {Group: "apps", Kind: "ReplicaSet"},
	{Group: "apps", Kind: "DaemonSet"}, {Kind: "ReplicationController"},
}

// NowhereStatus returns the status of a workload that no cluster is to run: no replicas, the present generation, and
// Available False for the reason. ok is false for other kinds. As in AggregateStatus, a new time is TimePlaceholder.
func NowhereStatus(template *unstructured.Unstructured, reason, message string) (status map[string]any, ok bool) {
	gk := template.GroupVersionKind().GroupKind()
	if !slices.Contains(replicaKinds, gk) {
		return nil, false
	}
	a := &statusAggregation{template: template, templateStatus: statusOf(template)}
	available := a.buildCondition(condition{conditionType: "Available", status: "False", reason: reason, message: message}, gk.Kind == "Deployment")
	status = map[string]any{"observedGeneration": template.GetGeneration(), "conditions": []any{available}}
	if gk.Kind == "DaemonSet" {
		for _, name := range []string{"currentNumberScheduled", "desiredNumberScheduled", "numberMisscheduled", "numberReady"} {
			status[name] = int64(0) // required
		}
		return status, true
	}
	status["replicas"] = int64(0)
	return status, true
}
