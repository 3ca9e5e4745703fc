package kinds

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/atoll"
)

// clusterAPIKinds: clusters and their machines. Replicas are machines of one cluster, so they
// are not divided.
var clusterAPIKinds = customKinds{
	{Group: "cluster.x-k8s.io", Kind: "Cluster"}: {memberFields: parsePaths("spec.controlPlaneEndpoint"), health: clusterAPIHealth(map[string]atoll.Health{
		"Pending": phaseProgressing, "Provisioning": phaseProgressing, "Provisioned": phaseHealthy, "Deleting": phaseProgressing, "Failed": phaseDegraded, "Unknown": atoll.Unknown})},
	{Group: "cluster.x-k8s.io", Kind: "Machine"}: {memberFields: parsePaths("spec.providerID"), health: clusterAPIHealth(map[string]atoll.Health{
		"Pending": phaseProgressing, "Provisioning": phaseProgressing, "Provisioned": phaseProgressing, "Running": phaseHealthy, "Updating": phaseProgressing, "Deleting": phaseProgressing, "Deleted": phaseProgressing,
		"Failed": phaseDegraded, "Unknown": atoll.Unknown})},
	{Group: "cluster.x-k8s.io", Kind: "MachineDeployment"}: {immutableFields: []fieldPath{selectorPath}, health: clusterAPIHealth(map[string]atoll.Health{
		"Running": phaseHealthy, "ScalingUp": phaseProgressing, "ScalingDown": phaseProgressing, "Failed": phaseDegraded, "Unknown": atoll.Unknown})},
	{Group: "cluster.x-k8s.io", Kind: "MachinePool"}: {health: clusterAPIHealth(map[string]atoll.Health{
		"Pending": phaseProgressing, "Provisioning": phaseProgressing, "Provisioned": phaseProgressing, "Running": phaseHealthy, "ScalingUp": phaseProgressing, "ScalingDown": phaseProgressing, "Scaling": phaseProgressing,
		"Deleting": phaseProgressing, "Failed": phaseDegraded, "Unknown": atoll.Unknown})},
	{Group: "cluster.x-k8s.io", Kind: "MachineSet"}:                       {health: capiMachineSetHealth},
	{Group: "cluster.x-k8s.io", Kind: "MachineHealthCheck"}:               {health: newHealthFunc(healthReader{healthyWithoutStatus: true, observedIsEnough: true})},
	{Group: "cluster.x-k8s.io", Kind: "ClusterClass"}:                     {health: clusterClassHealth},
	{Group: "controlplane.cluster.x-k8s.io", Kind: "KubeadmControlPlane"}: {health: clusterAPIHealth(nil)},
}

// clusterAPIHealth reads the terminal failure, the phase, and the customary conditions:
// Available in newer versions, Ready in older ones.
func clusterAPIHealth(phases map[string]atoll.Health) healthFunc {
	return func(obj *unstructured.Unstructured) (atoll.Health, string, string) {
		st := statusOf(obj)
		if boolField(specOf(obj), "paused") {
			return atoll.Suspended, "Paused", "its reconciliation is paused"
		}
		if message := stringField(st, "failureMessage"); message != "" {
			return atoll.Degraded, orElse(stringField(st, "failureReason"), "Failed"), message
		}
		if len(st) == 0 {
			return notReportedResult()
		}
		if h, reason, message := scalingReader.readHealth(obj); h != atoll.Healthy {
			return h, reason, message
		}
		if phases != nil && stringField(st, "phase") != "" {
			r := healthReader{phasePath: defaultPhasePath, phaseHealth: phases}
			if h, reason, message := r.readHealth(obj); h != atoll.Healthy {
				return h, reason, message
			}
		}
		if h, reason, message := genericHealth(obj); h != atoll.Unknown || phases == nil || stringField(st, "phase") == "" {
			return h, reason, message
		}
		return healthyResult() // the phase is enough: no condition contradicts it
	}
}

// scalingReader reads the conditions of newer versions that explain changes while Available
// stays True.
var scalingReader = &healthReader{suspendedConditions: []string{"Paused"}, progressingConditions: []string{"RollingOut", "ScalingUp", "ScalingDown"}, observedIsEnough: true}

// capiMachineSetHealth returns the health of a MachineSet. Newer versions have no condition for the whole set, so
// available machines are counted.
func capiMachineSetHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	cs := conditionsOf(statusOf(obj))
	if findCondition(cs, "Ready").conditionType != "" || findCondition(cs, "Available").conditionType != "" || findCondition(cs, "MachinesReady").conditionType == "" {
		return provisionedByConditions(obj)
	}
	if h, reason, message := scalingReader.readHealth(obj); h != atoll.Healthy {
		return h, reason, message
	}
	return replicaHealth(obj, "availableReplicas", "machines are available")
}

var provisionedByConditions = clusterAPIHealth(nil)

// clusterClassHealth returns the health of a ClusterClass. It reads the condition of its variables, which has another name in
// older versions. References to older API versions are no trouble.
func clusterClassHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	r := healthReader{suspendedConditions: []string{"Paused"}, requiredConditions: []string{"VariablesReady"}}
	if findCondition(conditionsOf(statusOf(obj)), "VariablesReconciled").conditionType != "" {
		r.requiredConditions = []string{"VariablesReconciled"}
	}
	return r.readHealth(obj)
}

// crossplaneKinds: packages and definitions. Managed resources are of any group and are judged
// by Synced and Ready; see crossplaneManagedHealth.
var crossplaneKinds = customKinds{
	{Group: "pkg.crossplane.io", Kind: "Provider"}:                              {health: installed},
	{Group: "pkg.crossplane.io", Kind: "Configuration"}:                         {health: installed},
	{Group: "pkg.crossplane.io", Kind: "Function"}:                              {health: installed},
	{Group: "apiextensions.crossplane.io", Kind: "CompositeResourceDefinition"}: {health: newHealthFunc(healthReader{requiredConditions: []string{"Established"}}), immutableFields: parsePaths("spec.group", "spec.names.kind")},
	{Group: "apiextensions.crossplane.io", Kind: "Composition"}:                 configTraits,
	{Group: "apiextensions.crossplane.io", Kind: "CompositionRevision"}:         configTraits,
}

var installed = newHealthFunc(healthReader{requiredConditions: []string{"Installed", "Healthy"}})

// isCrossplaneGroup reports whether the group is of Crossplane or its providers.
func isCrossplaneGroup(group string) bool {
	for _, domain := range []string{"crossplane.io", "upbound.io"} {
		if group == domain || strings.HasSuffix(group, "."+domain) {
			return true
		}
	}
	return false
}

// crossplaneManagedHealth reads the conditions of Crossplane for a paused resource and for a failed
// asynchronous operation, which is tried again. It returns no health for others.
func crossplaneManagedHealth(cs []condition) (atoll.Health, string, string) {
	switch synced, async := findCondition(cs, "Synced"), findCondition(cs, "LastAsyncOperation"); {
	case synced.hasStatus("False") && synced.reason == "ReconcilePaused":
		return atoll.Suspended, synced.reason, orElse(synced.message, "its reconciliation is paused")
	case synced.hasStatus("True") && async.hasStatus("False"):
		return atoll.Progressing, orElse(async.reason, "AsyncOperationFailed"), async.message
	}
	return "", "", ""
}
