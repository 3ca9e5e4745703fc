package interpret_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/interpret"
)

// state is what an object of a custom kind says while it is neither new nor simply done.
type state struct {
	name, object string
	want         atoll.Health
	reason       string
}

func checkStates(t *testing.T, states []state) {
	for _, c := range states {
		t.Run(c.name, func(t *testing.T) {
			got, reason, message := interpret.Health(object(t, c.object))
			if got != c.want || reason != c.reason {
				t.Errorf("Health = %s %q %q, want %s %q", got, reason, message, c.want, c.reason)
			}
		})
	}
}

func TestWhatIsNotReadyIsNotHealthy(t *testing.T) {
	flink := head("flink.apache.org/v1beta1", "FlinkDeployment") + "spec: {job: {parallelism: 1}}\nstatus: {observedGeneration: 2, lifecycleState: STABLE, "
	session := head("flink.apache.org/v1beta1", "FlinkDeployment") + "spec: {}\nstatus: {observedGeneration: 2, lifecycleState: STABLE, "
	vm := head("kubevirt.io/v1", "VirtualMachine") + "spec: {runStrategy: Always}\n"
	gateway := head("gateway.networking.k8s.io/v1", "Gateway")
	route := head("gateway.networking.k8s.io/v1", "HTTPRoute")
	monitor := head("monitoring.coreos.com/v1", "ServiceMonitor")
	bound := func(c string) string { return "status: {bindings: [{name: main, conditions: [" + c + "]}]}" }
	checkStates(t, []state{
		{"flink runs", flink + "jobManagerDeploymentStatus: READY, jobStatus: {state: RUNNING}}", healthy, ""},
		{"flink job restarts", flink + "jobManagerDeploymentStatus: READY, jobStatus: {state: RESTARTING}}", progressing, "Restarting"},
		{"flink job is looked for", flink + "jobManagerDeploymentStatus: MISSING, jobStatus: {state: RECONCILING}}", progressing, "Reconciling"},
		{"flink managers are gone", flink + "jobManagerDeploymentStatus: MISSING, jobStatus: {state: RUNNING}}", progressing, "Missing"},
		{"flink managers cannot be", flink + "jobManagerDeploymentStatus: ERROR, jobStatus: {state: RUNNING}}", degraded, "Error"},
		{"flink batch is over, and its managers gone", flink + "jobManagerDeploymentStatus: MISSING, jobStatus: {state: FINISHED}}", healthy, ""},
		{"flink session", session + "jobManagerDeploymentStatus: READY, jobStatus: {state: RECONCILING}}", healthy, ""},
		{"flink session begins", session + "jobManagerDeploymentStatus: DEPLOYED_NOT_READY, jobStatus: {}}", progressing, "DeployedNotReady"},

		{"virtual machine whose guest is not up", vm + "status: {printableStatus: Running, created: true, conditions: [" + cond("Ready", "False", "GuestNotRunning") + "]}", progressing, "GuestNotRunning"},
		{"virtual machine is up", vm + "status: {printableStatus: Running, created: true, conditions: [" + cond("Ready", "True", "") + "]}", healthy, ""},

		{"gateway that nobody can run", gateway + conds(cond("Accepted", "False", "Invalid"), cond("Programmed", "False", "Invalid")), degraded, "Invalid"},
		{"gateway waits to be looked at", gateway + conds(cond("Accepted", "Unknown", "Pending"), cond("Programmed", "Unknown", "Pending")), progressing, "Pending"},
		{"gateway lacks a certificate", gateway + conds(cond("Accepted", "True", "ListenersNotValid"), cond("Programmed", "True", "Programmed")), progressing, "ListenersNotValid"},
		{"route of which a gateway says nothing", route + "status: {parents: [{parentRef: {name: g}, conditions: []}]}", progressing, "NotReported"},
		{"route of which one of two says nothing", route + "status: {parents: [{conditions: [" + cond("Accepted", "True", "") + "]}, {conditions: [" + cond("ResolvedRefs", "True", "") + "]}]}", progressing, "NotReported"},
		{"policy that no waypoint takes", head("security.istio.io/v1", "AuthorizationPolicy") + conds(cond("WaypointAccepted", "False", "TargetNotFound")), progressing, "TargetNotFound"},

		{"monitor that is refused", monitor + bound("{type: Accepted, status: 'False', reason: InvalidConfiguration, observedGeneration: 2}"), degraded, "InvalidConfiguration"},
		{"monitor that was refused", monitor + bound("{type: Accepted, status: 'False', reason: InvalidConfiguration, observedGeneration: 1}"), progressing, "NotObserved"},
		{"monitor that is read", monitor + bound(cond("Accepted", "True", "")), healthy, ""},

		{"topic that cannot be", head("kafka.strimzi.io/v1beta2", "KafkaTopic") + conds(cond("Ready", "False", "NotSupported")), degraded, "NotSupported"},
		{"topic that is tried again", head("kafka.strimzi.io/v1beta2", "KafkaTopic") + conds(cond("Ready", "False", "KafkaError")), progressing, "KafkaError"},

		{"request that is refused", head("certificates.k8s.io/v1", "CertificateSigningRequest") + conds(cond("Denied", "True", "No")), degraded, "No"},
		{"request that waits", head("certificates.k8s.io/v1", "CertificateSigningRequest") + conds(cond("Approved", "True", "")), progressing, "NotIssued"},
		{"request that is met", head("certificates.k8s.io/v1", "CertificateSigningRequest") + "status: {certificate: abc}", healthy, ""},
		{"schema without its level", head("flowcontrol.apiserver.k8s.io/v1", "FlowSchema") + conds(cond("Dangling", "True", "NotFound")), progressing, "NotFound"},
		{"schema with its level", head("flowcontrol.apiserver.k8s.io/v1", "FlowSchema") + conds(cond("Dangling", "False", "Found")), healthy, ""},
		{"migration runs", head("storagemigration.k8s.io/v1beta1", "StorageVersionMigration") + conds(cond("Running", "True", "")), progressing, "NotSucceeded"},
		{"migration failed", head("storagemigration.k8s.io/v1beta1", "StorageVersionMigration") + conds(cond("Failed", "True", "x")), degraded, "X"},
		{"migration is done", head("storagemigration.k8s.io/v1beta1", "StorageVersionMigration") + conds(cond("Succeeded", "True", "")), healthy, ""},
	})
}

