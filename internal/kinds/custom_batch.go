package kinds

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/quantity"
)

// kueueKinds: queues, and the workloads in them.
var kueueKinds = customKinds{
	{Group: "kueue.x-k8s.io", Kind: "ClusterQueue"}:          {health: kueueQueueHealth},
	{Group: "kueue.x-k8s.io", Kind: "LocalQueue"}:            {health: kueueQueueHealth},
	{Group: "kueue.x-k8s.io", Kind: "AdmissionCheck"}:        {health: newHealthFunc(healthReader{requiredConditions: []string{"Active"}})},
	{Group: "kueue.x-k8s.io", Kind: "ResourceFlavor"}:        configTraits,
	{Group: "kueue.x-k8s.io", Kind: "WorkloadPriorityClass"}: configTraits,
	{Group: "kueue.x-k8s.io", Kind: "Topology"}:              configTraits,
	{Group: "kueue.x-k8s.io", Kind: "Cohort"}:                configTraits,
	{Group: "kueue.x-k8s.io", Kind: "MultiKueueCluster"}:     {health: newHealthFunc(healthReader{requiredConditions: []string{"Active"}})},
	{Group: "kueue.x-k8s.io", Kind: "Workload"}: {health: kueueWorkloadHealth, hasEnded: endedByCondition("Finished"),
		podParts: []podPart{{listPath: parsePath("spec.podSets"), nameKey: "name", countPods: podCountAt("count", 1), templatePath: parsePath("template")}}},
}

func kueueQueueHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	if policy := stringField(specOf(obj), "stopPolicy"); policy == "Hold" || policy == "HoldAndDrain" {
		return atoll.Suspended, "Stopped", "the queue is stopped by spec.stopPolicy"
	}
	return (&healthReader{requiredConditions: []string{"Active"}}).readHealth(obj)
}

func kueueWorkloadHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	cs := conditionsOf(statusOf(obj))
	switch finished := findCondition(cs, "Finished"); {
	case finished.hasStatus("True") && (finished.reason == "Failed" || finished.reason == "JobFailed"):
		return atoll.Degraded, finished.reason, finished.message
	case finished.hasStatus("True"):
		return healthyResult()
	}
	if active, stated := specOf(obj)["active"].(bool); stated && !active {
		return atoll.Suspended, "Inactive", "the workload is set inactive"
	}
	for _, kind := range []string{"QuotaReserved", "Admitted"} {
		if c := findCondition(cs, kind); !c.hasStatus("True") {
			return atoll.Progressing, orElse(c.reason, "Not"+kind), orElse(c.message, "the workload waits to be admitted")
		}
	}
	return atoll.Progressing, "Running", "the workload has not run to completion yet"
}

// volcanoKinds: jobs of several tasks, and queues. A Job counts as one that runs to completion.
// Some never end, such as gangs of servers, but no field shows it: only the programs decide
// whether pods end, and a policy CompleteJob ends even restartPolicy: Always. The risks differ:
// a deleted server that is not created again is seen as Degraded and can be edited, while a
// second run of a computation can do unseen harm. Aborted is not the end: a person can resume
// the Job.
var volcanoKinds = customKinds{
	{Group: "batch.volcano.sh", Kind: "Job"}: {customPhasePath: parsePath("state.phase"), hasEnded: endedInPhase(parsePath("state.phase"), "Completed", "Failed", "Terminated"),
		health: newHealthFunc(healthReader{phasePath: parsePath("state.phase"), messagePath: parsePath("state.message"), phaseHealth: map[string]atoll.Health{
			"Pending": phaseProgressing, "Running": phaseProgressing, "Restarting": phaseProgressing, "Completing": phaseProgressing, "Aborting": phaseProgressing, "Terminating": phaseProgressing,
			"Aborted": phaseDegraded, "Completed": phaseHealthy, "Failed": phaseDegraded, "Terminated": phaseDegraded}}),
		podParts: []podPart{{listPath: parsePath("spec.tasks"), nameKey: "name", name: "task", countPods: podCountAt("replicas", 0), templatePath: parsePath("template")}}},
	{Group: "scheduling.volcano.sh", Kind: "Queue"}: {customPhasePath: parsePath("state"),
		health: newHealthFunc(healthReader{healthyWithoutStatus: true, phasePath: parsePath("state"), phaseHealth: map[string]atoll.Health{
			"Open": phaseHealthy, "Closed": phaseSuspended, "Closing": phaseSuspended, "Unknown": atoll.Unknown}})},
	{Group: "scheduling.volcano.sh", Kind: "PodGroup"}: {
		health: newHealthFunc(healthReader{phasePath: defaultPhasePath, phaseHealth: map[string]atoll.Health{
			"Pending": phaseProgressing, "Inqueue": phaseProgressing, "Running": phaseHealthy, "Completed": phaseHealthy, "Unknown": phaseProgressing}})},
	{Group: "flow.volcano.sh", Kind: "JobTemplate"}: configTraits,
	{Group: "flow.volcano.sh", Kind: "JobFlow"}: {customPhasePath: parsePath("state.phase"),
		health: newHealthFunc(healthReader{phasePath: parsePath("state.phase"), phaseHealth: map[string]atoll.Health{
			"Pending": phaseProgressing, "Running": phaseProgressing, "Terminating": phaseProgressing, "Succeed": phaseHealthy, "Failed": phaseDegraded}})},
}

