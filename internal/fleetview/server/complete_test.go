package server

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// TestStoredListsAreComplete: what asks for that does not select there, and what else is said of
// the label is refused as elsewhere, as it is where all would be deleted that is left.
func TestStoredListsAreComplete(t *testing.T) {
	deployments := request.RequestInfo{IsResourceRequest: true, APIGroup: "apps", APIVersion: "v1", Resource: "deployments", Verb: "list"}
	pods := request.RequestInfo{IsResourceRequest: true, APIVersion: "v1", Resource: "pods", Verb: "list"}
	deleted := deployments
	deleted.Verb = "deletecollection"
	measured := request.RequestInfo{IsResourceRequest: true, APIGroup: "metrics.k8s.io", APIVersion: "v1beta1", Resource: "nodes", Verb: "list"}
	proxied := request.RequestInfo{IsResourceRequest: true, APIGroup: "atoll.dev", APIVersion: "v1alpha1", Resource: "clusters", Subresource: "proxy"}
	for _, c := range []struct {
		info        request.RequestInfo
		asked, want string
	}{
		{deployments, "app=web,atoll.dev/complete=true", "app=web"},
		{deployments, "atoll.dev/complete=true", ""},
		{deployments, "app=web", "app=web"},
		{deployments, "atoll.dev/complete", "400"},
		{deployments, "atoll.dev/complete=false", "400"},
		{deployments, "atoll.dev/complete!=true", "400"},
		{deployments, "atoll.dev/complete in (true,false)", "400"},
		{deployments, "app=web,atoll.dev/complete in (true)", "app=web"},
		{measured, "atoll.dev/complete=true", "atoll.dev/complete=true"},
		{deployments, "atoll.dev/complete in (", "atoll.dev/complete in ("},
		{deleted, "app=web", "app=web"},
		{deleted, "app=web,atoll.dev/complete=true", "400"},
		{deleted, "atoll.dev/complete=true", "400"},
		{pods, "atoll.dev/complete=true", "atoll.dev/complete=true"},
		{proxied, "atoll.dev/complete=true", "atoll.dev/complete=true"},
	} {
		got := "400"
		handler := StripCompleteSelector(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if got = r.URL.Query().Get("labelSelector"); r.URL.Query().Get("limit") != "5" {
				t.Error("the rest of what was asked is lost")
			}
		}))
		r := httptest.NewRequest(http.MethodGet, "/x?limit=5&labelSelector="+url.QueryEscape(c.asked), nil)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r.WithContext(request.WithRequestInfo(r.Context(), &c.info)))
		if said := r.URL.Query().Get("labelSelector"); said != c.asked {
			t.Errorf("a later reader of the request finds %q, of %q", said, c.asked)
		}
		if got != c.want || (w.Code == http.StatusBadRequest) != (c.want == "400") {
			t.Errorf("%s of %s is asked for as %q, and answered with %d", c.asked, c.info.Resource, got, w.Code)
		}
	}
}

// TestCompleteMeasures: as of what runs, a list that would lack a cluster fails where all is asked
// for.
func TestCompleteMeasures(t *testing.T) {
	of := startStorage(t)
	all, _ := labels.Parse("atoll.dev/complete=true")
	some, _ := labels.Parse("atoll.dev/complete=true,topology.kubernetes.io/region in (eu-a,eu-b)")
	ctx, said := whoAsks(t, "jane", "shop")
	_, err := of["nodes"].(*nodeMetricsStorage).List(ctx, &internalversion.ListOptions{LabelSelector: all})
	if !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "cluster d cannot be reached") {
		t.Errorf("of all clusters: %v", err)
	}
	if _, err := of["nodes"].(*nodeMetricsStorage).List(ctx, &internalversion.ListOptions{LabelSelector: some}); err != nil {
		t.Errorf("of those that answer: %v", err)
	}
	if _, err := of["pods"].(*podMetricsStorage).List(ctx, &internalversion.ListOptions{LabelSelector: all}); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("of all pods: %v", err)
	}
	if len(*said) > 0 {
		t.Errorf("warned of %v", *said)
	}
}
