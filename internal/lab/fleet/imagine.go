package fleet

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/interpret"
)

// imagine what a member would show of an item, by the agent's own interpretation
// of an object with a made-up status.
func imagine(it *atoll.Rendered) *sight {
	s := &sight{}
	var object map[string]any
	if it.Error != "" || json.Unmarshal(it.Object, &object) != nil || object == nil {
		object = map[string]any{}
	}
	s.mark = markOf(object)
	for m := moodProgressing; m < moods; m++ {
		s.views[m] = viewOf(object, it.Key, m)
	}
	return s
}

func viewOf(object map[string]any, key atoll.ItemKey, m mood) view {
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
	if status := madeUp(u, key, m); status != nil {
		u.Object["status"] = status
	}
	v := view{reflected: interpret.Reflect(u)}
	v.health, v.why, v.text = interpret.Health(u)
	if m == moodReady && interpret.Custom(u.GroupVersionKind().GroupKind()) {
		v.health, v.why, v.text = atoll.Healthy, "", "" // whatever its operator would say
	}
	if m == moodDegraded && v.health == atoll.Healthy {
		v = view{failed: true, why: "Forbidden", text: "the simulated member does not let it be applied"}
	}
	return v
}

// madeUp is the status of an object in a member; nil for kinds without one.
func madeUp(u *unstructured.Unstructured, key atoll.ItemKey, m mood) map[string]any {
	n := int64(1)
	if replicas, _, ok := interpret.Replicas(u); ok {
		n = replicas
	}
	up := n
	if m != moodReady {
		up = 0
	}
	switch key.Group + "/" + key.Kind {
	case "apps/Deployment":
		return deployment(n, up, m)
	case "apps/StatefulSet":
		return counted(map[string]any{"currentRevision": "r1", "updateRevision": "r1", "currentReplicas": n}, n, up, "updatedReplicas")
	case "apps/ReplicaSet", "/ReplicationController":
		return counted(map[string]any{}, n, up, "fullyLabeledReplicas")
	case "apps/DaemonSet":
		return daemonSet(m)
	case "batch/Job":
		return job(m)
	case "/Pod":
		if m == moodDegraded {
			return map[string]any{"phase": "Failed", "reason": "Evicted", "message": "the simulated node was low on memory"}
		}
		return map[string]any{"phase": "Running", "conditions": conditions(condition{"PodScheduled", true, ""}, condition{"Ready", m == moodReady, "ContainersNotReady"})}
	case "/PersistentVolumeClaim":
		return map[string]any{"phase": map[mood]string{moodProgressing: "Pending", moodReady: "Bound", moodDegraded: "Lost"}[m]}
	case "/PersistentVolume":
		return map[string]any{"phase": map[mood]string{moodProgressing: "Pending", moodReady: "Bound", moodDegraded: "Failed"}[m]}
	case "/Service", "networking.k8s.io/Ingress":
		return address(u, m)
	case "policy/PodDisruptionBudget":
		return map[string]any{"observedGeneration": int64(1), "expectedPods": int64(1), "currentHealthy": int64(1), "desiredHealthy": int64(1)}
	case "autoscaling/HorizontalPodAutoscaler":
		return map[string]any{"currentReplicas": int64(1), "desiredReplicas": int64(1), "conditions": conditions(condition{"AbleToScale", true, "ReadyForNewScale"}, condition{"ScalingActive", true, "ValidMetricFound"})}
	case "apiextensions.k8s.io/CustomResourceDefinition":
		return map[string]any{"conditions": conditions(condition{"NamesAccepted", true, "NoConflicts"}, condition{"Established", m != moodProgressing, "InitialNamesAccepted"})}
	}
	if _, _, replicated := interpret.Replicas(u); replicated {
		return counted(map[string]any{}, n, up, "updatedReplicas")
	}
	return nil
}

func deployment(n, up int64, m mood) map[string]any {
	st := counted(map[string]any{}, n, up, "updatedReplicas")
	progress := condition{"Progressing", true, "NewReplicaSetAvailable"}
	switch m {
	case moodProgressing:
		progress.reason = "ReplicaSetUpdated"
	case moodDegraded:
		progress = condition{"Progressing", false, "ProgressDeadlineExceeded"}
	}
	st["conditions"] = conditions(condition{"Available", m == moodReady, "MinimumReplicasAvailable"}, progress)
	return st
}

// counted adds the counts of kinds with replicas.
func counted(st map[string]any, n, up int64, updated string) map[string]any {
	st["observedGeneration"], st["replicas"], st[updated] = int64(1), n, n
	st["readyReplicas"], st["availableReplicas"] = up, up
	return st
}

// nodes of an imagined member.
const nodes = 3

func daemonSet(m mood) map[string]any {
	up := int64(nodes)
	if m != moodReady {
		up = 0
	}
	return map[string]any{
		"observedGeneration": int64(1), "desiredNumberScheduled": int64(nodes), "currentNumberScheduled": int64(nodes),
		"updatedNumberScheduled": int64(nodes), "numberReady": up, "numberAvailable": up,
	}
}

// job times are the same in all members, so that what is reported is shared.
func job(m mood) map[string]any {
	const began, ended = "2026-01-01T00:00:00Z", "2026-01-01T00:00:10Z"
	switch m {
	case moodReady:
		return map[string]any{"succeeded": int64(1), "startTime": began, "completionTime": ended, "conditions": conditions(condition{"Complete", true, "CompletionsReached"})}
	case moodDegraded:
		return map[string]any{"failed": int64(1), "startTime": began, "conditions": conditions(condition{"Failed", true, "BackoffLimitExceeded"})}
	}
	return map[string]any{"active": int64(1), "startTime": began}
}

// address of what a load balancer serves.
func address(u *unstructured.Unstructured, m mood) map[string]any {
	kind, _, _ := unstructured.NestedString(u.Object, "spec", "type")
	if u.GetKind() == "Service" && kind != "LoadBalancer" || m == moodProgressing {
		return nil
	}
	return map[string]any{"loadBalancer": map[string]any{"ingress": []any{map[string]any{"ip": "192.0.2.10"}}}}
}

type condition struct {
	kind   string
	is     bool
	reason string
}

func conditions(all ...condition) []any {
	out := make([]any, len(all))
	for i, c := range all {
		status := "False"
		if c.is {
			status = "True"
		}
		out[i] = map[string]any{"type": c.kind, "status": status, "reason": c.reason, "message": ""}
	}
	return out
}
