package kinds_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/freecapacity"
	"atoll.dev/atoll/internal/kinds"
)

const (
	healthyResult, progressing, degraded, suspended = atoll.Healthy, atoll.Progressing, atoll.Degraded, atoll.Suspended
)

// headYAML is the apiVersion, the kind and the metadata of an object, with generation 2.
func headYAML(apiVersion, kind string) string {
	return "apiVersion: " + apiVersion + "\nkind: " + kind + "\nmetadata: {name: one, namespace: shop, generation: 2}\n"
}

// headAnnotated is the head of an autoscaler of autoscaling/v1 with these conditions as JSON.
func headAnnotated(conditions string) string {
	return "apiVersion: autoscaling/v1\nkind: HorizontalPodAutoscaler\nmetadata: {name: one, namespace: shop, annotations: {autoscaling.alpha.kubernetes.io/conditions: '" + conditions + "'}}\n"
}

// condition as YAML.
func conditionYAML(kind, status, reason string) string {
	return "{type: " + kind + ", status: '" + status + "', reason: '" + reason + "'}"
}

func statusYAML(c ...string) string { return "status: {conditions: [" + strings.Join(c, ", ") + "]}\n" }

func TestHealthOfCustomKinds(t *testing.T) {
	const argo = "argoproj.io/v1alpha1"
	for _, c := range []struct {
		name, object string
		want         atoll.Health
		reason       string
	}{
		{"rollout new", headYAML(argo, "Rollout"), progressing, "NotReported"},
		{"rollout healthy", headYAML(argo, "Rollout") + "status: {phase: Healthy, observedGeneration: '2'}", healthyResult, ""},
		{"rollout late", headYAML(argo, "Rollout") + "status: {phase: Healthy, observedGeneration: '1'}", progressing, "NotObserved"},
		{"rollout of an old controller", headYAML(argo, "Rollout") + "status: {phase: Healthy, observedGeneration: 7686986f8d}", healthyResult, ""},
		{"rollout degraded", headYAML(argo, "Rollout") + "status: {phase: Degraded, message: boom}", degraded, "Degraded"},
		{"rollout at a step", headYAML(argo, "Rollout") + "status: {phase: Paused}", suspended, "Paused"},
		{"rollout without a phase", headYAML(argo, "Rollout") + "spec: {replicas: 2}\nstatus: {updatedReplicas: 1, availableReplicas: 2}", progressing, "Updating"},
		{"workflow runs", headYAML(argo, "Workflow") + "status: {phase: Running}", progressing, "Running"},
		{"workflow failed", headYAML(argo, "Workflow") + "status: {phase: Error, message: x}", degraded, "Error"},
		{"workflow is suspended", headYAML(argo, "Workflow") + "spec: {suspend: true}\nstatus: {phase: Running}", suspended, "Suspended"},
		{"workflow that ended is not", headYAML(argo, "Workflow") + "spec: {suspend: true}\nstatus: {phase: Failed}", degraded, "Failed"},
		{"workflow of a phase to come", headYAML(argo, "Workflow") + "status: {phase: Meditating}", atoll.Unknown, "UnreadableStatus"},
		{"workflow that says nothing", headYAML(argo, "Workflow") + "status: {startedAt: x}", progressing, "NotReported"},
		{"workflow of wrong shape", headYAML(argo, "Workflow") + "status: [1]", atoll.Unknown, "UnreadableStatus"},
		{"cron workflow", headYAML(argo, "CronWorkflow"), healthyResult, ""},
		{"cron workflow that cannot", headYAML(argo, "CronWorkflow") + statusYAML(conditionYAML("SpecError", "True", "Bad")), degraded, "Bad"},
		{"application", headYAML(argo, "Application") + "status: {health: {status: Healthy}}", healthyResult, ""},

		{"ray cluster in a queue", "apiVersion: ray.io/v1\nkind: RayCluster\nmetadata: {name: one, labels: {kueue.x-k8s.io/queue-name: team}}\nspec: {suspend: true}\nstatus: {state: suspended}", progressing, "Queued"},
		{"job set in a queue", "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {name: one, labels: {kueue.x-k8s.io/queue-name: team}}\nspec: {suspend: true}\nstatus: {}", progressing, "Queued"},
		{"virtual machine about to start", headYAML("kubevirt.io/v1", "VirtualMachine") + "spec: {runStrategy: RerunOnFailure}\nstatus: {printableStatus: Stopped}", progressing, "Stopped"},
		{"machine that has no phase yet", headYAML("cluster.x-k8s.io/v1beta1", "Machine") + statusYAML(conditionYAML("Paused", "False", "NotPaused")), atoll.Unknown, "UnreadableStatus"},

		{"helm release", headYAML("helm.toolkit.fluxcd.io/v2", "HelmRelease") + statusYAML(conditionYAML("Ready", "True", "InstallSucceeded")), healthyResult, ""},
		{"helm release stalled", headYAML("helm.toolkit.fluxcd.io/v2", "HelmRelease") + statusYAML(conditionYAML("Ready", "False", "x"), conditionYAML("Stalled", "True", "RetriesExceeded")), degraded, "RetriesExceeded"},
		{"kustomization suspended", headYAML("kustomize.toolkit.fluxcd.io/v1", "Kustomization") + "spec: {suspend: true}", suspended, "Suspended"},
		{"kustomization new", headYAML("kustomize.toolkit.fluxcd.io/v1", "Kustomization"), progressing, "NotReported"},
		{"oci repository needs no status", headYAML("source.toolkit.fluxcd.io/v1", "HelmRepository") + "spec: {type: oci}", healthyResult, ""},

		{"certificate issuing", headYAML("cert-manager.io/v1", "Certificate") + statusYAML(conditionYAML("Ready", "False", "DoesNotExist"), conditionYAML("Issuing", "True", "DoesNotExist")), progressing, "DoesNotExist"},
		{"certificate", headYAML("cert-manager.io/v1", "Certificate") + statusYAML(conditionYAML("Ready", "True", "Ready")), healthyResult, ""},
		{"request denied", headYAML("cert-manager.io/v1", "CertificateRequest") + statusYAML(conditionYAML("Denied", "True", "Policy")), degraded, "Policy"},
		{"order invalid", headYAML("acme.cert-manager.io/v1", "Order") + "status: {state: invalid, reason: no}", degraded, "Invalid"},

		{"queue", headYAML("kueue.x-k8s.io/v1beta1", "ClusterQueue") + statusYAML(conditionYAML("Active", "True", "Ready")), healthyResult, ""},
		{"queue stopped", headYAML("kueue.x-k8s.io/v1beta1", "ClusterQueue") + "spec: {stopPolicy: Hold}\n" + statusYAML(conditionYAML("Active", "False", "Stopped")), suspended, "Stopped"},
		{"workload waits", headYAML("kueue.x-k8s.io/v1beta1", "Workload") + statusYAML(conditionYAML("QuotaReserved", "False", "Pending")), progressing, "Pending"},
		{"workload ended", headYAML("kueue.x-k8s.io/v1beta1", "Workload") + statusYAML(conditionYAML("Finished", "True", "Succeeded")), healthyResult, ""},
		{"volcano job", headYAML("batch.volcano.sh/v1alpha1", "Job") + "status: {state: {phase: Running}}", progressing, "Running"},
		{"volcano job done", headYAML("batch.volcano.sh/v1alpha1", "Job") + "status: {state: {phase: Completed}}", healthyResult, ""},
		{"volcano job aborted", headYAML("batch.volcano.sh/v1alpha1", "Job") + "status: {state: {phase: Aborted}}", degraded, "Aborted"},
		{"groups updating", headYAML("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet") + "spec: {replicas: 1}\nstatus: {readyReplicas: 1, conditions: [" + conditionYAML("Available", "True", "x") + ", " + conditionYAML("UpdateInProgress", "True", "Updating") + "]}", progressing, "Updating"},
		{"groups ready", headYAML("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet") + "spec: {replicas: 1}\nstatus: {readyReplicas: 1, conditions: [" + conditionYAML("Available", "True", "AllGroupsReady") + "]}", healthyResult, ""},
		{"jobset", headYAML("jobset.x-k8s.io/v1alpha2", "JobSet"), progressing, "Running"},
		{"jobset failed", headYAML("jobset.x-k8s.io/v1alpha2", "JobSet") + statusYAML(conditionYAML("Failed", "True", "FailedJobs")), degraded, "FailedJobs"},

		{"flink stable", headYAML("flink.apache.org/v1beta1", "FlinkDeployment") + "status: {lifecycleState: STABLE}", healthyResult, ""},
		{"flink rolled back", headYAML("flink.apache.org/v1beta1", "FlinkDeployment") + "status: {lifecycleState: ROLLED_BACK, error: e}", degraded, "RolledBack"},
		{"flink of an old operator", headYAML("flink.apache.org/v1beta1", "FlinkDeployment") + "spec: {job: {parallelism: 1}}\nstatus: {jobManagerDeploymentStatus: READY, jobStatus: {state: RUNNING}}", healthyResult, ""},
		{"ray ready", headYAML("ray.io/v1", "RayCluster") + "status: {state: ready, desiredWorkerReplicas: 2, availableWorkerReplicas: 2}", healthyResult, ""},
		{"ray lost a worker", headYAML("ray.io/v1", "RayCluster") + "status: {state: ready, desiredWorkerReplicas: 2, availableWorkerReplicas: 1}", progressing, "Unavailable"},
		{"ray lost its head", headYAML("ray.io/v1", "RayCluster") + "status: {state: ready, conditions: [" + conditionYAML("HeadPodReady", "False", "CrashLoop") + "]}", progressing, "CrashLoop"},
		{"ray new", headYAML("ray.io/v1", "RayCluster") + "status: {observedGeneration: 2}", progressing, "NotHeadPodReady"},
		{"ray job failed", headYAML("ray.io/v1", "RayJob") + "status: {jobDeploymentStatus: Complete, jobStatus: FAILED}", degraded, "Failed"},
		{"ray job", headYAML("ray.io/v1", "RayJob") + "status: {jobDeploymentStatus: Complete, jobStatus: SUCCEEDED}", healthyResult, ""},
		{"ray service", headYAML("ray.io/v1", "RayService") + statusYAML(conditionYAML("Ready", "True", "x")), healthyResult, ""},
		{"spark", headYAML("sparkoperator.k8s.io/v1beta2", "SparkApplication") + "status: {applicationState: {state: SUBMISSION_FAILED, errorMessage: no}}", degraded, "SubmissionFailed"},
		{"spark done", headYAML("sparkoperator.k8s.io/v1beta2", "SparkApplication") + "status: {applicationState: {state: COMPLETED}}", healthyResult, ""},

		{"knative works", headYAML("serving.knative.dev/v1", "Service") + statusYAML(conditionYAML("Ready", "Unknown", "Deploying")), progressing, "Deploying"},
		{"knative gave up", headYAML("serving.knative.dev/v1", "Service") + statusYAML(conditionYAML("Ready", "False", "RevisionFailed")), degraded, "RevisionFailed"},
		{"machine set fails", headYAML("kubevirt.io/v1", "VirtualMachineInstanceReplicaSet") + "spec: {replicas: 2}\nstatus: {replicas: 1, readyReplicas: 1, conditions: [{type: ReplicaFailure, status: 'True', reason: FailedCreate}]}", progressing, "FailedCreate"},
		{"machine set starts", headYAML("kubevirt.io/v1", "VirtualMachineInstanceReplicaSet") + "spec: {replicas: 2}\nstatus: {replicas: 2, readyReplicas: 1}", progressing, "Unavailable"},
		{"machine set runs", headYAML("kubevirt.io/v1", "VirtualMachineInstanceReplicaSet") + "spec: {replicas: 2}\nstatus: {replicas: 2, readyReplicas: 2}", healthyResult, ""},
		{"machine runs", headYAML("kubevirt.io/v1", "VirtualMachine") + "spec: {runStrategy: Always}\nstatus: {printableStatus: Running}", healthyResult, ""},
		{"machine is off", headYAML("kubevirt.io/v1", "VirtualMachine") + "spec: {runStrategy: Halted}\nstatus: {printableStatus: Stopped}", suspended, "Stopped"},
		{"machine starts", headYAML("kubevirt.io/v1", "VirtualMachine") + "spec: {running: true}\nstatus: {printableStatus: Stopped}", progressing, "Stopped"},
		{"machine has no image", headYAML("kubevirt.io/v1", "VirtualMachine") + "status: {printableStatus: ErrImagePull}", degraded, "ErrImagePull"},
		{"disk is filled", headYAML("cdi.kubevirt.io/v1beta1", "DataVolume") + "status: {phase: ImportInProgress}", progressing, "ImportInProgress"},
		{"clone set", headYAML("apps.kruise.io/v1alpha1", "CloneSet") + "spec: {replicas: 4, updateStrategy: {partition: 50%}}\nstatus: {observedGeneration: 2, updatedReplicas: 2, availableReplicas: 4}", healthyResult, ""},
		{"clone set updates", headYAML("apps.kruise.io/v1alpha1", "CloneSet") + "spec: {replicas: 4}\nstatus: {observedGeneration: 2, updatedReplicas: 2, availableReplicas: 4}", progressing, "Updating"},
		{"kruise stateful", headYAML("apps.kruise.io/v1beta1", "StatefulSet") + "spec: {replicas: 1}\nstatus: {observedGeneration: 2, readyReplicas: 1, availableReplicas: 1, currentRevision: a, updateRevision: a}", healthyResult, ""},
		{"kruise daemon set", headYAML("apps.kruise.io/v1alpha1", "DaemonSet") + "spec: {}\nstatus: {observedGeneration: 2, desiredNumberScheduled: 3, updatedNumberScheduled: 3, numberAvailable: 3}", healthyResult, ""},
		{"kruise daemon set with a partition", headYAML("apps.kruise.io/v1alpha1", "DaemonSet") + "spec: {updateStrategy: {rollingUpdate: {partition: 1}}}\nstatus: {observedGeneration: 2, desiredNumberScheduled: 3, updatedNumberScheduled: 2, numberAvailable: 3}", healthyResult, ""},
		{"kruise daemon set updates", headYAML("apps.kruise.io/v1alpha1", "DaemonSet") + "spec: {}\nstatus: {observedGeneration: 2, desiredNumberScheduled: 3, updatedNumberScheduled: 2, numberAvailable: 3}", progressing, "Updating"},
		{"kruise daemon set updated by hand", headYAML("apps.kruise.io/v1alpha1", "DaemonSet") + "spec: {updateStrategy: {type: OnDelete}}\nstatus: {observedGeneration: 2, desiredNumberScheduled: 3, numberAvailable: 3}", healthyResult, ""},
		{"kruise daemon set without a pod", headYAML("apps.kruise.io/v1alpha1", "DaemonSet") + "spec: {}\nstatus: {observedGeneration: 2, desiredNumberScheduled: 3, updatedNumberScheduled: 3, numberAvailable: 2}", progressing, "Unavailable"},
		{"kruise daemon set of an older generation", headYAML("apps.kruise.io/v1alpha1", "DaemonSet") + "spec: {}\nstatus: {observedGeneration: 1, desiredNumberScheduled: 3, updatedNumberScheduled: 3, numberAvailable: 3}", progressing, "NotObserved"},

		{"gateway", headYAML("gateway.networking.k8s.io/v1", "Gateway") + statusYAML(conditionYAML("Accepted", "True", "x"), conditionYAML("Programmed", "True", "x")), healthyResult, ""},
		{"gateway waits", headYAML("gateway.networking.k8s.io/v1", "Gateway") + statusYAML(conditionYAML("Accepted", "True", "x"), conditionYAML("Programmed", "Unknown", "Pending")), progressing, "Pending"},
		{"route", headYAML("gateway.networking.k8s.io/v1", "HTTPRoute") + "status: {parents: [{conditions: [" + conditionYAML("Accepted", "True", "x") + ", " + conditionYAML("ResolvedRefs", "True", "x") + "]}]}", healthyResult, ""},
		{"route without a backend", headYAML("gateway.networking.k8s.io/v1", "HTTPRoute") + "status: {parents: [{conditions: [" + conditionYAML("Accepted", "True", "x") + "]}, {conditions: [" + conditionYAML("ResolvedRefs", "False", "BackendNotFound") + "]}]}", degraded, "BackendNotFound"},
		{"virtual service", headYAML("networking.istio.io/v1", "VirtualService") + statusYAML(conditionYAML("Reconciled", "True", "x")), healthyResult, ""},
		{"virtual service with an error", headYAML("networking.istio.io/v1", "VirtualService") + "status: {validationMessages: [{level: ERROR}]}", degraded, "Invalid"},

		{"prometheus", headYAML("monitoring.coreos.com/v1", "Prometheus") + statusYAML(conditionYAML("Available", "True", ""), conditionYAML("Reconciled", "True", "")), healthyResult, ""},
		{"prometheus in part", headYAML("monitoring.coreos.com/v1", "Prometheus") + statusYAML(conditionYAML("Available", "Degraded", "SomePodsNotReady"), conditionYAML("Reconciled", "True", "")), progressing, "SomePodsNotReady"},
		{"rules", headYAML("monitoring.coreos.com/v1", "PrometheusRule") + "status: {bindings: []}", healthyResult, ""},
		{"kafka", headYAML("kafka.strimzi.io/v1beta2", "Kafka") + "status: {observedGeneration: 2, conditions: [" + conditionYAML("Ready", "True", "") + "]}", healthyResult, ""},
		{"kafka begins", headYAML("kafka.strimzi.io/v1beta2", "Kafka") + statusYAML(conditionYAML("NotReady", "True", "Creating")), progressing, "Creating"},
		{"kafka asks for nonsense", headYAML("kafka.strimzi.io/v1beta2", "Kafka") + statusYAML(conditionYAML("NotReady", "True", "InvalidResourceException")), degraded, "InvalidResourceException"},
		{"postgres", headYAML("postgresql.cnpg.io/v1", "Cluster") + statusYAML(conditionYAML("Ready", "True", "ClusterIsReady")), healthyResult, ""},
		{"backup", headYAML("postgresql.cnpg.io/v1", "Backup") + "status: {phase: failed, error: full}", degraded, "Failed"},
		{"elasticsearch yellow", headYAML("elasticsearch.k8s.elastic.co/v1", "Elasticsearch") + "status: {phase: Ready, health: yellow}", healthyResult, ""},
		{"elasticsearch red", headYAML("elasticsearch.k8s.elastic.co/v1", "Elasticsearch") + "status: {phase: Ready, health: red}", degraded, "Red"},
		{"elasticsearch changes", headYAML("elasticsearch.k8s.elastic.co/v1", "Elasticsearch") + "status: {phase: ApplyingChanges, health: green}", progressing, "ApplyingChanges"},
		{"kibana", headYAML("kibana.k8s.elastic.co/v1", "Kibana") + "status: {health: red}", progressing, "Red"},

		{"cluster", headYAML("cluster.x-k8s.io/v1beta1", "Cluster") + "status: {phase: Provisioned, conditions: [" + conditionYAML("Ready", "True", "") + "]}", healthyResult, ""},
		{"cluster not ready", headYAML("cluster.x-k8s.io/v1beta1", "Cluster") + "status: {phase: Provisioned, conditions: [" + conditionYAML("Ready", "False", "ScalingUp") + "]}", progressing, "ScalingUp"},
		{"cluster failed", headYAML("cluster.x-k8s.io/v1beta1", "Cluster") + "status: {failureReason: CreateError, failureMessage: quota}", degraded, "CreateError"},
		{"machine pool of one", headYAML("cluster.x-k8s.io/v1beta1", "MachineDeployment") + "status: {phase: ScalingUp}", progressing, "ScalingUp"},
		{"package", headYAML("pkg.crossplane.io/v1", "Provider") + statusYAML(conditionYAML("Installed", "True", ""), conditionYAML("Healthy", "False", "UnhealthyPackageRevision")), progressing, "UnhealthyPackageRevision"},
		{"managed", headYAML("rds.aws.upbound.io/v1beta1", "Instance") + statusYAML(conditionYAML("Ready", "True", "Available"), conditionYAML("Synced", "True", "ReconcileSuccess")), healthyResult, ""},
		{"managed but not in sync", headYAML("rds.aws.upbound.io/v1beta1", "Instance") + statusYAML(conditionYAML("Ready", "True", "Available"), conditionYAML("Synced", "False", "ReconcileError")), progressing, "ReconcileError"},
		{"managed and paused", headYAML("example.org/v1", "XDatabase") + statusYAML(conditionYAML("Ready", "False", "Creating"), conditionYAML("Synced", "False", "ReconcilePaused")), suspended, "ReconcilePaused"},
		{"provider config", headYAML("aws.upbound.io/v1beta1", "ProviderConfig") + "status: {users: 3}", healthyResult, ""},
		{"a version to come", headYAML("ray.io/v7", "RayCluster") + "status: {state: ready}", healthyResult, ""},

		{"nothing but that it is not degraded", headYAML("example.com/v1", "Toy") + statusYAML(conditionYAML("Degraded", "False", "AsExpected")), healthyResult, ""},
		{"status that is none", headYAML("example.com/v1", "Toy") + "status: fine", atoll.Unknown, "UnreadableStatus"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, reason, message := kinds.AssessHealth(parseObject(t, c.object))
			if got != c.want || reason != c.reason {
				t.Errorf("Health = %s %q %q, want %s %q", got, reason, message, c.want, c.reason)
			}
		})
	}
}

