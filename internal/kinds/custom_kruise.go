package kinds

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/quantity"
)

// Counts of OpenKruise's workloads, in the order of those of Kubernetes.
var (
	cloneSetCounts         = append(slices.Clone(deploymentCounts), "updatedReadyReplicas")
	advancedStatefulCounts = append(slices.Clone(statefulSetCounts), "updatedReadyReplicas")
)

// openKruiseKinds: workloads like those of Kubernetes, with more update strategies.
var openKruiseKinds = customKinds{
	{Group: "apps.kruise.io", Kind: "CloneSet"}: {health: cloneSetHealth, replicasPath: specReplicasPath, podParts: workloadTemplate,
		countFields: cloneSetCounts, writesZeros: true, volumesPath: parsePath("spec.volumeClaimTemplates"), immutableFields: []fieldPath{selectorPath}},
	{Group: "apps.kruise.io", Kind: "StatefulSet"}: {health: kruiseStatefulHealth, replicasPath: specReplicasPath, needsOneCluster: true, podParts: workloadTemplate,
		countFields: advancedStatefulCounts, writesZeros: true, immutableFields: parsePaths("spec.selector", "spec.serviceName")},
	{Group: "apps.kruise.io", Kind: "DaemonSet"}:        {health: kruiseDaemonHealth, sumFields: parsePaths(daemonSetCounts...), writesZeros: true, requiredTexts: []string{"daemonSetHash"}, immutableFields: []fieldPath{selectorPath}},
	{Group: "apps.kruise.io", Kind: "BroadcastJob"}:     {health: broadcastJobHealth, sumFields: parsePaths("active", "succeeded", "failed", "desired"), writesZeros: true, hasEnded: endedByCondition("Complete", "Failed"), runsForever: broadcastJobNeverEnds},
	{Group: "apps.kruise.io", Kind: "SidecarSet"}:       {health: sidecarSetHealth, sumFields: parsePaths("matchedPods", "updatedPods", "readyPods", "updatedReadyPods"), writesZeros: true},
	{Group: "apps.kruise.io", Kind: "AdvancedCronJob"}:  {health: newHealthFunc(healthReader{pausedField: parsePath("spec.paused"), healthyWithoutStatus: true, observedIsEnough: true})},
	{Group: "apps.kruise.io", Kind: "UnitedDeployment"}: {health: unitedDeploymentHealth, sumFields: parsePaths("replicas", "readyReplicas", "updatedReplicas", "updatedReadyReplicas"), writesZeros: true, immutableFields: []fieldPath{selectorPath}},
	{Group: "apps.kruise.io", Kind: "WorkloadSpread"}:   {health: observedHealth},
	{Group: "apps.kruise.io", Kind: "ContainerRecreateRequest"}: {
		health: newHealthFunc(healthReader{phasePath: defaultPhasePath, otherPhases: phaseProgressing, phaseHealth: map[string]atoll.Health{"Completed": phaseHealthy}})},
	{Group: "apps.kruise.io", Kind: "ImagePullJob"}:           {health: imagePullJobHealth, sumFields: parsePaths("desired", "active", "completed", "succeeded"), writesZeros: true},
	{Group: "policy.kruise.io", Kind: "PodUnavailableBudget"}: {health: observedHealth},
	{Group: "rollouts.kruise.io", Kind: "Rollout"}:            {health: kruiseRolloutHealth},
}

// sidecarSetHealth returns the health of a SidecarSet, which injects containers into the pods that
// it matches. Pods that a selector of the update strategy excludes are not counted, so with a
// selector the update counts as done.
func sidecarSetHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	if h, reason, message := observedHealth(obj); h != atoll.Healthy {
		return h, reason, message
	}
	st, strategy := statusOf(obj), nestedMap(specOf(obj), "updateStrategy")
	matched := countField(st, "matchedPods")
	updated, to := countField(st, "updatedPods"), matched-replicasOutsideUpdate(strategy, matched)
	switch {
	case stringField(strategy, "type") == "NotUpdate" || strategy["selector"] != nil || updated >= to:
		return healthyResult()
	case boolField(strategy, "paused"):
		return atoll.Suspended, "Paused", "the update is paused"
	}
	return atoll.Progressing, "Updating", fmt.Sprintf("%d of %d pods are updated", updated, to)
}

// unitedDeploymentHealth returns the health of a UnitedDeployment, a set of workloads in parts of one cluster.
func unitedDeploymentHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	if observedGenerationLags(obj) {
		return notObservedResult()
	}
	if h, reason, message := replicaHealth(obj, "updatedReplicas", "replicas are updated"); h != atoll.Healthy {
		return h, reason, message
	}
	return replicaHealth(obj, "readyReplicas", "replicas are ready")
}

// imagePullJobHealth returns the health of an ImagePullJob, which reports the nodes that could not get the image.
func imagePullJobHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	st := statusOf(obj)
	failed := listField(st, "failedNodes")
	switch want, done := countField(st, "desired"), countField(st, "completed"); {
	case len(st) == 0:
		return notReportedResult()
	case stringField(st, "completionTime") == "" && done < want:
		return atoll.Progressing, "Pulling", fmt.Sprintf("%d of %d nodes are done", done, want)
	case len(failed) > 0:
		return atoll.Degraded, "Failed", orElse(stringField(st, "message"), fmt.Sprintf("%d nodes could not get the image", len(failed)))
	}
	return healthyResult()
}

