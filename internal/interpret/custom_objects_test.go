package interpret_test

import (
	"math"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/interpret"
)

// canary is a Rollout of three steps whose controller says it is paused.
func canary(spec, status string) string {
	return "apiVersion: argoproj.io/v1alpha1\nkind: Rollout\nmetadata: {name: web, namespace: shop, generation: 4}\n" +
		"spec: {replicas: 5, selector: {matchLabels: {app: web}}, " + spec + "}\n" +
		"status: {observedGeneration: '4', phase: Paused, replicas: 6, updatedReplicas: 1, readyReplicas: 6, availableReplicas: 6, " + status + "}\n"
}

// app is an Application whose controller compared what is asked for, at revision a1.
func app(spec, status string) string {
	return "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: shop, namespace: argocd, generation: 90}\n" +
		"spec: {project: default, destination: {server: https://kubernetes.default.svc, namespace: shop}, " +
		"source: {repoURL: https://git.example/shop.git, path: prod, targetRevision: main}" + spec + "}\n" +
		"status:\n  reconciledAt: '2026-11-20T10:00:00Z'\n  health: {status: Healthy}\n" + status
}

// synced tells how it stands at a revision.
func synced(status, revision string) string {
	return "  sync: {status: " + status + ", revision: " + revision + ", comparedTo: {destination: {server: https://kubernetes.default.svc, namespace: shop}, " +
		"source: {repoURL: https://git.example/shop.git, path: prod, targetRevision: main}}}\n"
}

