package bundlestatus

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/atoll"
)

// A template whose only copy has yet to start is neither observed nor done.
func TestATemplateThatWaitsIsNotDone(t *testing.T) {
	for _, phase := range []atoll.RowPhase{atoll.RowActive, atoll.RowPending} {
		obj := &unstructured.Unstructured{Object: map[string]any{}}
		obj.SetGeneration(2)
		l := templateState{template: obj, item: &atoll.Item{Key: atoll.ItemKey{Group: "apps", Kind: "StatefulSet", Namespace: "shop", Name: "db"}}, rows: []Row{newRow("b", nil, withPhase(phase, ""))}}
		if _, observed, done := collectRowItems(&bundleSnapshot{}, l, true); observed != 0 || done {
			t.Errorf("%s: generation %d is observed, and done is %t", phase, observed, done)
		}
	}
}
