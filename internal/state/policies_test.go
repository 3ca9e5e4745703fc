package state

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/api/v1alpha1"
)

// TestAStatusOfAPolicyIsNotNews: a status that Atoll writes into a policy is readable, and starts
// no look at the policy's objects.
func TestAStatusOfAPolicyIsNotNews(t *testing.T) {
	policies, notified := newPolicies(), 0
	policies.Subscribe(func(string, string, string) { notified++ })
	put := func(uid types.UID, generation int64, objects int32) {
		policies.put(&v1alpha1.PropagationPolicy{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "all", UID: uid, Generation: generation},
			Status:     v1alpha1.PropagationStatus{Objects: objects},
		})
	}
	for _, step := range []struct {
		what       string
		uid        types.UID
		generation int64
		objects    int32
		notified   int
	}{
		{"it comes", "a", 1, 0, 1},
		{"a status", "a", 1, 7, 1},
		{"an edit", "a", 2, 7, 2},
		{"another of its name", "b", 2, 0, 3},
	} {
		put(step.uid, step.generation, step.objects)
		if notified != step.notified {
			t.Errorf("%s: notified %d times, want %d", step.what, notified, step.notified)
		}
		if got := policies.PropagationPolicies("shop"); len(got) != 1 || got[0].Status.Objects != step.objects {
			t.Errorf("%s: the table has %v", step.what, got)
		}
	}
}