func operation(phase, revision, message string) string {
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
		{"a rollout at a pause that ends", canary(steps, paused+"currentStepIndex: 1"), progressing, "CanaryPauseStep"},
		{"a rollout at a pause that somebody ends", canary(steps, paused+"currentStepIndex: 2"), suspended, "Paused"},
		{"a rollout that somebody paused", canary("paused: true, "+steps, paused+"currentStepIndex: 1"), suspended, "Paused"},
		{"a rollout that promotes itself", canary("strategy: {blueGreen: {activeService: web, autoPromotionSeconds: 30}}", "pauseConditions: [{reason: BlueGreenPause, startTime: '2026-11-20T10:00:00Z'}]"), progressing, "BlueGreenPause"},
		{"a rollout that somebody promotes", canary("strategy: {blueGreen: {activeService: web, autoPromotionEnabled: false}}", "pauseConditions: [{reason: BlueGreenPause, startTime: '2026-11-20T10:00:00Z'}]"), suspended, "Paused"},
		{"a rollout whose analysis says nothing", canary(steps, "pauseConditions: [{reason: InconclusiveAnalysisRun, startTime: '2026-11-20T10:00:00Z'}], currentStepIndex: 1"), suspended, "Paused"},
		{"a rollout at a pause, without a phase", strings.Replace(canary("replicas: 1, "+steps, paused+"currentStepIndex: 1"), "phase: Paused, ", "", 1), progressing, "CanaryPauseStep"},

		{"application in sync", app(automated, synced("Synced", "a1")+operation("Succeeded", "a1", "")), healthy, ""},
		{"application of another path", app(automated, oldSync), progressing, "NotObserved"},
		{"application that syncs", app(automated, synced("OutOfSync", "a1")+operation("Running", "a1", "waiting for healthy state")), progressing, "Syncing"},
		{"application whose hook failed", app(automated, synced("Synced", "a1")+operation("Failed", "a1", "one or more hooks failed")), degraded, "SyncFailed"},
		{"application that cannot be applied", app("", synced("OutOfSync", "a1")+operation("Error", "a1", "not permitted")), degraded, "SyncFailed"},
		{"application mended since", app(automated, synced("Synced", "b2")+operation("Failed", "a1", "boom")), healthy, ""},
		{"application about to be synced", app(automated, synced("OutOfSync", "b2")+operation("Succeeded", "a1", "")), progressing, "OutOfSync"},
		{"application that failed and is tried at another revision", app(automated, synced("OutOfSync", "b2")+operation("Failed", "a1", "boom")), progressing, "OutOfSync"},
		{"application that stays different", app(automated, synced("OutOfSync", "a1")+operation("Succeeded", "a1", "")), healthy, ""},
		{"application that people sync", app("", synced("OutOfSync", "b2")+operation("Succeeded", "a1", "")), healthy, ""},
		{"application with automation off", app(", syncPolicy: {automated: {enabled: false}}", synced("OutOfSync", "b2")+operation("Succeeded", "a1", "")), healthy, ""},
		{"application of no project", app(automated, "  conditions: [{type: InvalidSpecError, message: 'project x does not exist', lastTransitionTime: '2026-11-20T10:00:00Z'}]\n"+synced("Unknown", "''")), degraded, "InvalidSpecError"},
		{"application whose repository is away", app(automated, "  conditions: [{type: ComparisonError, message: 'dial tcp', lastTransitionTime: '2026-11-20T10:00:00Z'}]\n"+synced("Unknown", "''")), progressing, "ComparisonError"},
		{"application asked to sync", app(automated, synced("Synced", "a1")) + "operation: {sync: {revision: a1}}", progressing, "Syncing"},
		{"application new", head(argo, "Application"), progressing, "NotReported"},
		{"set of applications", head(argo, "ApplicationSet") + conds(cond("ErrorOccurred", "False", "ApplicationSetUpToDate"), cond("ParametersGenerated", "True", "ParametersGenerated"), cond("ResourcesUpToDate", "True", "ApplicationSetUpToDate")), healthy, ""},
		{"set of applications that cannot be", head(argo, "ApplicationSet") + conds(cond("ErrorOccurred", "True", "ApplicationGenerationFromParamsError"), cond("ResourcesUpToDate", "False", "x")), degraded, "ApplicationGenerationFromParamsError"},
		{"experiment that never ends", head(argo, "Experiment") + "spec: {templates: [{name: a}]}\nstatus: {phase: Running}", healthy, ""},
		{"experiment of an hour", head(argo, "Experiment") + "spec: {duration: 1h, templates: [{name: a}]}\nstatus: {phase: Running}", progressing, "Running"},

		{"volcano job that was aborted", head("batch.volcano.sh/v1alpha1", "Job") + "status: {state: {phase: Aborted, message: 'a pod failed'}, failed: 1}", degraded, "Aborted"},
		{"volcano job that is being aborted", head("batch.volcano.sh/v1alpha1", "Job") + "status: {state: {phase: Aborting}, terminating: 1}", progressing, "Aborting"},

		{"ray service that is upgraded", head("ray.io/v1", "RayService") + "status: {observedGeneration: 2, serviceStatus: Running, conditions: [{type: Ready, status: 'True', reason: NonZeroServeEndpoints, observedGeneration: 2}, {type: UpgradeInProgress, status: 'True', reason: BothActivePendingClustersExist, observedGeneration: 2}]}", progressing, "BothActivePendingClustersExist"},
		{"ray service that was upgraded", head("ray.io/v1", "RayService") + "status: {observedGeneration: 2, serviceStatus: Running, conditions: [{type: Ready, status: 'True', reason: NonZeroServeEndpoints, observedGeneration: 2}, {type: UpgradeInProgress, status: 'False', reason: NoPendingCluster, observedGeneration: 2}]}", healthy, ""},
		{"ray job that cannot be", head("ray.io/v1", "RayJob") + "status: {jobDeploymentStatus: ValidationFailed, reason: ValidationFailed, message: 'one of rayClusterSpec or clusterSelector must be set'}", degraded, "ValidationFailed"},
		{"ray job that waits for quota", rayJob + "status: {jobDeploymentStatus: Suspended}", progressing, "Queued"},
		{"ray job that waited for quota", rayJob + "status: {jobDeploymentStatus: Complete, jobStatus: SUCCEEDED}", healthy, ""},
		{"ray job that waited for quota and failed", rayJob + "status: {jobDeploymentStatus: Failed, jobStatus: FAILED, reason: AppFailed, message: boom}", degraded, "Failed"},

		{"chart repository of type oci", head("source.toolkit.fluxcd.io/v1", "HelmRepository") + "spec: {type: oci, url: 'oci://ghcr.io/x'}\nstatus: {observedGeneration: -1}", healthy, ""},
		{"chart repository of type oci, before 2.3", head("source.toolkit.fluxcd.io/v1beta2", "HelmRepository") + "spec: {type: oci}\nstatus: {observedGeneration: 2, conditions: [{type: Ready, status: 'False', reason: AuthenticationFailed}]}", progressing, "AuthenticationFailed"},
		{"chart repository", head("source.toolkit.fluxcd.io/v1", "HelmRepository") + "spec: {url: https://x}\nstatus: {observedGeneration: -1}", progressing, "NotObserved"},
		{"alert of an older version", head("notification.toolkit.fluxcd.io/v1beta2", "Alert") + "status: {observedGeneration: -1}", healthy, ""},

		{"cluster class", head("cluster.x-k8s.io/v1beta2", "ClusterClass") + "status: {observedGeneration: 2, conditions: [{type: VariablesReady, status: 'True', reason: VariablesReady}, {type: RefVersionsUpToDate, status: 'True', reason: RefVersionsUpToDate}, {type: Paused, status: 'False', reason: NotPaused}]}", healthy, ""},
		{"cluster class, earlier", head("cluster.x-k8s.io/v1beta1", "ClusterClass") + "status: {observedGeneration: 2, conditions: [{type: VariablesReconciled, status: 'True'}]}", healthy, ""},
		{"cluster class whose variables are wrong", head("cluster.x-k8s.io/v1beta1", "ClusterClass") + "status: {observedGeneration: 2, conditions: [{type: VariablesReconciled, status: 'False', reason: VariableDiscoveryFailed, severity: Error}]}", progressing, "VariableDiscoveryFailed"},
		{"machine set", machines + "status: {observedGeneration: 2, replicas: 3, readyReplicas: 3, availableReplicas: 3, upToDateReplicas: 3, conditions: [" + settled + "]}", healthy, ""},
		{"machine set that lacks one", machines + "status: {observedGeneration: 2, replicas: 3, readyReplicas: 2, availableReplicas: 2, conditions: [" + settled + "]}", progressing, "Unavailable"},
		{"machine set that grows", machines + "status: {observedGeneration: 2, replicas: 2, readyReplicas: 2, availableReplicas: 2, conditions: [{type: ScalingUp, status: 'True', reason: ScalingUp}, {type: MachinesReady, status: 'True', reason: Ready}]}", progressing, "ScalingUp"},
		{"machine set, earlier", strings.Replace(machines, "v1beta2", "v1beta1", 1) + "status: {observedGeneration: 2, replicas: 3, readyReplicas: 3, availableReplicas: 3, conditions: [{type: Ready, status: 'True'}, {type: MachinesReady, status: 'True'}]}", healthy, ""},
		{"control plane that rolls", head("controlplane.cluster.x-k8s.io/v1beta2", "KubeadmControlPlane") + "status: {observedGeneration: 2, conditions: [{type: Available, status: 'True', reason: Available}, {type: RollingOut, status: 'True', reason: RollingOut}]}", progressing, "RollingOut"},
		{"cluster that is paused", head("cluster.x-k8s.io/v1beta2", "Cluster") + "status: {phase: Provisioned, conditions: [{type: Available, status: 'True'}, {type: Paused, status: 'True', reason: Paused}]}", suspended, "Paused"},

		{"provider config of a cluster", head("aws.m.upbound.io/v1beta1", "ClusterProviderConfig") + "status: {users: 2}", healthy, ""},
		{"provider config of a namespace", head("kubernetes.m.crossplane.io/v1alpha1", "ProviderConfig") + "status: {users: 2}", healthy, ""},
		{"managed and refused", head("s3.aws.m.upbound.io/v1beta1", "Bucket") + "status: {conditions: [{type: Ready, status: 'False', reason: Creating, observedGeneration: 2}, {type: Synced, status: 'False', reason: ReconcileError, message: 'cannot create', observedGeneration: 2}]}", progressing, "ReconcileError"},
		{"managed and failed on the way", head("s3.aws.m.upbound.io/v1beta1", "Bucket") + "status: {conditions: [{type: Ready, status: 'True', reason: Available}, {type: Synced, status: 'True', reason: ReconcileSuccess}, {type: LastAsyncOperation, status: 'False', reason: AsyncUpdateFailure, message: denied}]}", progressing, "AsyncUpdateFailure"},
		{"managed, and seen before the change", head("s3.aws.m.upbound.io/v1beta1", "Bucket") + "status: {conditions: [{type: Ready, status: 'True', reason: Available, observedGeneration: 2}, {type: Synced, status: 'True', reason: ReconcileSuccess, observedGeneration: 1}]}", progressing, "NotObserved"},
		{"job that waits for quota", "apiVersion: batch/v1\nkind: Job\nmetadata: {name: train, labels: {kueue.x-k8s.io/queue-name: team}}\nspec: {suspend: true}\nstatus: {conditions: [{type: Suspended, status: 'True', reason: JobSuspended}]}", progressing, "Queued"},
		{"sealed secret", head("bitnami.com/v1alpha1", "SealedSecret") + "status: {observedGeneration: 2, conditions: [{type: Synced, status: 'True'}]}", healthy, ""},
		{"sealed secret that cannot be opened", head("bitnami.com/v1alpha1", "SealedSecret") + "status: {observedGeneration: 2, conditions: [{type: Synced, status: 'False', message: no key could decrypt secret}]}", progressing, "NotSynced"},

		{"spark stream", spark + "spec: {restartPolicy: {type: Always}}\nstatus: {applicationState: {state: RUNNING}, executorState: {a: RUNNING}}", healthy, ""},
		{"spark batch", spark + "spec: {restartPolicy: {type: Never}}\nstatus: {applicationState: {state: RUNNING}}", progressing, "Running"},
		{"spark stream that begins anew", spark + "spec: {restartPolicy: {type: Always}}\nstatus: {applicationState: {state: PENDING_RERUN}}", progressing, "PendingRerun"},
		{"broadcast that stays", broadcast + "spec: {completionPolicy: {type: Never}}\nstatus: {phase: running, active: 2, succeeded: 1, desired: 3}", healthy, ""},
		{"broadcast that stays and begins", broadcast + "spec: {completionPolicy: {type: Never}}\nstatus: {phase: running, active: 1, succeeded: 1, desired: 3}", progressing, "Running"},
		{"broadcast", broadcast + "spec: {completionPolicy: {type: Always}}\nstatus: {phase: running, active: 2, succeeded: 1, desired: 3}", progressing, "Running"},

		{"request that failed", head("cert-manager.io/v1", "CertificateRequest") + "status: {failureTime: '2026-11-20T10:00:00Z', conditions: [{type: Approved, status: 'True', reason: cert-manager.io}, {type: Ready, status: 'False', reason: Failed, message: no such CA}]}", degraded, "Failed"},
		{"request that waits", head("cert-manager.io/v1", "CertificateRequest") + "status: {conditions: [{type: Ready, status: 'False', reason: Pending}]}", progressing, "Pending"},
		{"machine that is to be restarted", head("kubevirt.io/v1", "VirtualMachine") + "spec: {runStrategy: Always}\nstatus: {printableStatus: Running, observedGeneration: 1, desiredGeneration: 2, conditions: [{type: Ready, status: 'True'}, {type: RestartRequired, status: 'True', message: 'a non-live-updatable field was changed'}]}", progressing, "RestartRequired"},
		{"instance that is paused", head("kubevirt.io/v1", "VirtualMachineInstance") + "status: {phase: Running, conditions: [{type: Ready, status: 'False'}, {type: Paused, status: 'True', reason: PausedByUser}]}", suspended, "PausedByUser"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, reason, message := interpret.Health(object(t, c.object))
			if got != c.want || reason != c.reason {
				t.Errorf("Health = %s %q %q, want %s %q", got, reason, message, c.want, c.reason)
			}
		})
	}
}

