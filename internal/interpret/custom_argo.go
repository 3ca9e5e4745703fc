package interpret

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/atoll"
)

var runPhases = map[string]atoll.Health{
	"Pending": busy, "Running": busy, "Succeeded": good, "Successful": good,
	"Failed": bad, "Error": bad, "Inconclusive": bad,
}

// argo: Rollouts, Workflows, and the Applications of Argo CD.
var argo = custom{
	{Group: "argoproj.io", Kind: "Rollout"}: {health: rolloutHealth, replicas: specReplicas, pods: template,
		counts: deploymentCounts, textual: true, frozen: []path{selector}},
	{Group: "argoproj.io", Kind: "Workflow"}: {ended: endedIn(phase, "Succeeded", "Failed", "Error"),
		health: judge(reading{paused: at("spec.suspend"), once: true, phase: phase, phases: runPhases, message: at("message")})},
	{Group: "argoproj.io", Kind: "CronWorkflow"}: {
		health: judge(reading{paused: at("spec.suspend"), config: true, bad: []string{"SubmissionError", "SpecError"}, seen: true})},
	{Group: "argoproj.io", Kind: "AnalysisRun"}: {ended: endedIn(phase, "Successful", "Failed", "Error", "Inconclusive"),
		health: judge(reading{phase: phase, phases: runPhases, message: at("message")})},
	{Group: "argoproj.io", Kind: "Experiment"}: {
		health: judge(reading{phase: phase, phases: runPhases, message: at("message")})},
	{Group: "argoproj.io", Kind: "WorkflowTemplate"}:        config,
	{Group: "argoproj.io", Kind: "ClusterWorkflowTemplate"}: config,
	{Group: "argoproj.io", Kind: "AnalysisTemplate"}:        config,
	{Group: "argoproj.io", Kind: "ClusterAnalysisTemplate"}: config,
	{Group: "argoproj.io", Kind: "AppProject"}:              config,
	{Group: "argoproj.io", Kind: "Application"}: {phase: at("health.status"),
		health: judge(reading{phase: at("health.status"), message: at("health.message"), phases: map[string]atoll.Health{
			"Healthy": good, "Progressing": busy, "Degraded": bad, "Suspended": still, "Missing": busy, "Unknown": atoll.Unknown}})},
}

// rolloutHealth of an Argo Rollout: what its controller concludes, once it has seen the
// latest change; older ones conclude nothing, and what they write as the generation that
// they saw may be a hash.
func rolloutHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	st := status(obj)
	if len(st) == 0 {
		return unreported()
	}
	if seen := text(st, "observedGeneration"); len(seen) < 8 { // hashes are longer
		if n, ok := observedOf(st); ok && n < obj.GetGeneration() {
			return unobserved()
		}
	}
	message := text(st, "message")
	switch p := text(st, "phase"); p {
	case "Degraded":
		return atoll.Degraded, "Degraded", message
	case "Paused":
		return atoll.Suspended, "Paused", orElse(message, "the rollout is paused")
	case "Progressing":
		return atoll.Progressing, "Progressing", message
	case "Healthy":
		return healthy()
	}
	if flag(spec(obj), "paused") {
		return atoll.Suspended, "Paused", "the rollout is paused"
	}
	want := countOr(spec(obj), "replicas", 1)
	if n := min(count(st, "updatedReplicas"), count(st, "availableReplicas")); n < want {
		return atoll.Progressing, "Updating", fmt.Sprintf("%d of %d replicas are updated and available", n, want)
	}
	return healthy()
}
