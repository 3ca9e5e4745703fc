package live

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"atoll.dev/atoll/internal/testwait"
)

// TestAMetricsServerThatDoesNotAnswer: it is distinguished from a missing one, and the error shows
// where to look.
func TestAMetricsServerThatDoesNotAnswer(t *testing.T) {
	w := newWorld(t, "unanswered")
	for _, what := range []string{"nodes", "pods"} {
		if code, _, body := w.sendRequest(http.MethodGet, "/apis/metrics.k8s.io/v1beta1/"+what); code != http.StatusServiceUnavailable || !strings.Contains(string(body), "it has no metrics-server") {
			t.Fatalf("without one, %s are %d: %s", what, code, body)
		}
	}
	at := w.kube.RESTClient().Post().AbsPath("/apis/apiregistration.k8s.io/v1/apiservices")
	if err := at.Body([]byte(`{"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1beta1.metrics.k8s.io"},
		"spec": {"group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100, "insecureSkipTLSVerify": true,
			"service": {"name": "metrics-server", "namespace": "unanswered"}}}`)).SetHeader("Content-Type", "application/json").Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		gone := w.kube.RESTClient().Delete().AbsPath("/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.metrics.k8s.io")
		if err := gone.Do(context.WithoutCancel(t.Context())).Error(); err != nil {
			t.Error(err)
		}
	})
	for _, what := range []string{"nodes", "pods"} {
		for end := time.Now().Add(testwait.HangLimit); ; <-time.After(100 * time.Millisecond) {
			code, _, body := w.sendRequest(http.MethodGet, "/apis/metrics.k8s.io/v1beta1/"+what)
			if code == http.StatusServiceUnavailable && strings.Contains(string(body), "does not answer; the reason is in the APIService v1beta1.metrics.k8s.io") {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("with one that does not answer, %s are %d: %s", what, code, body)
			}
		}
	}
}
