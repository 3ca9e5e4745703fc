package member

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// apiServer answers by path; other paths fail.
type apiServer map[string]any

func (a apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v, ok := a[r.URL.Path]
	if !ok {
		http.Error(w, "it is down", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the client has gone
}

func newClient(t *testing.T, h http.Handler) *Client {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	c, err := New(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func newGroup(name, version, freshness string, kinds ...string) apidiscovery.APIGroupDiscovery {
	v := apidiscovery.APIVersionDiscovery{Version: version, Freshness: apidiscovery.DiscoveryFreshness(freshness)}
	for _, kind := range kinds {
		v.Resources = append(v.Resources, apidiscovery.APIResourceDiscovery{
			Resource: kind + "s", ResponseKind: &metav1.GroupVersionKind{Kind: kind}, Scope: apidiscovery.ScopeNamespace, Verbs: []string{"list", "delete"},
		})
	}
	return apidiscovery.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: name}, Versions: []apidiscovery.APIVersionDiscovery{v}}
}

func groupList(all ...apidiscovery.APIGroupDiscovery) apidiscovery.APIGroupDiscoveryList {
	return apidiscovery.APIGroupDiscoveryList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList"}, Items: all}
}

var widgets = schema.GroupVersionKind{Group: "x.dev", Version: "v1", Kind: "Widget"}

// A group whose server is down keeps the kinds that were known; where none were, its silence is
// noted. Its kinds are never taken as gone.
func TestASilentGroupKeepsItsKinds(t *testing.T) {
	server := apiServer{"/api": groupList(newGroup("", "v1", "Current", "Pod")), "/apis": groupList(newGroup("x.dev", "v1", "Stale"))}
	c := newClient(t, server)
	if changed, err := c.DiscoverAPIs(t.Context()); !changed || err != nil {
		t.Fatalf("first: %t, %v", changed, err)
	}
	if _, known := c.APIs().LookupKind(widgets); known || !c.APIs().IsGroupSilent("x.dev") || c.APIs().IsGroupSilent("") || !slices.Equal(c.APIs().SilentGroups(), []string{"x.dev"}) {
		t.Errorf("silent from the first: %v, silent %v", c.APIs().ListKinds(), c.APIs().SilentGroups())
	}
	server["/apis"] = groupList(newGroup("x.dev", "v1", "Current", "Widget"))
	if changed, err := c.DiscoverAPIs(t.Context()); !changed || err != nil || c.APIs().IsGroupSilent("x.dev") {
		t.Fatalf("once it answers: %t, %v", changed, err)
	}
	server["/apis"] = groupList(newGroup("x.dev", "v1", "Stale"))
	if changed, err := c.DiscoverAPIs(t.Context()); changed || err != nil {
		t.Errorf("silent again: %t, %v", changed, err)
	}
	if _, known := c.APIs().LookupKind(widgets); !known || c.APIs().IsGroupSilent("x.dev") {
		t.Errorf("silent again, it serves %v", c.APIs().ListKinds())
	}
	server["/apis"] = groupList()
	if changed, err := c.DiscoverAPIs(t.Context()); !changed || err != nil {
		t.Errorf("gone: %t, %v", changed, err)
	}
	if _, known := c.APIs().LookupKind(widgets); known {
		t.Error("a kind that is served no more is known")
	}
}

// An old member is asked group by group, with the same result.
func TestAnOldMemberIsAskedByGroup(t *testing.T) {
	resource := func(name, kind string, namespaced bool, verbs ...string) metav1.APIResource {
		return metav1.APIResource{Name: name, Kind: kind, Namespaced: namespaced, Verbs: verbs}
	}
	server := apiServer{
		"/api":    metav1.APIVersions{Versions: []string{"v1"}},
		"/api/v1": metav1.APIResourceList{APIResources: []metav1.APIResource{resource("pods", "Pod", true, "list", "delete"), resource("pods/log", "Pod", true, "get"), resource("bindings", "Binding", true, "create")}},
		"/apis": metav1.APIGroupList{Groups: []metav1.APIGroup{
			{Name: "x.dev", Versions: []metav1.GroupVersionForDiscovery{{Version: "v1"}, {Version: "v1beta1"}}},
			{Name: "down.dev", Versions: []metav1.GroupVersionForDiscovery{{Version: "v1"}}},
		}},
		"/apis/x.dev/v1":      metav1.APIResourceList{APIResources: []metav1.APIResource{resource("widgets", "Widget", false, "list", "delete")}},
		"/apis/x.dev/v1beta1": metav1.APIResourceList{APIResources: []metav1.APIResource{resource("widgets", "Widget", false, "list", "delete")}},
	}
	c := newClient(t, server)
	if _, err := c.DiscoverAPIs(t.Context()); err != nil {
		t.Fatal(err)
	}
	a := c.APIs()
	if want := []string{"/v1/Binding", "/v1/Pod", "x.dev/v1/Widget", "x.dev/v1beta1/Widget"}; !slices.Equal(a.ListKinds(), want) {
		t.Errorf("it serves %q, want %q", a.ListKinds(), want)
	}
	if !a.IsGroupSilent("down.dev") || len(a.SilentGroups()) != 1 {
		t.Errorf("silent are %q", a.SilentGroups())
	}
	if r, ok := a.PreferredResource(widgets.GroupKind()); !ok || r.Version != "v1" || r.Namespaced || !r.Listable {
		t.Errorf("the preferred resource is %+v", r)
	}
	if namespaced := a.NamespacedResources(); len(namespaced) != 1 || namespaced[0].Kind != "Pod" {
		t.Errorf("namespaced are %+v", namespaced)
	}
	if len(a.ListableResources()) != 2 {
		t.Errorf("listable are %+v", a.ListableResources())
	}
}

// A failed discovery keeps the snapshot, and kinds that are added keep the preferred versions.
func TestTheSnapshotOutlivesFailures(t *testing.T) {
	server := apiServer{"/api": groupList(newGroup("", "v1", "Current", "Pod")), "/apis": groupList(newGroup("x.dev", "v1", "Current", "Widget"))}
	c := newClient(t, server)
	if _, known := c.APIs().LookupKind(widgets); known {
		t.Error("before discovery a kind is known")
	}
	if _, err := c.DiscoverAPIs(t.Context()); err != nil {
		t.Fatal(err)
	}
	hash := c.APIs().KindListHash()
	delete(server, "/apis")
	if changed, err := c.DiscoverAPIs(t.Context()); changed || err == nil || c.APIs().KindListHash() != hash {
		t.Errorf("%t, %v", changed, err)
	}
	next := Resource{GroupVersionResource: schema.GroupVersionResource{Group: "x.dev", Version: "v2", Resource: "widgets"}, Kind: "Widget"}
	c.AddKnownResources(next)
	if r, ok := c.APIs().PreferredResource(widgets.GroupKind()); !ok || r.Version != "v1" {
		t.Errorf("the preferred version is %+v", r)
	}
	if _, known := c.APIs().LookupKind(next.GVK()); !known || c.APIs().KindListHash() == hash {
		t.Error("the added kind is not known")
	}
}

// Writes are made in the name of an account; reads are not.
func TestOnlyWritesImpersonate(t *testing.T) {
	got := map[string]string{}
	c := newClient(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got[r.Method] = r.Header.Get("Impersonate-User")
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"}}`)) // the client has gone
	}))
	pods := Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Kind: "ConfigMap", Namespaced: true}
	ctx := WithServiceAccount(t.Context(), "shop", "deployer")
	if _, err := c.Get(ctx, pods, "shop", "c"); err != nil {
		t.Error(err)
	}
	if _, err := c.Apply(ctx, Patch{Resource: pods, Namespace: "shop", Name: "c", Body: []byte("{}")}); err != nil {
		t.Error(err)
	}
	if err := c.Delete(t.Context(), pods, "shop", "c", "u"); err != nil {
		t.Error(err)
	}
	if want := "system:serviceaccount:shop:deployer"; got[http.MethodGet] != "" || got[http.MethodPatch] != want || got[http.MethodDelete] != "" {
		t.Errorf("requests are made as %v", got)
	}
}

