package kinds

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/atoll"
)

// trainingJobTraits are for the jobs of Kubeflow's training operator, whose pods are sets in a map at
// spec.X. roles are the names of these sets.
func trainingJobTraits(replicaSpecs string, roles ...string) kindTraits {
	var sums []fieldPath
	for _, role := range roles {
		sums = append(sums, parsePaths("replicaStatuses."+role+".active", "replicaStatuses."+role+".succeeded", "replicaStatuses."+role+".failed")...)
	}
	return kindTraits{health: trainingOperatorJobHealth, sumFields: sums, hasEnded: endedByCondition("Succeeded", "Failed"),
		podParts: []podPart{{listPath: parsePath("spec." + replicaSpecs), listIsMap: true, countPods: podCountAt("replicas", 1), templatePath: parsePath("template")}}}
}

// kubeflowKinds: jobs that train models, and notebooks.
var kubeflowKinds = customKinds{
	{Group: "kubeflow.org", Kind: "PyTorchJob"}: trainingJobTraits("pytorchReplicaSpecs", "Master", "Worker"),
	{Group: "kubeflow.org", Kind: "TFJob"}:      trainingJobTraits("tfReplicaSpecs", "Chief", "Master", "PS", "Worker", "Evaluator"),
	{Group: "kubeflow.org", Kind: "MPIJob"}:     trainingJobTraits("mpiReplicaSpecs", "Launcher", "Worker"),
	{Group: "kubeflow.org", Kind: "XGBoostJob"}: trainingJobTraits("xgbReplicaSpecs", "Master", "Worker"),
	{Group: "kubeflow.org", Kind: "PaddleJob"}:  trainingJobTraits("paddleReplicaSpecs", "Master", "Worker"),
	{Group: "kubeflow.org", Kind: "JAXJob"}:     trainingJobTraits("jaxReplicaSpecs", "Worker"),
	{Group: "kubeflow.org", Kind: "Notebook"}: {health: notebookHealth, sumFields: parsePaths("readyReplicas"), writesZeros: true, requiredObjects: []string{"containerState"},
		podParts: []podPart{{countPods: countNotebookPods, templatePath: parsePath("spec.template")}}},
	{Group: "trainer.kubeflow.org", Kind: "TrainJob"}: {health: trainJobHealth, hasEnded: endedByCondition("Complete", "Failed"),
		podParts: []podPart{{name: "node", countPods: podCountAt("spec.trainer.numNodes", 1), readRequests: requestsAt("spec.trainer.resourcesPerNode")}}},
	{Group: "trainer.kubeflow.org", Kind: "TrainingRuntime"}:        configTraits,
	{Group: "trainer.kubeflow.org", Kind: "ClusterTrainingRuntime"}: configTraits,
}

// trainingOperatorJobHealth returns the health of a job that runs once. It is Suspended where its user suspends it, and waits
// where Kueue does.
func trainingOperatorJobHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	return runOnceHealth(obj, "Succeeded", boolField(nestedMap(specOf(obj), "runPolicy"), "suspend"))
}

func trainJobHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	return runOnceHealth(obj, "Complete", boolField(specOf(obj), "suspend"))
}

// runOnceHealth returns the health of an object that runs once, by its conditions. success is the condition of a run that
// ended well.
func runOnceHealth(obj *unstructured.Unstructured, success string, isSuspended bool) (atoll.Health, string, string) {
	cs := conditionsOf(statusOf(obj))
	failed, running := findCondition(cs, "Failed"), findCondition(cs, "Running")
	switch {
	case hasUnreadableStatus(obj):
		return atoll.Unknown, "UnreadableStatus", "the status is not an object"
	case failed.hasStatus("True"):
		return atoll.Degraded, camelCaseReason(orElse(failed.reason, "Failed")), failed.message
	case findCondition(cs, success).hasStatus("True"):
		return healthyResult()
	case isSuspended && obj.GetLabels()[queueLabel] != "":
		return queuedResult()
	case isSuspended:
		return atoll.Suspended, "Suspended", "the run is suspended"
	case len(cs) == 0:
		return notReportedResult()
	case running.hasStatus("True"):
		return atoll.Progressing, "Running", orElse(running.message, "it has not run to completion yet")
	}
	return atoll.Progressing, "NotRunning", "its pods do not run yet"
}

// notebookStopped is the annotation with the time at which a user, or idleness, stopped a Notebook.
const notebookStopped = "kubeflow-resource-stopped"

func isNotebookStopped(m map[string]any) bool {
	_, stopped := nestedMap(m, "metadata", "annotations")[notebookStopped]
	return stopped
}

func countNotebookPods(m map[string]any) int64 {
	if isNotebookStopped(m) {
		return 0
	}
	return 1
}

// notebookHealth returns the health of a Notebook, which has one pod.
func notebookHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	st := statusOf(obj)
	waiting := nestedMap(st, "containerState", "waiting")
	switch reason := stringField(waiting, "reason"); {
	case hasUnreadableStatus(obj):
		return atoll.Unknown, "UnreadableStatus", "the status is not an object"
	case isNotebookStopped(obj.Object):
		return atoll.Suspended, "Stopped", "the notebook is stopped by the annotation " + notebookStopped
	case len(st) == 0:
		return notReportedResult()
	case countField(st, "readyReplicas") > 0:
		return healthyResult()
	case stuckWaitingReasons[reason]:
		return atoll.Degraded, reason, orElse(stringField(waiting, "message"), fmt.Sprintf("the container waits: %s", reason))
	}
	return atoll.Progressing, "Unavailable", "the notebook's pod is not ready"
}
