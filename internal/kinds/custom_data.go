package kinds

import (
	"math"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/quantity"
)

// flinkKinds: Flink clusters with or without a job, and jobs in session clusters.
var flinkKinds = customKinds{
	{Group: "flink.apache.org", Kind: "FlinkDeployment"}: {health: flinkHealth, customPhasePath: parsePath("lifecycleState"),
		podParts: []podPart{
			{name: "jobmanager", countPods: podCountAt("spec.jobManager.replicas", 1), readRequests: flinkRequests("jobManager")},
			{name: "taskmanager", countPods: countTaskManagers, readRequests: flinkRequests("taskManager")},
		}},
	{Group: "flink.apache.org", Kind: "FlinkSessionJob"}: {health: flinkHealth, customPhasePath: parsePath("lifecycleState")},
	{Group: "flink.apache.org", Kind: "FlinkStateSnapshot"}: {customPhasePath: parsePath("state"),
		health: newHealthFunc(healthReader{phasePath: parsePath("state"), messagePath: parsePath("error"), phaseHealth: map[string]atoll.Health{
			"TRIGGER_PENDING": phaseProgressing, "IN_PROGRESS": phaseProgressing, "COMPLETED": phaseHealthy, "FAILED": phaseDegraded, "ABANDONED": phaseDegraded}})},
	{Group: "flink.apache.org", Kind: "FlinkBlueGreenDeployment"}: {customPhasePath: parsePath("blueGreenState"),
		health: newHealthFunc(healthReader{phasePath: parsePath("blueGreenState"), messagePath: parsePath("error"), otherPhases: phaseProgressing, phaseHealth: map[string]atoll.Health{
			"ACTIVE_BLUE": phaseHealthy, "ACTIVE_GREEN": phaseHealthy}})},
}

var flinkStates = map[string]atoll.Health{
	"STABLE": phaseHealthy, "CREATED": phaseProgressing, "UPGRADING": phaseProgressing, "DEPLOYED": phaseProgressing, "ROLLING_BACK": phaseProgressing,
	"DELETING": phaseProgressing, "DELETED": phaseProgressing, "SUSPENDED": phaseSuspended, "ROLLED_BACK": phaseDegraded, "FAILED": phaseDegraded,
}

// flinkHealth reads the lifecycle state. Operators without it report the state of the job and
// its managers.
func flinkHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	st := statusOf(obj)
	if stringField(st, "lifecycleState") != "" || len(st) == 0 {
		r := healthReader{phasePath: parsePath("lifecycleState"), phaseHealth: flinkStates, messagePath: parsePath("error")}
		if h, reason, message := r.readHealth(obj); h != atoll.Healthy {
			return h, reason, message
		}
		return flinkRunHealth(obj)
	}
	switch state := stringField(nestedMap(st, "jobStatus"), "state"); state {
	case "FAILED", "FAILING":
		return atoll.Degraded, camelCaseReason(state), stringField(st, "error")
	case "RUNNING", "FINISHED":
		return healthyResult()
	}
	switch state := stringField(st, "jobManagerDeploymentStatus"); {
	case state == "ERROR":
		return atoll.Degraded, "Error", stringField(st, "error")
	case state == "READY" && nestedMap(specOf(obj), "job") == nil:
		return healthyResult()
	}
	return notReportedResult()
}

// flinkRunHealth is the health of a stable resource. The lifecycle state is about the spec, and
// does not change while the job restarts or its managers are gone.
func flinkRunHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	st := statusOf(obj)
	job := stringField(nestedMap(st, "jobStatus"), "state")
	switch {
	case job == "FINISHED":
		return healthyResult()
	case job != "" && job != "RUNNING" && nestedMap(specOf(obj), "job") != nil:
		return atoll.Progressing, camelCaseReason(job), orElse(stringField(st, "error"), "jobStatus.state is "+job)
	}
	switch managers := stringField(st, "jobManagerDeploymentStatus"); managers {
	case "", "READY":
		return healthyResult()
	case "ERROR":
		return atoll.Degraded, "Error", stringField(st, "error")
	default:
		return atoll.Progressing, camelCaseReason(managers), orElse(stringField(st, "error"), "jobManagerDeploymentStatus is "+managers)
	}
}

