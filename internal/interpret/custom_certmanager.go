package interpret

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/atoll"
)

var orderStates = map[string]atoll.Health{
	"valid": good, "ready": busy, "pending": busy, "processing": busy,
	"invalid": bad, "expired": bad, "errored": bad,
}

// certManager: certificates and who issues them. A failed issuance is tried again, so that
// it is Progressing; a request that was refused is not.
var certManager = custom{
	{Group: "cert-manager.io", Kind: "Certificate"}:        {health: ready},
	{Group: "cert-manager.io", Kind: "Issuer"}:             {health: ready},
	{Group: "cert-manager.io", Kind: "ClusterIssuer"}:      {health: ready},
	{Group: "cert-manager.io", Kind: "CertificateRequest"}: {health: requestHealth, frozen: all("spec")},
	{Group: "acme.cert-manager.io", Kind: "Order"}: {phase: at("state"),
		health: judge(reading{phase: at("state"), phases: orderStates, message: at("reason")}), frozen: all("spec")},
	{Group: "acme.cert-manager.io", Kind: "Challenge"}: {phase: at("state"),
		health: judge(reading{phase: at("state"), phases: orderStates, message: at("reason")}), frozen: all("spec")},
}

// requestHealth: what failed is not tried again; a Certificate makes another request.
func requestHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	if c := find(conditionsOf(status(obj)), "Ready"); c.is("False") && c.reason == "Failed" {
		return atoll.Degraded, c.reason, c.message
	}
	return (&reading{bad: []string{"Denied", "InvalidRequest"}, must: []string{"Ready"}}).verdict(obj)
}