func TestNothingWaitsForWhatIsOver(t *testing.T) {
	vm, stopped := head("kubevirt.io/v1", "VirtualMachine"), "status: {printableStatus: Stopped, created: true}"
	volume := head("cdi.kubevirt.io/v1beta1", "DataVolume")
	rebalance := head("kafka.strimzi.io/v1beta2", "KafkaRebalance")
	checkStates(t, []state{
		{"virtual machine that ran once", vm + "spec: {runStrategy: Once}\n" + stopped, suspended, "Stopped"},
		{"virtual machine that succeeded", vm + "spec: {runStrategy: RerunOnFailure}\n" + stopped, suspended, "Stopped"},
		{"virtual machine that ran and is to run", vm + "spec: {runStrategy: Always}\n" + stopped, progressing, "Stopped"},
		{"disk that no pod wants yet", volume + "status: {phase: WaitForFirstConsumer}", suspended, "WaitForFirstConsumer"},
		{"disk that is filled once a pod wants it", volume + "status: {phase: PendingPopulation}", suspended, "PendingPopulation"},
		{"rebalance that failed", rebalance + conds(cond("NotReady", "True", "CruiseControlRestException")), degraded, "CruiseControlRestException"},
		{"rebalance that others begin from", "apiVersion: kafka.strimzi.io/v1beta2\nkind: KafkaRebalance\nmetadata: {name: one, annotations: {strimzi.io/rebalance-template: 'true'}}", healthy, ""},
	})
}

