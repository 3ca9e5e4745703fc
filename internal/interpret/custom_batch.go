package interpret

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/atoll"
)

// kueue: queues, and the workloads that wait in them.
var kueue = custom{
	{Group: "kueue.x-k8s.io", Kind: "ClusterQueue"}:          {health: queueHealth},
	{Group: "kueue.x-k8s.io", Kind: "LocalQueue"}:            {health: queueHealth},
	{Group: "kueue.x-k8s.io", Kind: "AdmissionCheck"}:        {health: judge(reading{must: []string{"Active"}})},
	{Group: "kueue.x-k8s.io", Kind: "ResourceFlavor"}:        config,
	{Group: "kueue.x-k8s.io", Kind: "WorkloadPriorityClass"}: config,
	{Group: "kueue.x-k8s.io", Kind: "Topology"}:              config,
	{Group: "kueue.x-k8s.io", Kind: "Cohort"}:                config,
	{Group: "kueue.x-k8s.io", Kind: "MultiKueueCluster"}:     {health: judge(reading{must: []string{"Active"}})},
	{Group: "kueue.x-k8s.io", Kind: "Workload"}: {health: admittedHealth, ended: endedBy("Finished"),
		pods: []part{{list: at("spec.podSets"), key: "name", number: numberAt("count", 1), template: at("template")}}},
}

func queueHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	if policy := text(spec(obj), "stopPolicy"); policy == "Hold" || policy == "HoldAndDrain" {
		return atoll.Suspended, "Stopped", "the queue is stopped by spec.stopPolicy"
	}
	return (&reading{must: []string{"Active"}}).verdict(obj)
}

func admittedHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	cs := conditionsOf(status(obj))
	switch finished := find(cs, "Finished"); {
	case finished.is("True") && (finished.reason == "Failed" || finished.reason == "JobFailed"):
		return atoll.Degraded, finished.reason, finished.message
	case finished.is("True"):
		return healthy()
	}
	if active, stated := spec(obj)["active"].(bool); stated && !active {
		return atoll.Suspended, "Inactive", "the workload is set inactive"
	}
	for _, kind := range []string{"QuotaReserved", "Admitted"} {
		if c := find(cs, kind); !c.is("True") {
			return atoll.Progressing, orElse(c.reason, "Not"+kind), orElse(c.message, "the workload waits to be admitted")
		}
	}
	return atoll.Progressing, "Running", "the workload has not run to completion yet"
}

// volcano: jobs of several tasks, and queues. A Job counts as one that runs to completion.
// Some never do, such as servers that are gathered in one, but nothing in it tells which:
// whether its pods end is up to their programs, and even restartPolicy: Always, which is
// what pods have that state none, ends where a policy says CompleteJob. A server that is
// not made again once somebody deleted it in the member is seen as Degraded and can be
// edited; a computation that is run a second time may do harm that nobody sees. Aborted is
// not the end: it can be resumed, by a person alone.
var volcano = custom{
	{Group: "batch.volcano.sh", Kind: "Job"}: {phase: at("state.phase"), ended: endedIn(at("state.phase"), "Completed", "Failed", "Terminated"),
		health: judge(reading{phase: at("state.phase"), message: at("state.message"), phases: map[string]atoll.Health{
			"Pending": busy, "Running": busy, "Restarting": busy, "Completing": busy, "Aborting": busy, "Terminating": busy,
			"Aborted": bad, "Completed": good, "Failed": bad, "Terminated": bad}}),
		pods: []part{{list: at("spec.tasks"), key: "name", name: "task", number: numberAt("replicas", 0), template: at("template")}}},
	{Group: "scheduling.volcano.sh", Kind: "Queue"}: {phase: at("state"),
		health: judge(reading{config: true, phase: at("state"), phases: map[string]atoll.Health{
			"Open": good, "Closed": still, "Closing": still, "Unknown": atoll.Unknown}})},
	{Group: "scheduling.volcano.sh", Kind: "PodGroup"}: {
		health: judge(reading{phase: phase, phases: map[string]atoll.Health{
			"Pending": busy, "Inqueue": busy, "Running": good, "Completed": good, "Unknown": busy}})},
	{Group: "flow.volcano.sh", Kind: "JobTemplate"}: config,
	{Group: "flow.volcano.sh", Kind: "JobFlow"}: {phase: at("state.phase"),
		health: judge(reading{phase: at("state.phase"), phases: map[string]atoll.Health{
			"Pending": busy, "Running": busy, "Terminating": busy, "Succeed": good, "Failed": bad}})},
}

