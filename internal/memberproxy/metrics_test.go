package memberproxy

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// TestMetrics count answers and refusals by verb and code, and bytes, without names.
func TestMetrics(t *testing.T) {
	h := newHandler(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.Method == http.MethodPost {
			w.WriteHeader(http.StatusCreated)
		}
		_, _ = io.WriteString(w, strings.Repeat("x", 10_000))
	}), func(string) error { return nil }, true)
	registry := prometheus.NewRegistry()
	h.metrics = newMetrics(registry)
	for _, c := range []struct{ method, cluster string }{{"GET", "tokyo"}, {"GET", "tokyo"}, {"POST", "tokyo"}, {"GET", "denied"}, {"DELETE", "mars"}} {
		r := httptest.NewRequest(c.method, "http://hub/apis/atoll.dev/v1alpha1/clusters/"+c.cluster+"/proxy/api", strings.NewReader(strings.Repeat("y", 5000)))
		ctx := request.WithRequestInfo(r.Context(), &request.RequestInfo{IsResourceRequest: true, Name: c.cluster, Verb: verbs[c.method]})
		h.ServeHTTP(httptest.NewRecorder(), r.WithContext(request.WithUser(ctx, &user.DefaultInfo{Name: "jane"})))
	}
	err := testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP atoll_proxy_requests_total Requests to members through the hub that were answered, by verb and HTTP status, those that the hub refused among them.
# TYPE atoll_proxy_requests_total counter
atoll_proxy_requests_total{code="200",verb="get"} 2
atoll_proxy_requests_total{code="201",verb="create"} 1
atoll_proxy_requests_total{code="404",verb="delete"} 1
atoll_proxy_requests_total{code="503",verb="get"} 1
# HELP atoll_proxy_requests Requests to members through the hub that are under way.
# TYPE atoll_proxy_requests gauge
atoll_proxy_requests 0
`), "atoll_proxy_requests_total", "atoll_proxy_requests")
	if err != nil {
		t.Error(err)
	}
	if up, down := testutil.ToFloat64(h.metrics.bytes.WithLabelValues("up")), testutil.ToFloat64(h.metrics.bytes.WithLabelValues("down")); up < 30_000 || down < 15_000 || up > 40_000 || down > 20_000 {
		t.Errorf("%v bytes up and %v down", up, down)
	}
	if n := testutil.ToFloat64(h.metrics.tunnels); n < 1 {
		t.Errorf("%v tunnels", n)
	}
	h.forward.Transport.(*lowMemoryReadTransport).CloseIdleConnections()
	if n := testutil.ToFloat64(h.metrics.tunnels); n != 0 {
		t.Errorf("%v tunnels are left", n)
	}
}