func TestHealthOfWhatOperatorsMakeBeside(t *testing.T) {
	stepped := head("rollouts.kruise.io/v1beta1", "Rollout")
	united := head("apps.kruise.io/v1alpha1", "UnitedDeployment") + "spec: {replicas: 2}\nstatus: {observedGeneration: 2, "
	pull := head("apps.kruise.io/v1alpha1", "ImagePullJob")
	checkStates(t, []state{
		{"conditions that many have", head("example.com/v1", "Toy") + conds(cond("Healthy", "True", "")), healthy, ""},
		{"healthy no more", head("example.com/v1", "Toy") + conds(cond("Healthy", "False", "Sick")), progressing, "Sick"},
		{"run that succeeded", head("tekton.dev/v1", "PipelineRun") + conds(cond("Succeeded", "True", "Completed")), healthy, ""},
		{"run that failed", head("tekton.dev/v1", "PipelineRun") + conds(cond("Succeeded", "False", "Failed")), degraded, "Failed"},
		{"run that goes on", head("tekton.dev/v1", "PipelineRun") + conds(cond("Succeeded", "Unknown", "Running")), progressing, "Running"},

		{"cohort", head("kueue.x-k8s.io/v1beta1", "Cohort") + "status: {fairSharing: {weightedShare: 0}}", healthy, ""},
		{"worker cluster", head("kueue.x-k8s.io/v1beta1", "MultiKueueCluster") + conds(cond("Active", "False", "ClientConnectionFailed")), progressing, "ClientConnectionFailed"},
		{"flow of jobs", head("flow.volcano.sh/v1alpha1", "JobFlow") + "status: {state: {phase: Succeed}}", healthy, ""},
		{"recommendation", head("autoscaling.k8s.io/v1", "VerticalPodAutoscaler") + conds(cond("RecommendationProvided", "True", "")), healthy, ""},
		{"no recommendation", head("autoscaling.k8s.io/v1", "VerticalPodAutoscaler") + conds(cond("RecommendationProvided", "False", "NoPodsMatched")), progressing, "NoPodsMatched"},
		{"snapshot of a stream", head("flink.apache.org/v1beta1", "FlinkStateSnapshot") + "status: {state: COMPLETED}", healthy, ""},
		{"two colours of a stream", head("flink.apache.org/v1beta1", "FlinkBlueGreenDeployment") + "status: {blueGreenState: TRANSITIONING_TO_GREEN}", progressing, "TransitioningToGreen"},
		{"ray by the clock", head("ray.io/v1", "RayCronJob") + "spec: {suspend: false}\nstatus: {lastScheduleTime: x}", healthy, ""},
		{"spark server", head("sparkoperator.k8s.io/v1alpha1", "SparkConnect") + "status: {state: NotReady}", progressing, "NotReady"},
		{"machine that moved", head("kubevirt.io/v1", "VirtualMachineInstanceMigration") + "status: {phase: Succeeded}", healthy, ""},
		{"machine moves", head("kubevirt.io/v1", "VirtualMachineInstanceMigration") + "status: {phase: TargetReady}", progressing, "TargetReady"},
		{"machine that was not saved", head("snapshot.kubevirt.io/v1beta1", "VirtualMachineSnapshot") + "status: {phase: Failed}", degraded, "Failed"},
		{"images of disks", head("cdi.kubevirt.io/v1beta1", "DataImportCron") + conds(cond("UpToDate", "True", "")), healthy, ""},

		{"united", united + "updatedReplicas: 2, readyReplicas: 2}", healthy, ""},
		{"united updates", united + "updatedReplicas: 1, readyReplicas: 2}", progressing, "Unavailable"},
		{"steps are done", stepped + "status: {observedGeneration: 2, phase: Healthy, conditions: [" + cond("Progressing", "True", "Completed") + "]}", healthy, ""},
		{"step waits for a person", stepped + "spec: {strategy: {canary: {steps: [{traffic: 5%, pause: {}}]}}}\nstatus: {phase: Progressing, canaryStatus: {currentStepIndex: 1, currentStepState: StepPaused}}", suspended, "StepPaused"},
		{"step waits for a time", stepped + "spec: {strategy: {canary: {steps: [{traffic: 5%, pause: {duration: 60}}]}}}\nstatus: {phase: Progressing, canaryStatus: {currentStepIndex: 1, currentStepState: StepPaused}}", progressing, "Progressing"},
		{"images are pulled", pull + "status: {desired: 2, completed: 1}", progressing, "Pulling"},
		{"images are there", pull + "status: {desired: 2, completed: 2, completionTime: x}", healthy, ""},
		{"images are not everywhere", pull + "status: {desired: 2, completed: 2, completionTime: x, failedNodes: [a]}", degraded, "Failed"},
		{"set of listeners", head("gateway.networking.k8s.io/v1", "ListenerSet") + conds(cond("Accepted", "True", ""), cond("Programmed", "True", "")), healthy, ""},
		{"pool of models", head("inference.networking.k8s.io/v1", "InferencePool") + "status: {parents: [{conditions: [" + cond("Accepted", "True", "") + "]}]}", healthy, ""},

		{"database", head("postgresql.cnpg.io/v1", "Database") + "status: {observedGeneration: 2, applied: true}", healthy, ""},
		{"database without its owner", head("postgresql.cnpg.io/v1", "Database") + "status: {observedGeneration: 2, applied: false, message: no role}", progressing, "NotApplied"},
		{"scaled nodes", head("autoscaling.k8s.elastic.co/v1alpha1", "ElasticsearchAutoscaler") + conds(cond("Active", "True", ""), cond("Healthy", "True", ""), cond("Online", "True", ""), cond("Limited", "False", "")), healthy, ""},
		{"settings that contradict others", head("stackconfigpolicy.k8s.elastic.co/v1alpha1", "StackConfigPolicy") + "status: {phase: Conflict}", degraded, "Conflict"},
	})
}

