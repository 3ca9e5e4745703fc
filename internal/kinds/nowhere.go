package kinds

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// nowhereTraits is what the status of a kind has while no cluster is to hold the object.
type nowhereTraits struct {
	// conditionType is the kind's own condition that is False then.
	conditionType string
	// zeroCounts are the counts that are zero.
	zeroCounts []string
	// phase of the object; empty: the kind has none.
	phase string
	// updates: the condition has a time of its last update. standard: it has a generation.
	updates, standard bool
}

// nowhereKinds are the kinds with such a status. Each has a condition of its own whose False means that the object has no effect, and
// on the hub only Atoll writes the status. docs/placement.md has the reasons against other kinds.
var nowhereKinds = map[schema.GroupKind]nowhereTraits{
	{Group: "apps", Kind: "Deployment"}:  {conditionType: "Available", zeroCounts: []string{"replicas"}, updates: true},
	{Group: "apps", Kind: "StatefulSet"}: {conditionType: "Available", zeroCounts: []string{"replicas"}},
	{Group: "apps", Kind: "ReplicaSet"}:  {conditionType: "Available", zeroCounts: []string{"replicas"}},
	{Group: "apps", Kind: "DaemonSet"}: {conditionType: "Available",
		zeroCounts: []string{"currentNumberScheduled", "desiredNumberScheduled", "numberMisscheduled", "numberReady"}},
	{Kind: "ReplicationController"}: {conditionType: "Available", zeroCounts: []string{"replicas"}},
	{Kind: "Pod"}:                   {conditionType: "PodScheduled", phase: "Pending"},
	{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}: {conditionType: "ScalingActive", zeroCounts: autoscalerCounts},
	{Group: "policy", Kind: "PodDisruptionBudget"}:          {conditionType: "DisruptionAllowed", zeroCounts: budgetCounts, standard: true},
}

// NowhereStatus returns the status of an object that no cluster is to hold: the present generation, zero counts, and the kind's own
// condition False for the reason. ok is false for other kinds, and for an object that ran to its end. As in AggregateStatus, a
// new time is TimePlaceholder.
func NowhereStatus(template *unstructured.Unstructured, reason, message string) (status map[string]any, ok bool) {
	gk := template.GroupVersionKind().GroupKind()
	k, ok := nowhereKinds[gk]
	if !ok || gk.Group == "autoscaling" && template.GroupVersionKind().Version == "v1" || podEnded(template) && gk.Kind == "Pod" {
		return nil, false
	}
	a := &statusAggregation{template: template, templateStatus: statusOf(template), observed: template.GetGeneration()}
	c := condition{conditionType: k.conditionType, status: "False", reason: reason, message: message, hasObserved: true}
	conditions := a.buildStandardConditions([]condition{c})
	if !k.standard {
		conditions = []any{a.buildCondition(c, k.updates)}
	}
	status = map[string]any{"observedGeneration": a.observed, "conditions": conditions}
	for _, name := range k.zeroCounts {
		status[name] = int64(0)
	}
	if k.phase != "" {
		status["phase"] = k.phase
	}
	if class := stringField(a.templateStatus, "qosClass"); class != "" {
		status["qosClass"] = class // of a Pod; the API server refuses another one
	}
	return status, true
}
