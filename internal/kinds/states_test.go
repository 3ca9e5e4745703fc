package kinds_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/kinds"
)

// stateCase is an object of a custom kind in the middle of its life, and its health.
type stateCase struct {
	name, object string
	want         atoll.Health
	reason       string
}

func checkStates(t *testing.T, states []stateCase) {
	for _, c := range states {
		t.Run(c.name, func(t *testing.T) {
			got, reason, message := kinds.AssessHealth(parseObject(t, c.object))
			if got != c.want || reason != c.reason {
				t.Errorf("Health = %s %q %q, want %s %q", got, reason, message, c.want, c.reason)
			}
		})
	}
}

func TestWhatIsNotReadyIsNotHealthy(t *testing.T) {
	flink := headYAML("flink.apache.org/v1beta1", "FlinkDeployment") + "spec: {job: {parallelism: 1}}\nstatus: {observedGeneration: 2, lifecycleState: STABLE, "
	session := headYAML("flink.apache.org/v1beta1", "FlinkDeployment") + "spec: {}\nstatus: {observedGeneration: 2, lifecycleState: STABLE, "
	vm := headYAML("kubevirt.io/v1", "VirtualMachine") + "spec: {runStrategy: Always}\n"
	gateway := headYAML("gateway.networking.k8s.io/v1", "Gateway")
	route := headYAML("gateway.networking.k8s.io/v1", "HTTPRoute")
	monitor := headYAML("monitoring.coreos.com/v1", "ServiceMonitor")
	bound := func(c string) string { return "status: {bindings: [{name: main, conditions: [" + c + "]}]}" }
	checkStates(t, []stateCase{
		{"flink runs", flink + "jobManagerDeploymentStatus: READY, jobStatus: {state: RUNNING}}", healthyResult, ""},
		{"flink job restarts", flink + "jobManagerDeploymentStatus: READY, jobStatus: {state: RESTARTING}}", progressing, "Restarting"},
		{"flink job is looked for", flink + "jobManagerDeploymentStatus: MISSING, jobStatus: {state: RECONCILING}}", progressing, "Reconciling"},
		{"flink managers are gone", flink + "jobManagerDeploymentStatus: MISSING, jobStatus: {state: RUNNING}}", progressing, "Missing"},
		{"flink managers cannot be", flink + "jobManagerDeploymentStatus: ERROR, jobStatus: {state: RUNNING}}", degraded, "Error"},
		{"flink batch is over, and its managers gone", flink + "jobManagerDeploymentStatus: MISSING, jobStatus: {state: FINISHED}}", healthyResult, ""},
		{"flink session", session + "jobManagerDeploymentStatus: READY, jobStatus: {state: RECONCILING}}", healthyResult, ""},
		{"flink session begins", session + "jobManagerDeploymentStatus: DEPLOYED_NOT_READY, jobStatus: {}}", progressing, "DeployedNotReady"},

		{"virtual machine whose guest is not up", vm + "status: {printableStatus: Running, created: true, conditions: [" + conditionYAML("Ready", "False", "GuestNotRunning") + "]}", progressing, "GuestNotRunning"},
		{"virtual machine is up", vm + "status: {printableStatus: Running, created: true, conditions: [" + conditionYAML("Ready", "True", "") + "]}", healthyResult, ""},

		{"gateway that no controller can run", gateway + statusYAML(conditionYAML("Accepted", "False", "Invalid"), conditionYAML("Programmed", "False", "Invalid")), degraded, "Invalid"},
		{"gateway waits to be looked at", gateway + statusYAML(conditionYAML("Accepted", "Unknown", "Pending"), conditionYAML("Programmed", "Unknown", "Pending")), progressing, "Pending"},
		{"gateway lacks a certificate", gateway + statusYAML(conditionYAML("Accepted", "True", "ListenersNotValid"), conditionYAML("Programmed", "True", "Programmed")), progressing, "ListenersNotValid"},
		{"route of which a gateway says nothing", route + "status: {parents: [{parentRef: {name: g}, conditions: []}]}", progressing, "NotReported"},
		{"route of which one of two says nothing", route + "status: {parents: [{conditions: [" + conditionYAML("Accepted", "True", "") + "]}, {conditions: [" + conditionYAML("ResolvedRefs", "True", "") + "]}]}", progressing, "NotReported"},
		{"policy that no waypoint takes", headYAML("security.istio.io/v1", "AuthorizationPolicy") + statusYAML(conditionYAML("WaypointAccepted", "False", "TargetNotFound")), progressing, "TargetNotFound"},

		{"monitor that is refused", monitor + bound("{type: Accepted, status: 'False', reason: InvalidConfiguration, observedGeneration: 2}"), degraded, "InvalidConfiguration"},
		{"monitor that was refused", monitor + bound("{type: Accepted, status: 'False', reason: InvalidConfiguration, observedGeneration: 1}"), progressing, "NotObserved"},
		{"monitor that is read", monitor + bound(conditionYAML("Accepted", "True", "")), healthyResult, ""},

		{"topic that cannot be", headYAML("kafka.strimzi.io/v1beta2", "KafkaTopic") + statusYAML(conditionYAML("Ready", "False", "NotSupported")), degraded, "NotSupported"},
		{"topic that is tried again", headYAML("kafka.strimzi.io/v1beta2", "KafkaTopic") + statusYAML(conditionYAML("Ready", "False", "KafkaError")), progressing, "KafkaError"},

		{"request that is refused", headYAML("certificates.k8s.io/v1", "CertificateSigningRequest") + statusYAML(conditionYAML("Denied", "True", "No")), degraded, "No"},
		{"request that waits", headYAML("certificates.k8s.io/v1", "CertificateSigningRequest") + statusYAML(conditionYAML("Approved", "True", "")), progressing, "NotIssued"},
		{"request that is met", headYAML("certificates.k8s.io/v1", "CertificateSigningRequest") + "status: {certificate: abc}", healthyResult, ""},
		{"schema without its level", headYAML("flowcontrol.apiserver.k8s.io/v1", "FlowSchema") + statusYAML(conditionYAML("Dangling", "True", "NotFound")), progressing, "NotFound"},
		{"schema with its level", headYAML("flowcontrol.apiserver.k8s.io/v1", "FlowSchema") + statusYAML(conditionYAML("Dangling", "False", "Found")), healthyResult, ""},
		{"migration runs", headYAML("storagemigration.k8s.io/v1beta1", "StorageVersionMigration") + statusYAML(conditionYAML("Running", "True", "")), progressing, "NotSucceeded"},
		{"migration failed", headYAML("storagemigration.k8s.io/v1beta1", "StorageVersionMigration") + statusYAML(conditionYAML("Failed", "True", "x")), degraded, "X"},
		{"migration is done", headYAML("storagemigration.k8s.io/v1beta1", "StorageVersionMigration") + statusYAML(conditionYAML("Succeeded", "True", "")), healthyResult, ""},
	})
}

