package interpret

// served kinds of Knative have conditions of three values: Unknown while it works on it,
// False where it gave up.
var served = judge(reading{must: []string{"Ready"}, strict: true})

// knative Serving.
var knative = custom{
	{Group: "serving.knative.dev", Kind: "Service"}:       {health: served},
	{Group: "serving.knative.dev", Kind: "Configuration"}: {health: served},
	{Group: "serving.knative.dev", Kind: "Revision"}:      {health: served, frozen: all("spec")},
	{Group: "serving.knative.dev", Kind: "Route"}:         {health: served},
	{Group: "serving.knative.dev", Kind: "DomainMapping"}: {health: served},
}