// countTaskManagers returns the stated number, or what the job's parallelism needs. A session
// cluster has none until it gets jobs.
func countTaskManagers(m map[string]any) int64 {
	sp := nestedMap(m, "spec")
	if n, stated := integerField(nestedMap(sp, "taskManager"), "replicas"); stated {
		return n
	}
	const perManager = "taskmanager.numberOfTaskSlots"
	settings := nestedMap(sp, "flinkConfiguration")
	slots, stated := integerField(settings, perManager)
	if !stated {
		slots, _ = strconv.ParseInt(stringField(settings, perManager), 10, 64)
	}
	slots = max(slots, 1)
	parallelism := max(countField(nestedMap(sp, "job"), "parallelism"), 0)
	return parallelism/slots + min(parallelism%slots, 1)
}

// flinkRequests returns a function that reads spec.X.resource: cpu is a number of cores, memory
// is in Flink's format.
func flinkRequests(of string) func(map[string]any) resourceAmounts {
	return func(m map[string]any) resourceAmounts {
		r, out := nestedMap(m, "spec", of, "resource"), resourceAmounts{}
		if cores, ok := parseFloat(r["cpu"]); ok {
			out[corev1.ResourceCPU] = quantity.RoundUpCapped(cores * 1000)
		}
		if n, ok := parseJavaMemory(stringField(r, "memory"), inBytes); ok {
			out[corev1.ResourceMemory] = n
		}
		return out
	}
}

func parseFloat(v any) (float64, bool) {
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

// The unit of amounts of memory without one, as powers of two.
const (
	inBytes uint = 0  // Flink
	inMebi  uint = 20 // Spark, in the fields of its operator
)

// parseJavaMemory parses amounts of memory of Spark and Flink, where m means mebibytes. bare is
// the exponent of two for amounts without a unit. Other texts are parsed as quantities of
// Kubernetes.
func parseJavaMemory(s string, bare uint) (int64, bool) {
	digits := strings.TrimLeft(s, "0123456789")
	if digits == s {
		return 0, false
	}
	n, err := strconv.ParseInt(s[:len(s)-len(digits)], 10, 64)
	shift, known := map[string]uint{
		"": bare, "b": 0, "k": 10, "kb": 10, "m": 20, "mb": 20, "g": 30, "gb": 30, "t": 40, "tb": 40, "p": 50, "pb": 50,
	}[strings.ToLower(strings.TrimSpace(digits))]
	if err == nil && known {
		return quantity.MultiplyCapped(n, 1<<shift), true
	}
	q, err := quantity.Parse(s)
	return quantity.WholeUnits(q), err == nil
}

// rayKinds: Ray clusters, and the jobs and services that have one.
var rayKinds = customKinds{
	{Group: "ray.io", Kind: "RayCluster"}: {health: rayClusterHealth, customPhasePath: parsePath("state"), podParts: rayPods("spec"), sumFields: raySumFields("")},
	{Group: "ray.io", Kind: "RayJob"}: {health: rayJobHealth, customPhasePath: parsePath("jobDeploymentStatus"), podParts: rayPods("spec.rayClusterSpec"),
		sumFields: append(raySumFields("rayClusterStatus."), parsePaths("succeeded", "failed")...), hasEnded: rayJobEnded},
	{Group: "ray.io", Kind: "RayCronJob"}: {health: newHealthFunc(healthReader{pausedField: parsePath("spec.suspend"), healthyWithoutStatus: true, observedIsEnough: true})},
	{Group: "ray.io", Kind: "RayService"}: {health: rayServiceHealth, customPhasePath: parsePath("serviceStatus"), podParts: rayPods("spec.rayClusterConfig"),
		sumFields: append(raySumFields("activeServiceStatus.rayClusterStatus."), parsePath("numServeEndpoints"))},
}

// raySumFields returns the counts of a Ray cluster's status.
func raySumFields(under string) (out []fieldPath) {
	for _, name := range []string{"desiredWorkerReplicas", "availableWorkerReplicas", "readyWorkerReplicas", "minWorkerReplicas", "maxWorkerReplicas"} {
		out = append(out, parsePath(under+name))
	}
	return out
}

func rayPods(under string) []podPart {
	return []podPart{
		{name: "head", countPods: onePodIfSet(parsePath(under)), templatePath: parsePath(under + ".headGroupSpec.template")},
		{listPath: parsePath(under + ".workerGroupSpecs"), nameKey: "groupName", name: "worker", countPods: countRayWorkers, templatePath: parsePath("template")},
	}
}

// onePodIfSet returns a function that counts one pod where the object has a cluster at the path.
// A RayJob can run in an existing cluster.
func onePodIfSet(cluster fieldPath) func(map[string]any) int64 {
	return func(m map[string]any) int64 {
		if mapAt(m, cluster) == nil {
			return 0
		}
		return 1
	}
}

// countRayWorkers returns the replicas of a group, at least its minimum, times the hosts of
// each.
func countRayWorkers(m map[string]any) int64 {
	if boolField(m, "suspend") {
		return 0
	}
	return quantity.MultiplyCapped(max(countField(m, "replicas"), countField(m, "minReplicas")), countFieldOr(m, "numOfHosts", 1))
}

func rayClusterHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	if isQueuedByKueue(obj) {
		return queuedResult()
	}
	st := statusOf(obj)
	r := healthReader{pausedField: parsePath("spec.suspend"), phasePath: parsePath("state"), messagePath: parsePath("reason"), phaseHealth: map[string]atoll.Health{
		"ready": phaseHealthy, "failed": phaseDegraded, "suspended": phaseSuspended, "unhealthy": phaseDegraded}, requiredConditions: []string{"HeadPodReady"}}
	if h, reason, message := r.readHealth(obj); h != atoll.Healthy {
		return h, reason, message
	}
	if want, have := countField(st, "desiredWorkerReplicas"), countField(st, "availableWorkerReplicas"); have < want {
		return atoll.Progressing, "Unavailable", strconv.FormatInt(have, 10) + " of " + strconv.FormatInt(want, 10) + " workers are available"
	}
	return healthyResult()
}

