package interpret

import (
	"math"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/atoll"
)

// flink: deployments of a cluster with or without a job, and jobs in them.
var flink = custom{
	{Group: "flink.apache.org", Kind: "FlinkDeployment"}: {health: flinkHealth, phase: at("lifecycleState"),
		pods: []part{
			{name: "jobmanager", number: numberAt("spec.jobManager.replicas", 1), requests: flinkRequests("jobManager")},
			{name: "taskmanager", number: taskManagers, requests: flinkRequests("taskManager")},
		}},
	{Group: "flink.apache.org", Kind: "FlinkSessionJob"}: {health: flinkHealth, phase: at("lifecycleState")},
	{Group: "flink.apache.org", Kind: "FlinkStateSnapshot"}: {phase: at("state"),
		health: judge(reading{phase: at("state"), message: at("error"), phases: map[string]atoll.Health{
			"TRIGGER_PENDING": busy, "IN_PROGRESS": busy, "COMPLETED": good, "FAILED": bad, "ABANDONED": bad}})},
	{Group: "flink.apache.org", Kind: "FlinkBlueGreenDeployment"}: {phase: at("blueGreenState"),
		health: judge(reading{phase: at("blueGreenState"), message: at("error"), other: busy, phases: map[string]atoll.Health{
			"ACTIVE_BLUE": good, "ACTIVE_GREEN": good}})},
}

var flinkStates = map[string]atoll.Health{
	"STABLE": good, "CREATED": busy, "UPGRADING": busy, "DEPLOYED": busy, "ROLLING_BACK": busy,
	"DELETING": busy, "DELETED": busy, "SUSPENDED": still, "ROLLED_BACK": bad, "FAILED": bad,
}

// flinkHealth by the state of the resource's life; operators that tell none tell at least
// how the job and its managers stand.
func flinkHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	st := status(obj)
	if text(st, "lifecycleState") != "" || len(st) == 0 {
		r := reading{phase: at("lifecycleState"), phases: flinkStates, message: at("error")}
		if h, reason, message := r.verdict(obj); h != atoll.Healthy {
			return h, reason, message
		}
		return flinkRuns(obj)
	}
	switch state := text(child(st, "jobStatus"), "state"); state {
	case "FAILED", "FAILING":
		return atoll.Degraded, camel(state), text(st, "error")
	case "RUNNING", "FINISHED":
		return healthy()
	}
	switch state := text(st, "jobManagerDeploymentStatus"); {
	case state == "ERROR":
		return atoll.Degraded, "Error", text(st, "error")
	case state == "READY" && child(spec(obj), "job") == nil:
		return healthy()
	}
	return unreported()
}

// flinkRuns tells whether what is stable runs: the state of the resource's life is about its
// spec, and stays what it is while the job restarts, or its managers are gone.
func flinkRuns(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	st := status(obj)
	job := text(child(st, "jobStatus"), "state")
	switch {
	case job == "FINISHED":
		return healthy()
	case job != "" && job != "RUNNING" && child(spec(obj), "job") != nil:
		return atoll.Progressing, camel(job), orElse(text(st, "error"), "jobStatus.state is "+job)
	}
	switch managers := text(st, "jobManagerDeploymentStatus"); managers {
	case "", "READY":
		return healthy()
	case "ERROR":
		return atoll.Degraded, "Error", text(st, "error")
	default:
		return atoll.Progressing, camel(managers), orElse(text(st, "error"), "jobManagerDeploymentStatus is "+managers)
	}
}

// taskManagers: as many as stated, or as the job's parallelism needs; of a session without
// a job they come when jobs do.
func taskManagers(m map[string]any) int64 {
	sp := child(m, "spec")
	if n, stated := number(child(sp, "taskManager"), "replicas"); stated {
		return n
	}
	const perManager = "taskmanager.numberOfTaskSlots"
	settings := child(sp, "flinkConfiguration")
	slots, stated := number(settings, perManager)
	if !stated {
		slots, _ = strconv.ParseInt(text(settings, perManager), 10, 64)
	}
	slots = max(slots, 1)
	parallelism := max(count(child(sp, "job"), "parallelism"), 0)
	return parallelism/slots + min(parallelism%slots, 1)
}

// flinkRequests reads spec.X.resource: cpu is a number of cores, memory in Flink's words.
func flinkRequests(of string) func(map[string]any) amounts {
	return func(m map[string]any) amounts {
		r, out := child(m, "spec", of, "resource"), amounts{}
		if cores, ok := float(r["cpu"]); ok {
			out[corev1.ResourceCPU] = atoll.Whole(cores * 1000)
		}
		if n, ok := javaMemory(text(r, "memory"), inBytes); ok {
			out[corev1.ResourceMemory] = n
		}
		return out
	}
}

