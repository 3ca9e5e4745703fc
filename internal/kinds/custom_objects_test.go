package kinds_test

import (
	"math"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/kinds"
)

// canaryYAML is a paused Rollout of three steps.
func canaryYAML(spec, status string) string {
	return "apiVersion: argoproj.io/v1alpha1\nkind: Rollout\nmetadata: {name: web, namespace: shop, generation: 4}\n" +
		"spec: {replicas: 5, selector: {matchLabels: {app: web}}, " + spec + "}\n" +
		"status: {observedGeneration: '4', phase: Paused, replicas: 6, updatedReplicas: 1, readyReplicas: 6, availableReplicas: 6, " + status + "}\n"
}

// applicationYAML is an Application that Argo CD compared with its spec at revision a1.
func applicationYAML(spec, status string) string {
	return "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: shop, namespace: argocd, generation: 90}\n" +
		"spec: {project: default, destination: {server: https://kubernetes.default.svc, namespace: shop}, " +
		"source: {repoURL: https://git.example/shop.git, path: prod, targetRevision: main}" + spec + "}\n" +
		"status:\n  reconciledAt: '2026-11-20T10:00:00Z'\n  health: {status: Healthy}\n" + status
}

// syncYAML is the sync status at a revision.
func syncYAML(status, revision string) string {
	return "  sync: {status: " + status + ", revision: " + revision + ", comparedTo: {destination: {server: https://kubernetes.default.svc, namespace: shop}, " +
		"source: {repoURL: https://git.example/shop.git, path: prod, targetRevision: main}}}\n"
}

func operationYAML(phase, revision, message string) string {
	return "  operationState: {phase: " + phase + ", message: '" + message + "', startedAt: '2026-11-20T09:59:50Z', operation: {sync: {revision: " + revision +
		"}}, syncResult: {revision: " + revision + ", source: {repoURL: https://git.example/shop.git}}}\n"
}

