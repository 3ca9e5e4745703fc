package rollout

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// Automatic stages are approved, shown and waited for by their names, as stated ones are.
func TestApprovalsOfAutoStages(t *testing.T) {
	now := metav1.Now()
	bundle := &v1alpha1.Bundle{}
	bundle.Spec.Rollout = &v1alpha1.Rollout{
		Type: v1alpha1.RolloutStaged, AutoStages: []intstr.IntOrString{intstr.FromInt32(1), intstr.FromString("50%")},
		AutoStageOptions: &v1alpha1.AutoStageOptions{GatesBefore: []v1alpha1.RolloutGate{{Name: "owner", Approval: &v1alpha1.ApprovalGate{}}}},
	}
	bundle.Status.Revision = "web-r2"
	bundle.Status.Rollout = &v1alpha1.RolloutStatus{
		CurrentStage: "auto 50%", Reason: string(atoll.ReasonWaitsForApproval), Stages: []v1alpha1.StageStatus{{Name: "auto 1", Clusters: 1, Updated: 1}, {Name: "auto 50%", Clusters: 4, Waiting: 4}},
		Gates: []v1alpha1.GateStatus{{Stage: "auto 50%", Name: "owner", Revision: "web-r2", State: v1alpha1.GateWaiting, Since: now}},
	}
	approval, err := newApproval(bundle, "", "")
	if err != nil || approval.Stage != "auto 50%" {
		t.Fatalf("the approval is of %q: %v", approval.Stage, err)
	}
	if hasPersonActed(bundle, atoll.ReasonWaitsForApproval, now.Time) {
		t.Error("it is approved before a person acts")
	}
	approval.By, approval.At = "alice", now
	bundle.Spec.Approvals = []v1alpha1.RolloutApproval{approval}
	if !hasPersonActed(bundle, atoll.ReasonWaitsForApproval, now.Time) {
		t.Error("the approval does not count")
	}
	text := formatRollout("bundle/web", bundle)
	for _, want := range []string{"auto 1      1 ", "auto 50% *  4 ", "gate owner of stage auto 50%: Waiting"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}
