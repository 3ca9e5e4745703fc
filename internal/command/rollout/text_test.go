package rollout

import (
	"strings"
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

// The status names the strategy that the rollout comes from, and whether it is enforced.
func TestStrategyOfARollout(t *testing.T) {
	for want, s := range map[string]*v1alpha1.AppliedStrategy{
		"": nil,
		"the rollout is that of RolloutStrategy careful\n":                                            {Kind: "RolloutStrategy", Name: "careful"},
		"the rollout is that of ClusterRolloutStrategy first, which is enforced for namespace shop\n": {Kind: "ClusterRolloutStrategy", Name: "first", Enforced: true},
	} {
		bundle := &v1alpha1.Bundle{}
		bundle.Namespace, bundle.Spec.RolloutStrategy, bundle.Spec.Rollout = "shop", s, &v1alpha1.Rollout{Type: v1alpha1.RolloutAll}
		const unbounded, complete = "bundle/web states no bound, and is not paused: a change reaches all clusters at once\n", "complete: no connected cluster waits\n"
		if got := formatRollout("bundle/web", bundle); got != want+unbounded {
			t.Errorf("without stages: %q, want %q", got, want+unbounded)
		}
		bundle.Status.Rollout = &v1alpha1.RolloutStatus{}
		if got := formatRollout("bundle/web", bundle); !strings.HasPrefix(got, want+"STAGE ") || !strings.HasSuffix(got, complete) {
			t.Errorf("with stages: %q, want %q before", got, want)
		}
	}
}
