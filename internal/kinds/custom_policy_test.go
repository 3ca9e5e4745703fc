package kinds_test

import (
	"encoding/json"
	"testing"

	"atoll.dev/atoll/internal/kinds"
)

func TestHealthOfSidecarsAndPolicies(t *testing.T) {
	sidecars := func(strategy, counts string) string {
		return headYAML("apps.kruise.io/v1alpha1", "SidecarSet") + "spec: {updateStrategy: {" + strategy + "}}\nstatus: {observedGeneration: 2, " + counts + "}"
	}
	policy := headYAML("kyverno.io/v1", "ClusterPolicy")
	expression := headYAML("policies.kyverno.io/v1alpha1", "ValidatingPolicy")
	checkStates(t, []stateCase{
		{"sidecars updated", sidecars("type: RollingUpdate", "matchedPods: 4, updatedPods: 4"), healthyResult, ""},
		{"sidecars half updated", sidecars("type: RollingUpdate", "matchedPods: 4, updatedPods: 2"), progressing, "Updating"},
		{"sidecars half updated, as stated", sidecars("partition: 2", "matchedPods: 4, updatedPods: 2"), healthyResult, ""},
		{"sidecars below a partition", sidecars("partition: 25%", "matchedPods: 4, updatedPods: 2"), progressing, "Updating"},
		{"sidecars paused", sidecars("paused: true", "matchedPods: 4, updatedPods: 2"), suspended, "Paused"},
		{"sidecars paused once updated", sidecars("paused: true", "matchedPods: 4, updatedPods: 4"), healthyResult, ""},
		{"sidecars for new pods", sidecars("type: NotUpdate", "matchedPods: 4, updatedPods: 0"), healthyResult, ""},
		{"sidecars for some pods", sidecars("selector: {matchLabels: {a: b}}", "matchedPods: 4, updatedPods: 1"), healthyResult, ""},
		{"sidecars of no pods", sidecars("type: RollingUpdate", "matchedPods: 0"), healthyResult, ""},
		{"sidecars not observed", headYAML("apps.kruise.io/v1alpha1", "SidecarSet") + "status: {observedGeneration: 1, matchedPods: 4, updatedPods: 4}", progressing, "NotObserved"},

		{"policy without a status", policy, progressing, "NotReported"},
		{"policy ready", policy + "status: {ready: true}", healthyResult, ""},
		{"policy not ready", policy + "status: {ready: false}", progressing, "NotReady"},
		{"policy ready by its condition", policy + "status: {ready: false, conditions: [" + conditionYAML("Ready", "True", "Succeeded") + "]}", healthyResult, ""},
		{"policy not ready by its condition", policy + "status: {ready: true, conditions: [" + conditionYAML("Ready", "False", "Failed") + "]}", progressing, "Failed"},
		{"policy with counts alone", policy + "status: {rulecount: {validate: 1}}", progressing, "NotReported"},
		{"expression ready", expression + "status: {conditionStatus: {ready: true}}", healthyResult, ""},
		{"expression not ready", expression + "status: {conditionStatus: {ready: false, message: no webhook}}", progressing, "NotReady"},
		{"exception", headYAML("kyverno.io/v2", "PolicyException"), healthyResult, ""},
	})
}

func TestPoliciesAreReadyInEveryCluster(t *testing.T) {
	policy := headYAML("kyverno.io/v1", "ClusterPolicy")
	for name, c := range map[string]struct {
		members []string
		want    string
	}{
		"all":                   {[]string{"{ready: true}", "{ready: true}"}, `{"ready":true}`},
		"one is not":            {[]string{"{ready: true}", "{ready: false}"}, `{"ready":false}`},
		"no version reports it": {[]string{"{conditions: [" + conditionYAML("Ready", "Unknown", "") + "]}"}, `{"conditions":[{"lastTransitionTime":"` + kinds.TimePlaceholder + `","message":"","status":"Unknown","type":"Ready"}]}`},
	} {
		var rows []kinds.RowItem
		for i, m := range c.members {
			rows = append(rows, reportRow("c"+formatDecimal(int64(i)), parseObject(t, policy+"status: "+m)))
		}
		st, _ := kinds.AggregateStatus(parseObject(t, policy), false, rows, 2, 0)
		if got, err := json.Marshal(st); err != nil || string(got) != c.want {
			t.Errorf("%s: %s %v, want %s", name, got, err, c.want)
		}
	}
}
