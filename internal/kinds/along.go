package kinds

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/internal/atoll"
)

// DependencyRefusal returns why an object of the kind is never placed as a dependency that a
// user's script names or selects by labels; empty where it may be. The text continues a sentence
// after "it".
//
// The writer of an object controls the answers of a script about it. The policy that places the
// object need not select the dependency, and the writer need not have the right to read it. A
// policy must therefore name rights, configuration of API servers, and cluster machinery.
func DependencyRefusal(gk schema.GroupKind) string {
	if why := dependencyRefusalsByGroup[gk.Group]; why != "" {
		return why
	}
	if atoll.IsHubOwnedKind(gk) {
		return "is of the hub's own API"
	}
	if why := dependencyRefusalsByKind[gk]; why != "" {
		return why
	}
	if IsClusterGenerated(gk) {
		return "is made by machinery in every cluster"
	}
	return ""
}

// IsUsefulUnplaced reports whether objects of the kind are of use although nothing places them: the hub
// acts on them, or they travel with the objects that need them.
func IsUsefulUnplaced(gk schema.GroupKind) bool {
	return unplacedKinds[gk] || dependencyRefusalsByGroup[gk.Group] != ""
}

var unplacedKinds = map[schema.GroupKind]bool{
	{Kind: "ConfigMap"}: true, {Kind: "Secret"}: true, {Kind: "ServiceAccount"}: true, {Kind: "PersistentVolumeClaim"}: true,
	{Kind: "ResourceQuota"}: true, {Kind: "LimitRange"}: true, {Kind: "Namespace"}: true,
}

var dependencyRefusalsByGroup = map[string]string{
	"rbac.authorization.k8s.io":    "gives rights",
	"admissionregistration.k8s.io": "steers an API server",
	"apiregistration.k8s.io":       "steers an API server",
	"flowcontrol.apiserver.k8s.io": "steers an API server",
}

var dependencyRefusalsByKind = map[schema.GroupKind]string{
	{Kind: "Namespace"}: "is made where something in it is placed",
	{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}: "goes with the objects of its kind",
	{Group: "apps", Kind: "ReplicaSet"}:                               "is made from a Deployment",
	{Group: "apps", Kind: "ControllerRevision"}:                       "is made from a workload",
	{Kind: "Endpoints"}:                                               "is made from a Service",
	{Group: "discovery.k8s.io", Kind: "EndpointSlice"}:                "is made from a Service",
}

// IsClusterGenerated reports whether only machinery of clusters writes objects of the kind. Such
// objects are never placed.
func IsClusterGenerated(gk schema.GroupKind) bool { return clusterGeneratedKinds[gk] }

var clusterGeneratedKinds = map[schema.GroupKind]bool{
	{Kind: "Event"}:                                                     true,
	{Group: "events.k8s.io", Kind: "Event"}:                             true,
	{Kind: "Node"}:                                                      true,
	{Kind: "ComponentStatus"}:                                           true,
	{Group: "coordination.k8s.io", Kind: "Lease"}:                       true,
	{Group: "coordination.k8s.io", Kind: "LeaseCandidate"}:              true,
	{Group: "certificates.k8s.io", Kind: "CertificateSigningRequest"}:   true,
	{Group: "storage.k8s.io", Kind: "CSINode"}:                          true,
	{Group: "storage.k8s.io", Kind: "VolumeAttachment"}:                 true,
	{Group: "networking.k8s.io", Kind: "IPAddress"}:                     true,
	{Group: "networking.k8s.io", Kind: "ServiceCIDR"}:                   true,
	{Group: "internal.apiserver.k8s.io", Kind: "StorageVersion"}:        true,
	{Group: "storagemigration.k8s.io", Kind: "StorageVersionMigration"}: true,
}