// What runs once is over by what its operator calls the end.
func TestWhatRunsOnceEnds(t *testing.T) {
	const argo = "argoproj.io/v1alpha1"
	for text, want := range map[string]bool{
		head(argo, "Experiment") + "status: {phase: Successful}":                               true,
		head(argo, "Experiment") + "status: {phase: Failed}":                                   true,
		head(argo, "Experiment") + "status: {phase: Error}":                                    true,
		head(argo, "Experiment") + "status: {phase: Inconclusive}":                             true,
		head(argo, "Experiment") + "status: {phase: Running}":                                  false,
		head("ray.io/v1", "RayJob") + "status: {jobDeploymentStatus: ValidationFailed}":        true,
		head("ray.io/v1", "RayJob") + "status: {jobDeploymentStatus: Retrying}":                false,
		head("batch.volcano.sh/v1alpha1", "Job") + "status: {state: {phase: Aborted}}":         false, // it can be resumed
		head("batch.volcano.sh/v1alpha1", "Job") + "status: {state: {phase: Terminated}}":      true,
		head("apps.kruise.io/v1alpha1", "BroadcastJob") + conds(cond("Complete", "True", "x")): true,
	} {
		obj := object(t, text)
		if got := interpret.Finished(obj); got != want {
			t.Errorf("Finished = %v, want %v, of\n%s", got, want, text)
		}
		if !interpret.RunsOnce(obj.GroupVersionKind().GroupKind()) {
			t.Errorf("a %s runs once", obj.GetKind())
		}
	}
}