func TestHealthOfWhatOperatorsWrite(t *testing.T) {
	const (
		automated = ", syncPolicy: {automated: {prune: true}}"
		oldSync   = "  sync: {status: Synced, revision: a1, comparedTo: {destination: {server: https://kubernetes.default.svc, namespace: shop}, source: {repoURL: https://git.example/shop.git, path: staging, targetRevision: main}}}\n"
		paused    = "pauseConditions: [{reason: CanaryPauseStep, startTime: '2026-11-20T10:00:00Z'}], controllerPause: true, message: CanaryPauseStep, "
		steps     = "strategy: {canary: {steps: [{setWeight: 20}, {pause: {duration: 10m}}, {pause: {}}]}}"
		rayJob    = "apiVersion: ray.io/v1\nkind: RayJob\nmetadata: {name: train, labels: {kueue.x-k8s.io/queue-name: team}, generation: 3}\nspec: {suspend: true, rayClusterSpec: {headGroupSpec: {}}}\n"
		machines  = "apiVersion: cluster.x-k8s.io/v1beta2\nkind: MachineSet\nmetadata: {name: md, generation: 2}\nspec: {replicas: 3}\n"
		settled   = "{type: ScalingUp, status: 'False', reason: NotScalingUp}, {type: ScalingDown, status: 'False', reason: NotScalingDown}, {type: MachinesReady, status: 'True', reason: Ready}, {type: Remediating, status: 'False', reason: NotRemediating}, {type: Deleting, status: 'False', reason: NotDeleting}, {type: Paused, status: 'False', reason: NotPaused}"
		spark     = "apiVersion: sparkoperator.k8s.io/v1beta2\nkind: SparkApplication\nmetadata: {name: stream, generation: 1}\n"
		broadcast = "apiVersion: apps.kruise.io/v1alpha1\nkind: BroadcastJob\nmetadata: {name: warm, generation: 1}\n"
		argo      = "argoproj.io/v1alpha1"
	)
	for _, c := range []struct {
		name, object string
		want         atoll.Health
		reason       string
	}{
		{"a rollout at a pause that ends", canaryYAML(steps, paused+"currentStepIndex: 1"), progressing, "CanaryPauseStep"},
		{"a rollout at a pause that a person ends", canaryYAML(steps, paused+"currentStepIndex: 2"), suspended, "Paused"},
		{"a rollout that a person paused", canaryYAML("paused: true, "+steps, paused+"currentStepIndex: 1"), suspended, "Paused"},
		{"a rollout that promotes itself", canaryYAML("strategy: {blueGreen: {activeService: web, autoPromotionSeconds: 30}}", "pauseConditions: [{reason: BlueGreenPause, startTime: '2026-11-20T10:00:00Z'}]"), progressing, "BlueGreenPause"},
		{"a rollout that a person promotes", canaryYAML("strategy: {blueGreen: {activeService: web, autoPromotionEnabled: false}}", "pauseConditions: [{reason: BlueGreenPause, startTime: '2026-11-20T10:00:00Z'}]"), suspended, "Paused"},
		{"a rollout whose analysis says nothing", canaryYAML(steps, "pauseConditions: [{reason: InconclusiveAnalysisRun, startTime: '2026-11-20T10:00:00Z'}], currentStepIndex: 1"), suspended, "Paused"},
		{"a rollout at a pause, without a phase", strings.Replace(canaryYAML("replicas: 1, "+steps, paused+"currentStepIndex: 1"), "phase: Paused, ", "", 1), progressing, "CanaryPauseStep"},

		{"application in sync", applicationYAML(automated, syncYAML("Synced", "a1")+operationYAML("Succeeded", "a1", "")), healthyResult, ""},
		{"application of another path", applicationYAML(automated, oldSync), progressing, "NotObserved"},
		{"application that syncs", applicationYAML(automated, syncYAML("OutOfSync", "a1")+operationYAML("Running", "a1", "waiting for healthy state")), progressing, "Syncing"},
		{"application whose hook failed", applicationYAML(automated, syncYAML("Synced", "a1")+operationYAML("Failed", "a1", "one or more hooks failed")), degraded, "SyncFailed"},
		{"application that cannot be applied", applicationYAML("", syncYAML("OutOfSync", "a1")+operationYAML("Error", "a1", "not permitted")), degraded, "SyncFailed"},
		{"application mended since", applicationYAML(automated, syncYAML("Synced", "b2")+operationYAML("Failed", "a1", "boom")), healthyResult, ""},
		{"application about to be synced", applicationYAML(automated, syncYAML("OutOfSync", "b2")+operationYAML("Succeeded", "a1", "")), progressing, "OutOfSync"},
		{"application that failed and is tried at another revision", applicationYAML(automated, syncYAML("OutOfSync", "b2")+operationYAML("Failed", "a1", "boom")), progressing, "OutOfSync"},
		{"application that stays different", applicationYAML(automated, syncYAML("OutOfSync", "a1")+operationYAML("Succeeded", "a1", "")), healthyResult, ""},
		{"application that people sync", applicationYAML("", syncYAML("OutOfSync", "b2")+operationYAML("Succeeded", "a1", "")), healthyResult, ""},
		{"application with automation off", applicationYAML(", syncPolicy: {automated: {enabled: false}}", syncYAML("OutOfSync", "b2")+operationYAML("Succeeded", "a1", "")), healthyResult, ""},
		{"application of no project", applicationYAML(automated, "  conditions: [{type: InvalidSpecError, message: 'project x does not exist', lastTransitionTime: '2026-11-20T10:00:00Z'}]\n"+syncYAML("Unknown", "''")), degraded, "InvalidSpecError"},
		{"application whose repository is away", applicationYAML(automated, "  conditions: [{type: ComparisonError, message: 'dial tcp', lastTransitionTime: '2026-11-20T10:00:00Z'}]\n"+syncYAML("Unknown", "''")), progressing, "ComparisonError"},
		{"application asked to sync", applicationYAML(automated, syncYAML("Synced", "a1")) + "operation: {sync: {revision: a1}}", progressing, "Syncing"},
		{"application new", headYAML(argo, "Application"), progressing, "NotReported"},
		{"set of applications", headYAML(argo, "ApplicationSet") + statusYAML(conditionYAML("ErrorOccurred", "False", "ApplicationSetUpToDate"), conditionYAML("ParametersGenerated", "True", "ParametersGenerated"), conditionYAML("ResourcesUpToDate", "True", "ApplicationSetUpToDate")), healthyResult, ""},
		{"set of applications that cannot be", headYAML(argo, "ApplicationSet") + statusYAML(conditionYAML("ErrorOccurred", "True", "ApplicationGenerationFromParamsError"), conditionYAML("ResourcesUpToDate", "False", "x")), degraded, "ApplicationGenerationFromParamsError"},
		{"experiment that never ends", headYAML(argo, "Experiment") + "spec: {templates: [{name: a}]}\nstatus: {phase: Running}", healthyResult, ""},
		{"experiment of an hour", headYAML(argo, "Experiment") + "spec: {duration: 1h, templates: [{name: a}]}\nstatus: {phase: Running}", progressing, "Running"},

		{"volcano job that was aborted", headYAML("batch.volcano.sh/v1alpha1", "Job") + "status: {state: {phase: Aborted, message: 'a pod failed'}, failed: 1}", degraded, "Aborted"},
		{"volcano job that is being aborted", headYAML("batch.volcano.sh/v1alpha1", "Job") + "status: {state: {phase: Aborting}, terminating: 1}", progressing, "Aborting"},

		{"ray service that is upgraded", headYAML("ray.io/v1", "RayService") + "status: {observedGeneration: 2, serviceStatus: Running, conditions: [{type: Ready, status: 'True', reason: NonZeroServeEndpoints, observedGeneration: 2}, {type: UpgradeInProgress, status: 'True', reason: BothActivePendingClustersExist, observedGeneration: 2}]}", progressing, "BothActivePendingClustersExist"},
		{"ray service that was upgraded", headYAML("ray.io/v1", "RayService") + "status: {observedGeneration: 2, serviceStatus: Running, conditions: [{type: Ready, status: 'True', reason: NonZeroServeEndpoints, observedGeneration: 2}, {type: UpgradeInProgress, status: 'False', reason: NoPendingCluster, observedGeneration: 2}]}", healthyResult, ""},
		{"ray job that cannot be", headYAML("ray.io/v1", "RayJob") + "status: {jobDeploymentStatus: ValidationFailed, reason: ValidationFailed, message: 'one of rayClusterSpec or clusterSelector must be set'}", degraded, "ValidationFailed"},
		{"ray job that waits for quota", rayJob + "status: {jobDeploymentStatus: Suspended}", progressing, "Queued"},
		{"ray job that waited for quota", rayJob + "status: {jobDeploymentStatus: Complete, jobStatus: SUCCEEDED}", healthyResult, ""},
		{"ray job that waited for quota and failed", rayJob + "status: {jobDeploymentStatus: Failed, jobStatus: FAILED, reason: AppFailed, message: boom}", degraded, "Failed"},

		{"chart repository of type oci", headYAML("source.toolkit.fluxcd.io/v1", "HelmRepository") + "spec: {type: oci, url: 'oci://ghcr.io/x'}\nstatus: {observedGeneration: -1}", healthyResult, ""},
		{"chart repository of type oci, before 2.3", headYAML("source.toolkit.fluxcd.io/v1beta2", "HelmRepository") + "spec: {type: oci}\nstatus: {observedGeneration: 2, conditions: [{type: Ready, status: 'False', reason: AuthenticationFailed}]}", progressing, "AuthenticationFailed"},
		{"chart repository", headYAML("source.toolkit.fluxcd.io/v1", "HelmRepository") + "spec: {url: https://x}\nstatus: {observedGeneration: -1}", progressing, "NotObserved"},
		{"alert of an older version", headYAML("notification.toolkit.fluxcd.io/v1beta2", "Alert") + "status: {observedGeneration: -1}", healthyResult, ""},

		{"cluster class", headYAML("cluster.x-k8s.io/v1beta2", "ClusterClass") + "status: {observedGeneration: 2, conditions: [{type: VariablesReady, status: 'True', reason: VariablesReady}, {type: RefVersionsUpToDate, status: 'True', reason: RefVersionsUpToDate}, {type: Paused, status: 'False', reason: NotPaused}]}", healthyResult, ""},
		{"cluster class, earlier", headYAML("cluster.x-k8s.io/v1beta1", "ClusterClass") + "status: {observedGeneration: 2, conditions: [{type: VariablesReconciled, status: 'True'}]}", healthyResult, ""},
		{"cluster class whose variables are wrong", headYAML("cluster.x-k8s.io/v1beta1", "ClusterClass") + "status: {observedGeneration: 2, conditions: [{type: VariablesReconciled, status: 'False', reason: VariableDiscoveryFailed, severity: Error}]}", progressing, "VariableDiscoveryFailed"},
		{"machine set", machines + "status: {observedGeneration: 2, replicas: 3, readyReplicas: 3, availableReplicas: 3, upToDateReplicas: 3, conditions: [" + settled + "]}", healthyResult, ""},
		{"machine set that lacks one", machines + "status: {observedGeneration: 2, replicas: 3, readyReplicas: 2, availableReplicas: 2, conditions: [" + settled + "]}", progressing, "Unavailable"},
		{"machine set that grows", machines + "status: {observedGeneration: 2, replicas: 2, readyReplicas: 2, availableReplicas: 2, conditions: [{type: ScalingUp, status: 'True', reason: ScalingUp}, {type: MachinesReady, status: 'True', reason: Ready}]}", progressing, "ScalingUp"},
		{"machine set, earlier", strings.Replace(machines, "v1beta2", "v1beta1", 1) + "status: {observedGeneration: 2, replicas: 3, readyReplicas: 3, availableReplicas: 3, conditions: [{type: Ready, status: 'True'}, {type: MachinesReady, status: 'True'}]}", healthyResult, ""},
		{"control plane that rolls", headYAML("controlplane.cluster.x-k8s.io/v1beta2", "KubeadmControlPlane") + "status: {observedGeneration: 2, conditions: [{type: Available, status: 'True', reason: Available}, {type: RollingOut, status: 'True', reason: RollingOut}]}", progressing, "RollingOut"},
		{"cluster that is paused", headYAML("cluster.x-k8s.io/v1beta2", "Cluster") + "status: {phase: Provisioned, conditions: [{type: Available, status: 'True'}, {type: Paused, status: 'True', reason: Paused}]}", suspended, "Paused"},

		{"provider config of a cluster", headYAML("aws.m.upbound.io/v1beta1", "ClusterProviderConfig") + "status: {users: 2}", healthyResult, ""},
		{"provider config of a namespace", headYAML("kubernetes.m.crossplane.io/v1alpha1", "ProviderConfig") + "status: {users: 2}", healthyResult, ""},
		{"managed and refused", headYAML("s3.aws.m.upbound.io/v1beta1", "Bucket") + "status: {conditions: [{type: Ready, status: 'False', reason: Creating, observedGeneration: 2}, {type: Synced, status: 'False', reason: ReconcileError, message: 'cannot create', observedGeneration: 2}]}", progressing, "ReconcileError"},
		{"managed and failed on the way", headYAML("s3.aws.m.upbound.io/v1beta1", "Bucket") + "status: {conditions: [{type: Ready, status: 'True', reason: Available}, {type: Synced, status: 'True', reason: ReconcileSuccess}, {type: LastAsyncOperation, status: 'False', reason: AsyncUpdateFailure, message: denied}]}", progressing, "AsyncUpdateFailure"},
		{"managed, and seen before the change", headYAML("s3.aws.m.upbound.io/v1beta1", "Bucket") + "status: {conditions: [{type: Ready, status: 'True', reason: Available, observedGeneration: 2}, {type: Synced, status: 'True', reason: ReconcileSuccess, observedGeneration: 1}]}", progressing, "NotObserved"},
		{"job that waits for quota", "apiVersion: batch/v1\nkind: Job\nmetadata: {name: train, labels: {kueue.x-k8s.io/queue-name: team}}\nspec: {suspend: true}\nstatus: {conditions: [{type: Suspended, status: 'True', reason: JobSuspended}]}", progressing, "Queued"},
		{"sealed secret", headYAML("bitnami.com/v1alpha1", "SealedSecret") + "status: {observedGeneration: 2, conditions: [{type: Synced, status: 'True'}]}", healthyResult, ""},
		{"sealed secret that cannot be opened", headYAML("bitnami.com/v1alpha1", "SealedSecret") + "status: {observedGeneration: 2, conditions: [{type: Synced, status: 'False', message: no key could decrypt secret}]}", progressing, "NotSynced"},

		{"spark stream", spark + "spec: {restartPolicy: {type: Always}}\nstatus: {applicationState: {state: RUNNING}, executorState: {a: RUNNING}}", healthyResult, ""},
		{"spark batch", spark + "spec: {restartPolicy: {type: Never}}\nstatus: {applicationState: {state: RUNNING}}", progressing, "Running"},
		{"spark stream that begins again", spark + "spec: {restartPolicy: {type: Always}}\nstatus: {applicationState: {state: PENDING_RERUN}}", progressing, "PendingRerun"},
		{"broadcast that stays", broadcast + "spec: {completionPolicy: {type: Never}}\nstatus: {phase: running, active: 2, succeeded: 1, desired: 3}", healthyResult, ""},
		{"broadcast that stays and begins", broadcast + "spec: {completionPolicy: {type: Never}}\nstatus: {phase: running, active: 1, succeeded: 1, desired: 3}", progressing, "Running"},
		{"broadcast", broadcast + "spec: {completionPolicy: {type: Always}}\nstatus: {phase: running, active: 2, succeeded: 1, desired: 3}", progressing, "Running"},

		{"request that failed", headYAML("cert-manager.io/v1", "CertificateRequest") + "status: {failureTime: '2026-11-20T10:00:00Z', conditions: [{type: Approved, status: 'True', reason: cert-manager.io}, {type: Ready, status: 'False', reason: Failed, message: no such CA}]}", degraded, "Failed"},
		{"request that waits", headYAML("cert-manager.io/v1", "CertificateRequest") + "status: {conditions: [{type: Ready, status: 'False', reason: Pending}]}", progressing, "Pending"},
		{"machine that is to be restarted", headYAML("kubevirt.io/v1", "VirtualMachine") + "spec: {runStrategy: Always}\nstatus: {printableStatus: Running, observedGeneration: 1, desiredGeneration: 2, conditions: [{type: Ready, status: 'True'}, {type: RestartRequired, status: 'True', message: 'a non-live-updatable field was changed'}]}", progressing, "RestartRequired"},
		{"instance that is paused", headYAML("kubevirt.io/v1", "VirtualMachineInstance") + "status: {phase: Running, conditions: [{type: Ready, status: 'False'}, {type: Paused, status: 'True', reason: PausedByUser}]}", suspended, "PausedByUser"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, reason, message := kinds.AssessHealth(parseObject(t, c.object))
			if got != c.want || reason != c.reason {
				t.Errorf("Health = %s %q %q, want %s %q", got, reason, message, c.want, c.reason)
			}
		})
	}
}

