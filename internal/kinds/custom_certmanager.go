package kinds

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/atoll"
)

var orderStates = map[string]atoll.Health{
	"valid": phaseHealthy, "ready": phaseProgressing, "pending": phaseProgressing, "processing": phaseProgressing,
	"invalid": phaseDegraded, "expired": phaseDegraded, "errored": phaseDegraded,
}

// certManagerKinds: certificates and their issuers. A failed issuance is tried again, so it is
// Progressing; a denied request is Degraded.
var certManagerKinds = customKinds{
	{Group: "cert-manager.io", Kind: "Certificate"}:        {health: readyHealth},
	{Group: "cert-manager.io", Kind: "Issuer"}:             {health: readyHealth},
	{Group: "cert-manager.io", Kind: "ClusterIssuer"}:      {health: readyHealth},
	{Group: "cert-manager.io", Kind: "CertificateRequest"}: {health: certificateRequestHealth, immutableFields: parsePaths("spec")},
	{Group: "acme.cert-manager.io", Kind: "Order"}: {customPhasePath: parsePath("state"),
		health: newHealthFunc(healthReader{phasePath: parsePath("state"), phaseHealth: orderStates, messagePath: parsePath("reason")}), immutableFields: parsePaths("spec")},
	{Group: "acme.cert-manager.io", Kind: "Challenge"}: {customPhasePath: parsePath("state"),
		health: newHealthFunc(healthReader{phasePath: parsePath("state"), phaseHealth: orderStates, messagePath: parsePath("reason")}), immutableFields: parsePaths("spec")},
}

// certificateRequestHealth is Degraded for a failed request, which is never tried again. A Certificate
// makes another request.
func certificateRequestHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	if c := findCondition(conditionsOf(statusOf(obj)), "Ready"); c.hasStatus("False") && c.reason == "Failed" {
		return atoll.Degraded, c.reason, c.message
	}
	return (&healthReader{degradedConditions: []string{"Denied", "InvalidRequest"}, requiredConditions: []string{"Ready"}}).readHealth(obj)
}