func TestNothingWaitsForWhatIsOver(t *testing.T) {
	vm, stopped := headYAML("kubevirt.io/v1", "VirtualMachine"), "status: {printableStatus: Stopped, created: true}"
	volume := headYAML("cdi.kubevirt.io/v1beta1", "DataVolume")
	rebalance := headYAML("kafka.strimzi.io/v1beta2", "KafkaRebalance")
	checkStates(t, []stateCase{
		{"virtual machine that ran once", vm + "spec: {runStrategy: Once}\n" + stopped, suspended, "Stopped"},
		{"virtual machine that succeeded", vm + "spec: {runStrategy: RerunOnFailure}\n" + stopped, suspended, "Stopped"},
		{"virtual machine that ran and is to run", vm + "spec: {runStrategy: Always}\n" + stopped, progressing, "Stopped"},
		{"disk that no pod wants yet", volume + "status: {phase: WaitForFirstConsumer}", suspended, "WaitForFirstConsumer"},
		{"disk that is filled once a pod wants it", volume + "status: {phase: PendingPopulation}", suspended, "PendingPopulation"},
		{"rebalance that failed", rebalance + statusYAML(conditionYAML("NotReady", "True", "CruiseControlRestException")), degraded, "CruiseControlRestException"},
		{"rebalance that others begin from", "apiVersion: kafka.strimzi.io/v1beta2\nkind: KafkaRebalance\nmetadata: {name: one, annotations: {strimzi.io/rebalance-template: 'true'}}", healthyResult, ""},
	})
}

