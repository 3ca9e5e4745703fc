package fleet

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/kinds"
)

// fakeObjectViews returns the views of an item in a member: the agent's own interpretation
// of the object with a made-up status.
func fakeObjectViews(it *atoll.RenderedItem) *objectViews {
	s := &objectViews{}
	var object map[string]any
	if it.Failed() || json.Unmarshal(it.Object, &object) != nil || object == nil {
		object = map[string]any{}
	}
	s.objectsMark = objectChecksum(object)
	for m := moodProgressing; m < moodCount; m++ {
		s.views[m] = newFakeObjectView(object, it.Key, m)
	}
	return s
}

func newFakeObjectView(object map[string]any, key atoll.ItemKey, m healthMood) objectView {
	u := &unstructured.Unstructured{Object: make(map[string]any, len(object)+1)}
	for k, v := range object {
		u.Object[k] = v
	}
	metadata, _ := object["metadata"].(map[string]any)
	generation := map[string]any{"generation": int64(1)}
	for k, v := range metadata {
		generation[k] = v
	}
	u.Object["metadata"] = generation
	delete(u.Object, "status")
	if status := fakeStatus(u, key, m); status != nil {
		u.Object["status"] = status
	}
	v := objectView{reflected: kinds.ReflectStatus(u)}
	v.health, v.reason, v.message = kinds.AssessHealth(u)
	if m == moodReady && kinds.IsCustomKind(u.GroupVersionKind().GroupKind()) {
		v.health, v.reason, v.message = atoll.Healthy, "", "" // the object's operator would report it
	}
	if m == moodDegraded && v.health == atoll.Healthy {
		v = objectView{applyFails: true, reason: "Forbidden", message: "the simulated member does not let it be applied"}
	}
	return v
}

// fakeObject is an object of n replicas of which up are available.
type fakeObject struct {
	u     *unstructured.Unstructured
	n, up int64
	mood  healthMood
}

// fakeStatuses return the status of the built-in kinds.
var fakeStatuses = map[string]func(fakeObject) map[string]any{
	"apps/Deployment": func(o fakeObject) map[string]any { return fakeDeploymentStatus(o.n, o.up, o.mood) },
	"apps/StatefulSet": func(o fakeObject) map[string]any {
		return withReplicaCounts(map[string]any{"currentRevision": "r1", "updateRevision": "r1", "currentReplicas": o.n}, o.n, o.up, "updatedReplicas")
	},
	"apps/ReplicaSet":        fakeReplicaSetStatus,
	"/ReplicationController": fakeReplicaSetStatus,
	"apps/DaemonSet":         func(o fakeObject) map[string]any { return fakeDaemonSetStatus(o.mood) },
	"batch/Job":              func(o fakeObject) map[string]any { return fakeJobStatus(o.mood) },
	"/Pod":                   fakePodStatus,
	"/PersistentVolumeClaim": func(o fakeObject) map[string]any {
		return map[string]any{"phase": map[healthMood]string{moodProgressing: "Pending", moodReady: "Bound", moodDegraded: "Lost"}[o.mood]}
	},
	"/PersistentVolume": func(o fakeObject) map[string]any {
		return map[string]any{"phase": map[healthMood]string{moodProgressing: "Pending", moodReady: "Bound", moodDegraded: "Failed"}[o.mood]}
	},
	"/Service":                  func(o fakeObject) map[string]any { return fakeAddressStatus(o.u, o.mood) },
	"networking.k8s.io/Ingress": func(o fakeObject) map[string]any { return fakeAddressStatus(o.u, o.mood) },
	"policy/PodDisruptionBudget": func(o fakeObject) map[string]any {
		return map[string]any{"observedGeneration": int64(1), "expectedPods": int64(1), "currentHealthy": int64(1), "desiredHealthy": int64(1)}
	},
	"autoscaling/HorizontalPodAutoscaler": func(o fakeObject) map[string]any {
		return map[string]any{"currentReplicas": int64(1), "desiredReplicas": int64(1), "conditions": fakeConditions(fakeCondition{"AbleToScale", true, "ReadyForNewScale"}, fakeCondition{"ScalingActive", true, "ValidMetricFound"})}
	},
	"apiextensions.k8s.io/CustomResourceDefinition": func(o fakeObject) map[string]any {
		return map[string]any{"conditions": fakeConditions(fakeCondition{"NamesAccepted", true, "NoConflicts"}, fakeCondition{"Established", o.mood != moodProgressing, "InitialNamesAccepted"})}
	},
}