// The operator of a kind decides when an object has ended.
func TestWhatRunsOnceEnds(t *testing.T) {
	const argo = "argoproj.io/v1alpha1"
	for text, want := range map[string]bool{
		headYAML(argo, "Experiment") + "status: {phase: Successful}":                                             true,
		headYAML(argo, "Experiment") + "status: {phase: Failed}":                                                 true,
		headYAML(argo, "Experiment") + "status: {phase: Error}":                                                  true,
		headYAML(argo, "Experiment") + "status: {phase: Inconclusive}":                                           true,
		headYAML(argo, "Experiment") + "status: {phase: Running}":                                                false,
		headYAML("ray.io/v1", "RayJob") + "status: {jobDeploymentStatus: ValidationFailed}":                      true,
		headYAML("ray.io/v1", "RayJob") + "status: {jobDeploymentStatus: Retrying}":                              false,
		headYAML("batch.volcano.sh/v1alpha1", "Job") + "status: {state: {phase: Aborted}}":                       false, // it can be resumed
		headYAML("batch.volcano.sh/v1alpha1", "Job") + "status: {state: {phase: Terminated}}":                    true,
		headYAML("apps.kruise.io/v1alpha1", "BroadcastJob") + statusYAML(conditionYAML("Complete", "True", "x")): true,
	} {
		obj := parseObject(t, text)
		if got := kinds.HasFinished(obj); got != want {
			t.Errorf("Finished = %v, want %v, of\n%s", got, want, text)
		}
		if !kinds.RunsOnce(obj.GroupVersionKind().GroupKind()) {
			t.Errorf("a %s runs once", obj.GetKind())
		}
	}
}