func float(v any) (float64, bool) {
	switch v := v.(type) {
	case float64:
		return v, true
	case int64:
		return float64(v), true
	case string:
		f, err := strconv.ParseFloat(v, 64)
		return f, err == nil
	}
	return 0, false
}

// What amounts of memory without a unit count, as powers of two.
const (
	inBytes uint = 0  // Flink
	inMebi  uint = 20 // Spark, of all that its operator states
)

// javaMemory reads amounts of memory as Spark and Flink write them, in which m means
// mebibytes, and what has no unit is in bare; what they do not know may be a quantity of
// Kubernetes.
func javaMemory(s string, bare uint) (int64, bool) {
	digits := strings.TrimLeft(s, "0123456789")
	if digits == s {
		return 0, false
	}
	n, err := strconv.ParseInt(s[:len(s)-len(digits)], 10, 64)
	shift, known := map[string]uint{
		"": bare, "b": 0, "k": 10, "kb": 10, "m": 20, "mb": 20, "g": 30, "gb": 30, "t": 40, "tb": 40, "p": 50, "pb": 50,
	}[strings.ToLower(strings.TrimSpace(digits))]
	if err == nil && known {
		return atoll.Times(n, 1<<shift), true
	}
	q, err := atoll.ParseQuantity(s)
	return atoll.Units(q), err == nil
}

// ray: clusters, and jobs and services that have one of their own.
var ray = custom{
	{Group: "ray.io", Kind: "RayCluster"}: {health: rayClusterHealth, phase: at("state"), pods: rayPods("spec")},
	{Group: "ray.io", Kind: "RayJob"}: {health: rayJobHealth, phase: at("jobDeploymentStatus"), pods: rayPods("spec.rayClusterSpec"),
		ended: rayJobEnded},
	{Group: "ray.io", Kind: "RayCronJob"}: {health: judge(reading{paused: at("spec.suspend"), config: true, seen: true})},
	{Group: "ray.io", Kind: "RayService"}: {health: rayServiceHealth, phase: at("serviceStatus"), pods: rayPods("spec.rayClusterConfig")},
}

func rayPods(under string) []part {
	return []part{
		{name: "head", number: oneWith(at(under)), template: at(under + ".headGroupSpec.template")},
		{list: at(under + ".workerGroupSpecs"), key: "groupName", name: "worker", number: rayWorkers, template: at("template")},
	}
}

// oneWith is one pod of an object that states a cluster at the path: a RayJob may run in one
// that is there.
func oneWith(cluster path) func(map[string]any) int64 {
	return func(m map[string]any) int64 {
		if digMap(m, cluster) == nil {
			return 0
		}
		return 1
	}
}

// rayWorkers of a group: its replicas, no fewer than the minimum, each on so many hosts.
func rayWorkers(m map[string]any) int64 {
	if flag(m, "suspend") {
		return 0
	}
	return atoll.Times(max(count(m, "replicas"), count(m, "minReplicas")), countOr(m, "numOfHosts", 1))
}

func rayClusterHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	if queued(obj) {
		return inQueue()
	}
	st := status(obj)
	r := reading{paused: at("spec.suspend"), phase: at("state"), message: at("reason"), phases: map[string]atoll.Health{
		"ready": good, "failed": bad, "suspended": still, "unhealthy": bad}, must: []string{"HeadPodReady"}}
	if h, reason, message := r.verdict(obj); h != atoll.Healthy {
		return h, reason, message
	}
	if want, have := count(st, "desiredWorkerReplicas"), count(st, "availableWorkerReplicas"); have < want {
		return atoll.Progressing, "Unavailable", strconv.FormatInt(have, 10) + " of " + strconv.FormatInt(want, 10) + " workers are available"
	}
	return healthy()
}

var rayJobEnded = endedIn(at("jobDeploymentStatus"), "Complete", "Failed", "ValidationFailed")

func rayJobHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	if queued(obj) && !rayJobEnded(obj) {
		return inQueue()
	}
	st := status(obj)
	if job := text(st, "jobStatus"); text(st, "jobDeploymentStatus") == "Complete" && (job == "FAILED" || job == "STOPPED") {
		return atoll.Degraded, camel(job), text(st, "message")
	}
	r := reading{paused: at("spec.suspend"), once: true, phase: at("jobDeploymentStatus"), message: at("message"), phases: map[string]atoll.Health{
		"Initializing": busy, "Running": busy, "Waiting": busy, "Retrying": busy, "Suspending": busy,
		"Suspended": still, "Complete": good, "Failed": bad, "ValidationFailed": bad}}
	return r.verdict(obj)
}

func rayServiceHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	r := reading{busy: []string{"UpgradeInProgress"}, must: []string{"Ready"}}
	if find(conditionsOf(status(obj)), "Ready").kind != "" {
		return r.verdict(obj)
	}
	r = reading{phase: at("serviceStatus"), phases: map[string]atoll.Health{"Running": good}, other: busy}
	return r.verdict(obj)
}

// spark: applications, once and by a schedule.
var spark = custom{
	{Group: "sparkoperator.k8s.io", Kind: "SparkApplication"}: {phase: at("applicationState.state"), objects: []string{"driverInfo"},
		ended: sparkEnded, endless: runsAlways, health: sparkHealth,
		pods: []part{
			{name: "driver", requests: sparkRequests("driver")},
			{name: "executor", number: executors, requests: sparkRequests("executor")},
		}},
	{Group: "sparkoperator.k8s.io", Kind: "ScheduledSparkApplication"}: {phase: at("scheduleState"),
		health: judge(reading{paused: at("spec.suspend"), phase: at("scheduleState"), message: at("reason"), phases: map[string]atoll.Health{
			"Scheduled": good, "Validating": busy, "FailedValidation": bad}})},
	{Group: "sparkoperator.k8s.io", Kind: "SparkConnect"}: {phase: at("state"),
		health: judge(reading{phase: at("state"), phases: map[string]atoll.Health{
			"Provisioning": busy, "NotReady": busy, "Ready": good, "Failed": bad}})},
}

var sparkEnded = endedIn(at("applicationState.state"), "COMPLETED", "FAILED")

// runsAlways tells whether an application is submitted anew whenever it ends, as streams
// are.
func runsAlways(obj *unstructured.Unstructured) bool {
	return text(child(spec(obj), "restartPolicy"), "type") == "Always"
}

func sparkHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	if queued(obj) && !sparkEnded(obj) {
		return inQueue()
	}
	state := text(child(status(obj), "applicationState"), "state")
	if state == "RUNNING" && runsAlways(obj) {
		return healthy()
	}
	r := reading{phase: at("applicationState.state"), message: at("applicationState.errorMessage"), phases: sparkStates}
	return r.verdict(obj)
}

var sparkStates = map[string]atoll.Health{
	"SUBMITTED": busy, "PENDING_SUBMISSION": busy, "RUNNING": busy, "PENDING_RERUN": busy, "INVALIDATING": busy, "SUCCEEDING": busy,
	"FAILING": busy, "SUSPENDING": busy, "RESUMING": busy, "UNKNOWN": busy, "SUSPENDED": still,
	"COMPLETED": good, "FAILED": bad, "SUBMISSION_FAILED": bad,
}

// executors to begin with: Spark's own default is 2.
func executors(m map[string]any) int64 {
	sp := child(m, "spec")
	n := countOr(child(sp, "executor"), "instances", 2)
	if d := child(sp, "dynamicAllocation"); flag(d, "enabled") {
		n = max(countOr(child(sp, "executor"), "instances", 0), count(d, "initialExecutors"), count(d, "minExecutors"))
	}
	return n
}

// The memory beyond the heap that Spark asks for: a share of it, and at least this much.
const (
	sparkOverhead     = 0.1
	sparkLeast        = 384 << 20
	sparkOtherwise    = 0.4 // where the program does not run in a JVM
	sparkDefaultHeap  = 1 << 30
	sparkDefaultCores = 1
)

func sparkRequests(of string) func(map[string]any) amounts {
	return func(m map[string]any) amounts {
		sp := child(m, "spec")
		pod, out := child(sp, of), amounts{}
		out[corev1.ResourceCPU] = atoll.Times(countOr(pod, "cores", sparkDefaultCores), 1000)
		if q, err := atoll.ParseQuantity(text(pod, "coreRequest")); err == nil {
			out[corev1.ResourceCPU] = atoll.Thousandths(q)
		}
		heap, ok := javaMemory(text(pod, "memory"), inMebi)
		if !ok {
			heap = sparkDefaultHeap
		}
		over, ok := javaMemory(text(pod, "memoryOverhead"), inMebi)
		if !ok {
			share := sparkOverhead
			if t := text(sp, "type"); t == "Python" || t == "R" {
				share = sparkOtherwise
			}
			if f, ok := float(sp["memoryOverheadFactor"]); ok {
				share = f
			}
			over = max(atoll.Whole(math.Floor(float64(heap)*share)), sparkLeast)
		}
		out[corev1.ResourceMemory] = atoll.Plus(heap, over)
		if gpu := child(pod, "gpu"); text(gpu, "name") != "" {
			out[corev1.ResourceName(text(gpu, "name"))] = max(count(gpu, "quantity"), 0)
		}
		return out
	}
}
