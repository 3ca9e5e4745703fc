package kinds

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/atoll"
)

// gatewayAPIKinds: gateways, and the routes and policies attached to them.
var gatewayAPIKinds = customKinds{
	{Group: "gateway.networking.k8s.io", Kind: "GatewayClass"}: {
		health: newHealthFunc(healthReader{requiredConditions: []string{"Accepted"}}), immutableFields: parsePaths("spec.controllerName")},
	{Group: "gateway.networking.k8s.io", Kind: "Gateway"}: {hasAddressList: true,
		health: gatewayHealth},
	{Group: "gateway.networking.k8s.io", Kind: "HTTPRoute"}:        routeTraits,
	{Group: "gateway.networking.k8s.io", Kind: "GRPCRoute"}:        routeTraits,
	{Group: "gateway.networking.k8s.io", Kind: "TLSRoute"}:         routeTraits,
	{Group: "gateway.networking.k8s.io", Kind: "TCPRoute"}:         routeTraits,
	{Group: "gateway.networking.k8s.io", Kind: "UDPRoute"}:         routeTraits,
	{Group: "gateway.networking.k8s.io", Kind: "BackendTLSPolicy"}: parentsField{"ancestors", "ancestorRef", 16}.buildTraits(),
	{Group: "gateway.networking.k8s.io", Kind: "ReferenceGrant"}:   configTraits,
	{Group: "gateway.networking.k8s.io", Kind: "ListenerSet"}:      {health: gatewayHealth},
	{Group: "gateway.networking.x-k8s.io", Kind: "XListenerSet"}:   {health: gatewayHealth},
	{Group: "inference.networking.k8s.io", Kind: "InferencePool"}:  routeTraits,
}

// gatewayHealth: a refused gateway needs another spec. The references of a listener, such as a
// certificate, can appear later.
func gatewayHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	cs := conditionsOf(statusOf(obj))
	markOutdatedConditions(cs, obj.GetGeneration())
	switch c := findCondition(cs, "Accepted"); {
	case c.reason == "ListenersNotValid":
		return atoll.Progressing, c.reason, orElse(c.message, "not all of its listeners are valid")
	case c.hasStatus("False") && c.reason != "Pending" && c.reason != "NotReconciled":
		return atoll.Degraded, orElse(c.reason, "NotAccepted"), c.message
	}
	r := healthReader{requiredConditions: []string{"Accepted", "Programmed"}}
	return r.readHealth(obj)
}

var routeTraits = parentsField{"parents", "parentRef", 32}.buildTraits()

// gatewayParentsHealth reads the reports of gateways about an object attached to them. Every gateway
// has to accept the object and to resolve its references.
func gatewayParentsHealth(field string) healthFunc {
	return func(obj *unstructured.Unstructured) (atoll.Health, string, string) {
		if hasUnreadableStatus(obj) {
			return atoll.Unknown, "UnreadableStatus", "the status is not an object"
		}
		parents, accepted := listField(statusOf(obj), field), 0
		for _, p := range parents {
			m, _ := p.(map[string]any)
			for _, c := range conditionsOf(m) {
				if c.conditionType == "Accepted" {
					accepted++
				}
				if h, reason, message := parentConditionHealth(c, obj.GetGeneration()); h != atoll.Healthy {
					return h, reason, message
				}
			}
		}
		if accepted == 0 || accepted < len(parents) {
			return atoll.Progressing, "NotReported", "a gateway of the member has not reported yet whether it accepts the object"
		}
		return healthyResult()
	}
}

func parentConditionHealth(c condition, generation int64) (atoll.Health, string, string) {
	switch {
	case c.conditionType != "Accepted" && c.conditionType != "ResolvedRefs":
	case c.hasObserved && c.observedGeneration < generation:
		return notObservedResult()
	case c.hasStatus("False"):
		return atoll.Degraded, orElse(c.reason, "Not"+c.conditionType), c.message
	case !c.hasStatus("True"):
		return atoll.Progressing, orElse(c.reason, "Not"+c.conditionType), orElse(c.message, fmt.Sprintf("condition %s is %s", c.conditionType, c.status))
	}
	return healthyResult()
}

// istioTraits: Istio validates these kinds, and reports it only where writing statuses is
// enabled.
var istioTraits = kindTraits{health: istioConfigHealth}

// istioKinds: configuration of the mesh, by default without a status.
var istioKinds = customKinds{
	{Group: "networking.istio.io", Kind: "VirtualService"}:      istioTraits,
	{Group: "networking.istio.io", Kind: "DestinationRule"}:     istioTraits,
	{Group: "networking.istio.io", Kind: "Gateway"}:             istioTraits,
	{Group: "networking.istio.io", Kind: "ServiceEntry"}:        istioTraits,
	{Group: "networking.istio.io", Kind: "Sidecar"}:             istioTraits,
	{Group: "networking.istio.io", Kind: "EnvoyFilter"}:         istioTraits,
	{Group: "networking.istio.io", Kind: "WorkloadEntry"}:       istioTraits,
	{Group: "networking.istio.io", Kind: "WorkloadGroup"}:       istioTraits,
	{Group: "networking.istio.io", Kind: "ProxyConfig"}:         istioTraits,
	{Group: "security.istio.io", Kind: "AuthorizationPolicy"}:   istioTraits,
	{Group: "security.istio.io", Kind: "PeerAuthentication"}:    istioTraits,
	{Group: "security.istio.io", Kind: "RequestAuthentication"}: istioTraits,
	{Group: "telemetry.istio.io", Kind: "Telemetry"}:            istioTraits,
	{Group: "extensions.istio.io", Kind: "WasmPlugin"}:          istioTraits,
}

func istioConfigHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	if hasUnreadableStatus(obj) {
		return atoll.Unknown, "UnreadableStatus", "the status is not an object"
	}
	for _, c := range conditionsOf(statusOf(obj)) { // of policies in a mesh without sidecars
		if (c.conditionType == "WaypointAccepted" || c.conditionType == "ZtunnelAccepted") && c.hasStatus("False") {
			return atoll.Progressing, orElse(c.reason, "Not"+c.conditionType), c.message
		}
	}
	for _, m := range listField(statusOf(obj), "validationMessages") {
		entry, _ := m.(map[string]any)
		if stringField(entry, "level") == "ERROR" {
			return atoll.Degraded, "Invalid", orElse(stringField(entry, "message"), "Istio finds an error in it: "+stringField(entry, "documentationUrl"))
		}
	}
	return healthyResult()
}