func TestHealthOfWhatOperatorsMakeBeside(t *testing.T) {
	stepped := headYAML("rollouts.kruise.io/v1beta1", "Rollout")
	united := headYAML("apps.kruise.io/v1alpha1", "UnitedDeployment") + "spec: {replicas: 2}\nstatus: {observedGeneration: 2, "
	pull := headYAML("apps.kruise.io/v1alpha1", "ImagePullJob")
	checkStates(t, []stateCase{
		{"conditions that many have", headYAML("example.com/v1", "Toy") + statusYAML(conditionYAML("Healthy", "True", "")), healthyResult, ""},
		{"healthy no more", headYAML("example.com/v1", "Toy") + statusYAML(conditionYAML("Healthy", "False", "Sick")), progressing, "Sick"},
		{"run that succeeded", headYAML("tekton.dev/v1", "PipelineRun") + statusYAML(conditionYAML("Succeeded", "True", "Completed")), healthyResult, ""},
		{"run that failed", headYAML("tekton.dev/v1", "PipelineRun") + statusYAML(conditionYAML("Succeeded", "False", "Failed")), degraded, "Failed"},
		{"run that goes on", headYAML("tekton.dev/v1", "PipelineRun") + statusYAML(conditionYAML("Succeeded", "Unknown", "Running")), progressing, "Running"},

		{"cohort", headYAML("kueue.x-k8s.io/v1beta1", "Cohort") + "status: {fairSharing: {weightedShare: 0}}", healthyResult, ""},
		{"worker cluster", headYAML("kueue.x-k8s.io/v1beta1", "MultiKueueCluster") + statusYAML(conditionYAML("Active", "False", "ClientConnectionFailed")), progressing, "ClientConnectionFailed"},
		{"flow of jobs", headYAML("flow.volcano.sh/v1alpha1", "JobFlow") + "status: {state: {phase: Succeed}}", healthyResult, ""},
		{"recommendation", headYAML("autoscaling.k8s.io/v1", "VerticalPodAutoscaler") + statusYAML(conditionYAML("RecommendationProvided", "True", "")), healthyResult, ""},
		{"no recommendation", headYAML("autoscaling.k8s.io/v1", "VerticalPodAutoscaler") + statusYAML(conditionYAML("RecommendationProvided", "False", "NoPodsMatched")), progressing, "NoPodsMatched"},
		{"snapshot of a stream", headYAML("flink.apache.org/v1beta1", "FlinkStateSnapshot") + "status: {state: COMPLETED}", healthyResult, ""},
		{"two colours of a stream", headYAML("flink.apache.org/v1beta1", "FlinkBlueGreenDeployment") + "status: {blueGreenState: TRANSITIONING_TO_GREEN}", progressing, "TransitioningToGreen"},
		{"ray by the clock", headYAML("ray.io/v1", "RayCronJob") + "spec: {suspend: false}\nstatus: {lastScheduleTime: x}", healthyResult, ""},
		{"spark server", headYAML("sparkoperator.k8s.io/v1alpha1", "SparkConnect") + "status: {state: NotReady}", progressing, "NotReady"},
		{"machine that moved", headYAML("kubevirt.io/v1", "VirtualMachineInstanceMigration") + "status: {phase: Succeeded}", healthyResult, ""},
		{"machine moves", headYAML("kubevirt.io/v1", "VirtualMachineInstanceMigration") + "status: {phase: TargetReady}", progressing, "TargetReady"},
		{"machine that was not saved", headYAML("snapshot.kubevirt.io/v1beta1", "VirtualMachineSnapshot") + "status: {phase: Failed}", degraded, "Failed"},
		{"images of disks", headYAML("cdi.kubevirt.io/v1beta1", "DataImportCron") + statusYAML(conditionYAML("UpToDate", "True", "")), healthyResult, ""},

		{"united", united + "updatedReplicas: 2, readyReplicas: 2}", healthyResult, ""},
		{"united updates", united + "updatedReplicas: 1, readyReplicas: 2}", progressing, "Unavailable"},
		{"steps are done", stepped + "status: {observedGeneration: 2, phase: Healthy, conditions: [" + conditionYAML("Progressing", "True", "Completed") + "]}", healthyResult, ""},
		{"step waits for a person", stepped + "spec: {strategy: {canary: {steps: [{traffic: 5%, pause: {}}]}}}\nstatus: {phase: Progressing, canaryStatus: {currentStepIndex: 1, currentStepState: StepPaused}}", suspended, "StepPaused"},
		{"step waits for a time", stepped + "spec: {strategy: {canary: {steps: [{traffic: 5%, pause: {duration: 60}}]}}}\nstatus: {phase: Progressing, canaryStatus: {currentStepIndex: 1, currentStepState: StepPaused}}", progressing, "Progressing"},
		{"images are pulled", pull + "status: {desired: 2, completed: 1}", progressing, "Pulling"},
		{"images are there", pull + "status: {desired: 2, completed: 2, completionTime: x}", healthyResult, ""},
		{"images are not everywhere", pull + "status: {desired: 2, completed: 2, completionTime: x, failedNodes: [a]}", degraded, "Failed"},
		{"set of listeners", headYAML("gateway.networking.k8s.io/v1", "ListenerSet") + statusYAML(conditionYAML("Accepted", "True", ""), conditionYAML("Programmed", "True", "")), healthyResult, ""},
		{"pool of models", headYAML("inference.networking.k8s.io/v1", "InferencePool") + "status: {parents: [{conditions: [" + conditionYAML("Accepted", "True", "") + "]}]}", healthyResult, ""},

		{"database", headYAML("postgresql.cnpg.io/v1", "Database") + "status: {observedGeneration: 2, applied: true}", healthyResult, ""},
		{"database without its owner", headYAML("postgresql.cnpg.io/v1", "Database") + "status: {observedGeneration: 2, applied: false, message: no role}", progressing, "NotApplied"},
		{"scaled nodes", headYAML("autoscaling.k8s.elastic.co/v1alpha1", "ElasticsearchAutoscaler") + statusYAML(conditionYAML("Active", "True", ""), conditionYAML("Healthy", "True", ""), conditionYAML("Online", "True", ""), conditionYAML("Limited", "False", "")), healthyResult, ""},
		{"settings that contradict others", headYAML("stackconfigpolicy.k8s.elastic.co/v1alpha1", "StackConfigPolicy") + "status: {phase: Conflict}", degraded, "Conflict"},
	})
}

