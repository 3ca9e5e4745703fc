package interpret

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/atoll"
)

// clusterAPI: clusters, and the machines that they are of. Their replicas are machines of
// one cluster each, so that they are not shared out.
var clusterAPI = custom{
	{Group: "cluster.x-k8s.io", Kind: "Cluster"}: {member: all("spec.controlPlaneEndpoint"), health: provisioned(map[string]atoll.Health{
		"Pending": busy, "Provisioning": busy, "Provisioned": good, "Deleting": busy, "Failed": bad, "Unknown": atoll.Unknown})},
	{Group: "cluster.x-k8s.io", Kind: "Machine"}: {member: all("spec.providerID"), health: provisioned(map[string]atoll.Health{
		"Pending": busy, "Provisioning": busy, "Provisioned": busy, "Running": good, "Updating": busy, "Deleting": busy, "Deleted": busy,
		"Failed": bad, "Unknown": atoll.Unknown})},
	{Group: "cluster.x-k8s.io", Kind: "MachineDeployment"}: {frozen: []path{selector}, health: provisioned(map[string]atoll.Health{
		"Running": good, "ScalingUp": busy, "ScalingDown": busy, "Failed": bad, "Unknown": atoll.Unknown})},
	{Group: "cluster.x-k8s.io", Kind: "MachinePool"}: {health: provisioned(map[string]atoll.Health{
		"Pending": busy, "Provisioning": busy, "Provisioned": busy, "Running": good, "ScalingUp": busy, "ScalingDown": busy, "Scaling": busy,
		"Deleting": busy, "Failed": bad, "Unknown": atoll.Unknown})},
	{Group: "cluster.x-k8s.io", Kind: "MachineSet"}:                       {health: machinesHealth},
	{Group: "cluster.x-k8s.io", Kind: "MachineHealthCheck"}:               {health: judge(reading{config: true, seen: true})},
	{Group: "cluster.x-k8s.io", Kind: "ClusterClass"}:                     {health: classHealth},
	{Group: "controlplane.cluster.x-k8s.io", Kind: "KubeadmControlPlane"}: {health: provisioned(nil)},
}

// provisioned reads a failure that nobody gets over, the phase, and what is customary:
// Available in newer versions, Ready in older ones.
func provisioned(phases map[string]atoll.Health) verdict {
	return func(obj *unstructured.Unstructured) (atoll.Health, string, string) {
		st := status(obj)
		if flag(spec(obj), "paused") {
			return atoll.Suspended, "Paused", "its reconciliation is paused"
		}
		if message := text(st, "failureMessage"); message != "" {
			return atoll.Degraded, orElse(text(st, "failureReason"), "Failed"), message
		}
		if len(st) == 0 {
			return unreported()
		}
		if h, reason, message := changing.verdict(obj); h != atoll.Healthy {
			return h, reason, message
		}
		if phases != nil && text(st, "phase") != "" {
			r := reading{phase: phase, phases: phases}
			if h, reason, message := r.verdict(obj); h != atoll.Healthy {
				return h, reason, message
			}
		}
		if h, reason, message := genericHealth(obj); h != atoll.Unknown || phases == nil || text(st, "phase") == "" {
			return h, reason, message
		}
		return healthy() // the phase says so, and no condition speaks against it
	}
}

// changing reads what newer versions tell beside Available, which is True all the while.
var changing = &reading{held: []string{"Paused"}, busy: []string{"RollingOut", "ScalingUp", "ScalingDown"}, seen: true}

// machinesHealth of a MachineSet, which in newer versions has no condition for the whole:
// that all of its machines are available says it.
func machinesHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	cs := conditionsOf(status(obj))
	if find(cs, "Ready").kind != "" || find(cs, "Available").kind != "" || find(cs, "MachinesReady").kind == "" {
		return provisionedByConditions(obj)
	}
	if h, reason, message := changing.verdict(obj); h != atoll.Healthy {
		return h, reason, message
	}
	return enough(obj, "availableReplicas", "machines are available")
}

var provisionedByConditions = provisioned(nil)

// classHealth of a ClusterClass: its variables are found, by the name that the condition has
// in either version. That what it refers to is of an old version is no trouble of its own.
func classHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	r := reading{held: []string{"Paused"}, must: []string{"VariablesReady"}}
	if find(conditionsOf(status(obj)), "VariablesReconciled").kind != "" {
		r.must = []string{"VariablesReconciled"}
	}
	return r.verdict(obj)
}

// crossplane: packages and definitions. What it manages is of any group and is known by
// its conditions, Synced and Ready; see managedHealth.
var crossplane = custom{
	{Group: "pkg.crossplane.io", Kind: "Provider"}:                              {health: installed},
	{Group: "pkg.crossplane.io", Kind: "Configuration"}:                         {health: installed},
	{Group: "pkg.crossplane.io", Kind: "Function"}:                              {health: installed},
	{Group: "apiextensions.crossplane.io", Kind: "CompositeResourceDefinition"}: {health: judge(reading{must: []string{"Established"}}), frozen: all("spec.group", "spec.names.kind")},
	{Group: "apiextensions.crossplane.io", Kind: "Composition"}:                 config,
	{Group: "apiextensions.crossplane.io", Kind: "CompositionRevision"}:         config,
}

var installed = judge(reading{must: []string{"Installed", "Healthy"}})

// crossplanes tells whether a group is of Crossplane or of its providers.
func crossplanes(group string) bool {
	for _, domain := range []string{"crossplane.io", "upbound.io"} {
		if group == domain || strings.HasSuffix(group, "."+domain) {
			return true
		}
	}
	return false
}

// managedHealth reads what Crossplane says beside Synced and Ready: that somebody paused an
// object, and that the last of the operations that take long failed. Whatever fails is
// tried again, so that nothing of it is for good. No health where nothing speaks against it.
func managedHealth(cs []condition) (atoll.Health, string, string) {
	switch synced, async := find(cs, "Synced"), find(cs, "LastAsyncOperation"); {
	case synced.is("False") && synced.reason == "ReconcilePaused":
		return atoll.Suspended, synced.reason, orElse(synced.message, "its reconciliation is paused")
	case synced.is("True") && async.is("False"):
		return atoll.Progressing, orElse(async.reason, "AsyncOperationFailed"), async.message
	}
	return "", "", ""
}