// much is the largest number that an object can state.
const much = "9223372036854775807"

// Numbers that are too large to multiply or to add are as large as can be, and those below
// zero are none.
func TestNumbersDoNotRunOver(t *testing.T) {
	const most = math.MaxInt64
	huge := podOf("{cpu: '" + much + "', memory: 100E}")
	for _, c := range []struct {
		name, object string
		want         string // n, then name count cpu memory of each
	}{
		{"ray", head("ray.io/v1", "RayCluster") + "spec: {headGroupSpec: {template: " + huge + "}, workerGroupSpecs: [{groupName: w, replicas: 4611686018427387904, numOfHosts: 4}, {groupName: none, replicas: 3, numOfHosts: -1}]}",
			"1: head 1 MAX MAX; w MAX 0 0"},
		{"jobs", head("jobset.x-k8s.io/v1alpha2", "JobSet") + "spec: {replicatedJobs: [{name: w, replicas: 4294967296, template: {spec: {parallelism: 4294967296, template: " + podOf("{cpu: 1}") + "}}}, {name: none, replicas: -2, template: {spec: {parallelism: -2}}}]}",
			"1: w MAX 1000 0"},
		{"groups", head("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet") + "spec: {replicas: 1, leaderWorkerTemplate: {size: -9223372036854775808, workerTemplate: " + podOf("{cpu: 1}") + "}}",
			"1: leader 1 1000 0"},
		{"flink", head("flink.apache.org/v1beta1", "FlinkDeployment") + "spec: {flinkConfiguration: {taskmanager.numberOfTaskSlots: '2'}, job: {parallelism: " + much + "}, jobManager: {resource: {cpu: 1.0e+300, memory: 16777216t}}, taskManager: {resource: {cpu: -1}}}",
			"1: jobmanager 1 MAX MAX; taskmanager 4611686018427387904 0 0"},
		{"spark", head("sparkoperator.k8s.io/v1beta2", "SparkApplication") + "spec: {driver: {cores: " + much + ", memory: 8388607t}, executor: {instances: 2, cores: -1, memory: 1g, memoryOverhead: '" + much + "'}}",
			"1: driver 1 MAX MAX; executor 2 0 MAX"},
		{"spark of a large share", head("sparkoperator.k8s.io/v1beta2", "SparkApplication") + "spec: {memoryOverheadFactor: '1e300', driver: {memory: 1g}, executor: {instances: 0}}",
			"1: driver 1 1000 MAX"},
		{"machine", head("kubevirt.io/v1", "VirtualMachine") + "spec: {running: true, template: {spec: {domain: {cpu: {cores: 4294967296, sockets: 4294967296, threads: 2}, memory: {guest: 100E}}}}}",
			"1:  1 MAX MAX"},
		{"shards", head("monitoring.coreos.com/v1", "Prometheus") + "spec: {replicas: 4294967296, shards: 4294967296}", "1: prometheus MAX 0 0"},
		{"a pod of several", "apiVersion: v1\nkind: Pod\nmetadata: {name: one}\nspec: {containers: [{name: a, resources: {requests: {memory: '" + much + "'}}}, {name: b, resources: {requests: {memory: '" + much + "', cpu: '-1'}}}]}",
			"1:  1 0 MAX"},
	} {
		n, each := interpret.Pods(object(t, c.object))
		var got []string
		for _, s := range each {
			got = append(got, strings.Join([]string{s.Name, decimal(s.Count), decimal(s.Requests["cpu"]), decimal(s.Requests["memory"])}, " "))
		}
		text := strings.ReplaceAll(decimal(n)+": "+strings.Join(got, "; "), decimal(most), "MAX")
		if text != c.want {
			t.Errorf("%s: Pods = %s, want %s", c.name, text, c.want)
		}
	}
	lws := object(t, head("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet")+"spec: {replicas: 3, leaderWorkerTemplate: {size: "+much+", workerTemplate: "+podOf("{cpu: 1}")+"}}")
	if got := interpret.Requests(lws).Pods; got != most {
		t.Errorf("a group of %s pods is %d", much, got)
	}
	if got := interpret.Components(lws)[1].Count; got != most {
		t.Errorf("3 groups of %s pods have %d workers", much, got)
	}
}

