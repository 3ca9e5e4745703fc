package kinds_test

import (
	"strings"
	"testing"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/kinds"
)

// answerCase is an object, and its whole health.
type answerCase struct {
	name, object    string
	want            atoll.Health
	reason, message string
}

func checkAnswers(t *testing.T, cases []answerCase) {
	t.Helper()
	for _, c := range cases {
		if h, reason, message := kinds.AssessHealth(parseObject(t, c.object)); h != c.want || reason != c.reason || message != c.message {
			t.Errorf("%s: %s %s: %s\nwant %s %s: %s", c.name, h, reason, message, c.want, c.reason, c.message)
		}
	}
}

const late = "the member's controller has not seen the latest change yet"

// A workload of Kubernetes says which of its numbers is not there yet.
func TestHealthOfWorkloadsNamesNumbers(t *testing.T) {
	deployment := func(spec, status string) string {
		return headYAML("apps/v1", "Deployment") + "spec: {replicas: 3" + spec + "}\nstatus: {" + status + "}"
	}
	sts := func(spec, status string) string {
		return headYAML("apps/v1", "StatefulSet") + "spec: {replicas: 3" + spec + "}\nstatus: {" + status + "}"
	}
	const failure = ", conditions: [{type: ReplicaFailure, status: 'True', reason: FailedCreate, message: quota}]"
	checkAnswers(t, []answerCase{
		{"late", deployment("", "observedGeneration: 1, replicas: 3"), atoll.Progressing, "NotObserved", late},
		{"paused", deployment(", paused: true", "observedGeneration: 2"), atoll.Suspended, "Paused", "the rollout is paused"},
		{"over its deadline", deployment(", paused: true", "observedGeneration: 2, conditions: [{type: Progressing, status: 'False', reason: ProgressDeadlineExceeded, message: too slow}]"), atoll.Degraded, "ProgressDeadlineExceeded", "too slow"},
		{"another reason", deployment("", "observedGeneration: 2, updatedReplicas: 2, conditions: [{type: Progressing, status: 'False', reason: Other}]"), atoll.Progressing, "Updating", "2 of 3 replicas are updated"},
		{"no pods can be made", deployment("", "observedGeneration: 2, updatedReplicas: 3, replicas: 3, availableReplicas: 2"+failure), atoll.Progressing, "FailedCreate", "quota"},
		{"enough pods all the same", deployment("", "observedGeneration: 2, updatedReplicas: 3, replicas: 3, availableReplicas: 3"+failure), atoll.Healthy, "", ""},
		{"old replicas", deployment("", "observedGeneration: 2, updatedReplicas: 3, replicas: 5, availableReplicas: 3"), atoll.Progressing, "Updating", "2 old replicas are still to go"},
		{"not available", deployment("", "observedGeneration: 2, updatedReplicas: 3, replicas: 3, availableReplicas: 1"), atoll.Progressing, "Unavailable", "1 of 3 replicas are available"},
		{"the default is one", headYAML("apps/v1", "Deployment") + "status: {observedGeneration: 2}", atoll.Progressing, "Updating", "0 of 1 replicas are updated"},

		{"set, late", sts("", "observedGeneration: 1"), atoll.Progressing, "NotObserved", late},
		{"set, not ready", sts("", "observedGeneration: 2, readyReplicas: 2"), atoll.Progressing, "NotReady", "2 of 3 replicas are ready"},
		{"set, not available", sts("", "observedGeneration: 2, readyReplicas: 3, availableReplicas: 1"), atoll.Progressing, "Unavailable", "1 of 3 replicas are available"},
		{"set of an older Kubernetes", sts("", "observedGeneration: 2, readyReplicas: 3"), atoll.Healthy, "", ""},
		{"set, updating", sts("", "observedGeneration: 2, readyReplicas: 3, updatedReplicas: 1, currentRevision: a, updateRevision: b"), atoll.Progressing, "Updating", "1 of 3 replicas are updated"},
		{"set, updated on delete", sts(", updateStrategy: {type: OnDelete}", "observedGeneration: 2, readyReplicas: 3, currentRevision: a, updateRevision: b"), atoll.Healthy, "", ""},
		{"set with a partition", sts(", updateStrategy: {rollingUpdate: {partition: 1}}", "observedGeneration: 2, readyReplicas: 3, updatedReplicas: 1, currentRevision: a, updateRevision: b"), atoll.Progressing, "Updating", "1 of 2 replicas above the partition are updated"},
		{"set above its partition", sts(", updateStrategy: {rollingUpdate: {partition: 1}}", "observedGeneration: 2, readyReplicas: 3, updatedReplicas: 2, currentRevision: a, updateRevision: b"), atoll.Healthy, "", ""},

		{"daemon, late", headYAML("apps/v1", "DaemonSet") + "status: {observedGeneration: 1}", atoll.Progressing, "NotObserved", late},
		{"daemon, updating", headYAML("apps/v1", "DaemonSet") + "status: {observedGeneration: 2, desiredNumberScheduled: 4, updatedNumberScheduled: 3, numberAvailable: 4}", atoll.Progressing, "Updating", "3 of 4 pods are updated"},
		{"daemon, updated on delete", headYAML("apps/v1", "DaemonSet") + "spec: {updateStrategy: {type: OnDelete}}\nstatus: {observedGeneration: 2, desiredNumberScheduled: 4, updatedNumberScheduled: 3, numberAvailable: 4}", atoll.Healthy, "", ""},
		{"daemon, not available", headYAML("apps/v1", "DaemonSet") + "status: {observedGeneration: 2, desiredNumberScheduled: 4, updatedNumberScheduled: 4, numberAvailable: 2}", atoll.Progressing, "Unavailable", "2 of 4 pods are available"},

		{"replica set, late", headYAML("apps/v1", "ReplicaSet") + "status: {observedGeneration: 1}", atoll.Progressing, "NotObserved", late},
		{"replica set", headYAML("apps/v1", "ReplicaSet") + "spec: {replicas: 2}\nstatus: {observedGeneration: 2, availableReplicas: 1}", atoll.Progressing, "Unavailable", "1 of 2 replicas are available"},
		{"replica set without pods", headYAML("apps/v1", "ReplicaSet") + "spec: {replicas: 2}\nstatus: {observedGeneration: 2" + failure + "}", atoll.Progressing, "FailedCreate", "quota"},
		{"replica set with enough", headYAML("apps/v1", "ReplicaSet") + "spec: {replicas: 2}\nstatus: {observedGeneration: 2, availableReplicas: 2" + failure + "}", atoll.Healthy, "", ""},

		{"job", headYAML("batch/v1", "Job") + "status: {active: 1, succeeded: 2, failed: 3}", atoll.Progressing, "Running", "1 pods active, 2 succeeded, 3 failed"},
		{"job, failing", headYAML("batch/v1", "Job") + "status: {conditions: [{type: FailureTarget, status: 'True', reason: BackoffLimitExceeded, message: refused}]}", atoll.Degraded, "BackoffLimitExceeded", "refused"},
		{"job, suspended", headYAML("batch/v1", "Job") + "spec: {suspend: true}", atoll.Suspended, "Suspended", "the job is suspended"},
		{"job in a queue", strings.Replace(headYAML("batch/v1", "Job"), "{name", "{labels: {kueue.x-k8s.io/queue-name: q}, name", 1) + "spec: {suspend: true}", atoll.Progressing, "Queued", "it waits for quota in its queue"},
		{"job in a queue that runs", strings.Replace(headYAML("batch/v1", "Job"), "{name", "{labels: {kueue.x-k8s.io/queue-name: q}, name", 1), atoll.Progressing, "Running", "0 pods active, 0 succeeded, 0 failed"},
		{"cron job", headYAML("batch/v1", "CronJob") + "spec: {suspend: true}", atoll.Suspended, "Suspended", "the schedule is suspended"},
	})
}

