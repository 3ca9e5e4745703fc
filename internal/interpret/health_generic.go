package interpret

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/atoll"
)

// builtinGroups are served by every Kubernetes API server itself. A kind of theirs
// that kinds does not name has nothing in its status that tells of health.
var builtinGroups = map[string]bool{
	"": true, "apps": true, "batch": true, "autoscaling": true, "policy": true, "events.k8s.io": true,
	"networking.k8s.io": true, "rbac.authorization.k8s.io": true, "storage.k8s.io": true,
	"scheduling.k8s.io": true, "node.k8s.io": true, "coordination.k8s.io": true, "discovery.k8s.io": true,
	"admissionregistration.k8s.io": true, "apiextensions.k8s.io": true, "apiregistration.k8s.io": true,
	"certificates.k8s.io": true, "flowcontrol.apiserver.k8s.io": true, "resource.k8s.io": true,
	"storagemigration.k8s.io": true, "internal.apiserver.k8s.io": true,
}

// genericHealth judges by the conditions that are customary. Conditions that tell
// of trouble win over those that tell of success.
func genericHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	st := status(obj)
	if len(st) == 0 {
		if unreadable(obj) {
			return atoll.Unknown, "UnreadableStatus", "the status is not an object"
		}
		return healthy()
	}
	if observed, ok := observedOf(st); ok && observed < obj.GetGeneration() {
		return unobserved()
	}
	cs := conditionsOf(st)
	outdate(cs, obj.GetGeneration())
	if h, reason, message := managedHealth(cs); h != "" {
		return h, reason, message
	}
	for _, kind := range []string{"Stalled", "Degraded", "Failed"} {
		if c := find(cs, kind); c.is("True") {
			return atoll.Degraded, orElse(c.reason, kind), c.message
		}
	}
	if c := find(cs, "Reconciling"); c.is("True") {
		return atoll.Progressing, orElse(c.reason, "Reconciling"), c.message
	}
	if c := find(cs, "Succeeded"); c.is("False") { // Unknown while it runs
		return atoll.Degraded, orElse(c.reason, "NotSucceeded"), c.message
	}
	known := false
	for _, kind := range []string{"Synced", "Ready", "Available", "Healthy", "Succeeded"} {
		c := find(cs, kind)
		if c.kind == "" {
			continue
		}
		known = true
		if !c.is("True") {
			return atoll.Progressing, orElse(c.reason, "Not"+kind), orElse(c.message, fmt.Sprintf("condition %s is %s", kind, c.status))
		}
	}
	if c := find(cs, "Progressing"); c.is("True") && !known {
		return atoll.Progressing, orElse(c.reason, "Progressing"), c.message
	}
	if known || find(cs, "Reconciling").is("False") || find(cs, "Stalled").is("False") || find(cs, "Degraded").is("False") {
		return healthy()
	}
	if builtinGroups[groupKind(obj).Group] {
		return healthy()
	}
	return atoll.Unknown, "UnreadableStatus", "the status has none of the conditions Ready, Available, Synced, Healthy, Succeeded, Progressing, Stalled, Reconciling"
}

// unreadable tells whether the object has a status that is not what a status is.
func unreadable(obj *unstructured.Unstructured) bool {
	v := obj.Object["status"]
	_, is := v.(map[string]any)
	return v != nil && !is
}

// customary conditions.
var customary = map[string]bool{
	"Ready": true, "Available": true, "Synced": true, "Progressing": true, "Stalled": true, "Reconciling": true, "Degraded": true, "Failed": true,
	"LastAsyncOperation": true, "Healthy": true, "Succeeded": true,
}
