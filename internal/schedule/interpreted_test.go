package schedule

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"atoll.dev/atoll/internal/atoll"
)

// taught is an item of a kind that nobody knows, of which an interpreter told this.
func taught(divided bool, what *atoll.Interpreted) *atoll.Content {
	return &atoll.Content{Items: []atoll.Item{{
		Key: atoll.ItemKey{Group: "ai.example", Kind: "Trainer", Namespace: "shop", Name: "cats"}, Divided: divided,
		Object: json.RawMessage(`{"apiVersion":"ai.example/v1","kind":"Trainer","metadata":{"name":"cats"},"spec":{"workers":6}}`), Interpreted: what,
	}}}
}

func TestReplicasThatAnInterpreterTold(t *testing.T) {
	six := int64(6)
	content := taught(true, &atoll.Interpreted{Replicas: &six, Pods: []atoll.PodSet{{Count: 1, Requests: map[corev1.ResourceName]int64{"cpu": 100}}}})
	list, err := WorkloadsOf(content)
	if err != nil || len(list) != 1 || list[0].Replicas != 6 || list[0].Requests.CPU != 100 {
		t.Fatalf("workloads %+v: %v", list, err)
	}
	d, err := DemandOf(content)
	if err != nil {
		t.Fatal(err)
	}
	if got := d.Use(map[string]int64{"ai.example/Trainer/shop/cats": 4}); got.Of("cpu") != 400 || got.Of(MeasureReplicas) != 4 {
		t.Errorf("four of them use %v", got)
	}
	if n := FixedPods(content); n != 0 {
		t.Errorf("%d pods are fixed of what is divided", n)
	}
	content.Items[0].Divided = false
	if n := FixedPods(content); n != 6 {
		t.Errorf("%d pods are fixed of what is not divided, want 6", n)
	}
}

func TestComponentsThatAnInterpreterTold(t *testing.T) {
	content := taught(false, &atoll.Interpreted{Pods: []atoll.PodSet{
		{Name: "head", Count: 1, Requests: map[corev1.ResourceName]int64{"cpu": 1000}}, {Name: "worker", Count: 3, Requests: map[corev1.ResourceName]int64{"cpu": 200}},
	}})
	if n := FixedPods(content); n != 4 {
		t.Errorf("%d pods, want 4", n)
	}
	d, err := DemandOf(content)
	if err != nil {
		t.Fatal(err)
	}
	if got := d.Use(nil); got.Of("cpu") != 1600 || got.Of(MeasureReplicas) != 4 {
		t.Errorf("it uses %v", got)
	}
}