// Amounts of memory are in the words of those who read them.
func TestMemoryIsReadAsItsOperatorDoes(t *testing.T) {
	spark := func(memory string) string {
		return head("sparkoperator.k8s.io/v1beta2", "SparkApplication") + "spec: {memoryOverheadFactor: '0', driver: {memory: " + memory + "}, executor: {instances: 0}}"
	}
	flink := func(memory string) string {
		return head("flink.apache.org/v1beta1", "FlinkDeployment") + "spec: {jobManager: {resource: {memory: " + memory + "}}}"
	}
	const least = 384 << 20 // what Spark adds at the least
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
		{"spark with overhead without a unit", head("sparkoperator.k8s.io/v1beta2", "SparkApplication") + "spec: {driver: {memory: 1g, memoryOverhead: '100'}, executor: {instances: 0}}", 1<<30 + 100<<20},
		{"flink without a unit", flink("'1073741824'"), 1 << 30},
		{"flink in m", flink("2048m"), 2 << 30},
		{"flink in gb", flink("1 gb"), 1 << 30},
	} {
		_, each := interpret.Pods(object(t, c.object))
		if len(each) == 0 || each[0].Requests["memory"] != c.want {
			t.Errorf("%s: %v, want %d", c.name, each, c.want)
		}
	}
}