// kruiseRolloutHealth returns the health of a Rollout: a step without a duration waits for a person.
func kruiseRolloutHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	for field, strategy := range map[string]string{"canaryStatus": "canary", "blueGreenStatus": "blueGreen"} {
		now := nestedMap(statusOf(obj), field)
		if stringField(now, "currentStepState") != "StepPaused" || stringField(statusOf(obj), "phase") != "Progressing" {
			continue
		}
		steps, at := listField(nestedMap(specOf(obj), "strategy", strategy), "steps"), countField(now, "currentStepIndex")-1
		if at < 0 || at >= int64(len(steps)) {
			continue
		}
		if step, _ := steps[at].(map[string]any); nestedMap(step, "pause")["duration"] == nil {
			return atoll.Suspended, "StepPaused", orElse(stringField(now, "message"), "the rollout waits to be approved")
		}
	}
	r := healthReader{phasePath: defaultPhasePath, messagePath: parsePath("message"), phaseHealth: map[string]atoll.Health{
		"Healthy": phaseHealthy, "Disabled": phaseSuspended, "Initial": phaseProgressing, "Progressing": phaseProgressing, "Disabling": phaseProgressing, "Terminating": phaseProgressing}}
	return r.readHealth(obj)
}

// replicasOutsideUpdate returns the number of replicas that a partition, a number or a percentage,
// excludes from an update.
func replicasOutsideUpdate(strategy map[string]any, replicas int64) int64 {
	v := strategy["partition"]
	if n, ok := integerField(strategy, "partition"); ok {
		return n
	}
	share, _ := v.(string)
	if share == "" {
		return 0
	}
	p := intstr.FromString(share)
	n, err := intstr.GetScaledValueFromIntOrPercent(&p, int(replicas), true)
	if err != nil {
		return 0
	}
	return min(max(int64(n), 0), max(replicas, 0))
}

func cloneSetHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	if observedGenerationLags(obj) {
		return notObservedResult()
	}
	sp, st := specOf(obj), statusOf(obj)
	strategy := nestedMap(sp, "updateStrategy")
	if boolField(strategy, "paused") {
		return atoll.Suspended, "Paused", "the update is paused"
	}
	want := countFieldOr(sp, "replicas", 1)
	if n, to := countField(st, "updatedReplicas"), want-replicasOutsideUpdate(strategy, want); n < to {
		return atoll.Progressing, "Updating", fmt.Sprintf("%d of %d replicas are updated", n, to)
	}
	return replicaHealth(obj, "availableReplicas", "replicas are available")
}

func kruiseStatefulHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	if boolField(nestedMap(specOf(obj), "updateStrategy", "rollingUpdate"), "paused") && !observedGenerationLags(obj) {
		return atoll.Suspended, "Paused", "the update is paused"
	}
	return statefulSetHealth(obj)
}

func kruiseDaemonHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	if observedGenerationLags(obj) {
		return notObservedResult()
	}
	st, strategy := statusOf(obj), nestedMap(specOf(obj), "updateStrategy")
	rolling := nestedMap(strategy, "rollingUpdate")
	want := countField(st, "desiredNumberScheduled")
	switch updated, to := countField(st, "updatedNumberScheduled"), want-replicasOutsideUpdate(rolling, want); {
	case boolField(rolling, "paused"):
		return atoll.Suspended, "Paused", "the update is paused"
	case stringField(strategy, "type") != "OnDelete" && updated < to:
		return atoll.Progressing, "Updating", fmt.Sprintf("%d of %d pods are updated", updated, to)
	}
	if available := countField(st, "numberAvailable"); available < want {
		return atoll.Progressing, "Unavailable", fmt.Sprintf("%d of %d pods are available", available, want)
	}
	return healthyResult()
}

// broadcastJobNeverEnds reports whether a BroadcastJob never ends: new nodes get a pod.
func broadcastJobNeverEnds(obj *unstructured.Unstructured) bool {
	return stringField(nestedMap(specOf(obj), "completionPolicy"), "type") == "Never"
}

// broadcastJobHealth: a BroadcastJob that never ends is Healthy once every node has, or had, its
// pod.
func broadcastJobHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	st := statusOf(obj)
	if broadcastJobNeverEnds(obj) && stringField(st, "phase") == "running" {
		want, have := countField(st, "desired"), quantity.AddCapped(countField(st, "active"), countField(st, "succeeded"))
		if have < want {
			return atoll.Progressing, "Running", fmt.Sprintf("%d of %d nodes have their pod", have, want)
		}
		return healthyResult()
	}
	r := healthReader{degradedConditions: []string{"Failed"}, phasePath: defaultPhasePath, phaseHealth: map[string]atoll.Health{
		"completed": phaseHealthy, "running": phaseProgressing, "paused": phaseSuspended, "failed": phaseDegraded}}
	return r.readHealth(obj)
}