// Pods, volumes, addresses and policies of Kubernetes say what they lack.
func TestHealthOfKubernetesObjects(t *testing.T) {
	pod := func(spec, status string) string {
		return headYAML("v1", "Pod") + "spec: {" + spec + "}\nstatus: {" + status + "}"
	}
	const stuck = "phase: Pending, containerStatuses: [{name: a, state: {running: {}}}, {name: b, state: {waiting: {reason: ImagePullBackOff, message: no image}}}]"
	checkAnswers(t, []answerCase{
		{"pod, failed", pod("", "phase: Failed"), atoll.Degraded, "Failed", "the pod failed"},
		{"pod, evicted", pod("", "phase: Failed, reason: Evicted, message: no space"), atoll.Degraded, "Evicted", "no space"},
		{"pod, stuck", pod("", stuck), atoll.Degraded, "ImagePullBackOff", "container b: no image"},
		{"pod, stuck at its start", pod("", strings.Replace(stuck, "containerStatuses", "initContainerStatuses", 1)), atoll.Degraded, "ImagePullBackOff", "container b: no image"},
		{"pod, starting", pod("", strings.Replace(stuck, "ImagePullBackOff", "ContainerCreating", 1)), atoll.Progressing, "NotReady", "the pod is not ready"},
		{"pod, not scheduled", pod("", "phase: Pending, conditions: [{type: PodScheduled, status: 'False', reason: Unschedulable, message: no node}]"), atoll.Progressing, "Unschedulable", "no node"},
		{"pod, not scheduled for no reason", pod("", "phase: Pending, conditions: [{type: PodScheduled, status: 'False'}]"), atoll.Progressing, "Unscheduled", ""},
		{"pod that runs once", pod("restartPolicy: OnFailure", "phase: Running, conditions: [{type: Ready, status: 'True'}]"), atoll.Progressing, "Running", "the pod has not run to completion yet"},
		{"pod, not ready", pod("", "phase: Running, conditions: [{type: Ready, status: 'False', reason: ContainersNotReady, message: a}]"), atoll.Progressing, "ContainersNotReady", "a"},
		{"pod, ready", pod("restartPolicy: Always", "phase: Running, conditions: [{type: Ready, status: 'True'}]"), atoll.Healthy, "", ""},

		{"load balancer", headYAML("v1", "Service") + "spec: {type: LoadBalancer}", atoll.Progressing, "NoAddress", "the load balancer has no address yet"},
		{"service", headYAML("v1", "Service") + "spec: {type: ClusterIP}", atoll.Healthy, "", ""},
		{"claim", headYAML("v1", "PersistentVolumeClaim"), atoll.Progressing, "Pending", "the claim is not bound to a volume yet"},
		{"claim, lost", headYAML("v1", "PersistentVolumeClaim") + "status: {phase: Lost}", atoll.Degraded, "Lost", "the claim lost its volume"},
		{"volume", headYAML("v1", "PersistentVolume"), atoll.Progressing, "Pending", "the volume is not available yet"},
		{"volume, failed", headYAML("v1", "PersistentVolume") + "status: {phase: Failed, message: broken}", atoll.Degraded, "Failed", "broken"},
		{"volume, failed for a reason", headYAML("v1", "PersistentVolume") + "status: {phase: Failed, reason: Why}", atoll.Degraded, "Why", ""},
		{"volume, released", headYAML("v1", "PersistentVolume") + "status: {phase: Released}", atoll.Healthy, "", ""},

		{"budget, late", headYAML("policy/v1", "PodDisruptionBudget") + "status: {observedGeneration: 1}", atoll.Progressing, "NotObserved", late},
		{"budget, not synced", headYAML("policy/v1", "PodDisruptionBudget") + "status: {observedGeneration: 2, conditions: [{type: DisruptionAllowed, status: 'False', reason: SyncFailed, message: refused}]}", atoll.Degraded, "SyncFailed", "refused"},
		{"budget, few pods", headYAML("policy/v1", "PodDisruptionBudget") + "status: {observedGeneration: 2, desiredHealthy: 3, currentHealthy: 2}", atoll.Progressing, "InsufficientPods", "2 of 3 pods that the budget requires are healthy"},

		{"autoscaler, new", headYAML("autoscaling/v2", "HorizontalPodAutoscaler"), atoll.Progressing, "NotObserved", late},
		{"autoscaler of an older version", headYAML("autoscaling/v1", "HorizontalPodAutoscaler") + "status: {desiredReplicas: 2}", atoll.Healthy, "", ""},
		{"autoscaler with a condition", headYAML("autoscaling/v2", "HorizontalPodAutoscaler") + "status: {desiredReplicas: 0, conditions: [{type: AbleToScale, status: 'True'}]}", atoll.Healthy, "", ""},
		{"autoscaler, not able", headYAML("autoscaling/v2", "HorizontalPodAutoscaler") + "status: {conditions: [{type: AbleToScale, status: 'False', reason: FailedGetScale, message: refused}]}", atoll.Degraded, "FailedGetScale", "refused"},
		{"autoscaler, not active", headYAML("autoscaling/v2", "HorizontalPodAutoscaler") + "status: {conditions: [{type: AbleToScale, status: 'True'}, {type: ScalingActive, status: 'False', reason: FailedGetMetrics, message: refused}]}", atoll.Degraded, "FailedGetMetrics", "refused"},
		{"autoscaler of no replicas", headYAML("autoscaling/v2", "HorizontalPodAutoscaler") + "status: {conditions: [{type: AbleToScale, status: 'True'}, {type: ScalingActive, status: 'False', reason: ScalingDisabled}]}", atoll.Healthy, "", ""},

		{"definition", headYAML("apiextensions.k8s.io/v1", "CustomResourceDefinition"), atoll.Progressing, "NotEstablished", "the API is not served yet"},
		{"definition, refused", headYAML("apiextensions.k8s.io/v1", "CustomResourceDefinition") + "status: {conditions: [{type: NamesAccepted, status: 'False', reason: Taken, message: refused}]}", atoll.Degraded, "Taken", "refused"},
		{"definition, installing", headYAML("apiextensions.k8s.io/v1", "CustomResourceDefinition") + "status: {conditions: [{type: Established, status: 'False', reason: Installing, message: soon}]}", atoll.Progressing, "Installing", "soon"},
		{"signing request", headYAML("certificates.k8s.io/v1", "CertificateSigningRequest"), atoll.Progressing, "NotIssued", "the certificate is not issued yet"},
		{"signing request, denied", headYAML("certificates.k8s.io/v1", "CertificateSigningRequest") + "status: {conditions: [{type: Denied, status: 'True', message: refused}]}", atoll.Degraded, "Denied", "refused"},
		{"signing request, failed", headYAML("certificates.k8s.io/v1", "CertificateSigningRequest") + "status: {certificate: eA==, conditions: [{type: Failed, status: 'True', reason: Why}]}", atoll.Degraded, "Why", ""},
		{"signing request, issued", headYAML("certificates.k8s.io/v1", "CertificateSigningRequest") + "status: {certificate: eA==}", atoll.Healthy, "", ""},
		{"being deleted", strings.Replace(headYAML("v1", "ConfigMap"), "{name", "{deletionTimestamp: '2026-01-01T00:00:00Z', name", 1), atoll.Progressing, "Terminating", "the object is being deleted"},
	})
}