func fakeReplicaSetStatus(o fakeObject) map[string]any {
	return withReplicaCounts(map[string]any{}, o.n, o.up, "fullyLabeledReplicas")
}

func fakePodStatus(o fakeObject) map[string]any {
	if o.mood == moodDegraded {
		return map[string]any{"phase": "Failed", "reason": "Evicted", "message": "the simulated node was low on memory"}
	}
	return map[string]any{"phase": "Running", "conditions": fakeConditions(fakeCondition{"PodScheduled", true, ""}, fakeCondition{"Ready", o.mood == moodReady, "ContainersNotReady"})}
}

// fakeStatus returns the status of an object in a member; nil for kinds without a status.
func fakeStatus(u *unstructured.Unstructured, key atoll.ItemKey, m healthMood) map[string]any {
	n := int64(1)
	if replicas, _, ok := kinds.ReplicasOf(u); ok {
		n = replicas
	}
	up := n
	if m != moodReady {
		up = 0
	}
	if status, ok := fakeStatuses[key.Group+"/"+key.Kind]; ok {
		return status(fakeObject{u, n, up, m})
	}
	if _, _, replicated := kinds.ReplicasOf(u); replicated {
		return withReplicaCounts(map[string]any{}, n, up, "updatedReplicas")
	}
	return nil
}

func fakeDeploymentStatus(n, up int64, m healthMood) map[string]any {
	st := withReplicaCounts(map[string]any{}, n, up, "updatedReplicas")
	progress := fakeCondition{"Progressing", true, "NewReplicaSetAvailable"}
	switch m {
	case moodProgressing:
		progress.reason = "ReplicaSetUpdated"
	case moodDegraded:
		progress = fakeCondition{"Progressing", false, "ProgressDeadlineExceeded"}
	}
	st["conditions"] = fakeConditions(fakeCondition{"Available", m == moodReady, "MinimumReplicasAvailable"}, progress)
	return st
}

// withReplicaCounts adds the counts of kinds with replicas.
func withReplicaCounts(st map[string]any, n, up int64, updated string) map[string]any {
	st["observedGeneration"], st["replicas"], st[updated] = int64(1), n, n
	st["readyReplicas"], st["availableReplicas"] = up, up
	return st
}

// daemonNodes is the number of nodes in a simulated member.
const daemonNodes = 3

func fakeDaemonSetStatus(m healthMood) map[string]any {
	up := int64(daemonNodes)
	if m != moodReady {
		up = 0
	}
	return map[string]any{
		"observedGeneration": int64(1), "desiredNumberScheduled": int64(daemonNodes), "currentNumberScheduled": int64(daemonNodes),
		"updatedNumberScheduled": int64(daemonNodes), "numberReady": up, "numberAvailable": up,
	}
}

// fakeJobStatus returns the same times in all members, so that equal reports are shared.
func fakeJobStatus(m healthMood) map[string]any {
	const began, ended = "2026-01-01T00:00:00Z", "2026-01-01T00:00:10Z"
	switch m {
	case moodReady:
		return map[string]any{"succeeded": int64(1), "startTime": began, "completionTime": ended, "conditions": fakeConditions(fakeCondition{"Complete", true, "CompletionsReached"})}
	case moodDegraded:
		return map[string]any{"failed": int64(1), "startTime": began, "conditions": fakeConditions(fakeCondition{"Failed", true, "BackoffLimitExceeded"})}
	}
	return map[string]any{"active": int64(1), "startTime": began}
}

// fakeAddressStatus returns the addresses that a load balancer would assign.
func fakeAddressStatus(u *unstructured.Unstructured, m healthMood) map[string]any {
	kind, _, _ := unstructured.NestedString(u.Object, "spec", "type")
	if u.GetKind() == "Service" && kind != "LoadBalancer" || m == moodProgressing {
		return nil
	}
	return map[string]any{"loadBalancer": map[string]any{"ingress": []any{map[string]any{"ip": "192.0.2.10"}}}}
}

type fakeCondition struct {
	kind   string
	isTrue bool
	reason string
}

func fakeConditions(all ...fakeCondition) []any {
	out := make([]any, len(all))
	for i, c := range all {
		status := "False"
		if c.isTrue {
			status = "True"
		}
		out[i] = map[string]any{"type": c.kind, "status": status, "reason": c.reason, "message": ""}
	}
	return out
}
