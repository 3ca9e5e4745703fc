package interpret

import "atoll.dev/atoll/internal/atoll"

var orderStates = map[string]atoll.Health{
	"valid": good, "ready": busy, "pending": busy, "processing": busy,
	"invalid": bad, "expired": bad, "errored": bad,
}

// certManager: certificates and who issues them. A failed issuance is tried again, so that
// it is Progressing; a request that was refused is not.
var certManager = custom{
	{Group: "cert-manager.io", Kind: "Certificate"}:   {health: ready},
	{Group: "cert-manager.io", Kind: "Issuer"}:        {health: ready},
	{Group: "cert-manager.io", Kind: "ClusterIssuer"}: {health: ready},
	{Group: "cert-manager.io", Kind: "CertificateRequest"}: {
		health: judge(reading{bad: []string{"Denied", "InvalidRequest"}, must: []string{"Ready"}}), frozen: all("spec")},
	{Group: "acme.cert-manager.io", Kind: "Order"}: {phase: at("state"),
		health: judge(reading{phase: at("state"), phases: orderStates, message: at("reason")}), frozen: all("spec")},
	{Group: "acme.cert-manager.io", Kind: "Challenge"}: {phase: at("state"),
		health: judge(reading{phase: at("state"), phases: orderStates, message: at("reason")}), frozen: all("spec")},
}
