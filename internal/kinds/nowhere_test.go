package kinds

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestNowhereStatus(t *testing.T) {
	for apiVersion, wants := range map[string]map[string][]string{
		"apps/v1": {
			"Deployment": {"Available", "replicas"}, "StatefulSet": {"Available", "replicas"}, "ReplicaSet": {"Available", "replicas"},
			"DaemonSet": {"Available", "desiredNumberScheduled", "numberReady"},
		},
		"v1":             {"ReplicationController": {"Available", "replicas"}, "Pod": {"PodScheduled"}, "Service": nil, "ConfigMap": nil, "PersistentVolumeClaim": nil, "Namespace": nil},
		"policy/v1":      {"PodDisruptionBudget": {"DisruptionAllowed", "disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"}},
		"autoscaling/v2": {"HorizontalPodAutoscaler": {"ScalingActive", "currentReplicas", "desiredReplicas"}},
		"autoscaling/v1": {"HorizontalPodAutoscaler": nil}, // it has no conditions
		"batch/v1":       {"Job": nil, "CronJob": nil},
		"example.com/v1": {"Deployment": nil, "Pod": nil},
	} {
		for kind, want := range wants {
			conditionType := "Available"
			if want != nil {
				conditionType = want[0]
			}
			template := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind, "status": map[string]any{
				"replicas": int64(3), "readyReplicas": int64(3), "phase": "Running",
				"conditions": []any{map[string]any{"type": conditionType, "status": "False", "lastTransitionTime": "2030-01-02T03:04:05Z"}},
			}}}
			template.SetGeneration(7)
			got, ok := NowhereStatus(template, "Nowhere", "on purpose")
			if ok != (want != nil) {
				t.Errorf("%s %s: %t", apiVersion, kind, ok)
			}
			if !ok {
				continue
			}
			for _, name := range want[1:] {
				if got[name] != int64(0) {
					t.Errorf("%s: %s is %v", kind, name, got[name])
				}
			}
			c := conditionsOf(got)
			if got["observedGeneration"] != int64(7) || got["readyReplicas"] != nil || len(c) != 1 || c[0].conditionType != want[0] || !c[0].hasStatus("False") || c[0].reason != "Nowhere" || c[0].message != "on purpose" {
				t.Errorf("%s: %v", kind, got)
			}
			if c[0].hasObserved != (kind == "PodDisruptionBudget") || c[0].hasObserved && c[0].observedGeneration != 7 {
				t.Errorf("%s: the condition's generation is %v", kind, c[0])
			}
			if at := got["conditions"].([]any)[0].(map[string]any)["lastTransitionTime"]; at != "2030-01-02T03:04:05Z" {
				t.Errorf("%s: %s is False since %v", kind, want[0], at)
			}
			if phase := got["phase"]; (phase == "Pending") != (kind == "Pod") {
				t.Errorf("%s: the phase is %v", kind, phase)
			}
		}
	}
}

// A Pod that ran to its end keeps its result, and any Pod keeps the class that the API server gave it.
func TestNowhereStatusOfPods(t *testing.T) {
	for phase, want := range map[string]bool{"": true, "Pending": true, "Running": true, "Unknown": true, "Succeeded": false, "Failed": false} {
		pod := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod", "status": map[string]any{"phase": phase, "qosClass": "BestEffort", "podIP": "10.0.0.1"}}}
		got, ok := NowhereStatus(pod, "Nowhere", "on purpose")
		if ok != want || ok && (got["qosClass"] != "BestEffort" || got["podIP"] != nil) {
			t.Errorf("%s: %t, %v", phase, ok, got)
		}
	}
}
