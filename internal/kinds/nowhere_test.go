package kinds

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestNowhereStatus(t *testing.T) {
	for apiVersion, wants := range map[string]map[string][]string{
		"apps/v1":  {"Deployment": {"replicas"}, "StatefulSet": {"replicas"}, "ReplicaSet": {"replicas"}, "DaemonSet": {"desiredNumberScheduled", "numberReady"}},
		"v1":       {"ReplicationController": {"replicas"}, "Service": nil, "ConfigMap": nil},
		"batch/v1": {"Job": nil},
	} {
		for kind, counts := range wants {
			template := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind, "status": map[string]any{
				"replicas": int64(3), "readyReplicas": int64(3),
				"conditions": []any{map[string]any{"type": "Available", "status": "False", "lastTransitionTime": "2030-01-02T03:04:05Z"}},
			}}}
			template.SetGeneration(7)
			got, ok := NowhereStatus(template, "Nowhere", "on purpose")
			if ok != (counts != nil) {
				t.Errorf("%s: %t", kind, ok)
			}
			if !ok {
				continue
			}
			for _, name := range counts {
				if got[name] != int64(0) {
					t.Errorf("%s: %s is %v", kind, name, got[name])
				}
			}
			c := conditionsOf(got)
			if got["observedGeneration"] != int64(7) || got["readyReplicas"] != nil || len(c) != 1 || !c[0].hasStatus("False") || c[0].reason != "Nowhere" || c[0].message != "on purpose" {
				t.Errorf("%s: %v", kind, got)
			}
			if at := got["conditions"].([]any)[0].(map[string]any)["lastTransitionTime"]; at != "2030-01-02T03:04:05Z" {
				t.Errorf("%s: Available is False since %v", kind, at)
			}
		}
	}
}
