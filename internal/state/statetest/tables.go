// Package statetest makes a hub's tables for tests of the packages that read them.
//
// Contract: the tables are not run. They have only objects that a test puts there or that the client reads.
package statetest

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/internal/state"
)

// NewTables returns the tables of a hub that c reads and writes, or ends the test.
func NewTables(t testing.TB, c client.Client) *state.HubTables {
	t.Helper()
	tables, err := state.New(c, &rest.Config{Transport: discoveryTransport{}}, apiAlone{}, nil, make([]byte, 32), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return tables
}

// apiAlone is a state.TableSource that leaves all tables to the API server.
type apiAlone struct{}

func (apiAlone) ListerWatcherFor(_ runtime.Object, api cache.ListerWatcher) cache.ListerWatcher {
	return api
}

func (apiAlone) RequestBundleProgress(context.Context) bool { return true }

// discoveryTransport is an API server that answers with the kinds that it has, and with nothing else.
type discoveryTransport struct{}

func (discoveryTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	group := func(name string) metav1.APIGroup {
		v := metav1.GroupVersionForDiscovery{GroupVersion: name + "/v1alpha1", Version: "v1alpha1"}
		return metav1.APIGroup{Name: name, Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v}
	}
	answers := map[string]any{
		"/api":                            metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}},
		"/apis":                           metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{group("atoll.dev"), group("engine.atoll.dev")}},
		"/apis/atoll.dev/v1alpha1":        metav1.APIResourceList{GroupVersion: "atoll.dev/v1alpha1", APIResources: []metav1.APIResource{{Name: "clusters", Kind: "Cluster"}}},
		"/apis/engine.atoll.dev/v1alpha1": metav1.APIResourceList{GroupVersion: "engine.atoll.dev/v1alpha1", APIResources: []metav1.APIResource{{Name: "revisions", Kind: "Revision", Namespaced: true}}},
	}
	out := httptest.NewRecorder()
	answer, ok := answers[r.URL.Path]
	if !ok {
		http.NotFound(out, r)
		return out.Result(), nil
	}
	out.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(out).Encode(answer); err != nil {
		return nil, err
	}
	return out.Result(), nil
}
