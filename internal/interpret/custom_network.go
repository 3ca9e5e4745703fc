package interpret

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/atoll"
)

// gatewayAPI: gateways, and the routes and policies that hang on them.
var gatewayAPI = custom{
	{Group: "gateway.networking.k8s.io", Kind: "GatewayClass"}: {
		health: judge(reading{must: []string{"Accepted"}}), frozen: all("spec.controllerName")},
	{Group: "gateway.networking.k8s.io", Kind: "Gateway"}: {addresses: true,
		health: gatewayHealth},
	{Group: "gateway.networking.k8s.io", Kind: "HTTPRoute"}:        route,
	{Group: "gateway.networking.k8s.io", Kind: "GRPCRoute"}:        route,
	{Group: "gateway.networking.k8s.io", Kind: "TLSRoute"}:         route,
	{Group: "gateway.networking.k8s.io", Kind: "TCPRoute"}:         route,
	{Group: "gateway.networking.k8s.io", Kind: "UDPRoute"}:         route,
	{Group: "gateway.networking.k8s.io", Kind: "BackendTLSPolicy"}: attachment{"ancestors", "ancestorRef", 16}.kind(),
	{Group: "gateway.networking.k8s.io", Kind: "ReferenceGrant"}:   config,
	{Group: "gateway.networking.k8s.io", Kind: "ListenerSet"}:      {health: gatewayHealth},
	{Group: "gateway.networking.x-k8s.io", Kind: "XListenerSet"}:   {health: gatewayHealth},
	{Group: "inference.networking.k8s.io", Kind: "InferencePool"}:  route,
}

// gatewayHealth: what is not accepted needs another spec; but what a listener refers to, such
// as a certificate, may be there later.
func gatewayHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	cs := conditionsOf(status(obj))
	outdate(cs, obj.GetGeneration())
	switch c := find(cs, "Accepted"); {
	case c.reason == "ListenersNotValid":
		return atoll.Progressing, c.reason, orElse(c.message, "not all of its listeners are valid")
	case c.is("False") && c.reason != "Pending" && c.reason != "NotReconciled":
		return atoll.Degraded, orElse(c.reason, "NotAccepted"), c.message
	}
	r := reading{must: []string{"Accepted", "Programmed"}}
	return r.verdict(obj)
}

var route = attachment{"parents", "parentRef", 32}.kind()

// attachedBy reads what each gateway says of what hangs on it: it has to accept it, and to
// find what it refers to.
func attachedBy(field string) verdict {
	return func(obj *unstructured.Unstructured) (atoll.Health, string, string) {
		if unreadable(obj) {
			return atoll.Unknown, "UnreadableStatus", "the status is not an object"
		}
		parents, accepted := list(status(obj), field), 0
		for _, p := range parents {
			m, _ := p.(map[string]any)
			for _, c := range conditionsOf(m) {
				if c.kind == "Accepted" {
					accepted++
				}
				switch {
				case c.kind != "Accepted" && c.kind != "ResolvedRefs":
				case c.hasObserved && c.observed < obj.GetGeneration():
					return unobserved()
				case c.is("False"):
					return atoll.Degraded, orElse(c.reason, "Not"+c.kind), c.message
				case !c.is("True"):
					return atoll.Progressing, orElse(c.reason, "Not"+c.kind), orElse(c.message, fmt.Sprintf("condition %s is %s", c.kind, c.status))
				}
			}
		}
		if accepted == 0 || accepted < len(parents) {
			return atoll.Progressing, "NotReported", "a gateway of the member has still to say whether it accepts it"
		}
		return healthy()
	}
}

// checked by Istio, which says so only where it is told to write statuses.
var checked = kind{health: validatedHealth}

// istio: what steers the mesh. All is read by others; there is no status unless it is
// asked for.
var istio = custom{
	{Group: "networking.istio.io", Kind: "VirtualService"}:      checked,
	{Group: "networking.istio.io", Kind: "DestinationRule"}:     checked,
	{Group: "networking.istio.io", Kind: "Gateway"}:             checked,
	{Group: "networking.istio.io", Kind: "ServiceEntry"}:        checked,
	{Group: "networking.istio.io", Kind: "Sidecar"}:             checked,
	{Group: "networking.istio.io", Kind: "EnvoyFilter"}:         checked,
	{Group: "networking.istio.io", Kind: "WorkloadEntry"}:       checked,
	{Group: "networking.istio.io", Kind: "WorkloadGroup"}:       checked,
	{Group: "networking.istio.io", Kind: "ProxyConfig"}:         checked,
	{Group: "security.istio.io", Kind: "AuthorizationPolicy"}:   checked,
	{Group: "security.istio.io", Kind: "PeerAuthentication"}:    checked,
	{Group: "security.istio.io", Kind: "RequestAuthentication"}: checked,
	{Group: "telemetry.istio.io", Kind: "Telemetry"}:            checked,
	{Group: "extensions.istio.io", Kind: "WasmPlugin"}:          checked,
}

func validatedHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	if unreadable(obj) {
		return atoll.Unknown, "UnreadableStatus", "the status is not an object"
	}
	for _, c := range conditionsOf(status(obj)) { // of policies in a mesh without sidecars
		if (c.kind == "WaypointAccepted" || c.kind == "ZtunnelAccepted") && c.is("False") {
			return atoll.Progressing, orElse(c.reason, "Not"+c.kind), c.message
		}
	}
	for _, m := range list(status(obj), "validationMessages") {
		said, _ := m.(map[string]any)
		if text(said, "level") == "ERROR" {
			return atoll.Degraded, "Invalid", orElse(text(said, "message"), "Istio finds an error in it: "+text(said, "documentationUrl"))
		}
	}
	return healthy()
}
