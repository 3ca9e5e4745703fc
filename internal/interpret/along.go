package interpret

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/internal/atoll"
)

// NeverAlong says why an object of the kind goes nowhere as a dependency that a user's
// script names, or selects by labels; empty where it may. The text goes on from "it".
// Whoever writes an object chooses what a script says of it, and the policy that places the
// object need not select, and its writer need not be able to read, what is named so:
// rights, what steers an API server, and what no selector of all means are placed by a
// policy that says so, or by nothing.
func NeverAlong(gk schema.GroupKind) string {
	if why := neverAlongGroups[gk.Group]; why != "" {
		return why
	}
	if atoll.OwnKind(gk) {
		return "is of the hub's own API"
	}
	if why := neverAlong[gk]; why != "" {
		return why
	}
	if Machinery(gk) {
		return "is made by machinery in every cluster"
	}
	return ""
}

var neverAlongGroups = map[string]string{
	"rbac.authorization.k8s.io":    "gives rights",
	"admissionregistration.k8s.io": "steers an API server",
	"apiregistration.k8s.io":       "steers an API server",
	"flowcontrol.apiserver.k8s.io": "steers an API server",
}

var neverAlong = map[schema.GroupKind]string{
	{Kind: "Namespace"}: "is made where something in it is placed",
	{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}: "goes with the objects of its kind",
	{Group: "apps", Kind: "ReplicaSet"}:                               "is made from a Deployment",
}

// Machinery tells of kinds whose objects clusters make and unmake by themselves, which
// nobody places.
func Machinery(gk schema.GroupKind) bool { return machinery[gk] }

var machinery = map[schema.GroupKind]bool{
	{Kind: "Event"}:                                                     true,
	{Group: "events.k8s.io", Kind: "Event"}:                             true,
	{Kind: "Endpoints"}:                                                 true,
	{Kind: "Node"}:                                                      true,
	{Kind: "ComponentStatus"}:                                           true,
	{Group: "discovery.k8s.io", Kind: "EndpointSlice"}:                  true,
	{Group: "coordination.k8s.io", Kind: "Lease"}:                       true,
	{Group: "coordination.k8s.io", Kind: "LeaseCandidate"}:              true,
	{Group: "apps", Kind: "ControllerRevision"}:                         true,
	{Group: "certificates.k8s.io", Kind: "CertificateSigningRequest"}:   true,
	{Group: "storage.k8s.io", Kind: "CSINode"}:                          true,
	{Group: "storage.k8s.io", Kind: "VolumeAttachment"}:                 true,
	{Group: "networking.k8s.io", Kind: "IPAddress"}:                     true,
	{Group: "networking.k8s.io", Kind: "ServiceCIDR"}:                   true,
	{Group: "internal.apiserver.k8s.io", Kind: "StorageVersion"}:        true,
	{Group: "storagemigration.k8s.io", Kind: "StorageVersionMigration"}: true,
}