// kubernetesSIGKinds: groups of pods, sets of Jobs, and the vertical autoscaler.
var kubernetesSIGKinds = customKinds{
	{Group: "leaderworkerset.x-k8s.io", Kind: "LeaderWorkerSet"}: {health: leaderWorkerSetHealth, replicasPath: specReplicasPath,
		countFields: []string{"", "replicas", "updatedReplicas", "readyReplicas"},
		volumesPath: parsePath("spec.leaderWorkerTemplate.volumeClaimTemplates"),
		podParts: []podPart{
			{name: "leader", templatePath: parsePath("spec.leaderWorkerTemplate.leaderTemplate"), fallbackTemplatePath: parsePath("spec.leaderWorkerTemplate.workerTemplate")},
			{name: "worker", countPods: func(m map[string]any) int64 { return max(leaderWorkerGroupSize(m), 1) - 1 }, templatePath: parsePath("spec.leaderWorkerTemplate.workerTemplate")},
		}},
	{Group: "jobset.x-k8s.io", Kind: "JobSet"}: {health: jobSetHealth, hasEnded: endedByCondition("Completed", "Failed"),
		podParts:        []podPart{{listPath: parsePath("spec.replicatedJobs"), nameKey: "name", countPods: countReplicatedJobPods, templatePath: parsePath("template.spec.template")}},
		immutableFields: parsePaths("spec.replicatedJobs", "spec.managedBy")},
	{Group: "autoscaling.k8s.io", Kind: "VerticalPodAutoscaler"}: {
		health: newHealthFunc(healthReader{degradedConditions: []string{"ConfigUnsupported"}, requiredConditions: []string{"RecommendationProvided"}})},
	{Group: "autoscaling.k8s.io", Kind: "VerticalPodAutoscalerCheckpoint"}: configTraits,
}

func leaderWorkerGroupSize(m map[string]any) int64 {
	return countAt(m, parsePath("spec.leaderWorkerTemplate.size"), 1)
}

func leaderWorkerSetHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	r := healthReader{progressingConditions: []string{"UpdateInProgress"}, requiredConditions: []string{"Available"}}
	if h, reason, message := r.readHealth(obj); h != atoll.Healthy {
		return h, reason, message
	}
	return replicaHealth(obj, "readyReplicas", "groups are ready")
}

// replicaHealth compares a count of the status with the desired replicas.
func replicaHealth(obj *unstructured.Unstructured, field, are string) (atoll.Health, string, string) {
	want, have := countFieldOr(specOf(obj), "replicas", 1), countField(statusOf(obj), field)
	if have < want {
		return atoll.Progressing, "Unavailable", fmt.Sprintf("%d of %d %s", have, want, are)
	}
	return healthyResult()
}

// isQueuedByKueue reports whether Kueue suspends the object until there is quota. The user did not
// set the suspension.
func isQueuedByKueue(obj *unstructured.Unstructured) bool {
	return boolField(specOf(obj), "suspend") && obj.GetLabels()[queueLabel] != ""
}

// queueLabel names the queue of Kueue in which an object waits.
const queueLabel = "kueue.x-k8s.io/queue-name"

func queuedResult() (atoll.Health, string, string) {
	return atoll.Progressing, "Queued", "it waits for quota in its queue"
}

// countReplicatedJobPods returns the pods of one replicated Job of a JobSet.
func countReplicatedJobPods(m map[string]any) int64 {
	return quantity.MultiplyCapped(countFieldOr(m, "replicas", 1), countJobPods(nestedMap(m, "template", "spec")))
}

func jobSetHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	cs := conditionsOf(statusOf(obj))
	switch c := findCondition(cs, "Failed"); {
	case c.hasStatus("True"):
		return atoll.Degraded, c.reason, c.message
	case findCondition(cs, "Completed").hasStatus("True"):
		return healthyResult()
	case isQueuedByKueue(obj):
		return queuedResult()
	case boolField(specOf(obj), "suspend"):
		return atoll.Suspended, "Suspended", "the JobSet is suspended"
	}
	return atoll.Progressing, "Running", "the JobSet has not run to completion yet"
}
