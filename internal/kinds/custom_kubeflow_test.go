package kinds_test

import (
	"strings"
	"testing"

	"atoll.dev/atoll/internal/kinds"
)

func TestHealthOfKubeflow(t *testing.T) {
	var states []stateCase
	add := func(name, object string, want stateCase) {
		want.name, want.object = name, object
		states = append(states, want)
	}
	for _, kind := range []string{"PyTorchJob", "TFJob", "MPIJob"} {
		head := headYAML("kubeflow.org/v1", kind)
		queued := strings.Replace(head, "generation: 2", "generation: 2, labels: {kueue.x-k8s.io/queue-name: gpus}", 1)
		const suspend = "spec: {runPolicy: {suspend: true}}\n"
		add(kind+" new", head, stateCase{want: progressing, reason: "NotReported"})
		add(kind+" created", head+statusYAML(conditionYAML("Created", "True", "JobCreated")), stateCase{want: progressing, reason: "NotRunning"})
		add(kind+" runs", head+statusYAML(conditionYAML("Created", "True", ""), conditionYAML("Running", "True", kind+"Running")), stateCase{want: progressing, reason: "Running"})
		add(kind+" restarts", head+statusYAML(conditionYAML("Running", "False", ""), conditionYAML("Restarting", "True", "")), stateCase{want: progressing, reason: "NotRunning"})
		add(kind+" is done", head+statusYAML(conditionYAML("Running", "False", ""), conditionYAML("Succeeded", "True", "")), stateCase{want: healthyResult})
		add(kind+" failed", head+statusYAML(conditionYAML("Running", "False", ""), conditionYAML("Failed", "True", kind+"Failed")), stateCase{want: degraded, reason: kind + "Failed"})
		add(kind+" suspended", head+suspend, stateCase{want: suspended, reason: "Suspended"})
		add(kind+" suspended after its end", head+suspend+statusYAML(conditionYAML("Succeeded", "True", "")), stateCase{want: healthyResult})
		add(kind+" in a queue", queued+suspend, stateCase{want: progressing, reason: "Queued"})
	}
	train, book := headYAML("trainer.kubeflow.org/v1alpha1", "TrainJob"), headYAML("kubeflow.org/v1", "Notebook")
	stopped := strings.Replace(book, "generation: 2", "generation: 2, annotations: {kubeflow-resource-stopped: '2026-01-01T00:00:00Z'}", 1)
	states = append(states, []stateCase{
		{"train job new", train, progressing, "NotReported"},
		{"train job suspended", train + "spec: {suspend: true}\n" + statusYAML(conditionYAML("Suspended", "True", "")), suspended, "Suspended"},
		{"train job resumed", train + statusYAML(conditionYAML("Suspended", "False", "Resumed")), progressing, "NotRunning"},
		{"train job done", train + statusYAML(conditionYAML("Complete", "True", "JobsCompleted")), healthyResult, ""},
		{"train job failed", train + statusYAML(conditionYAML("Failed", "True", "JobsFailed")), degraded, "JobsFailed"},
		{"train job unreadable", train + "status: text", "Unknown", "UnreadableStatus"},
		{"runtime", headYAML("trainer.kubeflow.org/v1alpha1", "TrainingRuntime"), healthyResult, ""},
		{"notebook new", book, progressing, "NotReported"},
		{"notebook ready", book + "status: {readyReplicas: 1, containerState: {running: {}}}", healthyResult, ""},
		{"notebook starts", book + "status: {readyReplicas: 0, containerState: {waiting: {reason: ContainerCreating}}}", progressing, "Unavailable"},
		{"notebook without its image", book + "status: {readyReplicas: 0, containerState: {waiting: {reason: ImagePullBackOff}}}", degraded, "ImagePullBackOff"},
		{"notebook stopped", stopped + "status: {readyReplicas: 0}", suspended, "Stopped"},
	}...)
	checkStates(t, states)
}

func TestPodsOfKubeflow(t *testing.T) {
	const pod = "template: {spec: {containers: [{name: a, resources: {requests: {cpu: '2'}}}]}}"
	for name, c := range map[string]struct {
		object string
		want   map[string]int64 // pods by the name of their set
		ends   string           // the condition of the end; empty: it does not run once
	}{
		"PyTorchJob":         {headYAML("kubeflow.org/v1", "PyTorchJob") + "spec: {pytorchReplicaSpecs: {Master: {" + pod + "}, Worker: {replicas: 3, " + pod + "}}}\n", map[string]int64{"Master": 1, "Worker": 3}, "Succeeded"},
		"TFJob":              {headYAML("kubeflow.org/v1", "TFJob") + "spec: {tfReplicaSpecs: {PS: {replicas: 2, " + pod + "}, Worker: {replicas: 4, " + pod + "}}}\n", map[string]int64{"PS": 2, "Worker": 4}, "Succeeded"},
		"MPIJob":             {headYAML("kubeflow.org/v2beta1", "MPIJob") + "spec: {mpiReplicaSpecs: {Launcher: {replicas: 1, " + pod + "}, Worker: {replicas: 2, " + pod + "}}}\n", map[string]int64{"Launcher": 1, "Worker": 2}, "Failed"},
		"TrainJob":           {headYAML("trainer.kubeflow.org/v1alpha1", "TrainJob") + "spec: {trainer: {numNodes: 5, resourcesPerNode: {requests: {cpu: '2'}}}}\n", map[string]int64{"node": 5}, "Complete"},
		"Notebook":           {headYAML("kubeflow.org/v1", "Notebook") + "spec: {" + pod + "}\n", map[string]int64{"": 1}, ""},
		"a stopped Notebook": {strings.Replace(headYAML("kubeflow.org/v1", "Notebook"), "generation: 2", "annotations: {kubeflow-resource-stopped: x}", 1) + "spec: {" + pod + "}\n", map[string]int64{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			obj := parseObject(t, c.object)
			n, sets := kinds.PodSetsOf(obj)
			if n != 1 || len(sets) != len(c.want) {
				t.Fatalf("%d times %v", n, sets)
			}
			for _, s := range sets {
				if s.Count != c.want[s.Name] || s.Requests["cpu"] != 2000 {
					t.Errorf("set %q has %d pods with %v", s.Name, s.Count, s.Requests)
				}
			}
			if c.ends == "" {
				return
			}
			if kinds.HasFinished(obj) || !kinds.HasFinished(parseObject(t, c.object+statusYAML(conditionYAML(c.ends, "True", "")))) {
				t.Errorf("the condition %s does not end it", c.ends)
			}
		})
	}
}
