package kinds

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/atoll"
)

var runPhases = map[string]atoll.Health{
	"Pending": phaseProgressing, "Running": phaseProgressing, "Succeeded": phaseHealthy, "Successful": phaseHealthy,
	"Failed": phaseDegraded, "Error": phaseDegraded, "Inconclusive": phaseDegraded,
}

// argoKinds: Argo Rollouts, Workflows, and Applications of Argo CD.
var argoKinds = customKinds{
	{Group: "argoproj.io", Kind: "Rollout"}: {health: argoRolloutHealth, replicasPath: specReplicasPath, podParts: workloadTemplate,
		countFields: deploymentCounts, generationIsText: true, immutableFields: []fieldPath{selectorPath}},
	{Group: "argoproj.io", Kind: "Workflow"}: {hasEnded: endedInPhase(defaultPhasePath, "Succeeded", "Failed", "Error"),
		health: newHealthFunc(healthReader{pausedField: parsePath("spec.suspend"), runsOnce: true, phasePath: defaultPhasePath, phaseHealth: runPhases, messagePath: parsePath("message")})},
	{Group: "argoproj.io", Kind: "CronWorkflow"}: {
		health: newHealthFunc(healthReader{pausedField: parsePath("spec.suspend"), healthyWithoutStatus: true, degradedConditions: []string{"SubmissionError", "SpecError"}, observedIsEnough: true})},
	{Group: "argoproj.io", Kind: "AnalysisRun"}: {hasEnded: endedInPhase(defaultPhasePath, "Successful", "Failed", "Error", "Inconclusive"),
		health: newHealthFunc(healthReader{phasePath: defaultPhasePath, phaseHealth: runPhases, messagePath: parsePath("message")})},
	{Group: "argoproj.io", Kind: "Experiment"}: {health: argoExperimentHealth, runsForever: experimentRunsForever,
		hasEnded: endedInPhase(defaultPhasePath, "Successful", "Failed", "Error", "Inconclusive")},
	{Group: "argoproj.io", Kind: "WorkflowTemplate"}:        configTraits,
	{Group: "argoproj.io", Kind: "ClusterWorkflowTemplate"}: configTraits,
	{Group: "argoproj.io", Kind: "AnalysisTemplate"}:        configTraits,
	{Group: "argoproj.io", Kind: "ClusterAnalysisTemplate"}: configTraits,
	{Group: "argoproj.io", Kind: "AppProject"}:              configTraits,
	{Group: "argoproj.io", Kind: "ApplicationSet"}: {
		health: newHealthFunc(healthReader{degradedConditions: []string{"ErrorOccurred"}, progressingConditions: []string{"RolloutProgressing"}, requiredConditions: []string{"ResourcesUpToDate"}})},
	{Group: "argoproj.io", Kind: "Application"}: {customPhasePath: parsePath("health.status"), health: argoApplicationHealth},
}

// experimentRunsForever reports whether an Experiment has no duration and no required analysis.
func experimentRunsForever(obj *unstructured.Unstructured) bool {
	for _, a := range listField(specOf(obj), "analyses") {
		if m, _ := a.(map[string]any); boolField(m, "requiredForCompletion") {
			return false
		}
	}
	return specOf(obj)["duration"] == nil
}

func argoExperimentHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	if stringField(statusOf(obj), "phase") == "Running" && experimentRunsForever(obj) {
		return healthyResult()
	}
	r := healthReader{phasePath: defaultPhasePath, phaseHealth: runPhases, messagePath: parsePath("message")}
	return r.readHealth(obj)
}

// argoRolloutHealth returns the verdict of the controller of Argo Rollouts, once it has observed the
// latest change. Older controllers have no verdict, and write a hash as observed generation.
func argoRolloutHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	st := statusOf(obj)
	if len(st) == 0 {
		return notReportedResult()
	}
	if text := stringField(st, "observedGeneration"); len(text) < 8 { // hashes are longer
		if n, ok := observedGenerationOf(st); ok && n < obj.GetGeneration() {
			return notObservedResult()
		}
	}
	switch message := stringField(st, "message"); stringField(st, "phase") {
	case "Degraded":
		return atoll.Degraded, "Degraded", message
	case "Progressing":
		return atoll.Progressing, "Progressing", message
	case "Healthy":
		return healthyResult()
	}
	return argoRolloutPauseHealth(obj)
}

// argoRolloutPauseHealth is the health of a Rollout that is paused or has no phase.
func argoRolloutPauseHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	st := statusOf(obj)
	phase, pause := stringField(st, "phase"), temporaryPauseReason(obj)
	paused := boolField(specOf(obj), "paused") || len(listField(st, "pauseConditions")) > 0
	switch {
	case (phase == "Paused" || phase == "") && pause != "":
		return atoll.Progressing, pause, "the rollout pauses for a time and goes on by itself"
	case phase == "Paused" || phase == "" && paused:
		return atoll.Suspended, "Paused", orElse(stringField(st, "message"), "the rollout is paused")
	}
	want := countFieldOr(specOf(obj), "replicas", 1)
	if n := min(countField(st, "updatedReplicas"), countField(st, "availableReplicas")); n < want {
		return atoll.Progressing, "Updating", fmt.Sprintf("%d of %d replicas are updated and available", n, want)
	}
	return healthyResult()
}

// temporaryPauseReason returns the reason of a pause that ends by itself: a canary step with a
// duration, or a promotion with a time. It is empty where a person paused the Rollout, has to
// promote it, or has to judge its analysis. Argo CD also calls these Suspended.
func temporaryPauseReason(obj *unstructured.Unstructured) string {
	if boolField(specOf(obj), "paused") {
		return ""
	}
	strategy, st := nestedMap(specOf(obj), "strategy"), statusOf(obj)
	reason := ""
	for _, c := range listField(st, "pauseConditions") {
		m, _ := c.(map[string]any)
		switch reason = stringField(m, "reason"); reason {
		case "CanaryPauseStep":
			steps, at := listField(nestedMap(strategy, "canary"), "steps"), countField(st, "currentStepIndex")
			if at < 0 || at >= int64(len(steps)) {
				return ""
			}
			step, _ := steps[at].(map[string]any)
			if nestedMap(step, "pause")["duration"] == nil {
				return ""
			}
		case "BlueGreenPause":
			if countField(nestedMap(strategy, "blueGreen"), "autoPromotionSeconds") <= 0 {
				return ""
			}
		default:
			return ""
		}
	}
	return reason
}