// Kinds of operators say what they wait for, or what failed.
func TestHealthOfOperatorsKinds(t *testing.T) {
	kruise := func(kind, rest string) string { return headYAML("apps.kruise.io/v1alpha1", kind) + rest }
	rollout := func(field, strategy, index, phase string) string {
		return headYAML("rollouts.kruise.io/v1beta1", "Rollout") + "spec: {strategy: {" + strategy + ": {steps: [{pause: {duration: 5}}, {pause: {}}]}}}\nstatus: {phase: " + phase + ", message: step, " + field + ": {currentStepState: StepPaused, currentStepIndex: " + index + "}}"
	}
	const waits = "the rollout waits to be approved"
	notReported := "the member's controller has not reported a status yet"
	checkAnswers(t, []answerCase{
		{"sidecars, updating", kruise("SidecarSet", "status: {observedGeneration: 2, matchedPods: 4, updatedPods: 1}"), atoll.Progressing, "Updating", "1 of 4 pods are updated"},
		{"sidecars, paused", kruise("SidecarSet", "spec: {updateStrategy: {paused: true}}\nstatus: {observedGeneration: 2, matchedPods: 4, updatedPods: 1}"), atoll.Suspended, "Paused", "the update is paused"},
		{"sidecars without updates", kruise("SidecarSet", "spec: {updateStrategy: {type: NotUpdate}}\nstatus: {observedGeneration: 2, matchedPods: 4, updatedPods: 1}"), atoll.Healthy, "", ""},
		{"sidecars with a partition", kruise("SidecarSet", "spec: {updateStrategy: {partition: 50%}}\nstatus: {observedGeneration: 2, matchedPods: 4, updatedPods: 2}"), atoll.Healthy, "", ""},
		{"sidecars, late", kruise("SidecarSet", "status: {observedGeneration: 1}"), atoll.Progressing, "NotObserved", late},
		{"united, late", kruise("UnitedDeployment", "status: {observedGeneration: 1}"), atoll.Progressing, "NotObserved", late},
		{"united, updating", kruise("UnitedDeployment", "spec: {replicas: 3}\nstatus: {observedGeneration: 2, updatedReplicas: 1, readyReplicas: 3}"), atoll.Progressing, "Unavailable", "1 of 3 replicas are updated"},
		{"united, not ready", kruise("UnitedDeployment", "spec: {replicas: 3}\nstatus: {observedGeneration: 2, updatedReplicas: 3, readyReplicas: 2}"), atoll.Progressing, "Unavailable", "2 of 3 replicas are ready"},
		{"images, new", kruise("ImagePullJob", ""), atoll.Progressing, "NotReported", notReported},
		{"images, pulling", kruise("ImagePullJob", "status: {desired: 3, completed: 1, failedNodes: [a]}"), atoll.Progressing, "Pulling", "1 of 3 nodes are done"},
		{"images, failed", kruise("ImagePullJob", "status: {desired: 3, completed: 3, failedNodes: [a, b]}"), atoll.Degraded, "Failed", "2 nodes could not get the image"},
		{"images, out of time", kruise("ImagePullJob", "status: {desired: 3, completed: 1, completionTime: x, failedNodes: [a], message: late}"), atoll.Degraded, "Failed", "late"},
		{"images, done", kruise("ImagePullJob", "status: {desired: 3, completed: 3}"), atoll.Healthy, "", ""},
		{"canary at a step that ends", rollout("canaryStatus", "canary", "1", "Progressing"), atoll.Progressing, "Progressing", "step"},
		{"canary at a step that a person ends", rollout("canaryStatus", "canary", "2", "Progressing"), atoll.Suspended, "StepPaused", waits},
		{"blue and green", rollout("blueGreenStatus", "blueGreen", "2", "Progressing"), atoll.Suspended, "StepPaused", waits},
		{"canary beyond its steps", rollout("canaryStatus", "canary", "3", "Progressing"), atoll.Progressing, "Progressing", "step"},
		{"canary before its steps", rollout("canaryStatus", "canary", "0", "Progressing"), atoll.Progressing, "Progressing", "step"},
		{"canary that is done", rollout("canaryStatus", "canary", "2", "Healthy"), atoll.Healthy, "", ""},
		{"clones, late", kruise("CloneSet", "status: {observedGeneration: 1}"), atoll.Progressing, "NotObserved", late},
		{"clones, paused", kruise("CloneSet", "spec: {replicas: 2, updateStrategy: {paused: true}}\nstatus: {observedGeneration: 2}"), atoll.Suspended, "Paused", "the update is paused"},
		{"clones with a partition", kruise("CloneSet", "spec: {replicas: 4, updateStrategy: {partition: 1}}\nstatus: {observedGeneration: 2, updatedReplicas: 2, availableReplicas: 4}"), atoll.Progressing, "Updating", "2 of 3 replicas are updated"},
		{"clones, not available", kruise("CloneSet", "spec: {replicas: 4}\nstatus: {observedGeneration: 2, updatedReplicas: 4, availableReplicas: 3}"), atoll.Progressing, "Unavailable", "3 of 4 replicas are available"},
		{"clones with nonsense", kruise("CloneSet", "spec: {replicas: 4, updateStrategy: {partition: most}}\nstatus: {observedGeneration: 2, updatedReplicas: 3, availableReplicas: 4}"), atoll.Progressing, "Updating", "3 of 4 replicas are updated"},
		{"advanced set, paused", kruise("StatefulSet", "spec: {updateStrategy: {rollingUpdate: {paused: true}}}\nstatus: {observedGeneration: 2}"), atoll.Suspended, "Paused", "the update is paused"},
		{"advanced set, late", kruise("StatefulSet", "spec: {updateStrategy: {rollingUpdate: {paused: true}}}\nstatus: {observedGeneration: 1}"), atoll.Progressing, "NotObserved", late},
		{"advanced daemon, late", kruise("DaemonSet", "status: {observedGeneration: 1}"), atoll.Progressing, "NotObserved", late},
		{"advanced daemon, paused", kruise("DaemonSet", "spec: {updateStrategy: {rollingUpdate: {paused: true}}}\nstatus: {observedGeneration: 2, desiredNumberScheduled: 4}"), atoll.Suspended, "Paused", "the update is paused"},
		{"advanced daemon with a partition", kruise("DaemonSet", "spec: {updateStrategy: {rollingUpdate: {partition: 2}}}\nstatus: {observedGeneration: 2, desiredNumberScheduled: 4, updatedNumberScheduled: 1, numberAvailable: 4}"), atoll.Progressing, "Updating", "1 of 2 pods are updated"},
		{"advanced daemon, not available", kruise("DaemonSet", "spec: {updateStrategy: {type: OnDelete}}\nstatus: {observedGeneration: 2, desiredNumberScheduled: 4, numberAvailable: 3}"), atoll.Progressing, "Unavailable", "3 of 4 pods are available"},
		{"broadcast that never ends", kruise("BroadcastJob", "spec: {completionPolicy: {type: Never}}\nstatus: {phase: running, desired: 4, active: 1, succeeded: 2}"), atoll.Progressing, "Running", "3 of 4 nodes have their pod"},
		{"broadcast that is on all nodes", kruise("BroadcastJob", "spec: {completionPolicy: {type: Never}}\nstatus: {phase: running, desired: 3, active: 1, succeeded: 2}"), atoll.Healthy, "", ""},
		{"broadcast that ends", kruise("BroadcastJob", "status: {phase: running, desired: 3, active: 1, succeeded: 2}"), atoll.Progressing, "Running", "phase is running"},

		{"machine, paused", headYAML("cluster.x-k8s.io/v1beta1", "Machine") + "spec: {paused: true}", atoll.Suspended, "Paused", "its reconciliation is paused"},
		{"machine, new", headYAML("cluster.x-k8s.io/v1beta1", "Machine"), atoll.Progressing, "NotReported", notReported},
		{"machine, failed", headYAML("cluster.x-k8s.io/v1beta1", "Machine") + "status: {phase: Running, failureMessage: broken}", atoll.Degraded, "Failed", "broken"},
		{"machine, failed for a reason", headYAML("cluster.x-k8s.io/v1beta1", "Machine") + "status: {failureReason: CreateError, failureMessage: broken}", atoll.Degraded, "CreateError", "broken"},
		{"machine, running", headYAML("cluster.x-k8s.io/v1beta1", "Machine") + "status: {phase: Running}", atoll.Healthy, "", ""},
		{"machine, provisioning", headYAML("cluster.x-k8s.io/v1beta1", "Machine") + "status: {phase: Provisioning}", atoll.Progressing, "Provisioning", "phase is Provisioning"},
		{"control plane without conditions", headYAML("controlplane.cluster.x-k8s.io/v1beta1", "KubeadmControlPlane") + "status: {phase: Running, replicas: 1}", atoll.Unknown, "UnreadableStatus", "the status has none of the conditions Ready, Available, Synced, Healthy, Succeeded, Progressing, Stalled, Reconciling"},
		{"machines of a newer version", headYAML("cluster.x-k8s.io/v1beta2", "MachineSet") + "spec: {replicas: 3}\nstatus: {availableReplicas: 2, conditions: [{type: MachinesReady, status: 'True'}]}", atoll.Progressing, "Unavailable", "2 of 3 machines are available"},
		{"machines that grow", headYAML("cluster.x-k8s.io/v1beta2", "MachineSet") + "spec: {replicas: 3}\nstatus: {availableReplicas: 2, conditions: [{type: MachinesReady, status: 'True'}, {type: ScalingUp, status: 'True', message: one more}]}", atoll.Progressing, "ScalingUp", "one more"},
		{"class of an older version", headYAML("cluster.x-k8s.io/v1beta1", "ClusterClass") + "status: {conditions: [{type: VariablesReconciled, status: 'False', reason: Why, message: refused}]}", atoll.Progressing, "Why", "refused"},
		{"a provider's configuration", headYAML("aws.upbound.io/v1beta1", "ProviderConfig") + "status: {users: 1}", atoll.Healthy, "", ""},
		{"no provider's configuration", headYAML("example.com/v1beta1", "ProviderConfig") + "status: {users: 1}", atoll.Unknown, "UnreadableStatus", "the status has none of the conditions Ready, Available, Synced, Healthy, Succeeded, Progressing, Stalled, Reconciling"},
		{"configuration of the domain itself", headYAML("crossplane.io/v1", "ClusterProviderConfig") + "status: {users: 1}", atoll.Healthy, "", ""},
		{"a group that only ends like the domain", headYAML("notcrossplane.io/v1", "ProviderConfig") + "status: {users: 1}", atoll.Unknown, "UnreadableStatus", "the status has none of the conditions Ready, Available, Synced, Healthy, Succeeded, Progressing, Stalled, Reconciling"},
	})
}

