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
	{Group: "argoproj.io", Kind: "Experiment"}: {health: experimentHealth, endless: experimentStays,
		ended: endedIn(phase, "Successful", "Failed", "Error", "Inconclusive")},
	{Group: "argoproj.io", Kind: "WorkflowTemplate"}:        config,
	{Group: "argoproj.io", Kind: "ClusterWorkflowTemplate"}: config,
	{Group: "argoproj.io", Kind: "AnalysisTemplate"}:        config,
	{Group: "argoproj.io", Kind: "ClusterAnalysisTemplate"}: config,
	{Group: "argoproj.io", Kind: "AppProject"}:              config,
	{Group: "argoproj.io", Kind: "ApplicationSet"}: {
		health: judge(reading{bad: []string{"ErrorOccurred"}, busy: []string{"RolloutProgressing"}, must: []string{"ResourcesUpToDate"}})},
	{Group: "argoproj.io", Kind: "Application"}: {phase: at("health.status"), health: applicationHealth},
}

// experimentStays tells whether an Experiment goes on for ever: nothing in it says for how
// long, and no analysis is to be awaited.
func experimentStays(obj *unstructured.Unstructured) bool {
	for _, a := range list(spec(obj), "analyses") {
		if m, _ := a.(map[string]any); flag(m, "requiredForCompletion") {
			return false
		}
	}
	return spec(obj)["duration"] == nil
}

func experimentHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	if text(status(obj), "phase") == "Running" && experimentStays(obj) {
		return healthy()
	}
	r := reading{phase: phase, phases: runPhases, message: at("message")}
	return r.verdict(obj)
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
	message, pause := text(st, "message"), passing(obj)
	switch p := text(st, "phase"); {
	case p == "Degraded":
		return atoll.Degraded, "Degraded", message
	case (p == "Paused" || p == "") && pause != "":
		return atoll.Progressing, pause, "the rollout pauses for a time and goes on by itself"
	case p == "Paused" || p == "" && (flag(spec(obj), "paused") || len(list(st, "pauseConditions")) > 0):
		return atoll.Suspended, "Paused", orElse(message, "the rollout is paused")
	case p == "Progressing":
		return atoll.Progressing, "Progressing", message
	case p == "Healthy":
		return healthy()
	}
	want := countOr(spec(obj), "replicas", 1)
	if n := min(count(st, "updatedReplicas"), count(st, "availableReplicas")); n < want {
		return atoll.Progressing, "Updating", fmt.Sprintf("%d of %d replicas are updated and available", n, want)
	}
	return healthy()
}

// passing is the reason why a Rollout pauses where that ends by itself: a step of the canary
// that states how long it takes, or a promotion that states when it comes. Empty where
// somebody paused it, or has to promote it or to judge its analysis: Argo CD calls that
// Suspended too.
func passing(obj *unstructured.Unstructured) string {
	if flag(spec(obj), "paused") {
		return ""
	}
	strategy, st := child(spec(obj), "strategy"), status(obj)
	reason := ""
	for _, c := range list(st, "pauseConditions") {
		m, _ := c.(map[string]any)
		switch reason = text(m, "reason"); reason {
		case "CanaryPauseStep":
			steps, at := list(child(strategy, "canary"), "steps"), count(st, "currentStepIndex")
			if at < 0 || at >= int64(len(steps)) {
				return ""
			}
			step, _ := steps[at].(map[string]any)
			if child(step, "pause")["duration"] == nil {
				return ""
			}
		case "BlueGreenPause":
			if count(child(strategy, "blueGreen"), "autoPromotionSeconds") <= 0 {
				return ""
			}
		default:
			return ""
		}
	}
	return reason
}