// maxInt64Text is the largest number that an object can state.
const maxInt64Text = "9223372036854775807"

// Products and sums are capped at the largest number, and negative numbers count as none.
func TestNumbersDoNotRunOver(t *testing.T) {
	const most = math.MaxInt64
	huge := podOf("{cpu: '" + maxInt64Text + "', memory: 100E}")
	for _, c := range []struct {
		name, object string
		want         string // n, then name count cpu memory of each
	}{
		{"ray", headYAML("ray.io/v1", "RayCluster") + "spec: {headGroupSpec: {template: " + huge + "}, workerGroupSpecs: [{groupName: w, replicas: 4611686018427387904, numOfHosts: 4}, {groupName: none, replicas: 3, numOfHosts: -1}]}",
			"1: head 1 MAX MAX; w MAX 0 0"},
		{"jobs", headYAML("jobset.x-k8s.io/v1alpha2", "JobSet") + "spec: {replicatedJobs: [{name: w, replicas: 4294967296, template: {spec: {parallelism: 4294967296, template: " + podOf("{cpu: 1}") + "}}}, {name: none, replicas: -2, template: {spec: {parallelism: -2}}}]}",
			"1: w MAX 1000 0"},
		{"groups", headYAML("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet") + "spec: {replicas: 1, leaderWorkerTemplate: {size: -9223372036854775808, workerTemplate: " + podOf("{cpu: 1}") + "}}",
			"1: leader 1 1000 0"},
		{"flink", headYAML("flink.apache.org/v1beta1", "FlinkDeployment") + "spec: {flinkConfiguration: {taskmanager.numberOfTaskSlots: '2'}, job: {parallelism: " + maxInt64Text + "}, jobManager: {resource: {cpu: 1.0e+300, memory: 16777216t}}, taskManager: {resource: {cpu: -1}}}",
			"1: jobmanager 1 MAX MAX; taskmanager 4611686018427387904 0 0"},
		{"spark", headYAML("sparkoperator.k8s.io/v1beta2", "SparkApplication") + "spec: {driver: {cores: " + maxInt64Text + ", memory: 8388607t}, executor: {instances: 2, cores: -1, memory: 1g, memoryOverhead: '" + maxInt64Text + "'}}",
			"1: driver 1 MAX MAX; executor 2 0 MAX"},
		{"spark of a large share", headYAML("sparkoperator.k8s.io/v1beta2", "SparkApplication") + "spec: {memoryOverheadFactor: '1e300', driver: {memory: 1g}, executor: {instances: 0}}",
			"1: driver 1 1000 MAX"},
		{"machine", headYAML("kubevirt.io/v1", "VirtualMachine") + "spec: {running: true, template: {spec: {domain: {cpu: {cores: 4294967296, sockets: 4294967296, threads: 2}, memory: {guest: 100E}}}}}",
			"1:  1 MAX MAX"},
		{"shards", headYAML("monitoring.coreos.com/v1", "Prometheus") + "spec: {replicas: 4294967296, shards: 4294967296}", "1: prometheus MAX 0 0"},
		{"a pod of several", "apiVersion: v1\nkind: Pod\nmetadata: {name: one}\nspec: {containers: [{name: a, resources: {requests: {memory: '" + maxInt64Text + "'}}}, {name: b, resources: {requests: {memory: '" + maxInt64Text + "', cpu: '-1'}}}]}",
			"1:  1 0 MAX"},
	} {
		n, each := kinds.PodSetsOf(parseObject(t, c.object))
		var got []string
		for _, s := range each {
			got = append(got, strings.Join([]string{s.Name, formatDecimal(s.Count), formatDecimal(s.Requests["cpu"]), formatDecimal(s.Requests["memory"])}, " "))
		}
		text := strings.ReplaceAll(formatDecimal(n)+": "+strings.Join(got, "; "), formatDecimal(most), "MAX")
		if text != c.want {
			t.Errorf("%s: Pods = %s, want %s", c.name, text, c.want)
		}
	}
	lws := parseObject(t, headYAML("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet")+"spec: {replicas: 3, leaderWorkerTemplate: {size: "+maxInt64Text+", workerTemplate: "+podOf("{cpu: 1}")+"}}")
	if got := kinds.ReplicaRequests(lws).Pods; got != most {
		t.Errorf("a group of %s pods is %d", maxInt64Text, got)
	}
	if got := kinds.ComponentsOf(lws)[1].Count; got != most {
		t.Errorf("3 groups of %s pods have %d workers", maxInt64Text, got)
	}
}