var rayJobEnded = endedInPhase(parsePath("jobDeploymentStatus"), "Complete", "Failed", "ValidationFailed")

func rayJobHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	if isQueuedByKueue(obj) && !rayJobEnded(obj) {
		return queuedResult()
	}
	st := statusOf(obj)
	if job := stringField(st, "jobStatus"); stringField(st, "jobDeploymentStatus") == "Complete" && (job == "FAILED" || job == "STOPPED") {
		return atoll.Degraded, camelCaseReason(job), stringField(st, "message")
	}
	r := healthReader{pausedField: parsePath("spec.suspend"), runsOnce: true, phasePath: parsePath("jobDeploymentStatus"), messagePath: parsePath("message"), phaseHealth: map[string]atoll.Health{
		"Initializing": phaseProgressing, "Running": phaseProgressing, "Waiting": phaseProgressing, "Retrying": phaseProgressing, "Suspending": phaseProgressing,
		"Suspended": phaseSuspended, "Complete": phaseHealthy, "Failed": phaseDegraded, "ValidationFailed": phaseDegraded}}
	return r.readHealth(obj)
}

func rayServiceHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	r := healthReader{progressingConditions: []string{"UpgradeInProgress"}, requiredConditions: []string{"Ready"}}
	if findCondition(conditionsOf(statusOf(obj)), "Ready").conditionType != "" {
		return r.readHealth(obj)
	}
	r = healthReader{phasePath: parsePath("serviceStatus"), phaseHealth: map[string]atoll.Health{"Running": phaseHealthy}, otherPhases: phaseProgressing}
	return r.readHealth(obj)
}

// sparkKinds: Spark applications, single and scheduled.
var sparkKinds = customKinds{
	{Group: "sparkoperator.k8s.io", Kind: "SparkApplication"}: {customPhasePath: parsePath("applicationState.state"), requiredObjects: []string{"driverInfo"},
		sumFields: parsePaths("executionAttempts", "submissionAttempts"),
		hasEnded:  sparkEnded, runsForever: sparkRunsAlways, health: sparkHealth,
		podParts: []podPart{
			{name: "driver", readRequests: sparkRequests("driver")},
			{name: "executor", countPods: countExecutors, readRequests: sparkRequests("executor")},
		}},
	{Group: "sparkoperator.k8s.io", Kind: "ScheduledSparkApplication"}: {customPhasePath: parsePath("scheduleState"),
		health: newHealthFunc(healthReader{pausedField: parsePath("spec.suspend"), phasePath: parsePath("scheduleState"), messagePath: parsePath("reason"), phaseHealth: map[string]atoll.Health{
			"Scheduled": phaseHealthy, "Validating": phaseProgressing, "FailedValidation": phaseDegraded}})},
	{Group: "sparkoperator.k8s.io", Kind: "SparkConnect"}: {customPhasePath: parsePath("state"),
		health: newHealthFunc(healthReader{phasePath: parsePath("state"), phaseHealth: map[string]atoll.Health{
			"Provisioning": phaseProgressing, "NotReady": phaseProgressing, "Ready": phaseHealthy, "Failed": phaseDegraded}})},
}