func TestCustomKindsThatRunOnce(t *testing.T) {
	for text, want := range map[string]bool{
		headYAML("argoproj.io/v1alpha1", "Workflow") + "status: {phase: Failed}":                                            true,
		headYAML("argoproj.io/v1alpha1", "Workflow") + "status: {phase: Running}":                                           false,
		headYAML("jobset.x-k8s.io/v1alpha2", "JobSet") + statusYAML(conditionYAML("Completed", "True", "AllJobsCompleted")): true,
		headYAML("batch.volcano.sh/v1alpha1", "Job") + "status: {state: {phase: Completed}}":                                true,
		headYAML("ray.io/v1", "RayJob") + "status: {jobDeploymentStatus: Running}":                                          false,
		headYAML("sparkoperator.k8s.io/v1beta2", "SparkApplication") + "status: {applicationState: {state: FAILED}}":        true,
		headYAML("kueue.x-k8s.io/v1beta1", "Workload") + statusYAML(conditionYAML("Finished", "True", "Succeeded")):         true,
	} {
		obj := parseObject(t, text)
		if got := kinds.HasFinished(obj); got != want {
			t.Errorf("Finished = %v, want %v, of\n%s", got, want, text)
		}
		if !kinds.RunsOnce(obj.GroupVersionKind().GroupKind()) {
			t.Errorf("a %s runs once", obj.GetKind())
		}
	}
	if gk := parseObject(t, headYAML("argoproj.io/v1alpha1", "Rollout")).GroupVersionKind().GroupKind(); kinds.RunsOnce(gk) {
		t.Error("a Rollout does not end")
	}
}