// kubernetesSIGs: sets of pods that come and go as groups, sets of Jobs, and what sizes pods.
var kubernetesSIGs = custom{
	{Group: "leaderworkerset.x-k8s.io", Kind: "LeaderWorkerSet"}: {health: leaderWorkerHealth, replicas: specReplicas,
		counts:  []string{"", "replicas", "updatedReplicas", "readyReplicas"},
		volumes: at("spec.leaderWorkerTemplate.volumeClaimTemplates"),
		pods: []part{
			{name: "leader", template: at("spec.leaderWorkerTemplate.leaderTemplate"), or: at("spec.leaderWorkerTemplate.workerTemplate")},
			{name: "worker", number: func(m map[string]any) int64 { return max(groupSize(m), 1) - 1 }, template: at("spec.leaderWorkerTemplate.workerTemplate")},
		}},
	{Group: "jobset.x-k8s.io", Kind: "JobSet"}: {health: jobSetHealth, ended: endedBy("Completed", "Failed"),
		pods:   []part{{list: at("spec.replicatedJobs"), key: "name", number: jobsPods, template: at("template.spec.template")}},
		frozen: all("spec.replicatedJobs", "spec.managedBy")},
	{Group: "autoscaling.k8s.io", Kind: "VerticalPodAutoscaler"}: {
		health: judge(reading{bad: []string{"ConfigUnsupported"}, must: []string{"RecommendationProvided"}})},
	{Group: "autoscaling.k8s.io", Kind: "VerticalPodAutoscalerCheckpoint"}: config,
}

func groupSize(m map[string]any) int64 {
	return digCount(m, at("spec.leaderWorkerTemplate.size"), 1)
}

func leaderWorkerHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	r := reading{busy: []string{"UpdateInProgress"}, must: []string{"Available"}}
	if h, reason, message := r.verdict(obj); h != atoll.Healthy {
		return h, reason, message
	}
	return enough(obj, "readyReplicas", "groups are ready")
}

// enough replicas are there, by the status' field.
func enough(obj *unstructured.Unstructured, field, are string) (atoll.Health, string, string) {
	want, have := countOr(spec(obj), "replicas", 1), count(status(obj), field)
	if have < want {
		return atoll.Progressing, "Unavailable", fmt.Sprintf("%d of %d %s", have, want, are)
	}
	return healthy()
}

// queued tells whether Kueue suspends an object until there is quota for it: nobody asked
// for it not to run.
func queued(obj *unstructured.Unstructured) bool {
	return flag(spec(obj), "suspend") && obj.GetLabels()["kueue.x-k8s.io/queue-name"] != ""
}

func inQueue() (atoll.Health, string, string) {
	return atoll.Progressing, "Queued", "it waits for quota in its queue"
}

// jobsPods of one of a JobSet's Jobs, which may be there several times.
func jobsPods(m map[string]any) int64 {
	return atoll.Times(countOr(m, "replicas", 1), jobPods(child(m, "template", "spec")))
}

func jobSetHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	cs := conditionsOf(status(obj))
	switch c := find(cs, "Failed"); {
	case c.is("True"):
		return atoll.Degraded, c.reason, c.message
	case find(cs, "Completed").is("True"):
		return healthy()
	case queued(obj):
		return inQueue()
	case flag(spec(obj), "suspend"):
		return atoll.Suspended, "Suspended", "the JobSet is suspended"
	}
	return atoll.Progressing, "Running", "the JobSet has not run to completion yet"
}
