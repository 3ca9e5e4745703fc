package kinds

// Conditions of Knative have three values: Unknown while it works, False where it has given up.
var served = newHealthFunc(healthReader{requiredConditions: []string{"Ready"}, falseIsDegraded: true})

// knativeKinds: Knative Serving.
var knativeKinds = customKinds{
	{Group: "serving.knative.dev", Kind: "Service"}:       {health: served},
	{Group: "serving.knative.dev", Kind: "Configuration"}: {health: served},
	{Group: "serving.knative.dev", Kind: "Revision"}:      {health: served, immutableFields: parsePaths("spec")},
	{Group: "serving.knative.dev", Kind: "Route"}:         {health: served},
	{Group: "serving.knative.dev", Kind: "DomainMapping"}: {health: served},
}
