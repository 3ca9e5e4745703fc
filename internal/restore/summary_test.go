package restore

import (
	"fmt"
	"slices"
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

func TestSumUp(t *testing.T) {
	config := DeletedTemplate{Key: atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "a"}, UID: "u1"}
	role := DeletedTemplate{Key: atoll.ItemKey{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "r"}, UID: "u2"}
	got := SummarizeMembers([]MemberSummary{
		{Cluster: "oslo", Deleted: []DeletedTemplate{config, role}, LeftBundles: []string{"shop/web", ""}},
		{Cluster: "tokyo", Deleted: []DeletedTemplate{config}, LeftBundles: []string{"shop/web"}},
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
	if none := SummarizeMembers(nil); none.Clusters != 0 || len(none.Examples) != 0 {
		t.Errorf("of no member: %+v", none)
	}
	var many MemberSummary
	for i := range 30 {
		many.LeftBundles = append(many.LeftBundles, fmt.Sprint("shop/b", i))
	}
	if got := SummarizeMembers([]MemberSummary{many}); got.Rows != 30 || len(got.Examples) != maxExamples {
		t.Errorf("%d rows with %d examples", got.Rows, len(got.Examples))
	}
}
