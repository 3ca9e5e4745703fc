package kinds

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/quantity"
)

// kubevirtKinds: virtual machines, sets of them, and imports of disks.
var kubevirtKinds = customKinds{
	{Group: "kubevirt.io", Kind: "VirtualMachine"}: {health: virtualMachineHealth, customPhasePath: parsePath("printableStatus"),
		podParts: []podPart{{countPods: countVirtualMachinePods, readRequests: virtualMachineRequests("spec.template.spec.domain")}}},
	{Group: "kubevirt.io", Kind: "VirtualMachineInstance"}: {
		health: newHealthFunc(healthReader{suspendedConditions: []string{"Paused"}, phasePath: defaultPhasePath, phaseHealth: map[string]atoll.Health{
			"Pending": phaseProgressing, "Scheduling": phaseProgressing, "Scheduled": phaseProgressing, "WaitingForSync": phaseProgressing, "Running": phaseHealthy,
			"Succeeded": phaseHealthy, "Failed": phaseDegraded, "Unknown": atoll.Unknown}}),
		podParts: []podPart{{readRequests: virtualMachineRequests("spec.domain")}}, immutableFields: parsePaths("spec")},
	{Group: "kubevirt.io", Kind: "VirtualMachineInstanceReplicaSet"}: {health: virtualMachineSetHealth,
		replicasPath: specReplicasPath, countFields: []string{"", "replicas", "", "readyReplicas"},
		podParts: []podPart{{readRequests: virtualMachineRequests("spec.template.spec.domain")}}},
	{Group: "pool.kubevirt.io", Kind: "VirtualMachinePool"}: {health: virtualMachineSetHealth,
		replicasPath: specReplicasPath, countFields: []string{"", "replicas", "", "readyReplicas"},
		volumesPath: parsePath("spec.virtualMachineTemplate.spec.dataVolumeTemplates"),
		podParts:    []podPart{{readRequests: virtualMachineRequests("spec.virtualMachineTemplate.spec.template.spec.domain")}}},
	{Group: "cdi.kubevirt.io", Kind: "DataVolume"}: {
		health: newHealthFunc(healthReader{phasePath: defaultPhasePath, otherPhases: phaseProgressing, phaseHealth: map[string]atoll.Health{
			"Succeeded": phaseHealthy, "Paused": phaseSuspended, "WaitForFirstConsumer": phaseSuspended, "PendingPopulation": phaseSuspended, // until a pod uses it
			"Failed": phaseDegraded, "Unknown": atoll.Unknown}}), immutableFields: parsePaths("spec")},
	{Group: "cdi.kubevirt.io", Kind: "DataImportCron"}: {health: newHealthFunc(healthReader{requiredConditions: []string{"UpToDate"}})},
	{Group: "kubevirt.io", Kind: "VirtualMachineInstanceMigration"}: {
		health: newHealthFunc(healthReader{phasePath: defaultPhasePath, otherPhases: phaseProgressing, phaseHealth: map[string]atoll.Health{"Succeeded": phaseHealthy, "Failed": phaseDegraded}})},
	{Group: "snapshot.kubevirt.io", Kind: "VirtualMachineSnapshot"}: {
		health: newHealthFunc(healthReader{phasePath: defaultPhasePath, phaseHealth: map[string]atoll.Health{
			"InProgress": phaseProgressing, "Succeeded": phaseHealthy, "Failed": phaseDegraded, "Deleting": phaseProgressing, "Unknown": atoll.Unknown}})},
}

var machineStates = map[string]atoll.Health{
	"Running": phaseHealthy, "Migrating": phaseHealthy, "Paused": phaseSuspended,
	"CrashLoopBackOff": phaseDegraded, "ErrImagePull": phaseDegraded, "ImagePullBackOff": phaseDegraded, "ErrorPvcNotFound": phaseDegraded, "DataVolumeError": phaseDegraded,
	"Unknown": atoll.Unknown,
}

func virtualMachineHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	state := stringField(statusOf(obj), "printableStatus")
	on, stated := specOf(obj)["running"].(bool)
	strategy := stringField(specOf(obj), "runStrategy")
	if state == "Stopped" && (strategy == "Halted" || strategy == "Manual" || stated && !on) {
		return atoll.Suspended, "Stopped", "the virtual machine is not to run"
	}
	// Its ended instance still exists: before it started there was none.
	if state == "Stopped" && (strategy == "Once" || strategy == "RerunOnFailure") && boolField(statusOf(obj), "created") {
		return atoll.Suspended, "Stopped", "the virtual machine has run, and nothing starts it again"
	}
	// observedGeneration is the generation at the start of its instance. It is older where a
	// change needs a restart.
	if c := findCondition(conditionsOf(statusOf(obj)), "RestartRequired"); c.hasStatus("True") {
		return atoll.Progressing, "RestartRequired", orElse(c.message, "a change takes effect once the virtual machine is restarted")
	}
	r := healthReader{phasePath: parsePath("printableStatus"), phaseHealth: machineStates, otherPhases: phaseProgressing, requiredConditions: []string{"Ready"}}
	return r.readHealth(obj)
}

func virtualMachineSetHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	if boolField(specOf(obj), "paused") {
		return atoll.Suspended, "Paused", "the set is paused"
	}
	st := statusOf(obj)
	if len(st) == 0 && countFieldOr(specOf(obj), "replicas", 1) > 0 {
		return notReportedResult()
	}
	if c := findCondition(conditionsOf(st), "ReplicaFailure"); c.hasStatus("True") {
		return atoll.Progressing, orElse(c.reason, "ReplicaFailure"), c.message
	}
	return replicaHealth(obj, "readyReplicas", "virtual machines are ready")
}

// countVirtualMachinePods returns 1 where the virtual machine should run, else 0.
func countVirtualMachinePods(m map[string]any) int64 {
	sp := nestedMap(m, "spec")
	on, stated := sp["running"].(bool)
	if strategy := stringField(sp, "runStrategy"); strategy == "Halted" || stated && !on {
		return 0
	}
	return 1
}

// virtualMachineRequests returns a function that reads the requests of a domain. Default memory is the
// guest's memory. Default CPU is a tenth of the cores, as in KubeVirt, or all of them where they
// are dedicated.
func virtualMachineRequests(dotted string) func(map[string]any) resourceAmounts {
	domain := parsePath(dotted)
	return func(m map[string]any) resourceAmounts {
		d := mapAt(m, domain)
		out := parseRequests(nestedMap(d, "resources"))
		if out == nil {
			out = resourceAmounts{}
		}
		guest := orElse(stringField(nestedMap(d, "memory"), "guest"), stringField(nestedMap(d, "resources", "limits"), "memory"))
		if q, err := quantity.Parse(guest); err == nil && out[corev1.ResourceMemory] == 0 {
			out[corev1.ResourceMemory] = quantity.WholeUnits(q)
		}
		if cpu := nestedMap(d, "cpu"); cpu != nil && out[corev1.ResourceCPU] == 0 {
			cores := quantity.MultiplyCapped(quantity.MultiplyCapped(countFieldOr(cpu, "cores", 1), countFieldOr(cpu, "sockets", 1)), countFieldOr(cpu, "threads", 1))
			if out[corev1.ResourceCPU] = quantity.MultiplyCapped(cores, 100); boolField(cpu, "dedicatedCpuPlacement") {
				out[corev1.ResourceCPU] = quantity.MultiplyCapped(cores, 1000)
			}
		}
		return out
	}
}