// Pods that operators make without being told how many.
func TestPodsByDefault(t *testing.T) {
	for _, c := range []struct {
		name, object string
		want         int64
	}{
		{"connect", head("kafka.strimzi.io/v1beta2", "KafkaConnect"), 3},
		{"mirror maker", head("kafka.strimzi.io/v1beta2", "KafkaMirrorMaker2"), 3},
		{"bridge", head("kafka.strimzi.io/v1beta2", "KafkaBridge"), 1},
		{"a ray job in a cluster that is there", head("ray.io/v1", "RayJob") + "spec: {clusterSelector: {ray.io/cluster: one}}", 0},
		{"an agent on each node", head("monitoring.coreos.com/v1alpha1", "PrometheusAgent") + "spec: {mode: DaemonSet}", 0},
		{"flink's slots as a number", head("flink.apache.org/v1beta1", "FlinkDeployment") + "spec: {flinkConfiguration: {taskmanager.numberOfTaskSlots: 2}, job: {parallelism: 4}, jobManager: {replicas: 0}}", 2},
	} {
		got := int64(0)
		_, each := interpret.Pods(object(t, c.object))
		for _, s := range each {
			got += s.Count
		}
		if got != c.want {
			t.Errorf("%s: %d pods, want %d", c.name, got, c.want)
		}
	}
}