// podOf is a template of one container with these requests.
func podOf(requests string) string {
	return "{spec: {containers: [{name: main, resources: {requests: " + requests + "}}]}}"
}

func TestPodsOfCustomKinds(t *testing.T) {
	for _, c := range []struct {
		name, object string
		n            int64
		want         string // name count cpu memory, of each
	}{
		{"rollout", headYAML("argoproj.io/v1alpha1", "Rollout") + "spec: {replicas: 3, template: " + podOf("{cpu: 1, memory: 1Gi}") + "}", 3, " 1 1000 1073741824"},
		{"rollout by default", headYAML("argoproj.io/v1alpha1", "Rollout") + "spec: {template: " + podOf("{cpu: 1}") + "}", 1, " 1 1000 0"},
		{"ray", headYAML("ray.io/v1", "RayCluster") + "spec: {headGroupSpec: {template: " + podOf("{cpu: 2}") + "}, workerGroupSpecs: [{groupName: small, replicas: 1, minReplicas: 3, template: " + podOf("{cpu: 1}") + "}, {groupName: wide, replicas: 2, numOfHosts: 4, template: " + podOf("{cpu: 4}") + "}, {groupName: off, replicas: 9, suspend: true, template: " + podOf("{cpu: 4}") + "}]}",
			1, "head 1 2000 0; small 3 1000 0; wide 8 4000 0"},
		{"ray job", headYAML("ray.io/v1", "RayJob") + "spec: {rayClusterSpec: {headGroupSpec: {template: " + podOf("{cpu: 2}") + "}}}", 1, "head 1 2000 0"},
		{"volcano", headYAML("batch.volcano.sh/v1alpha1", "Job") + "spec: {tasks: [{name: ps, replicas: 1, template: " + podOf("{cpu: 1}") + "}, {name: worker, replicas: 4, template: " + podOf("{cpu: 2}") + "}]}", 1, "ps 1 1000 0; worker 4 2000 0"},
		{"jobset", headYAML("jobset.x-k8s.io/v1alpha2", "JobSet") + "spec: {replicatedJobs: [{name: w, replicas: 2, template: {spec: {parallelism: 3, completions: 2, template: " + podOf("{cpu: 1}") + "}}}]}", 1, "w 4 1000 0"},
		{"groups", headYAML("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet") + "spec: {replicas: 2, leaderWorkerTemplate: {size: 4, workerTemplate: " + podOf("{cpu: 8}") + "}}", 2, "leader 1 8000 0; worker 3 8000 0"},
		{"groups of one", headYAML("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet") + "spec: {leaderWorkerTemplate: {leaderTemplate: " + podOf("{cpu: 1}") + ", workerTemplate: " + podOf("{cpu: 8}") + "}}", 1, "leader 1 1000 0"},
		{"flink", headYAML("flink.apache.org/v1beta1", "FlinkDeployment") + "spec: {flinkConfiguration: {taskmanager.numberOfTaskSlots: '2'}, job: {parallelism: 5}, jobManager: {resource: {cpu: 0.5, memory: 2048m}}, taskManager: {resource: {cpu: 1, memory: 1Gi}}}",
			1, "jobmanager 1 500 2147483648; taskmanager 3 1000 1073741824"},
		{"spark", headYAML("sparkoperator.k8s.io/v1beta2", "SparkApplication") + "spec: {type: Scala, driver: {cores: 1, coreRequest: 500m, memory: 512m}, executor: {instances: 3, cores: 2, memory: 8g}}",
			1, "driver 1 500 939524096; executor 3 2000 9448928051"},
		{"virtual machine", headYAML("kubevirt.io/v1", "VirtualMachine") + "spec: {runStrategy: Always, template: {spec: {domain: {cpu: {cores: 4}, memory: {guest: 2Gi}}}}}", 1, " 1 400 2147483648"},
		{"virtual machine that is off", headYAML("kubevirt.io/v1", "VirtualMachine") + "spec: {running: false}", 1, ""},
		{"postgres", headYAML("postgresql.cnpg.io/v1", "Cluster") + "spec: {instances: 3, resources: {requests: {cpu: 2, memory: 1Gi}}}", 1, "postgres 3 2000 1073741824"},
		{"prometheus", headYAML("monitoring.coreos.com/v1", "Prometheus") + "spec: {replicas: 2, shards: 3, resources: {limits: {cpu: 1}}}", 1, "prometheus 6 1000 0"},
		{"elasticsearch", headYAML("elasticsearch.k8s.elastic.co/v1", "Elasticsearch") + "spec: {nodeSets: [{name: data, count: 3, podTemplate: " + podOf("{memory: 1Gi}") + "}]}", 1, "data 3 0 1073741824"},
		{"kafka", headYAML("kafka.strimzi.io/v1beta2", "Kafka") + "spec: {kafka: {replicas: 3, resources: {requests: {cpu: 1}}}, zookeeper: {replicas: 1}}", 1, "kafka 3 1000 0; zookeeper 1 0 0"},
		{"an unknown kind", headYAML("example.com/v1", "Toy") + "spec: {replicas: 2, template: " + podOf("{cpu: 1}") + "}", 2, " 1 1000 0"},
		{"an unknown kind without pods", headYAML("example.com/v1", "Toy") + "spec: {replicas: 2}", 0, ""},
		{"a job", headYAML("batch/v1", "Job") + "spec: {parallelism: 4, completions: 2, template: " + podOf("{cpu: 1}") + "}", 1, " 2 1000 0"},
		{"of wrong shape", headYAML("ray.io/v1", "RayCluster") + "spec: {headGroupSpec: 3, workerGroupSpecs: {a: 1}}", 1, "head 1 0 0"},
	} {
		n, each := kinds.PodSetsOf(parseObject(t, c.object))
		var got []string
		for _, s := range each {
			got = append(got, strings.Join([]string{s.Name, formatDecimal(s.Count), formatDecimal(s.Requests["cpu"]), formatDecimal(s.Requests["memory"])}, " "))
		}
		if n != c.n || strings.Join(got, "; ") != c.want {
			t.Errorf("%s: Pods = %d × %q, want %d × %q", c.name, n, strings.Join(got, "; "), c.n, c.want)
		}
	}
}