// Of many conditions those are reported that people wait for.
func TestReadyIsReportedAmongMany(t *testing.T) {
	var all []string
	for i := range 12 {
		all = append(all, cond(fmt.Sprintf("Part%02dReady", i), "True", ""))
	}
	template := object(t, head("infrastructure.cluster.x-k8s.io/v1beta2", "AWSCluster"))
	member := object(t, head("infrastructure.cluster.x-k8s.io/v1beta2", "AWSCluster")+conds(append(all, cond("Ready", "True", ""))...))
	st, ok := interpret.Aggregate(template, false, []interpret.RowItem{report("oslo", member)}, 2)
	text, err := json.Marshal(st)
	if err != nil || !ok || !strings.Contains(string(text), `"type":"Ready"`) || strings.Count(string(text), `"type"`) != 8 {
		t.Errorf("%v %s %v", ok, text, err)
	}
}

// The generation that conditions tell of stays, as long as members have still to apply another.
func TestConditionsKeepTheirGeneration(t *testing.T) {
	said := "{type: Programmed, status: 'True', reason: Programmed, observedGeneration: 2}"
	member := object(t, head("gateway.networking.k8s.io/v1", "Gateway")+conds(said))
	template := object(t, strings.Replace(head("gateway.networking.k8s.io/v1", "Gateway"), "generation: 2", "generation: 3", 1)+conds(said))
	row := report("oslo", member)
	row.Stale = true
	st, ok := interpret.Aggregate(template, false, []interpret.RowItem{row}, 0)
	cs, _ := st["conditions"].([]any)
	if !ok || len(cs) != 1 || cs[0].(map[string]any)["observedGeneration"] != int64(2) {
		t.Errorf("%v %v", ok, st)
	}
}
