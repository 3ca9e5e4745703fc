package kinds_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/internal/kinds"
)

// An object has components where it names sets of pods, or has several; equal pods are none.
func TestComponentsCountAllTheirPods(t *testing.T) {
	type counts map[string]int64
	for name, c := range map[string]struct {
		object string
		want   counts
	}{
		"equal pods": {"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: 3, template: {spec: {containers: [{name: a}]}}}", counts{}},
		"no pods":    {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}", counts{}},
		"one named set": {"apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {name: train}\nspec:\n  replicatedJobs:\n" +
			"  - {name: worker, replicas: 2, template: {spec: {parallelism: 3, completions: 3, template: {spec: {containers: [{name: a}]}}}}}", counts{"worker": 6}},
		"two sets": {"apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {name: train}\nspec:\n  replicatedJobs:\n" +
			"  - {name: worker, replicas: 2, template: {spec: {parallelism: 3, completions: 3, template: {spec: {containers: [{name: a}]}}}}}\n" +
			"  - {name: driver, template: {spec: {template: {spec: {containers: [{name: a}]}}}}}", counts{"worker": 6, "driver": 1}},
	} {
		got := kinds.ComponentsOf(parseObject(t, c.object))
		if len(got) != len(c.want) {
			t.Errorf("%s: %d components %+v, want %v", name, len(got), got, c.want)
		}
		for _, set := range got {
			if c.want[set.Name] != set.Count {
				t.Errorf("%s: component %q has %d pods, want %v", name, set.Name, set.Count, c.want)
			}
		}
	}
}

// Replicas are counted from the status that a member reflected, for kinds that have replicas.
func TestReplicasOfAReflectedStatus(t *testing.T) {
	deployment := schema.GroupKind{Group: "apps", Kind: "Deployment"}
	obj := parseObject(t, "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, generation: 1}\nspec: {replicas: 5}\nstatus: {observedGeneration: 1, replicas: 4, updatedReplicas: 3, readyReplicas: 2, availableReplicas: 1}")
	if desired, ready, ok := kinds.ReplicaCounts(deployment, kinds.ReflectStatus(obj)); desired != 5 || ready != 2 || !ok {
		t.Errorf("%d of %d replicas are ready, %t", ready, desired, ok)
	}
	for name, c := range map[string]struct {
		gk     schema.GroupKind
		status string
	}{
		"a kind without replicas": {schema.GroupKind{Kind: "ConfigMap"}, "{}"},
		"no status":               {deployment, ""},
	} {
		if desired, ready, ok := kinds.ReplicaCounts(c.gk, []byte(c.status)); desired != 0 || ready != 0 || ok {
			t.Errorf("%s: %d of %d replicas, %t", name, ready, desired, ok)
		}
	}
}