func TestReplicasOfCustomKinds(t *testing.T) {
	for _, c := range []struct {
		object string
		n      int64
		ok     bool
		whole  bool
	}{
		{headYAML("argoproj.io/v1alpha1", "Rollout") + "spec: {replicas: 3}", 3, true, false},
		{headYAML("argoproj.io/v1alpha1", "Rollout"), 1, true, false},
		{headYAML("apps.kruise.io/v1alpha1", "CloneSet") + "spec: {replicas: 2}", 2, true, false},
		{headYAML("apps.kruise.io/v1beta1", "StatefulSet") + "spec: {replicas: 2}", 2, true, true},
		{headYAML("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet") + "spec: {replicas: 5}", 5, true, false},
		{headYAML("kubevirt.io/v1", "VirtualMachineInstanceReplicaSet") + "spec: {replicas: 2}", 2, true, false},
		// Copies of one database, workers of one head, machines of one cluster.
		{headYAML("postgresql.cnpg.io/v1", "Cluster") + "spec: {instances: 3}", 0, false, false},
		{headYAML("ray.io/v1", "RayCluster") + "spec: {workerGroupSpecs: [{replicas: 3}]}", 0, false, false},
		{headYAML("cluster.x-k8s.io/v1beta1", "MachineDeployment") + "spec: {replicas: 3}", 0, false, false},
		{headYAML("example.com/v1", "Toy") + "spec: {replicas: 3}", 0, false, false},
	} {
		obj := parseObject(t, c.object)
		n, path, ok := kinds.ReplicasOf(obj)
		if n != c.n || ok != c.ok || ok && !reflect.DeepEqual(path, []string{"spec", "replicas"}) {
			t.Errorf("%s: Replicas = %d %v %v, want %d %v", obj.GetKind(), n, path, ok, c.n, c.ok)
		}
		if kinds.NeedsOneCluster(obj.GroupVersionKind().GroupKind()) != c.whole {
			t.Errorf("%s: Whole is not %v", obj.GetKind(), c.whole)
		}
	}
}