// Amounts of memory are parsed in the format of their operator.
func TestMemoryIsReadAsItsOperatorDoes(t *testing.T) {
	spark := func(memory string) string {
		return headYAML("sparkoperator.k8s.io/v1beta2", "SparkApplication") + "spec: {memoryOverheadFactor: '0', driver: {memory: " + memory + "}, executor: {instances: 0}}"
	}
	flink := func(memory string) string {
		return headYAML("flink.apache.org/v1beta1", "FlinkDeployment") + "spec: {jobManager: {resource: {memory: " + memory + "}}}"
	}
	const least = 384 << 20 // the minimum that Spark adds
	for _, c := range []struct {
		name, object string
		want         int64
	}{
		{"spark without a unit", spark("'512'"), 512<<20 + least},
		{"spark in m", spark("512m"), 512<<20 + least},
		{"spark in g", spark("1g"), 1<<30 + least},
		{"spark in GB", spark("2GB"), 2<<30 + least},
		{"spark in p", spark("1p"), 1<<50 + least},
		{"spark in a quantity", spark("3Gi"), 3<<30 + least},
		{"spark with overhead without a unit", headYAML("sparkoperator.k8s.io/v1beta2", "SparkApplication") + "spec: {driver: {memory: 1g, memoryOverhead: '100'}, executor: {instances: 0}}", 1<<30 + 100<<20},
		{"flink without a unit", flink("'1073741824'"), 1 << 30},
		{"flink in m", flink("2048m"), 2 << 30},
		{"flink in gb", flink("1 gb"), 1 << 30},
	} {
		_, each := kinds.PodSetsOf(parseObject(t, c.object))
		if len(each) == 0 || each[0].Requests["memory"] != c.want {
			t.Errorf("%s: %v, want %d", c.name, each, c.want)
		}
	}
}

