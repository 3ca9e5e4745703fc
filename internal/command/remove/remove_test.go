package remove

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/client"
)

// The objects that --yes confirms are the listed ones, whatever their later state.
func TestTheSameObjectsAreConfirmed(t *testing.T) {
	web := appliedObject{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web", Bundle: "shop/web", State: atoll.RowReady}
	conf := appliedObject{Kind: "ConfigMap", Namespace: "shop", Name: "web", Bundle: "shop/web"}
	later := web
	later.State, later.Bundle, later.Only = atoll.RowDegraded, "shop/other", true
	elsewhere := conf
	elsewhere.Namespace = "mall"
	for _, tc := range []struct {
		name          string
		listed, there []appliedObject
		want          bool
	}{
		{"the same", []appliedObject{web, conf}, []appliedObject{web, conf}, true},
		{"in another order, another state and another Bundle", []appliedObject{web, conf}, []appliedObject{conf, later}, true},
		{"wanted by two Bundles", []appliedObject{web, conf}, []appliedObject{web, conf, later}, true},
		{"one on top", []appliedObject{web}, []appliedObject{web, conf}, false},
		{"one less", []appliedObject{web, conf}, []appliedObject{web}, false},
		{"another namespace's", []appliedObject{web, conf}, []appliedObject{web, elsewhere}, false},
		{"nothing any more", []appliedObject{web}, nil, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := sameObjects(tc.there, tc.listed); got != tc.want {
				t.Errorf("%t", got)
			}
		})
	}
}

// TestWhoStopsFollowingIsToldThatTheHubGoesOn: not that a context was canceled.
func TestWhoStopsFollowingIsToldThatTheHubGoesOn(t *testing.T) {
	cluster := &v1alpha1.Cluster{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Cluster"}, ObjectMeta: metav1.ObjectMeta{Name: "oslo", UID: "u"},
		Spec: v1alpha1.ClusterSpec{Removal: &v1alpha1.ClusterRemoval{Mode: v1alpha1.ClusterOrphan}},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(cluster) // the client has gone
	}))
	defer server.Close()
	dyn, err := dynamic.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), followEvery)
	defer cancel()
	err = (&removeOptions{}).followRemoval(ctx, &client.Connection{Dynamic: dyn}, cluster, *cluster.Spec.Removal, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "the removal goes on") {
		t.Errorf("%v", err)
	}
}

// TestWhatWaitedForTheConfirmationIsNoNews: the confirmation is given, and a reader of the old
// message gives it again.
func TestWhatWaitedForTheConfirmationIsNoNews(t *testing.T) {
	c := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Generation: 5}}
	if said := removalProgressText(c); said != "" {
		t.Errorf("before anything is said: %q", said)
	}
	c.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ClusterRemoving, Status: metav1.ConditionTrue, Message: "waits for `atoll confirm`", ObservedGeneration: 4}}
	if said := removalProgressText(c); said != "" {
		t.Errorf("of what was stated before: %q", said)
	}
	c.Status.Conditions[0].ObservedGeneration, c.Status.Conditions[0].Message = 5, "0 of 3 bundles are gone"
	if said := removalProgressText(c); said != "0 of 3 bundles are gone" {
		t.Errorf("of what is stated: %q", said)
	}
}