// A group counts as its number of pods, each as large as the largest.
func TestRequestsOfGroups(t *testing.T) {
	lws := parseObject(t, headYAML("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet")+"spec: {replicas: 2, leaderWorkerTemplate: {size: 4, leaderTemplate: "+podOf("{cpu: 1, memory: 9Gi}")+", workerTemplate: "+podOf("{cpu: 8, nvidia.com/gpu: 8}")+"}}")
	want := freecapacity.ReplicaRequests{CPU: 8000, Memory: 9 << 30, Other: map[string]int64{"nvidia.com/gpu": 8}, Pods: 4}
	if got := kinds.ReplicaRequests(lws); !reflect.DeepEqual(got, want) {
		t.Errorf("Requests = %+v, want %+v", got, want)
	}
}

// A quantity that would take for ever to parse counts as none in every field.
func TestQuantitiesOfCustomKindsDoNotTakeForEver(t *testing.T) {
	const endless = "'1e-1000000000'"
	for name, text := range map[string]string{
		"spark":          headYAML("sparkoperator.k8s.io/v1beta2", "SparkApplication") + "spec: {driver: {coreRequest: " + endless + ", memory: " + endless + "}}",
		"kubevirt":       headYAML("kubevirt.io/v1", "VirtualMachine") + "spec: {running: true, template: {spec: {domain: {memory: {guest: " + endless + "}, resources: {requests: {cpu: ' 1e-1000000000 '}}}}}}",
		"a pod template": headYAML("example.com/v1", "Thing") + "spec: {replicas: 2, template: {spec: {containers: [{name: a, resources: {requests: {cpu: " + endless + "}}}]}}}",
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			obj := parseObject(t, text)
			kinds.PodSetsOf(obj)
			kinds.ReplicaRequests(obj)
			if took := time.Since(began); took > time.Second {
				t.Errorf("it took %s", took)
			}
		})
	}
}
