package rollout

import (
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
)

// A bar has the shares of a stage, and is full when all of its clusters are updated.
func TestBarOfAStage(t *testing.T) {
	for want, s := range map[string]v1alpha1.StageStatus{
		"████████████████████████": {Clusters: 3, Updated: 3},
		"░░░░░░░░░░░░░░░░░░░░░░░░": {},
		"████████××××▒▒▒▒▒▒▒▒░░░░": {Clusters: 6, Updated: 2, Failed: 1, Changing: 2, Waiting: 1},
	} {
		if got := formatBar(s); got != want {
			t.Errorf("%+v: %s, want %s", s, got, want)
		}
	}
}

// A terminal shows the stages with bars, the present one marked, and what they wait for.
func TestBarsOfARollout(t *testing.T) {
	bundle := &v1alpha1.Bundle{}
	bundle.Status.Rollout = &v1alpha1.RolloutStatus{CurrentStage: "europe", Reason: "StageFailed", Message: "stage europe\x1b[2J", Stages: []v1alpha1.StageStatus{
		{Name: "canary", Clusters: 1, Updated: 1}, {Name: "europe", Clusters: 2, Failed: 1, Waiting: 1, Disconnected: 3},
	}}
	const want = `  canary ████████████████████████ 1/1
> europe ××××××××××××░░░░░░░░░░░░ 0/2 (1 failed) (3 disconnected)
StageFailed: stage europe\x1b[2J
`
	if got := formatBars("bundle/web", bundle); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
