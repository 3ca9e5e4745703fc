package kinds

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/atoll"
)

// builtinGroups are served by every Kubernetes API server itself. A kind of these groups that
// kindTable lacks has no field in its status that bears on health.
var builtinGroups = map[string]bool{
	"": true, "apps": true, "batch": true, "autoscaling": true, "policy": true, "events.k8s.io": true,
	"networking.k8s.io": true, "rbac.authorization.k8s.io": true, "storage.k8s.io": true,
	"scheduling.k8s.io": true, "node.k8s.io": true, "coordination.k8s.io": true, "discovery.k8s.io": true,
	"admissionregistration.k8s.io": true, "apiextensions.k8s.io": true, "apiregistration.k8s.io": true,
	"certificates.k8s.io": true, "flowcontrol.apiserver.k8s.io": true, "resource.k8s.io": true,
	"storagemigration.k8s.io": true, "internal.apiserver.k8s.io": true,
}

// genericHealth judges by the customary conditions. Conditions of trouble are read before
// conditions of success.
func genericHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	st := statusOf(obj)
	if len(st) == 0 {
		if hasUnreadableStatus(obj) {
			return atoll.Unknown, "UnreadableStatus", "the status is not an object"
		}
		return healthyResult()
	}
	if observed, ok := observedGenerationOf(st); ok && observed < obj.GetGeneration() {
		return notObservedResult()
	}
	cs := conditionsOf(st)
	markOutdatedConditions(cs, obj.GetGeneration())
	for _, read := range []func([]condition) (atoll.Health, string, string){crossplaneManagedHealth, abnormalConditionsHealth, successHealth} {
		if h, reason, message := read(cs); h != "" {
			return h, reason, message
		}
	}
	if builtinGroups[groupKindOf(obj).Group] {
		return healthyResult()
	}
	return atoll.Unknown, "UnreadableStatus", "the status has none of the conditions Ready, Available, Synced, Healthy, Succeeded, Progressing, Stalled, Reconciling"
}

// abnormalConditionsHealth returns no health where no condition of trouble or work is set.
func abnormalConditionsHealth(cs []condition) (atoll.Health, string, string) {
	for _, kind := range []string{"Stalled", "Degraded", "Failed"} {
		if c := findCondition(cs, kind); c.hasStatus("True") {
			return atoll.Degraded, orElse(c.reason, kind), c.message
		}
	}
	if c := findCondition(cs, "Reconciling"); c.hasStatus("True") {
		return atoll.Progressing, orElse(c.reason, "Reconciling"), c.message
	}
	if c := findCondition(cs, "Succeeded"); c.hasStatus("False") { // Unknown while it runs
		return atoll.Degraded, orElse(c.reason, "NotSucceeded"), c.message
	}
	return "", "", ""
}

// successHealth returns no health where the object has none of the customary conditions.
func successHealth(cs []condition) (atoll.Health, string, string) {
	known := false
	for _, kind := range []string{"Synced", "Ready", "Available", "Healthy", "Succeeded"} {
		c := findCondition(cs, kind)
		if c.conditionType == "" {
			continue
		}
		known = true
		if !c.hasStatus("True") {
			return atoll.Progressing, orElse(c.reason, "Not"+kind), orElse(c.message, fmt.Sprintf("condition %s is %s", kind, c.status))
		}
	}
	if c := findCondition(cs, "Progressing"); c.hasStatus("True") && !known {
		return atoll.Progressing, orElse(c.reason, "Progressing"), c.message
	}
	for _, kind := range []string{"Reconciling", "Stalled", "Degraded"} {
		known = known || findCondition(cs, kind).hasStatus("False")
	}
	if known {
		return healthyResult()
	}
	return "", "", ""
}

// hasUnreadableStatus reports whether the object has a status that is not a map.
func hasUnreadableStatus(obj *unstructured.Unstructured) bool {
	v := obj.Object["status"]
	_, is := v.(map[string]any)
	return v != nil && !is
}

// customaryConditions are the condition types that many kinds share.
var customaryConditions = map[string]bool{
	"Ready": true, "Available": true, "Synced": true, "Progressing": true, "Stalled": true, "Reconciling": true, "Degraded": true, "Failed": true,
	"LastAsyncOperation": true, "Healthy": true, "Succeeded": true,
}