// Operators' default numbers of pods count.
func TestPodsByDefault(t *testing.T) {
	for _, c := range []struct {
		name, object string
		want         int64
	}{
		{"connect", headYAML("kafka.strimzi.io/v1beta2", "KafkaConnect"), 3},
		{"mirror maker", headYAML("kafka.strimzi.io/v1beta2", "KafkaMirrorMaker2"), 3},
		{"bridge", headYAML("kafka.strimzi.io/v1beta2", "KafkaBridge"), 1},
		{"a ray job in a cluster that is there", headYAML("ray.io/v1", "RayJob") + "spec: {clusterSelector: {ray.io/cluster: one}}", 0},
		{"an agent on each node", headYAML("monitoring.coreos.com/v1alpha1", "PrometheusAgent") + "spec: {mode: DaemonSet}", 0},
		{"flink's slots as a number", headYAML("flink.apache.org/v1beta1", "FlinkDeployment") + "spec: {flinkConfiguration: {taskmanager.numberOfTaskSlots: 2}, job: {parallelism: 4}, jobManager: {replicas: 0}}", 2},
	} {
		got := int64(0)
		_, each := kinds.PodSetsOf(parseObject(t, c.object))
		for _, s := range each {
			got += s.Count
		}
		if got != c.want {
			t.Errorf("%s: %d pods, want %d", c.name, got, c.want)
		}
	}
}