// What is to go on for ever is not run once, although others of its kind are.
func TestWhatNeverEnds(t *testing.T) {
	const argo = "argoproj.io/v1alpha1"
	for text, want := range map[string]bool{
		head("apps.kruise.io/v1alpha1", "BroadcastJob") + "spec: {completionPolicy: {type: Never}}":                              true,
		head("apps.kruise.io/v1alpha1", "BroadcastJob") + "spec: {completionPolicy: {type: Always, ttlSecondsAfterFinished: 9}}": false,
		head("apps.kruise.io/v1alpha1", "BroadcastJob"):                                                                          false,
		head("sparkoperator.k8s.io/v1beta2", "SparkApplication") + "spec: {restartPolicy: {type: Always}}":                       true,
		head("sparkoperator.k8s.io/v1beta2", "SparkApplication") + "spec: {restartPolicy: {type: OnFailure}}":                    false,
		head(argo, "Experiment") + "spec: {templates: [{name: a}]}":                                                              true,
		head(argo, "Experiment") + "spec: {duration: 1h}":                                                                        false,
		head(argo, "Experiment") + "spec: {analyses: [{name: a, requiredForCompletion: true}]}":                                  false,
		head("batch.volcano.sh/v1alpha1", "Job"):                                                                                 false,
		head("batch/v1", "Job"):                                                                                                  false,
	} {
		if got := interpret.NeverEnds(object(t, text)); got != want {
			t.Errorf("NeverEnds = %v, want %v, of\n%s", got, want, text)
		}
	}
}

// An edit asks for another run, but where nobody can edit what runs.
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
		if got := interpret.RunsAgain(kind); got != want {
			t.Errorf("%s: RunsAgain is %v", kind, got)
		}
	}
}

// Replicas with volumes of their own are parts of one whole.
func TestVolumesMakeAWhole(t *testing.T) {
	const claims = "[{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]"
	for text, want := range map[string]bool{
		head("apps.kruise.io/v1alpha1", "CloneSet") + "spec: {replicas: 3}":                                                                       false,
		head("apps.kruise.io/v1alpha1", "CloneSet") + "spec: {replicas: 3, volumeClaimTemplates: " + claims + "}":                                 true,
		head("apps.kruise.io/v1alpha1", "CloneSet") + "spec: {replicas: 3, volumeClaimTemplates: []}":                                             false,
		head("pool.kubevirt.io/v1alpha1", "VirtualMachinePool") + "spec: {virtualMachineTemplate: {spec: {template: {}}}}":                        false,
		head("pool.kubevirt.io/v1alpha1", "VirtualMachinePool") + "spec: {virtualMachineTemplate: {spec: {dataVolumeTemplates: " + claims + "}}}": true,
		head("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet") + "spec: {leaderWorkerTemplate: {volumeClaimTemplates: " + claims + "}}":           true,
		head("apps/v1", "Deployment"): false,
		head("example.com/v1", "Toy") + "spec: {volumeClaimTemplates: " + claims + "}": false,
	} {
		if got := interpret.OwnVolumes(object(t, text)); got != want {
			t.Errorf("OwnVolumes = %v, want %v, of\n%s", got, want, text)
		}
	}
}
