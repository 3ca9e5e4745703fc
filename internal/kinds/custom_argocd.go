package kinds

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/atoll"
)

// applicationPhases are the health states of Argo CD.
var applicationPhases = &healthReader{phasePath: parsePath("health.status"), messagePath: parsePath("health.message"), phaseHealth: map[string]atoll.Health{
	"Healthy": phaseHealthy, "Progressing": phaseProgressing, "Degraded": phaseDegraded, "Suspended": phaseSuspended, "Missing": phaseProgressing, "Unknown": atoll.Unknown}}

// argoApplicationHealth returns the health that Argo CD reports of the objects of an Application,
// unless a sync is about to change them.
//
// An Application has no observedGeneration, and its controller changes its generation. The
// controller has observed the latest change where comparedTo, the input of its last comparison,
// equals the spec.
//
// OutOfSync alone is no trouble. With manual syncs it is the normal state before a sync. With
// automated syncs some applications stay OutOfSync for ever: something else writes to their
// objects, and Argo CD does not sync the same revision twice. It is Progressing only until the
// sync of that revision. A failed sync is Degraded until the application is in sync at another
// revision.
func argoApplicationHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	st := statusOf(obj)
	if len(st) == 0 {
		return applicationPhases.readHealth(obj)
	}
	if !hasArgoComparedSpec(specOf(obj), nestedMap(st, "sync", "comparedTo")) {
		return notObservedResult()
	}
	for _, c := range listField(st, "conditions") {
		m, _ := c.(map[string]any) // these have no status
		switch kind := stringField(m, "type"); kind {
		case "InvalidSpecError":
			return atoll.Degraded, kind, stringField(m, "message")
		case "ComparisonError": // usually the repository, which may recover
			return atoll.Progressing, kind, stringField(m, "message")
		}
	}
	if h, reason, message := argoSyncHealth(obj); h != "" {
		return h, reason, message
	}
	return applicationPhases.readHealth(obj)
}

// argoSyncHealth returns no health where no sync is running, due or failed.
func argoSyncHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	st := statusOf(obj)
	sync, op := nestedMap(st, "sync"), nestedMap(st, "operationState")
	phase, result := stringField(op, "phase"), nestedMap(op, "syncResult")
	inSync, outOfSync := stringField(sync, "status") == "Synced", stringField(sync, "status") == "OutOfSync"
	tried := equalValuesIgnoringEmpty(result["revision"], sync["revision"]) && equalValuesIgnoringEmpty(result["revisions"], sync["revisions"])
	switch {
	case nestedMap(obj.Object, "operation") != nil || phase == "Running" || phase == "Terminating":
		return atoll.Progressing, "Syncing", stringField(op, "message")
	case outOfSync && !tried && hasAutomatedSync(obj):
		return atoll.Progressing, "OutOfSync", "it is about to be synced"
	case (phase == "Failed" || phase == "Error") && (tried || !inSync):
		return atoll.Degraded, "SyncFailed", stringField(op, "message")
	}
	return "", "", ""
}

// hasAutomatedSync reports whether Argo CD syncs the application by itself.
func hasAutomatedSync(obj *unstructured.Unstructured) bool {
	automated, hasPolicy := nestedMap(specOf(obj), "syncPolicy")["automated"].(map[string]any)
	enabled, isSet := automated["enabled"].(bool)
	return hasPolicy && (enabled || !isSet)
}

// hasArgoComparedSpec reports whether Argo CD compared the cluster with what the spec states. It is
// true where the status does not show it, and where a hydrator makes the sources.
func hasArgoComparedSpec(sp, to map[string]any) bool {
	if to == nil || sp["sourceHydrator"] != nil {
		return true
	}
	return includesFields(to["destination"], sp["destination"]) && (sp["sources"] != nil || includesFields(to["source"], sp["source"])) &&
		includesFields(to["sources"], sp["sources"])
}