// An object that never ends does not run once, although its kind does.
func TestWhatNeverEnds(t *testing.T) {
	const argo = "argoproj.io/v1alpha1"
	for text, want := range map[string]bool{
		headYAML("apps.kruise.io/v1alpha1", "BroadcastJob") + "spec: {completionPolicy: {type: Never}}":                              true,
		headYAML("apps.kruise.io/v1alpha1", "BroadcastJob") + "spec: {completionPolicy: {type: Always, ttlSecondsAfterFinished: 9}}": false,
		headYAML("apps.kruise.io/v1alpha1", "BroadcastJob"):                                                                          false,
		headYAML("sparkoperator.k8s.io/v1beta2", "SparkApplication") + "spec: {restartPolicy: {type: Always}}":                       true,
		headYAML("sparkoperator.k8s.io/v1beta2", "SparkApplication") + "spec: {restartPolicy: {type: OnFailure}}":                    false,
		headYAML(argo, "Experiment") + "spec: {templates: [{name: a}]}":                                                              true,
		headYAML(argo, "Experiment") + "spec: {duration: 1h}":                                                                        false,
		headYAML(argo, "Experiment") + "spec: {analyses: [{name: a, requiredForCompletion: true}]}":                                  false,
		headYAML("batch.volcano.sh/v1alpha1", "Job"):                                                                                 false,
		headYAML("batch/v1", "Job"): false,
	} {
		if got := kinds.NeverEnds(parseObject(t, text)); got != want {
			t.Errorf("NeverEnds = %v, want %v, of\n%s", got, want, text)
		}
	}
}

