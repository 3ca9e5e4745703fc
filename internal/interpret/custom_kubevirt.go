package interpret

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/atoll"
)

// kubevirt: virtual machines, sets of them, and the disks that are filled for them.
var kubevirt = custom{
	{Group: "kubevirt.io", Kind: "VirtualMachine"}: {health: machineHealth, phase: at("printableStatus"),
		pods: []part{{number: machinesOn, requests: machineRequests("spec.template.spec.domain")}}},
	{Group: "kubevirt.io", Kind: "VirtualMachineInstance"}: {
		health: judge(reading{held: []string{"Paused"}, phase: phase, phases: map[string]atoll.Health{
			"Pending": busy, "Scheduling": busy, "Scheduled": busy, "WaitingForSync": busy, "Running": good,
			"Succeeded": good, "Failed": bad, "Unknown": atoll.Unknown}}),
		pods: []part{{requests: machineRequests("spec.domain")}}, frozen: all("spec")},
	{Group: "kubevirt.io", Kind: "VirtualMachineInstanceReplicaSet"}: {health: machineSetHealth,
		replicas: specReplicas, counts: []string{"", "replicas", "", "readyReplicas"},
		pods: []part{{requests: machineRequests("spec.template.spec.domain")}}},
	{Group: "pool.kubevirt.io", Kind: "VirtualMachinePool"}: {health: machineSetHealth,
		replicas: specReplicas, counts: []string{"", "replicas", "", "readyReplicas"},
		volumes: at("spec.virtualMachineTemplate.spec.dataVolumeTemplates"),
		pods:    []part{{requests: machineRequests("spec.virtualMachineTemplate.spec.template.spec.domain")}}},
	{Group: "cdi.kubevirt.io", Kind: "DataVolume"}: {
		health: judge(reading{phase: phase, other: busy, phases: map[string]atoll.Health{
			"Succeeded": good, "Paused": still, "WaitForFirstConsumer": still, "PendingPopulation": still, // until a pod wants it
			"Failed": bad, "Unknown": atoll.Unknown}}), frozen: all("spec")},
	{Group: "cdi.kubevirt.io", Kind: "DataImportCron"}: {health: judge(reading{must: []string{"UpToDate"}})},
	{Group: "kubevirt.io", Kind: "VirtualMachineInstanceMigration"}: {
		health: judge(reading{phase: phase, other: busy, phases: map[string]atoll.Health{"Succeeded": good, "Failed": bad}})},
	{Group: "snapshot.kubevirt.io", Kind: "VirtualMachineSnapshot"}: {
		health: judge(reading{phase: phase, phases: map[string]atoll.Health{
			"InProgress": busy, "Succeeded": good, "Failed": bad, "Deleting": busy, "Unknown": atoll.Unknown}})},
}

var machineStates = map[string]atoll.Health{
	"Running": good, "Migrating": good, "Paused": still,
	"CrashLoopBackOff": bad, "ErrImagePull": bad, "ImagePullBackOff": bad, "ErrorPvcNotFound": bad, "DataVolumeError": bad,
	"Unknown": atoll.Unknown,
}

func machineHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	state := text(status(obj), "printableStatus")
	on, stated := spec(obj)["running"].(bool)
	strategy := text(spec(obj), "runStrategy")
	if state == "Stopped" && (strategy == "Halted" || strategy == "Manual" || stated && !on) {
		return atoll.Suspended, "Stopped", "the virtual machine is not to run"
	}
	// Its instance, which ended, is still there: before it began there was none.
	if state == "Stopped" && (strategy == "Once" || strategy == "RerunOnFailure") && flag(status(obj), "created") {
		return atoll.Suspended, "Stopped", "the virtual machine has run, and nothing starts it again"
	}
	// The generation that it says it has observed is the one that its instance was started
	// of, which stays behind where a change takes a restart that nobody has asked for yet.
	if c := find(conditionsOf(status(obj)), "RestartRequired"); c.is("True") {
		return atoll.Progressing, "RestartRequired", orElse(c.message, "a change takes effect once the virtual machine is restarted")
	}
	r := reading{phase: at("printableStatus"), phases: machineStates, other: busy, must: []string{"Ready"}}
	return r.verdict(obj)
}

func machineSetHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	if flag(spec(obj), "paused") {
		return atoll.Suspended, "Paused", "the set is paused"
	}
	st := status(obj)
	if len(st) == 0 && countOr(spec(obj), "replicas", 1) > 0 {
		return unreported()
	}
	if c := find(conditionsOf(st), "ReplicaFailure"); c.is("True") {
		return atoll.Progressing, orElse(c.reason, "ReplicaFailure"), c.message
	}
	return enough(obj, "readyReplicas", "virtual machines are ready")
}

// machinesOn is whether a virtual machine is to run.
func machinesOn(m map[string]any) int64 {
	sp := child(m, "spec")
	on, stated := sp["running"].(bool)
	if strategy := text(sp, "runStrategy"); strategy == "Halted" || stated && !on {
		return 0
	}
	return 1
}

// machineRequests of a domain: what it requests, else its memory, and a tenth of its
// cores unless they are its own, which is what KubeVirt asks for unless told otherwise.
func machineRequests(dotted string) func(map[string]any) amounts {
	domain := at(dotted)
	return func(m map[string]any) amounts {
		d := digMap(m, domain)
		out := resourcesOf(child(d, "resources"))
		if out == nil {
			out = amounts{}
		}
		guest := orElse(text(child(d, "memory"), "guest"), text(child(d, "resources", "limits"), "memory"))
		if q, err := atoll.ParseQuantity(guest); err == nil && out[corev1.ResourceMemory] == 0 {
			out[corev1.ResourceMemory] = atoll.Units(q)
		}
		if cpu := child(d, "cpu"); cpu != nil && out[corev1.ResourceCPU] == 0 {
			cores := atoll.Times(atoll.Times(countOr(cpu, "cores", 1), countOr(cpu, "sockets", 1)), countOr(cpu, "threads", 1))
			if out[corev1.ResourceCPU] = atoll.Times(cores, 100); flag(cpu, "dedicatedCpuPlacement") {
				out[corev1.ResourceCPU] = atoll.Times(cores, 1000)
			}
		}
		return out
	}
}
