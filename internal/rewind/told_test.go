package rewind

import (
	"fmt"
	"slices"
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

func TestSumUp(t *testing.T) {
	config := Deleted{Key: atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "a"}, UID: "u1"}
	role := Deleted{Key: atoll.ItemKey{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "r"}, UID: "u2"}
	got := SumUp([]Testimony{
		{Cluster: "oslo", Deleted: []Deleted{config, role}, Left: []string{"shop/web", ""}},
		{Cluster: "tokyo", Deleted: []Deleted{config}, Left: []string{"shop/web"}},
		{Cluster: "lima"},
	})
	if got.Clusters != 3 || got.Templates != 2 || got.Rows != 3 {
		t.Errorf("clusters %d, templates %d, rows %d", got.Clusters, got.Templates, got.Rows)
	}
	want := []string{
		"Bundle shop/web left cluster oslo", "Bundle shop/web left cluster tokyo",
		"ClusterRole r was deleted", "ConfigMap shop/a was deleted",
	}
	if !slices.Equal(got.Examples, want) {
		t.Errorf("examples %q, want %q", got.Examples, want)
	}
	if none := SumUp(nil); none.Clusters != 0 || len(none.Examples) != 0 {
		t.Errorf("of nobody: %+v", none)
	}
	var many Testimony
	for i := range 30 {
		many.Left = append(many.Left, fmt.Sprint("shop/b", i))
	}
	if got := SumUp([]Testimony{many}); got.Rows != 30 || len(got.Examples) != mostExamples {
		t.Errorf("%d rows with %d examples", got.Rows, len(got.Examples))
	}
}
