package measure

import (
	"maps"
	"strings"
	"testing"
)

func TestOnlyRequestsThatWroteCount(t *testing.T) {
	m, err := ParseMetrics(strings.NewReader(`# TYPE apiserver_request_total counter
apiserver_request_total{code="200",component="apiserver",dry_run="",group="apps",resource="deployments",scope="resource",subresource="",verb="APPLY",version="v1"} 3
apiserver_request_total{code="200",component="apiserver",dry_run="",group="apps",resource="deployments",scope="resource",subresource="status",verb="PATCH",version="v1"} 2
apiserver_request_total{code="200",component="apiserver",dry_run="",group="apps",resource="deployments",scope="namespace",subresource="",verb="LIST",version="v1"} 9
apiserver_request_total{code="409",component="apiserver",dry_run="",group="apps",resource="deployments",scope="resource",subresource="",verb="PUT",version="v1"} 9
apiserver_request_total{code="200",component="apiserver",dry_run="All",group="apps",resource="deployments",scope="resource",subresource="",verb="PUT",version="v1"} 9
apiserver_request_total{code="200",component="apiserver",dry_run="",group="coordination.k8s.io",resource="leases",scope="resource",subresource="",verb="PUT",version="v1"} 9
apiserver_request_total{code="201",component="apiserver",dry_run="",group="authorization.k8s.io",resource="subjectaccessreviews",scope="resource",subresource="",verb="POST",version="v1"} 9
apiserver_request_total{code="201",component="apiserver",dry_run="",group="engine.atoll.dev",resource="revisions",scope="resource",subresource="",verb="POST",version="v1alpha1"} 1
# TYPE atoll_direct_writes_total counter
atoll_direct_writes_total{resource="clusters",subresource="status",verb="PUT"} 4
atoll_direct_writes_total{resource="targetslices",subresource="",verb="POST"} 5
`))
	if err != nil {
		t.Fatal(err)
	}
	got := m.Writes()
	want := Writes{"APPLY deployments": 3, "PATCH deployments/status": 2, "POST revisions": 1, "PUT clusters/status": 4, "POST targetslices": 5}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
