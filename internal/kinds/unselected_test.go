package kinds

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// A new Pod has a phase and a class of the API server; its condition comes beside them, and goes alone.
func TestAPodThatNothingPlaces(t *testing.T) {
	pod := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod", "status": map[string]any{"phase": "Pending", "qosClass": "BestEffort"}}}
	pod.SetGeneration(1)
	status, ok := UnselectedStatus(pod, "NotSelected", "nothing places it")
	if c := conditionsOf(status); !ok || status["phase"] != "Pending" || status["qosClass"] != "BestEffort" || len(c) != 1 || c[0].conditionType != "PodScheduled" || c[0].reason != "NotSelected" {
		t.Fatalf("%v %t", status, ok)
	}
	pod.Object["status"] = status
	if again, ok := UnselectedStatus(pod, "NotSelected", "nothing places it"); ok {
		t.Errorf("the same status is written again: %v", again)
	}
	left, has := WithoutUnselected(pod, "NotSelected")
	if !has || left["phase"] != "Pending" || left["qosClass"] != "BestEffort" || left["conditions"] != nil {
		t.Errorf("without the condition: %v %t", left, has)
	}
	if _, has := WithoutUnselected(pod, "Nowhere"); has || len(conditionsOf(status)) != 1 {
		t.Error("the condition of another reason is removed")
	}
	pod.Object["status"] = map[string]any{"phase": "Succeeded"}
	if status, ok := UnselectedStatus(pod, "NotSelected", "nothing places it"); ok {
		t.Errorf("a Pod that ran to its end: %v", status)
	}
}

// Kinds without a condition of their own get no status.
func TestAKindWithoutAConditionOfItsOwn(t *testing.T) {
	job := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "batch/v1", "kind": "Job"}}
	if status, ok := UnselectedStatus(job, "NotSelected", ""); ok {
		t.Error(status)
	}
	if _, has := WithoutUnselected(job, "NotSelected"); has {
		t.Error("a Job has the condition")
	}
}
