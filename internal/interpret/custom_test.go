package interpret_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/interpret"
)

const (
	healthy, progressing, degraded, suspended = atoll.Healthy, atoll.Progressing, atoll.Degraded, atoll.Suspended
)

// head of an object: its apiVersion, its kind, and its generation, 2.
func head(apiVersion, kind string) string {
	return "apiVersion: " + apiVersion + "\nkind: " + kind + "\nmetadata: {name: one, namespace: shop, generation: 2}\n"
}

// condition as YAML.
func cond(kind, status, reason string) string {
	return "{type: " + kind + ", status: '" + status + "', reason: '" + reason + "'}"
}

func conds(c ...string) string { return "status: {conditions: [" + strings.Join(c, ", ") + "]}\n" }

func TestHealthOfCustomKinds(t *testing.T) {
	const argo = "argoproj.io/v1alpha1"
	for _, c := range []struct {
		name, object string
		want         atoll.Health
		reason       string
	}{
		{"rollout new", head(argo, "Rollout"), progressing, "NotReported"},
		{"rollout healthy", head(argo, "Rollout") + "status: {phase: Healthy, observedGeneration: '2'}", healthy, ""},
		{"rollout late", head(argo, "Rollout") + "status: {phase: Healthy, observedGeneration: '1'}", progressing, "NotObserved"},
		{"rollout of an old controller", head(argo, "Rollout") + "status: {phase: Healthy, observedGeneration: 7686986f8d}", healthy, ""},
		{"rollout degraded", head(argo, "Rollout") + "status: {phase: Degraded, message: boom}", degraded, "Degraded"},
		{"rollout at a step", head(argo, "Rollout") + "status: {phase: Paused}", suspended, "Paused"},
		{"rollout without a phase", head(argo, "Rollout") + "spec: {replicas: 2}\nstatus: {updatedReplicas: 1, availableReplicas: 2}", progressing, "Updating"},
		{"workflow runs", head(argo, "Workflow") + "status: {phase: Running}", progressing, "Running"},
		{"workflow failed", head(argo, "Workflow") + "status: {phase: Error, message: x}", degraded, "Error"},
		{"workflow is suspended", head(argo, "Workflow") + "spec: {suspend: true}\nstatus: {phase: Running}", suspended, "Suspended"},
		{"workflow that ended is not", head(argo, "Workflow") + "spec: {suspend: true}\nstatus: {phase: Failed}", degraded, "Failed"},
		{"workflow of a phase to come", head(argo, "Workflow") + "status: {phase: Meditating}", atoll.Unknown, "UnreadableStatus"},
		{"workflow that says nothing", head(argo, "Workflow") + "status: {startedAt: x}", progressing, "NotReported"},
		{"workflow of wrong shape", head(argo, "Workflow") + "status: [1]", atoll.Unknown, "UnreadableStatus"},
		{"cron workflow", head(argo, "CronWorkflow"), healthy, ""},
		{"cron workflow that cannot", head(argo, "CronWorkflow") + conds(cond("SpecError", "True", "Bad")), degraded, "Bad"},
		{"application", head(argo, "Application") + "status: {health: {status: Healthy}}", healthy, ""},

		{"ray cluster in a queue", "apiVersion: ray.io/v1\nkind: RayCluster\nmetadata: {name: one, labels: {kueue.x-k8s.io/queue-name: team}}\nspec: {suspend: true}\nstatus: {state: suspended}", progressing, "Queued"},
		{"job set in a queue", "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {name: one, labels: {kueue.x-k8s.io/queue-name: team}}\nspec: {suspend: true}\nstatus: {}", progressing, "Queued"},
		{"virtual machine about to start", head("kubevirt.io/v1", "VirtualMachine") + "spec: {runStrategy: RerunOnFailure}\nstatus: {printableStatus: Stopped}", progressing, "Stopped"},
		{"machine that has no phase yet", head("cluster.x-k8s.io/v1beta1", "Machine") + conds(cond("Paused", "False", "NotPaused")), atoll.Unknown, "UnreadableStatus"},

		{"helm release", head("helm.toolkit.fluxcd.io/v2", "HelmRelease") + conds(cond("Ready", "True", "InstallSucceeded")), healthy, ""},
		{"helm release stalled", head("helm.toolkit.fluxcd.io/v2", "HelmRelease") + conds(cond("Ready", "False", "x"), cond("Stalled", "True", "RetriesExceeded")), degraded, "RetriesExceeded"},
		{"kustomization suspended", head("kustomize.toolkit.fluxcd.io/v1", "Kustomization") + "spec: {suspend: true}", suspended, "Suspended"},
		{"kustomization new", head("kustomize.toolkit.fluxcd.io/v1", "Kustomization"), progressing, "NotReported"},
		{"oci repository needs no status", head("source.toolkit.fluxcd.io/v1", "HelmRepository") + "spec: {type: oci}", healthy, ""},

		{"certificate issuing", head("cert-manager.io/v1", "Certificate") + conds(cond("Ready", "False", "DoesNotExist"), cond("Issuing", "True", "DoesNotExist")), progressing, "DoesNotExist"},
		{"certificate", head("cert-manager.io/v1", "Certificate") + conds(cond("Ready", "True", "Ready")), healthy, ""},
		{"request denied", head("cert-manager.io/v1", "CertificateRequest") + conds(cond("Denied", "True", "Policy")), degraded, "Policy"},
		{"order invalid", head("acme.cert-manager.io/v1", "Order") + "status: {state: invalid, reason: no}", degraded, "Invalid"},

		{"queue", head("kueue.x-k8s.io/v1beta1", "ClusterQueue") + conds(cond("Active", "True", "Ready")), healthy, ""},
		{"queue stopped", head("kueue.x-k8s.io/v1beta1", "ClusterQueue") + "spec: {stopPolicy: Hold}\n" + conds(cond("Active", "False", "Stopped")), suspended, "Stopped"},
		{"workload waits", head("kueue.x-k8s.io/v1beta1", "Workload") + conds(cond("QuotaReserved", "False", "Pending")), progressing, "Pending"},
		{"workload ended", head("kueue.x-k8s.io/v1beta1", "Workload") + conds(cond("Finished", "True", "Succeeded")), healthy, ""},
		{"volcano job", head("batch.volcano.sh/v1alpha1", "Job") + "status: {state: {phase: Running}}", progressing, "Running"},
		{"volcano job done", head("batch.volcano.sh/v1alpha1", "Job") + "status: {state: {phase: Completed}}", healthy, ""},
		{"volcano job aborted", head("batch.volcano.sh/v1alpha1", "Job") + "status: {state: {phase: Aborted}}", degraded, "Aborted"},
		{"groups updating", head("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet") + "spec: {replicas: 1}\nstatus: {readyReplicas: 1, conditions: [" + cond("Available", "True", "x") + ", " + cond("UpdateInProgress", "True", "Updating") + "]}", progressing, "Updating"},
		{"groups ready", head("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet") + "spec: {replicas: 1}\nstatus: {readyReplicas: 1, conditions: [" + cond("Available", "True", "AllGroupsReady") + "]}", healthy, ""},
		{"jobset", head("jobset.x-k8s.io/v1alpha2", "JobSet"), progressing, "Running"},
		{"jobset failed", head("jobset.x-k8s.io/v1alpha2", "JobSet") + conds(cond("Failed", "True", "FailedJobs")), degraded, "FailedJobs"},

		{"flink stable", head("flink.apache.org/v1beta1", "FlinkDeployment") + "status: {lifecycleState: STABLE}", healthy, ""},
		{"flink rolled back", head("flink.apache.org/v1beta1", "FlinkDeployment") + "status: {lifecycleState: ROLLED_BACK, error: e}", degraded, "RolledBack"},
		{"flink of an old operator", head("flink.apache.org/v1beta1", "FlinkDeployment") + "spec: {job: {parallelism: 1}}\nstatus: {jobManagerDeploymentStatus: READY, jobStatus: {state: RUNNING}}", healthy, ""},
		{"ray ready", head("ray.io/v1", "RayCluster") + "status: {state: ready, desiredWorkerReplicas: 2, availableWorkerReplicas: 2}", healthy, ""},
		{"ray lost a worker", head("ray.io/v1", "RayCluster") + "status: {state: ready, desiredWorkerReplicas: 2, availableWorkerReplicas: 1}", progressing, "Unavailable"},
		{"ray lost its head", head("ray.io/v1", "RayCluster") + "status: {state: ready, conditions: [" + cond("HeadPodReady", "False", "CrashLoop") + "]}", progressing, "CrashLoop"},
		{"ray new", head("ray.io/v1", "RayCluster") + "status: {observedGeneration: 2}", progressing, "NotHeadPodReady"},
		{"ray job failed", head("ray.io/v1", "RayJob") + "status: {jobDeploymentStatus: Complete, jobStatus: FAILED}", degraded, "Failed"},
		{"ray job", head("ray.io/v1", "RayJob") + "status: {jobDeploymentStatus: Complete, jobStatus: SUCCEEDED}", healthy, ""},
		{"ray service", head("ray.io/v1", "RayService") + conds(cond("Ready", "True", "x")), healthy, ""},
		{"spark", head("sparkoperator.k8s.io/v1beta2", "SparkApplication") + "status: {applicationState: {state: SUBMISSION_FAILED, errorMessage: no}}", degraded, "SubmissionFailed"},
		{"spark done", head("sparkoperator.k8s.io/v1beta2", "SparkApplication") + "status: {applicationState: {state: COMPLETED}}", healthy, ""},

		{"knative works", head("serving.knative.dev/v1", "Service") + conds(cond("Ready", "Unknown", "Deploying")), progressing, "Deploying"},
		{"knative gave up", head("serving.knative.dev/v1", "Service") + conds(cond("Ready", "False", "RevisionFailed")), degraded, "RevisionFailed"},
		{"machine runs", head("kubevirt.io/v1", "VirtualMachine") + "spec: {runStrategy: Always}\nstatus: {printableStatus: Running}", healthy, ""},
		{"machine is off", head("kubevirt.io/v1", "VirtualMachine") + "spec: {runStrategy: Halted}\nstatus: {printableStatus: Stopped}", suspended, "Stopped"},
		{"machine starts", head("kubevirt.io/v1", "VirtualMachine") + "spec: {running: true}\nstatus: {printableStatus: Stopped}", progressing, "Stopped"},
		{"machine has no image", head("kubevirt.io/v1", "VirtualMachine") + "status: {printableStatus: ErrImagePull}", degraded, "ErrImagePull"},
		{"disk is filled", head("cdi.kubevirt.io/v1beta1", "DataVolume") + "status: {phase: ImportInProgress}", progressing, "ImportInProgress"},
		{"clone set", head("apps.kruise.io/v1alpha1", "CloneSet") + "spec: {replicas: 4, updateStrategy: {partition: 50%}}\nstatus: {observedGeneration: 2, updatedReplicas: 2, availableReplicas: 4}", healthy, ""},
		{"clone set updates", head("apps.kruise.io/v1alpha1", "CloneSet") + "spec: {replicas: 4}\nstatus: {observedGeneration: 2, updatedReplicas: 2, availableReplicas: 4}", progressing, "Updating"},
		{"kruise stateful", head("apps.kruise.io/v1beta1", "StatefulSet") + "spec: {replicas: 1}\nstatus: {observedGeneration: 2, readyReplicas: 1, availableReplicas: 1, currentRevision: a, updateRevision: a}", healthy, ""},

		{"gateway", head("gateway.networking.k8s.io/v1", "Gateway") + conds(cond("Accepted", "True", "x"), cond("Programmed", "True", "x")), healthy, ""},
		{"gateway waits", head("gateway.networking.k8s.io/v1", "Gateway") + conds(cond("Accepted", "True", "x"), cond("Programmed", "Unknown", "Pending")), progressing, "Pending"},
		{"route", head("gateway.networking.k8s.io/v1", "HTTPRoute") + "status: {parents: [{conditions: [" + cond("Accepted", "True", "x") + ", " + cond("ResolvedRefs", "True", "x") + "]}]}", healthy, ""},
		{"route without a backend", head("gateway.networking.k8s.io/v1", "HTTPRoute") + "status: {parents: [{conditions: [" + cond("Accepted", "True", "x") + "]}, {conditions: [" + cond("ResolvedRefs", "False", "BackendNotFound") + "]}]}", degraded, "BackendNotFound"},
		{"virtual service", head("networking.istio.io/v1", "VirtualService") + conds(cond("Reconciled", "True", "x")), healthy, ""},
		{"virtual service with an error", head("networking.istio.io/v1", "VirtualService") + "status: {validationMessages: [{level: ERROR}]}", degraded, "Invalid"},

		{"prometheus", head("monitoring.coreos.com/v1", "Prometheus") + conds(cond("Available", "True", ""), cond("Reconciled", "True", "")), healthy, ""},
		{"prometheus in part", head("monitoring.coreos.com/v1", "Prometheus") + conds(cond("Available", "Degraded", "SomePodsNotReady"), cond("Reconciled", "True", "")), progressing, "SomePodsNotReady"},
		{"rules", head("monitoring.coreos.com/v1", "PrometheusRule") + "status: {bindings: []}", healthy, ""},
		{"kafka", head("kafka.strimzi.io/v1beta2", "Kafka") + "status: {observedGeneration: 2, conditions: [" + cond("Ready", "True", "") + "]}", healthy, ""},
		{"kafka begins", head("kafka.strimzi.io/v1beta2", "Kafka") + conds(cond("NotReady", "True", "Creating")), progressing, "Creating"},
		{"kafka asks for nonsense", head("kafka.strimzi.io/v1beta2", "Kafka") + conds(cond("NotReady", "True", "InvalidResourceException")), degraded, "InvalidResourceException"},
		{"postgres", head("postgresql.cnpg.io/v1", "Cluster") + conds(cond("Ready", "True", "ClusterIsReady")), healthy, ""},
		{"backup", head("postgresql.cnpg.io/v1", "Backup") + "status: {phase: failed, error: full}", degraded, "Failed"},
		{"elasticsearch yellow", head("elasticsearch.k8s.elastic.co/v1", "Elasticsearch") + "status: {phase: Ready, health: yellow}", healthy, ""},
		{"elasticsearch red", head("elasticsearch.k8s.elastic.co/v1", "Elasticsearch") + "status: {phase: Ready, health: red}", degraded, "Red"},
		{"elasticsearch changes", head("elasticsearch.k8s.elastic.co/v1", "Elasticsearch") + "status: {phase: ApplyingChanges, health: green}", progressing, "ApplyingChanges"},
		{"kibana", head("kibana.k8s.elastic.co/v1", "Kibana") + "status: {health: red}", progressing, "Red"},

		{"cluster", head("cluster.x-k8s.io/v1beta1", "Cluster") + "status: {phase: Provisioned, conditions: [" + cond("Ready", "True", "") + "]}", healthy, ""},
		{"cluster not ready", head("cluster.x-k8s.io/v1beta1", "Cluster") + "status: {phase: Provisioned, conditions: [" + cond("Ready", "False", "ScalingUp") + "]}", progressing, "ScalingUp"},
		{"cluster failed", head("cluster.x-k8s.io/v1beta1", "Cluster") + "status: {failureReason: CreateError, failureMessage: quota}", degraded, "CreateError"},
		{"machine pool of one", head("cluster.x-k8s.io/v1beta1", "MachineDeployment") + "status: {phase: ScalingUp}", progressing, "ScalingUp"},
		{"package", head("pkg.crossplane.io/v1", "Provider") + conds(cond("Installed", "True", ""), cond("Healthy", "False", "UnhealthyPackageRevision")), progressing, "UnhealthyPackageRevision"},
		{"managed", head("rds.aws.upbound.io/v1beta1", "Instance") + conds(cond("Ready", "True", "Available"), cond("Synced", "True", "ReconcileSuccess")), healthy, ""},
		{"managed but not in sync", head("rds.aws.upbound.io/v1beta1", "Instance") + conds(cond("Ready", "True", "Available"), cond("Synced", "False", "ReconcileError")), progressing, "ReconcileError"},
		{"managed and paused", head("example.org/v1", "XDatabase") + conds(cond("Ready", "False", "Creating"), cond("Synced", "False", "ReconcilePaused")), suspended, "ReconcilePaused"},
		{"provider config", head("aws.upbound.io/v1beta1", "ProviderConfig") + "status: {users: 3}", healthy, ""},
		{"a version to come", head("ray.io/v7", "RayCluster") + "status: {state: ready}", healthy, ""},

		{"nothing but that it is not degraded", head("example.com/v1", "Toy") + conds(cond("Degraded", "False", "AsExpected")), healthy, ""},
		{"status that is none", head("example.com/v1", "Toy") + "status: fine", atoll.Unknown, "UnreadableStatus"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, reason, message := interpret.Health(object(t, c.object))
			if got != c.want || reason != c.reason {
				t.Errorf("Health = %s %q %q, want %s %q", got, reason, message, c.want, c.reason)
			}
		})
	}
}

