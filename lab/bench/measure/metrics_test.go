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
	got := m.WriteCounts()
	want := WriteCounts{"APPLY deployments": 3, "PATCH deployments/status": 2, "POST revisions": 1, "PUT clusters/status": 4, "POST targetslices": 5}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestHistogramsByLabel(t *testing.T) {
	m, err := ParseMetrics(strings.NewReader(`# TYPE atoll_change_seconds histogram
atoll_change_seconds_bucket{stage="bound",le="+Inf"} 4
atoll_change_seconds_sum{stage="bound"} 0.5
atoll_change_seconds_count{stage="bound"} 4
`))
	if err != nil {
		t.Fatal(err)
	}
	got := m.HistogramsByLabel("atoll_change_seconds", "stage")["bound"]
	if got != (Histogram{0.5, 4}) || got.Subtract(Histogram{0.25, 1}) != (Histogram{0.25, 3}) {
		t.Errorf("%+v", got)
	}
}
