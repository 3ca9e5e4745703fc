package schedule

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"atoll.dev/atoll/internal/atoll"
)

// interpretedContent is one item of an unknown kind, with the answers of an interpreter.
func interpretedContent(divided bool, what *atoll.InterpreterAnswers) *atoll.Content {
	return &atoll.Content{Items: []atoll.Item{{
		Key: atoll.ItemKey{Group: "ai.example", Kind: "Trainer", Namespace: "shop", Name: "cats"}, Divided: divided,
		Object: json.RawMessage(`{"apiVersion":"ai.example/v1","kind":"Trainer","metadata":{"name":"cats"},"spec":{"workers":6}}`), Interpreted: what,
	}}}
}

func TestReplicasFromAnInterpreter(t *testing.T) {
	six := int64(6)
	content := interpretedContent(true, &atoll.InterpreterAnswers{Replicas: &six, Pods: []atoll.PodSet{{Count: 1, Requests: map[corev1.ResourceName]int64{"cpu": 100}}}})
	list, err := WorkloadsOf(content)
	if err != nil || len(list) != 1 || list[0].Replicas != 6 || list[0].Requests.CPU != 100 {
		t.Fatalf("workloads %+v: %v", list, err)
	}
	d, err := DemandOf(content)
	if err != nil {
		t.Fatal(err)
	}
	if got := d.UsageFor(map[string]int64{"ai.example/Trainer/shop/cats": 4}); got.QuantityOf("cpu") != 400 || got.QuantityOf(MeasureReplicas) != 4 {
		t.Errorf("four of them use %v", got)
	}
	if n := CountUndividedPods(UndividedPodsOf(content)); n != 0 {
		t.Errorf("%d pods are fixed of what is divided", n)
	}
	content.Items[0].Divided = false
	if n := CountUndividedPods(UndividedPodsOf(content)); n != 6 {
		t.Errorf("%d pods are fixed of what is not divided, want 6", n)
	}
}

func TestComponentsFromAnInterpreter(t *testing.T) {
	content := interpretedContent(false, &atoll.InterpreterAnswers{Pods: []atoll.PodSet{
		{Name: "head", Count: 1, Requests: map[corev1.ResourceName]int64{"cpu": 1000}}, {Name: "worker", Count: 3, Requests: map[corev1.ResourceName]int64{"cpu": 200}},
	}})
	if n := CountUndividedPods(UndividedPodsOf(content)); n != 4 {
		t.Errorf("%d pods, want 4", n)
	}
	d, err := DemandOf(content)
	if err != nil {
		t.Fatal(err)
	}
	if got := d.UsageFor(nil); got.QuantityOf("cpu") != 1600 || got.QuantityOf(MeasureReplicas) != 4 {
		t.Errorf("it uses %v", got)
	}
}