func TestCustomKindsThatRunOnce(t *testing.T) {
	for text, want := range map[string]bool{
		head("argoproj.io/v1alpha1", "Workflow") + "status: {phase: Failed}":                                     true,
		head("argoproj.io/v1alpha1", "Workflow") + "status: {phase: Running}":                                    false,
		head("jobset.x-k8s.io/v1alpha2", "JobSet") + conds(cond("Completed", "True", "AllJobsCompleted")):        true,
		head("batch.volcano.sh/v1alpha1", "Job") + "status: {state: {phase: Completed}}":                         true,
		head("ray.io/v1", "RayJob") + "status: {jobDeploymentStatus: Running}":                                   false,
		head("sparkoperator.k8s.io/v1beta2", "SparkApplication") + "status: {applicationState: {state: FAILED}}": true,
		head("kueue.x-k8s.io/v1beta1", "Workload") + conds(cond("Finished", "True", "Succeeded")):                true,
	} {
		obj := object(t, text)
		if got := interpret.Finished(obj); got != want {
			t.Errorf("Finished = %v, want %v, of\n%s", got, want, text)
		}
		if !interpret.RunsOnce(obj.GroupVersionKind().GroupKind()) {
			t.Errorf("a %s runs once", obj.GetKind())
		}
	}
	if gk := object(t, head("argoproj.io/v1alpha1", "Rollout")).GroupVersionKind().GroupKind(); interpret.RunsOnce(gk) {
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
		{"rollout", head("argoproj.io/v1alpha1", "Rollout") + "spec: {replicas: 3, template: " + podOf("{cpu: 1, memory: 1Gi}") + "}", 3, " 1 1000 1073741824"},
		{"rollout by default", head("argoproj.io/v1alpha1", "Rollout") + "spec: {template: " + podOf("{cpu: 1}") + "}", 1, " 1 1000 0"},
		{"ray", head("ray.io/v1", "RayCluster") + "spec: {headGroupSpec: {template: " + podOf("{cpu: 2}") + "}, workerGroupSpecs: [{groupName: small, replicas: 1, minReplicas: 3, template: " + podOf("{cpu: 1}") + "}, {groupName: wide, replicas: 2, numOfHosts: 4, template: " + podOf("{cpu: 4}") + "}, {groupName: off, replicas: 9, suspend: true, template: " + podOf("{cpu: 4}") + "}]}",
			1, "head 1 2000 0; small 3 1000 0; wide 8 4000 0"},
		{"ray job", head("ray.io/v1", "RayJob") + "spec: {rayClusterSpec: {headGroupSpec: {template: " + podOf("{cpu: 2}") + "}}}", 1, "head 1 2000 0"},
		{"volcano", head("batch.volcano.sh/v1alpha1", "Job") + "spec: {tasks: [{name: ps, replicas: 1, template: " + podOf("{cpu: 1}") + "}, {name: worker, replicas: 4, template: " + podOf("{cpu: 2}") + "}]}", 1, "ps 1 1000 0; worker 4 2000 0"},
		{"jobset", head("jobset.x-k8s.io/v1alpha2", "JobSet") + "spec: {replicatedJobs: [{name: w, replicas: 2, template: {spec: {parallelism: 3, completions: 2, template: " + podOf("{cpu: 1}") + "}}}]}", 1, "w 4 1000 0"},
		{"groups", head("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet") + "spec: {replicas: 2, leaderWorkerTemplate: {size: 4, workerTemplate: " + podOf("{cpu: 8}") + "}}", 2, "leader 1 8000 0; worker 3 8000 0"},
		{"groups of one", head("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet") + "spec: {leaderWorkerTemplate: {leaderTemplate: " + podOf("{cpu: 1}") + ", workerTemplate: " + podOf("{cpu: 8}") + "}}", 1, "leader 1 1000 0"},
		{"flink", head("flink.apache.org/v1beta1", "FlinkDeployment") + "spec: {flinkConfiguration: {taskmanager.numberOfTaskSlots: '2'}, job: {parallelism: 5}, jobManager: {resource: {cpu: 0.5, memory: 2048m}}, taskManager: {resource: {cpu: 1, memory: 1Gi}}}",
			1, "jobmanager 1 500 2147483648; taskmanager 3 1000 1073741824"},
		{"spark", head("sparkoperator.k8s.io/v1beta2", "SparkApplication") + "spec: {type: Scala, driver: {cores: 1, coreRequest: 500m, memory: 512m}, executor: {instances: 3, cores: 2, memory: 8g}}",
			1, "driver 1 500 939524096; executor 3 2000 9448928051"},
		{"virtual machine", head("kubevirt.io/v1", "VirtualMachine") + "spec: {runStrategy: Always, template: {spec: {domain: {cpu: {cores: 4}, memory: {guest: 2Gi}}}}}", 1, " 1 400 2147483648"},
		{"virtual machine that is off", head("kubevirt.io/v1", "VirtualMachine") + "spec: {running: false}", 1, ""},
		{"postgres", head("postgresql.cnpg.io/v1", "Cluster") + "spec: {instances: 3, resources: {requests: {cpu: 2, memory: 1Gi}}}", 1, "postgres 3 2000 1073741824"},
		{"prometheus", head("monitoring.coreos.com/v1", "Prometheus") + "spec: {replicas: 2, shards: 3, resources: {limits: {cpu: 1}}}", 1, "prometheus 6 1000 0"},
		{"elasticsearch", head("elasticsearch.k8s.elastic.co/v1", "Elasticsearch") + "spec: {nodeSets: [{name: data, count: 3, podTemplate: " + podOf("{memory: 1Gi}") + "}]}", 1, "data 3 0 1073741824"},
		{"kafka", head("kafka.strimzi.io/v1beta2", "Kafka") + "spec: {kafka: {replicas: 3, resources: {requests: {cpu: 1}}}, zookeeper: {replicas: 1}}", 1, "kafka 3 1000 0; zookeeper 1 0 0"},
		{"an unknown kind", head("example.com/v1", "Toy") + "spec: {replicas: 2, template: " + podOf("{cpu: 1}") + "}", 2, " 1 1000 0"},
		{"an unknown kind without pods", head("example.com/v1", "Toy") + "spec: {replicas: 2}", 0, ""},
		{"a job", head("batch/v1", "Job") + "spec: {parallelism: 4, completions: 2, template: " + podOf("{cpu: 1}") + "}", 1, " 2 1000 0"},
		{"of wrong shape", head("ray.io/v1", "RayCluster") + "spec: {headGroupSpec: 3, workerGroupSpecs: {a: 1}}", 1, "head 1 0 0"},
	} {
		n, each := interpret.Pods(object(t, c.object))
		var got []string
		for _, s := range each {
			got = append(got, strings.Join([]string{s.Name, decimal(s.Count), decimal(s.Requests["cpu"]), decimal(s.Requests["memory"])}, " "))
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
		{head("argoproj.io/v1alpha1", "Rollout") + "spec: {replicas: 3}", 3, true, false},
		{head("argoproj.io/v1alpha1", "Rollout"), 1, true, false},
		{head("apps.kruise.io/v1alpha1", "CloneSet") + "spec: {replicas: 2}", 2, true, false},
		{head("apps.kruise.io/v1beta1", "StatefulSet") + "spec: {replicas: 2}", 2, true, true},
		{head("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet") + "spec: {replicas: 5}", 5, true, false},
		{head("kubevirt.io/v1", "VirtualMachineInstanceReplicaSet") + "spec: {replicas: 2}", 2, true, false},
		// Copies of one database, workers of one head, machines of one cluster.
		{head("postgresql.cnpg.io/v1", "Cluster") + "spec: {instances: 3}", 0, false, false},
		{head("ray.io/v1", "RayCluster") + "spec: {workerGroupSpecs: [{replicas: 3}]}", 0, false, false},
		{head("cluster.x-k8s.io/v1beta1", "MachineDeployment") + "spec: {replicas: 3}", 0, false, false},
		{head("example.com/v1", "Toy") + "spec: {replicas: 3}", 0, false, false},
	} {
		obj := object(t, c.object)
		n, path, ok := interpret.Replicas(obj)
		if n != c.n || ok != c.ok || ok && !reflect.DeepEqual(path, []string{"spec", "replicas"}) {
			t.Errorf("%s: Replicas = %d %v %v, want %d %v", obj.GetKind(), n, path, ok, c.n, c.ok)
		}
		if interpret.Whole(obj.GroupVersionKind().GroupKind()) != c.whole {
			t.Errorf("%s: Whole is not %v", obj.GetKind(), c.whole)
		}
	}
}

// A group is placed as so many pods as it has, each as large as its largest.
func TestRequestsOfGroups(t *testing.T) {
	lws := object(t, head("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet")+"spec: {replicas: 2, leaderWorkerTemplate: {size: 4, leaderTemplate: "+podOf("{cpu: 1, memory: 9Gi}")+", workerTemplate: "+podOf("{cpu: 8, nvidia.com/gpu: 8}")+"}}")
	want := atoll.Requests{CPU: 8000, Memory: 9 << 30, Other: map[string]int64{"nvidia.com/gpu": 8}, Pods: 4}
	if got := interpret.Requests(lws); !reflect.DeepEqual(got, want) {
		t.Errorf("Requests = %+v, want %+v", got, want)
	}
}

// A quantity that would take for ever to read is none, wherever an object states it.
func TestQuantitiesOfCustomKindsDoNotTakeForEver(t *testing.T) {
	const endless = "'1e-1000000000'"
	for name, text := range map[string]string{
		"spark":          head("sparkoperator.k8s.io/v1beta2", "SparkApplication") + "spec: {driver: {coreRequest: " + endless + ", memory: " + endless + "}}",
		"kubevirt":       head("kubevirt.io/v1", "VirtualMachine") + "spec: {running: true, template: {spec: {domain: {memory: {guest: " + endless + "}, resources: {requests: {cpu: ' 1e-1000000000 '}}}}}}",
		"a pod template": head("example.com/v1", "Thing") + "spec: {replicas: 2, template: {spec: {containers: [{name: a, resources: {requests: {cpu: " + endless + "}}}]}}}",
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			obj := object(t, text)
			interpret.Pods(obj)
			interpret.Requests(obj)
			if took := time.Since(began); took > time.Second {
				t.Errorf("it took %s", took)
			}
		})
	}
}