// A member that serves more kinds than an agent keeps is refused as a whole: what was known stays.
func TestAMemberServesSoManyKinds(t *testing.T) {
	var some []string
	for i := range maxServed {
		some = append(some, fmt.Sprintf("Kind%d", i))
	}
	var silent []apidiscovery.APIGroupDiscovery
	for _, name := range some {
		silent = append(silent, newGroup(name+".dev", "v1", "Stale"))
	}
	var old metav1.APIGroupList
	for _, name := range some {
		old.Groups = append(old.Groups, metav1.APIGroup{Name: name, Versions: []metav1.GroupVersionForDiscovery{{Version: "v1"}, {Version: "v2"}}})
	}
	server := apiServer{"/api": groupList(newGroup("", "v1", "Current", "Pod")), "/apis": groupList(newGroup("x.dev", "v1", "Current", some[1:]...))}
	c := newClient(t, server)
	if _, err := c.DiscoverAPIs(t.Context()); err != nil || len(c.APIs().ListKinds()) != maxServed {
		t.Fatalf("as many as it may serve: %d, %v", len(c.APIs().ListKinds()), err)
	}
	for what, apis := range map[string]any{"kinds": groupList(newGroup("x.dev", "v1", "Current", some...)), "silent groups": groupList(silent...), "versions": old} {
		server["/apis"] = apis
		if _, err := c.DiscoverAPIs(t.Context()); err == nil || len(c.APIs().ListKinds()) != maxServed {
			t.Errorf("too many %s: %d kinds are known, %v", what, len(c.APIs().ListKinds()), err)
		}
	}
}
