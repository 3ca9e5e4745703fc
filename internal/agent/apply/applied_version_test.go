package apply

import (
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/internal/atoll"
)

// An object that was applied in a version without a field can be applied in the next one, which has it. The error is of a real member.
func TestTheAppliedVersionMovesWhereItLacksAField(t *testing.T) {
	const real = "failed to prune fields: failed to convert merged object to last applied version: .spec.color: field not declared in schema"
	for text, want := range map[string]bool{
		real: true, ".spec.color: field not declared in schema": false,
		"failed to prune fields: failed to convert merged object to last applied version: the webhook did not answer": false,
	} {
		if got := lacksFieldInAppliedVersion(errors.New(text)); got != want {
			t.Errorf("%s: %t", text, got)
		}
	}
	entry := func(manager string, op metav1.ManagedFieldsOperationType) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: op, APIVersion: "x.io/v1beta1"}
	}
	before := []metav1.ManagedFieldsEntry{entry(atoll.FieldManager, metav1.ManagedFieldsOperationApply), entry(atoll.FieldManager, metav1.ManagedFieldsOperationUpdate), entry("kubectl", metav1.ManagedFieldsOperationApply)}
	got, changed := withAppliedVersion(before, "x.io/v1")
	if !changed || len(got) != 3 || got[0].APIVersion != "x.io/v1" || got[1].APIVersion != "x.io/v1beta1" || got[2].APIVersion != "x.io/v1beta1" || before[0].APIVersion != "x.io/v1beta1" {
		t.Errorf("%+v", got)
	}
	if _, changed := withAppliedVersion(got, "x.io/v1"); changed {
		t.Error("moved again")
	}
}
