package preview

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rollout"
)

// The plan of a change for which no rollout is stated says that a quarter changes at first, and what the others wait for.
func TestTextOfADefaultRolloutPlan(t *testing.T) {
	first := &rollout.FirstTurn{Terms: rollout.CompileTerms(nil), Wait: rollout.StageWait{Reason: atoll.ReasonMaxUnavailableReached}, Progress: rollout.Progress{Stages: []rollout.StageTally{{Clusters: 8, Changing: 2, Waiting: 6}}}}
	first.Progress.AddUnavailable(rollout.RowChanging, 1, "oslo")
	first.Progress.AddUnavailable(rollout.RowChanging, 1, "bern")
	var b strings.Builder
	newRolloutPlan(first).writeText(&b)
	const want = "  Stage rest: 2 clusters would change at first, 6 later.\n" +
		"  The others would wait for bern, oslo to become healthy, another template, or `atoll rollout resume`: as many are unhealthy as maxUnavailable, by default 25%, allows.\n"
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

// The plan of a rollout names the stages that change, with the gates before each.
func TestTextOfARolloutPlan(t *testing.T) {
	terms := rollout.CompileTerms(&v1alpha1.Rollout{Type: v1alpha1.RolloutStaged, Stages: []v1alpha1.RolloutStage{
		{Name: "canary", Clusters: v1alpha1.StageClusters{Names: []string{"a"}}, GatesAfter: []v1alpha1.RolloutGate{{Name: "owner", Approval: &v1alpha1.ApprovalGate{Approvers: 2}}}},
		{Name: "none", Clusters: v1alpha1.StageClusters{Names: []string{"x"}}, ProgressDeadline: &metav1.Duration{Duration: 10 * time.Minute}, MaxFailures: new(intstr.FromString("5%"))},
	}})
	first := &rollout.FirstTurn{Terms: terms, Wait: rollout.StageWait{Reason: atoll.ReasonWaitsForStage}, Progress: rollout.Progress{Stages: []rollout.StageTally{{Clusters: 1, Changing: 1}, {Clusters: 2, Waiting: 2, DisconnectedWaiting: 3}, {}}}}
	var b strings.Builder
	newRolloutPlan(first).writeText(&b)
	const want = "  Stage canary: 1 cluster would change at first, 0 later.\n" +
		"  Stage none: 0 clusters would change at first, 2 later, 3 when connected again.\n" +
		"    Before it, gate owner of stage canary: `atoll rollout approve --stage canary` by 2 users.\n" +
		"    In it, a cluster that is not healthy within 10m counts as failed; more than 5% failures hold the rollout.\n" +
		"  The others would wait for stage canary to become healthy.\n"
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

// The plan of automatic stages names them by their sizes, with the gates and what follows failures. A stage without clusters is not shown.
func TestTextOfAnAutoStagesPlan(t *testing.T) {
	terms := rollout.CompileTerms(&v1alpha1.Rollout{
		Type: v1alpha1.RolloutStaged, AutoStages: []intstr.IntOrString{intstr.FromInt32(1), intstr.FromString("10%"), intstr.FromString("50%")},
		AutoStageOptions: &v1alpha1.AutoStageOptions{OnFailure: v1alpha1.FailureRollback, GatesBefore: []v1alpha1.RolloutGate{{Name: "owner", Approval: &v1alpha1.ApprovalGate{}}}},
	})
	first := &rollout.FirstTurn{Terms: terms, Wait: rollout.StageWait{Reason: atoll.ReasonWaitsForStage}, Progress: rollout.Progress{Stages: []rollout.StageTally{{Clusters: 1, Changing: 1}, {}, {Clusters: 4, Waiting: 4}, {Clusters: 5, Waiting: 5}}}}
	var b strings.Builder
	newRolloutPlan(first).writeText(&b)
	const (
		failures = "    In it, after more than 0 failures the clusters that have changed return to their earlier revision.\n"
		want     = "  Stage auto 1: 1 cluster would change at first, 0 later.\n" + failures +
			"  Stage auto 50%: 0 clusters would change at first, 4 later.\n" +
			"    Before it, gate owner of stage auto 50%: `atoll rollout approve --stage \"auto 50%\"`.\n" + failures +
			"  Stage auto 100%: 0 clusters would change at first, 5 later.\n" +
			"    Before it, gate owner of stage auto 100%: `atoll rollout approve --stage \"auto 100%\"`.\n" + failures +
			"  The others would wait for stage auto 1 to become healthy.\n"
	)
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}
