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
	{Group: "cluster.x-k8s.io", Kind: "MachineSet"}:                       {health: provisioned(nil)},
	{Group: "cluster.x-k8s.io", Kind: "MachineHealthCheck"}:               {health: judge(reading{config: true, seen: true})},
	{Group: "cluster.x-k8s.io", Kind: "ClusterClass"}:                     {health: genericHealth},
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

// managedHealth reads conditions in Crossplane's manner: Synced, that what is asked for
// could be asked of the provider, beside Ready, that it is there. No health where the
// conditions are not of that manner, or have nothing against it.
func managedHealth(cs []condition) (atoll.Health, string, string) {
	synced := find(cs, "Synced")
	if synced.kind == "" || find(cs, "Ready").kind == "" {
		return "", "", ""
	}
	switch async := find(cs, "LastAsyncOperation"); {
	case synced.is("False") && synced.reason == "ReconcilePaused":
		return atoll.Suspended, synced.reason, orElse(synced.message, "its reconciliation is paused")
	case synced.is("False"):
		return atoll.Degraded, orElse(synced.reason, "NotSynced"), orElse(synced.message, "condition Synced is False")
	case async.is("False"):
		return atoll.Degraded, orElse(async.reason, "AsyncOperationFailed"), async.message
	}
	return "", "", ""
}
