package interpret

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"

	"atoll.dev/atoll/internal/atoll"
)

// openKruise: workloads like those of Kubernetes, with more ways to update them.
var openKruise = custom{
	{Group: "apps.kruise.io", Kind: "CloneSet"}: {health: cloneSetHealth, replicas: specReplicas, pods: template,
		counts: deploymentCounts, volumes: at("spec.volumeClaimTemplates"), frozen: []path{selector}},
	{Group: "apps.kruise.io", Kind: "StatefulSet"}: {health: kruiseStatefulHealth, replicas: specReplicas, together: true, pods: template,
		counts: statefulSetCounts, frozen: all("spec.selector", "spec.serviceName")},
	{Group: "apps.kruise.io", Kind: "DaemonSet"}:        {health: kruiseDaemonHealth, frozen: []path{selector}},
	{Group: "apps.kruise.io", Kind: "BroadcastJob"}:     {health: broadcastHealth, ended: endedBy("Complete", "Failed"), endless: stays},
	{Group: "apps.kruise.io", Kind: "SidecarSet"}:       {health: settles},
	{Group: "apps.kruise.io", Kind: "AdvancedCronJob"}:  {health: judge(reading{paused: at("spec.paused"), config: true, seen: true})},
	{Group: "apps.kruise.io", Kind: "UnitedDeployment"}: {health: unitedHealth, frozen: []path{selector}},
	{Group: "apps.kruise.io", Kind: "WorkloadSpread"}:   {health: settles},
	{Group: "apps.kruise.io", Kind: "ContainerRecreateRequest"}: {
		health: judge(reading{phase: phase, other: busy, phases: map[string]atoll.Health{"Completed": good}})},
	{Group: "apps.kruise.io", Kind: "ImagePullJob"}:           {health: pullHealth},
	{Group: "policy.kruise.io", Kind: "PodUnavailableBudget"}: {health: settles},
	{Group: "rollouts.kruise.io", Kind: "Rollout"}:            {health: steppedHealth},
}

// unitedHealth of a set of workloads in parts of a cluster.
func unitedHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	if late(obj) {
		return unobserved()
	}
	if h, reason, message := enough(obj, "updatedReplicas", "replicas are updated"); h != atoll.Healthy {
		return h, reason, message
	}
	return enough(obj, "readyReplicas", "replicas are ready")
}

// pullHealth of images that all nodes are to have; those that could not get them are named.
func pullHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	st := status(obj)
	failed := list(st, "failedNodes")
	switch want, done := count(st, "desired"), count(st, "completed"); {
	case len(st) == 0:
		return unreported()
	case text(st, "completionTime") == "" && done < want:
		return atoll.Progressing, "Pulling", fmt.Sprintf("%d of %d nodes are done", done, want)
	case len(failed) > 0:
		return atoll.Degraded, "Failed", orElse(text(st, "message"), fmt.Sprintf("%d nodes could not get the image", len(failed)))
	}
	return healthy()
}

// steppedHealth of what takes a workload from one version to the next: a step that states no
// duration waits for a person.
func steppedHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	for field, strategy := range map[string]string{"canaryStatus": "canary", "blueGreenStatus": "blueGreen"} {
		now := child(status(obj), field)
		if text(now, "currentStepState") != "StepPaused" || text(status(obj), "phase") != "Progressing" {
			continue
		}
		steps, at := list(child(spec(obj), "strategy", strategy), "steps"), count(now, "currentStepIndex")-1
		if at < 0 || at >= int64(len(steps)) {
			continue
		}
		if step, _ := steps[at].(map[string]any); child(step, "pause")["duration"] == nil {
			return atoll.Suspended, "StepPaused", orElse(text(now, "message"), "the rollout waits to be approved")
		}
	}
	r := reading{phase: phase, message: at("message"), phases: map[string]atoll.Health{
		"Healthy": good, "Disabled": still, "Initial": busy, "Progressing": busy, "Disabling": busy, "Terminating": busy}}
	return r.verdict(obj)
}

// heldBack is how many replicas a partition, a number or a share, keeps at what they are.
func heldBack(strategy map[string]any, replicas int64) int64 {
	v := strategy["partition"]
	if n, ok := number(strategy, "partition"); ok {
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
	if late(obj) {
		return unobserved()
	}
	sp, st := spec(obj), status(obj)
	strategy := child(sp, "updateStrategy")
	if flag(strategy, "paused") {
		return atoll.Suspended, "Paused", "the update is paused"
	}
	want := countOr(sp, "replicas", 1)
	if n, to := count(st, "updatedReplicas"), want-heldBack(strategy, want); n < to {
		return atoll.Progressing, "Updating", fmt.Sprintf("%d of %d replicas are updated", n, to)
	}
	return enough(obj, "availableReplicas", "replicas are available")
}

func kruiseStatefulHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	if flag(child(spec(obj), "updateStrategy", "rollingUpdate"), "paused") && !late(obj) {
		return atoll.Suspended, "Paused", "the update is paused"
	}
	return statefulSetHealth(obj)
}

func kruiseDaemonHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	if late(obj) {
		return unobserved()
	}
	st, strategy := status(obj), child(spec(obj), "updateStrategy")
	rolling := child(strategy, "rollingUpdate")
	want := count(st, "desiredNumberScheduled")
	switch updated, to := count(st, "updatedNumberScheduled"), want-heldBack(rolling, want); {
	case flag(rolling, "paused"):
		return atoll.Suspended, "Paused", "the update is paused"
	case text(strategy, "type") != "OnDelete" && updated < to:
		return atoll.Progressing, "Updating", fmt.Sprintf("%d of %d pods are updated", updated, to)
	}
	if available := count(st, "numberAvailable"); available < want {
		return atoll.Progressing, "Unavailable", fmt.Sprintf("%d of %d pods are available", available, want)
	}
	return healthy()
}

// stays tells whether a BroadcastJob goes on for ever: nodes that come are given a pod.
func stays(obj *unstructured.Unstructured) bool {
	return text(child(spec(obj), "completionPolicy"), "type") == "Never"
}

// broadcastHealth: one that goes on for ever does what it is to do once all nodes have, or
// had, their pod.
func broadcastHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	st := status(obj)
	if stays(obj) && text(st, "phase") == "running" {
		want, have := count(st, "desired"), atoll.Plus(count(st, "active"), count(st, "succeeded"))
		if have < want {
			return atoll.Progressing, "Running", fmt.Sprintf("%d of %d nodes have their pod", have, want)
		}
		return healthy()
	}
	r := reading{bad: []string{"Failed"}, phase: phase, phases: map[string]atoll.Health{
		"completed": good, "running": busy, "paused": still, "failed": bad}}
	return r.verdict(obj)
}