// The customary ones of many conditions are reported.
func TestReadyIsReportedAmongMany(t *testing.T) {
	var all []string
	for i := range 12 {
		all = append(all, conditionYAML(fmt.Sprintf("Part%02dReady", i), "True", ""))
	}
	template := parseObject(t, headYAML("infrastructure.cluster.x-k8s.io/v1beta2", "AWSCluster"))
	member := parseObject(t, headYAML("infrastructure.cluster.x-k8s.io/v1beta2", "AWSCluster")+statusYAML(append(all, conditionYAML("Ready", "True", ""))...))
	st, ok := kinds.AggregateStatus(template, false, []kinds.RowItem{reportRow("oslo", member)}, 2, 0)
	text, err := json.Marshal(st)
	if err != nil || !ok || !strings.Contains(string(text), `"type":"Ready"`) || strings.Count(string(text), `"type"`) != 8 {
		t.Errorf("%v %s %v", ok, text, err)
	}
}

// The observed generation of conditions stays until every member has applied the next.
func TestConditionsKeepTheirGeneration(t *testing.T) {
	said := "{type: Programmed, status: 'True', reason: Programmed, observedGeneration: 2}"
	member := parseObject(t, headYAML("gateway.networking.k8s.io/v1", "Gateway")+statusYAML(said))
	template := parseObject(t, strings.Replace(headYAML("gateway.networking.k8s.io/v1", "Gateway"), "generation: 2", "generation: 3", 1)+statusYAML(said))
	row := reportRow("oslo", member)
	row.Stale = true
	st, ok := kinds.AggregateStatus(template, false, []kinds.RowItem{row}, 0, 0)
	cs, _ := st["conditions"].([]any)
	if !ok || len(cs) != 1 || cs[0].(map[string]any)["observedGeneration"] != int64(2) {
		t.Errorf("%v %v", ok, st)
	}
}