// Batch, data and virtual machine kinds show what they wait for, or what failed.
func TestHealthOfBatchAndMachines(t *testing.T) {
	flink := func(spec, status string) string {
		return headYAML("flink.apache.org/v1beta1", "FlinkDeployment") + "spec: {" + spec + "}\nstatus: {" + status + "}"
	}
	queued := func(apiVersion, kind string) string {
		return strings.Replace(headYAML(apiVersion, kind), "{name", "{labels: {kueue.x-k8s.io/queue-name: q}, name", 1)
	}
	workload := headYAML("kueue.x-k8s.io/v1beta1", "Workload")
	vm := headYAML("kubevirt.io/v1", "VirtualMachine")
	set := headYAML("kubevirt.io/v1", "VirtualMachineInstanceReplicaSet")
	notebook := headYAML("kubeflow.org/v1", "Notebook")
	notReported := "the member's controller has not reported a status yet"
	checkAnswers(t, []answerCase{
		{"queue, stopped", headYAML("kueue.x-k8s.io/v1beta1", "ClusterQueue") + "spec: {stopPolicy: HoldAndDrain}", atoll.Suspended, "Stopped", "the queue is stopped by spec.stopPolicy"},
		{"queue, held", headYAML("kueue.x-k8s.io/v1beta1", "LocalQueue") + "spec: {stopPolicy: Hold}", atoll.Suspended, "Stopped", "the queue is stopped by spec.stopPolicy"},
		{"queue, not active", headYAML("kueue.x-k8s.io/v1beta1", "LocalQueue") + "spec: {stopPolicy: None}\nstatus: {conditions: [{type: Active, status: 'False', reason: Missing, message: refused}]}", atoll.Progressing, "Missing", "refused"},
		{"workload, failed", workload + "status: {conditions: [{type: Finished, status: 'True', reason: JobFailed, message: refused}]}", atoll.Degraded, "JobFailed", "refused"},
		{"workload, done", workload + "spec: {active: false}\nstatus: {conditions: [{type: Finished, status: 'True', reason: Succeeded}]}", atoll.Healthy, "", ""},
		{"workload, inactive", workload + "spec: {active: false}", atoll.Suspended, "Inactive", "the workload is set inactive"},
		{"workload, waiting", workload + "spec: {active: true}", atoll.Progressing, "NotQuotaReserved", "the workload waits to be admitted"},
		{"workload, almost admitted", workload + "status: {conditions: [{type: QuotaReserved, status: 'True'}, {type: Admitted, status: 'False', reason: Check, message: soon}]}", atoll.Progressing, "Check", "soon"},
		{"workload, running", workload + "status: {conditions: [{type: QuotaReserved, status: 'True'}, {type: Admitted, status: 'True'}]}", atoll.Progressing, "Running", "the workload has not run to completion yet"},
		{"job set in a queue", queued("jobset.x-k8s.io/v1alpha2", "JobSet") + "spec: {suspend: true}", atoll.Progressing, "Queued", "it waits for quota in its queue"},
		{"job set, suspended", headYAML("jobset.x-k8s.io/v1alpha2", "JobSet") + "spec: {suspend: true}", atoll.Suspended, "Suspended", "the JobSet is suspended"},
		{"job set, running", headYAML("jobset.x-k8s.io/v1alpha2", "JobSet"), atoll.Progressing, "Running", "the JobSet has not run to completion yet"},
		{"job set, failed", headYAML("jobset.x-k8s.io/v1alpha2", "JobSet") + "status: {conditions: [{type: Failed, status: 'True', reason: Why, message: refused}]}", atoll.Degraded, "Why", "refused"},
		{"job set, done", queued("jobset.x-k8s.io/v1alpha2", "JobSet") + "spec: {suspend: true}\nstatus: {conditions: [{type: Completed, status: 'True'}]}", atoll.Healthy, "", ""},

		{"old operator, failed", flink("job: {}", "jobStatus: {state: FAILING}, error: boom"), atoll.Degraded, "Failing", "boom"},
		{"old operator, running", flink("job: {}", "jobStatus: {state: RUNNING}"), atoll.Healthy, "", ""},
		{"old operator, finished", flink("job: {}", "jobStatus: {state: FINISHED}"), atoll.Healthy, "", ""},
		{"old operator, managers failed", flink("job: {}", "jobManagerDeploymentStatus: ERROR, error: boom"), atoll.Degraded, "Error", "boom"},
		{"old operator, session", flink("", "jobManagerDeploymentStatus: READY"), atoll.Healthy, "", ""},
		{"old operator, job not there", flink("job: {parallelism: 1}", "jobManagerDeploymentStatus: READY"), atoll.Progressing, "NotReported", notReported},
		{"old operator, session not ready", flink("", "jobManagerDeploymentStatus: DEPLOYING"), atoll.Progressing, "NotReported", notReported},
		{"stable, job restarts", flink("job: {parallelism: 1}", "observedGeneration: 2, lifecycleState: STABLE, jobStatus: {state: RESTARTING}"), atoll.Progressing, "Restarting", "jobStatus.state is RESTARTING"},
		{"stable, job finished", flink("job: {parallelism: 1}", "observedGeneration: 2, lifecycleState: STABLE, jobStatus: {state: FINISHED}, jobManagerDeploymentStatus: MISSING"), atoll.Healthy, "", ""},
		{"stable, managers failed", flink("job: {parallelism: 1}", "observedGeneration: 2, lifecycleState: STABLE, jobStatus: {state: RUNNING}, jobManagerDeploymentStatus: ERROR, error: boom"), atoll.Degraded, "Error", "boom"},
		{"stable, managers missing", flink("", "observedGeneration: 2, lifecycleState: STABLE, jobManagerDeploymentStatus: MISSING"), atoll.Progressing, "Missing", "jobManagerDeploymentStatus is MISSING"},
		{"rays in a queue", queued("ray.io/v1", "RayCluster") + "spec: {suspend: true}", atoll.Progressing, "Queued", "it waits for quota in its queue"},
		{"rays, few workers", headYAML("ray.io/v1", "RayCluster") + "status: {observedGeneration: 2, state: ready, desiredWorkerReplicas: 3, availableWorkerReplicas: 1}", atoll.Progressing, "Unavailable", "1 of 3 workers are available"},
		{"ray job, stopped", headYAML("ray.io/v1", "RayJob") + "status: {jobDeploymentStatus: Complete, jobStatus: STOPPED, message: refused}", atoll.Degraded, "Stopped", "refused"},
		{"ray job, done", queued("ray.io/v1", "RayJob") + "spec: {suspend: true}\nstatus: {jobDeploymentStatus: Complete, jobStatus: SUCCEEDED}", atoll.Healthy, "", ""},
		{"ray job in a queue", queued("ray.io/v1", "RayJob") + "spec: {suspend: true}\nstatus: {jobDeploymentStatus: Suspended}", atoll.Progressing, "Queued", "it waits for quota in its queue"},
		{"spark in a queue", queued("sparkoperator.k8s.io/v1beta2", "SparkApplication") + "spec: {suspend: true}", atoll.Progressing, "Queued", "it waits for quota in its queue"},
		{"spark that ended in a queue", queued("sparkoperator.k8s.io/v1beta2", "SparkApplication") + "spec: {suspend: true}\nstatus: {applicationState: {state: COMPLETED}}", atoll.Healthy, "", ""},
		{"spark that always runs", headYAML("sparkoperator.k8s.io/v1beta2", "SparkApplication") + "spec: {restartPolicy: {type: Always}}\nstatus: {applicationState: {state: RUNNING}}", atoll.Healthy, "", ""},
		{"spark, running", headYAML("sparkoperator.k8s.io/v1beta2", "SparkApplication") + "status: {applicationState: {state: RUNNING}}", atoll.Progressing, "Running", "applicationState.state is RUNNING"},

		{"machine, halted", vm + "spec: {runStrategy: Halted}\nstatus: {printableStatus: Stopped}", atoll.Suspended, "Stopped", "the virtual machine is not to run"},
		{"machine, not running", vm + "spec: {running: false}\nstatus: {printableStatus: Stopped}", atoll.Suspended, "Stopped", "the virtual machine is not to run"},
		{"machine that ran once", vm + "spec: {runStrategy: Once}\nstatus: {printableStatus: Stopped, created: true}", atoll.Suspended, "Stopped", "the virtual machine has run, and nothing starts it again"},
		{"machine before its start", vm + "spec: {runStrategy: Once}\nstatus: {printableStatus: Stopped}", atoll.Progressing, "Stopped", "printableStatus is Stopped"},
		{"machine to restart", vm + "spec: {running: true}\nstatus: {printableStatus: Running, conditions: [{type: RestartRequired, status: 'True'}]}", atoll.Progressing, "RestartRequired", "a change takes effect once the virtual machine is restarted"},
		{"machine set, paused", set + "spec: {paused: true}", atoll.Suspended, "Paused", "the set is paused"},
		{"machine set, new", set, atoll.Progressing, "NotReported", notReported},
		{"machine set of none", set + "spec: {replicas: 0}", atoll.Healthy, "", ""},
		{"machine set that fails", set + "status: {readyReplicas: 1, conditions: [{type: ReplicaFailure, status: 'True', message: refused}]}", atoll.Progressing, "ReplicaFailure", "refused"},
		{"machine set, not ready", set + "spec: {replicas: 2}\nstatus: {readyReplicas: 1}", atoll.Progressing, "Unavailable", "1 of 2 virtual machines are ready"},

		{"notebook, new", notebook, atoll.Progressing, "NotReported", notReported},
		{"notebook, ready", notebook + "status: {readyReplicas: 1}", atoll.Healthy, "", ""},
		{"notebook, stuck", notebook + "status: {containerState: {waiting: {reason: ErrImagePull}}}", atoll.Degraded, "ErrImagePull", "the container waits: ErrImagePull"},
		{"notebook, starting", notebook + "status: {containerState: {waiting: {reason: ContainerCreating}}}", atoll.Progressing, "Unavailable", "the notebook's pod is not ready"},
		{"notebook, unreadable", notebook + "status: 7", atoll.Unknown, "UnreadableStatus", "the status is not an object"},

		{"route, unreadable", routeHead + "status: 7", atoll.Unknown, "UnreadableStatus", "the status is not an object"},
		{"route, new", routeHead, atoll.Progressing, "NotReported", "a gateway of the member has not reported yet whether it accepts the object"},
		{"mesh, unreadable", headYAML("networking.istio.io/v1", "VirtualService") + "status: 7", atoll.Unknown, "UnreadableStatus", "the status is not an object"},
		{"mesh, refused by a proxy", headYAML("security.istio.io/v1", "AuthorizationPolicy") + "status: {conditions: [{type: ZtunnelAccepted, status: 'False', message: refused}]}", atoll.Progressing, "NotZtunnelAccepted", "refused"},
		{"mesh, invalid", headYAML("networking.istio.io/v1", "VirtualService") + "status: {validationMessages: [{level: WARNING, message: hm}, {level: ERROR, documentationUrl: doc}]}", atoll.Degraded, "Invalid", "Istio finds an error in it: doc"},
		{"mesh, warned", headYAML("networking.istio.io/v1", "VirtualService") + "status: {validationMessages: [{level: WARNING, message: hm}]}", atoll.Healthy, "", ""},
	})
}