var sparkEnded = endedInPhase(parsePath("applicationState.state"), "COMPLETED", "FAILED")

// sparkRunsAlways reports whether an application is restarted whenever it ends, as streams are.
func sparkRunsAlways(obj *unstructured.Unstructured) bool {
	return stringField(nestedMap(specOf(obj), "restartPolicy"), "type") == "Always"
}

func sparkHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	if isQueuedByKueue(obj) && !sparkEnded(obj) {
		return queuedResult()
	}
	state := stringField(nestedMap(statusOf(obj), "applicationState"), "state")
	if state == "RUNNING" && sparkRunsAlways(obj) {
		return healthyResult()
	}
	r := healthReader{phasePath: parsePath("applicationState.state"), messagePath: parsePath("applicationState.errorMessage"), phaseHealth: sparkStates}
	return r.readHealth(obj)
}

var sparkStates = map[string]atoll.Health{
	"SUBMITTED": phaseProgressing, "PENDING_SUBMISSION": phaseProgressing, "RUNNING": phaseProgressing, "PENDING_RERUN": phaseProgressing, "INVALIDATING": phaseProgressing, "SUCCEEDING": phaseProgressing,
	"FAILING": phaseProgressing, "SUSPENDING": phaseProgressing, "RESUMING": phaseProgressing, "UNKNOWN": phaseProgressing, "SUSPENDED": phaseSuspended,
	"COMPLETED": phaseHealthy, "FAILED": phaseDegraded, "SUBMISSION_FAILED": phaseDegraded,
}

// countExecutors returns the initial number of executors. Spark's default is 2.
func countExecutors(m map[string]any) int64 {
	sp := nestedMap(m, "spec")
	n := countFieldOr(nestedMap(sp, "executor"), "instances", 2)
	if d := nestedMap(sp, "dynamicAllocation"); boolField(d, "enabled") {
		n = max(countFieldOr(nestedMap(sp, "executor"), "instances", 0), countField(d, "initialExecutors"), countField(d, "minExecutors"))
	}
	return n
}

// The memory that Spark requests beyond the heap: a share of the heap, or the minimum.
const (
	sparkOverhead       = 0.1
	sparkMinOverhead    = 384 << 20
	sparkNonJVMOverhead = 0.4 // where the program does not run in a JVM
	sparkDefaultHeap    = 1 << 30
	sparkDefaultCores   = 1
)

func sparkRequests(of string) func(map[string]any) resourceAmounts {
	return func(m map[string]any) resourceAmounts {
		sp := nestedMap(m, "spec")
		pod, out := nestedMap(sp, of), resourceAmounts{}
		out[corev1.ResourceCPU] = quantity.MultiplyCapped(countFieldOr(pod, "cores", sparkDefaultCores), 1000)
		if q, err := quantity.Parse(stringField(pod, "coreRequest")); err == nil {
			out[corev1.ResourceCPU] = quantity.MilliUnits(q)
		}
		heap, ok := parseJavaMemory(stringField(pod, "memory"), inMebi)
		if !ok {
			heap = sparkDefaultHeap
		}
		over, ok := parseJavaMemory(stringField(pod, "memoryOverhead"), inMebi)
		if !ok {
			share := sparkOverhead
			if t := stringField(sp, "type"); t == "Python" || t == "R" {
				share = sparkNonJVMOverhead
			}
			if f, ok := parseFloat(sp["memoryOverheadFactor"]); ok {
				share = f
			}
			over = max(quantity.RoundUpCapped(math.Floor(float64(heap)*share)), sparkMinOverhead)
		}
		out[corev1.ResourceMemory] = quantity.AddCapped(heap, over)
		if gpu := nestedMap(pod, "gpu"); stringField(gpu, "name") != "" {
			out[corev1.ResourceName(stringField(gpu, "name"))] = max(countField(gpu, "quantity"), 0)
		}
		return out
	}
}
