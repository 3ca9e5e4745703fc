package interpret

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/atoll"
)

// applicationPhases are Argo CD's words for health.
var applicationPhases = &reading{phase: at("health.status"), message: at("health.message"), phases: map[string]atoll.Health{
	"Healthy": good, "Progressing": busy, "Degraded": bad, "Suspended": still, "Missing": busy, "Unknown": atoll.Unknown}}

// applicationHealth of an Argo CD Application: what Argo CD says of the objects that it
// manages, once nothing is under way that will change them.
//
// An Application has no observedGeneration, and its generation counts what its controller
// writes too. What tells that the controller has seen the latest change is that it states
// what it compared the cluster with, comparedTo, which then is what the spec asks for.
//
// OutOfSync alone is no trouble: where people ask for syncs it is what they look at before
// they do, and where Argo CD syncs by itself some applications stay so for ever, as
// something else writes to their objects, while it does not sync the same revision twice.
// It is Progressing only while a sync of that revision is still to come by itself. A sync
// that failed is tried again at another revision, or by somebody; it is forgotten once the
// application is in sync at another revision.
func applicationHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	st := status(obj)
	if len(st) == 0 {
		return applicationPhases.verdict(obj)
	}
	sync, op := child(st, "sync"), child(st, "operationState")
	if !compared(spec(obj), child(sync, "comparedTo")) {
		return unobserved()
	}
	for _, c := range list(st, "conditions") {
		m, _ := c.(map[string]any) // these have no status
		switch kind := text(m, "type"); kind {
		case "InvalidSpecError":
			return atoll.Degraded, kind, text(m, "message")
		case "ComparisonError": // the repository, as a rule, which may come back
			return atoll.Progressing, kind, text(m, "message")
		}
	}
	phase := text(op, "phase")
	inSync, outOfSync := text(sync, "status") == "Synced", text(sync, "status") == "OutOfSync"
	tried := same(child(op, "syncResult")["revision"], sync["revision"]) && same(child(op, "syncResult")["revisions"], sync["revisions"])
	switch {
	case child(obj.Object, "operation") != nil || phase == "Running" || phase == "Terminating":
		return atoll.Progressing, "Syncing", text(op, "message")
	case outOfSync && !tried && syncsItself(obj):
		return atoll.Progressing, "OutOfSync", "it is about to be synced"
	case (phase == "Failed" || phase == "Error") && (tried || !inSync):
		return atoll.Degraded, "SyncFailed", text(op, "message")
	}
	return applicationPhases.verdict(obj)
}

// syncsItself tells whether Argo CD syncs the application without being asked.
func syncsItself(obj *unstructured.Unstructured) bool {
	automated, stated := child(spec(obj), "syncPolicy")["automated"].(map[string]any)
	enabled, told := automated["enabled"].(bool)
	return stated && (enabled || !told)
}

// compared tells whether what was compared is what is asked for; where nothing says what
// was, or where sources are made by a hydrator, it is taken for that.
func compared(sp, to map[string]any) bool {
	if to == nil || sp["sourceHydrator"] != nil {
		return true
	}
	return covers(to["destination"], sp["destination"]) && (sp["sources"] != nil || covers(to["source"], sp["source"])) &&
		covers(to["sources"], sp["sources"])
}
