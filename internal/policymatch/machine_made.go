package policymatch

import "k8s.io/apimachinery/pkg/runtime/schema"

// machineSecretTypes are the types of Secrets that no user wrote.
var machineSecretTypes = map[string]string{
	"kubernetes.io/service-account-token": "a token that the hub issued",
	"helm.sh/release.v1":                  "a record that Helm keeps of its release",
	"bootstrap.kubernetes.io/token":       "a token for joining",
}

// eventKinds are never placed.
var eventKinds = map[schema.GroupKind]string{
	{Kind: "Event"}:                               "an event",
	{Group: "events.k8s.io", Kind: "Event"}:       "an event",
	{Group: "coordination.k8s.io", Kind: "Lease"}: "a lease",
}

// derivedKinds are kinds that controllers derive from other objects, and that users write, too. The
// annotation of a namespace never placed them. An upgrade must not begin to place them.
var derivedKinds = map[schema.GroupKind]string{
	replicaSetKind:         "made from a Deployment",
	endpointsKind:          "made from a Service",
	endpointSliceKind:      "made from a Service",
	controllerRevisionKind: "made from a workload",
}

var (
	replicaSetKind         = schema.GroupKind{Group: "apps", Kind: "ReplicaSet"}
	endpointsKind          = schema.GroupKind{Kind: "Endpoints"}
	endpointSliceKind      = schema.GroupKind{Group: "discovery.k8s.io", Kind: "EndpointSlice"}
	controllerRevisionKind = schema.GroupKind{Group: "apps", Kind: "ControllerRevision"}
)

// The labels by which Kubernetes' controllers mark Endpoints and EndpointSlices. Users set the label
// of EndpointSlices, too, with names of their own.
const (
	endpointsManagerLabel     = "endpoints.kubernetes.io/managed-by"
	endpointSliceManagerLabel = "endpointslice.kubernetes.io/managed-by"
)

var endpointSliceControllers = map[string]bool{
	"endpointslice-controller.k8s.io":          true,
	"endpointslicemirroring-controller.k8s.io": true,
}

// derivedByControllerReason returns why an object of a kind that users and controllers write is a controller's;
// empty for what a user wrote.
func derivedByControllerReason(s Subject) string {
	gk := GroupKindOf(s.Key)
	isDerived := false
	switch gk {
	case endpointsKind:
		isDerived = s.Labels[endpointsManagerLabel] != ""
	case endpointSliceKind:
		isDerived = endpointSliceControllers[s.Labels[endpointSliceManagerLabel]]
	case controllerRevisionKind:
	default:
		return ""
	}
	if isDerived || s.Controller != "" {
		return derivedKinds[gk]
	}
	return ""
}