// An edit asks for another run, unless the specification of the run is immutable.
func TestEditsAskForAnotherRun(t *testing.T) {
	for kind, want := range map[schema.GroupKind]bool{
		{Group: "batch", Kind: "Job"}:                   false,
		{Kind: "Pod"}:                                   false,
		{Group: "argoproj.io", Kind: "Workflow"}:        true,
		{Group: "batch.volcano.sh", Kind: "Job"}:        true,
		{Group: "argoproj.io", Kind: "Rollout"}:         false, // it does not run once
		{Group: "example.com", Kind: "Pod"}:             false,
		{Group: "postgresql.cnpg.io", Kind: "Backup"}:   true,
		{Group: "apps", Kind: "Deployment"}:             false,
		{Group: "apps.kruise.io", Kind: "BroadcastJob"}: true,
	} {
		if got := kinds.RunsAgainOnEdit(kind); got != want {
			t.Errorf("%s: RunsAgain is %v", kind, got)
		}
	}
}

// Replicas with volumes of their own form one unit.
func TestVolumesMakeAWhole(t *testing.T) {
	const claims = "[{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]"
	for text, want := range map[string]bool{
		headYAML("apps.kruise.io/v1alpha1", "CloneSet") + "spec: {replicas: 3}":                                                                       false,
		headYAML("apps.kruise.io/v1alpha1", "CloneSet") + "spec: {replicas: 3, volumeClaimTemplates: " + claims + "}":                                 true,
		headYAML("apps.kruise.io/v1alpha1", "CloneSet") + "spec: {replicas: 3, volumeClaimTemplates: []}":                                             false,
		headYAML("pool.kubevirt.io/v1alpha1", "VirtualMachinePool") + "spec: {virtualMachineTemplate: {spec: {template: {}}}}":                        false,
		headYAML("pool.kubevirt.io/v1alpha1", "VirtualMachinePool") + "spec: {virtualMachineTemplate: {spec: {dataVolumeTemplates: " + claims + "}}}": true,
		headYAML("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet") + "spec: {leaderWorkerTemplate: {volumeClaimTemplates: " + claims + "}}":           true,
		headYAML("apps/v1", "Deployment"):                                                  false,
		headYAML("example.com/v1", "Toy") + "spec: {volumeClaimTemplates: " + claims + "}": false,
	} {
		if got := kinds.NeedsOneClusterForVolumes(parseObject(t, text)); got != want {
			t.Errorf("OwnVolumes = %v, want %v, of\n%s", got, want, text)
		}
	}
}
