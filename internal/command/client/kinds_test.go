package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// resource of an API server that a test makes up.
type resource struct {
	group, version, plural, kind string
	root                         bool
	short                        []string
}

// some kinds, the preferred version of each group first.
var some = []resource{
	{group: "", version: "v1", plural: "services", kind: "Service", short: []string{"svc"}},
	{group: "", version: "v1", plural: "namespaces", kind: "Namespace", root: true, short: []string{"ns"}},
	{group: "", version: "v1", plural: "events", kind: "Event", short: []string{"ev"}},
	{group: "apps", version: "v1", plural: "deployments", kind: "Deployment", short: []string{"deploy"}},
	{group: "autoscaling", version: "v2", plural: "horizontalpodautoscalers", kind: "HorizontalPodAutoscaler", short: []string{"hpa"}},
	{group: "autoscaling", version: "v1", plural: "horizontalpodautoscalers", kind: "HorizontalPodAutoscaler", short: []string{"hpa"}},
	{group: "events.k8s.io", version: "v1", plural: "events", kind: "Event", short: []string{"ev"}},
	{group: "knative.example", version: "v1", plural: "services", kind: "Service", short: []string{"ksvc", "deployments"}},
	{group: "silent.example", version: "v1", plural: "silences", kind: "Silence"},
	{group: "zeta.example", version: "v1", plural: "deployments", kind: "Deployment"},
}

// silent is a group whose own server does not answer.
const silent = "silent.example"

// groupVersions of the resources, in their order.
func groupVersions(all []resource) (out []schema.GroupVersion) {
	for _, r := range all {
		if gv := (schema.GroupVersion{Group: r.group, Version: r.version}); len(out) == 0 || out[len(out)-1] != gv {
			out = append(out, gv)
		}
	}
	return out
}

func inOneAnswer(all []resource, legacy bool) apidiscovery.APIGroupDiscoveryList {
	out := apidiscovery.APIGroupDiscoveryList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: "apidiscovery.k8s.io/v2"}}
	for _, gv := range groupVersions(all) {
		if (gv.Group == "") != legacy {
			continue
		}
		v := apidiscovery.APIVersionDiscovery{Version: gv.Version}
		for _, r := range all {
			if r.group == gv.Group && r.version == gv.Version {
				scope := apidiscovery.ScopeNamespace
				if r.root {
					scope = apidiscovery.ScopeCluster
				}
				kind := r.kind
				if r.group == silent {
					kind = ""
				}
				v.Resources = append(v.Resources, apidiscovery.APIResourceDiscovery{
					Resource: r.plural, ResponseKind: &metav1.GroupVersionKind{Kind: kind}, Scope: scope, SingularResource: strings.ToLower(r.kind), ShortNames: r.short,
				})
			}
		}
		if n := len(out.Items); n > 0 && out.Items[n-1].Name == gv.Group {
			out.Items[n-1].Versions = append(out.Items[n-1].Versions, v)
			continue
		}
		out.Items = append(out.Items, apidiscovery.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: gv.Group}, Versions: []apidiscovery.APIVersionDiscovery{v}})
	}
	return out
}

// groupList as old API servers list them, where the preferred version need not be the first.
func groupList(all []resource) (out metav1.APIGroupList) {
	for _, gv := range groupVersions(all) {
		v := metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version}
		if n := len(out.Groups); gv.Group != "" && n > 0 && out.Groups[n-1].Name == gv.Group {
			out.Groups[n-1].Versions = append([]metav1.GroupVersionForDiscovery{v}, out.Groups[n-1].Versions...)
		} else if gv.Group != "" {
			out.Groups = append(out.Groups, metav1.APIGroup{Name: gv.Group, Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v})
		}
	}
	return out
}

// resourceList as old API servers answer, which do not tell the singular.
func resourceList(all []resource, at string) metav1.APIResourceList {
	var out metav1.APIResourceList
	for _, r := range all {
		if at == "/apis/"+r.group+"/"+r.version || r.group == "" && at == "/api/"+r.version {
			out.APIResources = append(out.APIResources,
				metav1.APIResource{Name: r.plural, Kind: r.kind, Namespaced: !r.root, ShortNames: r.short},
				metav1.APIResource{Name: r.plural + "/status", Kind: r.kind, Namespaced: !r.root})
		}
	}
	return out
}

// serve the resources, in one answer or group by group, and count what is asked.
func serve(t *testing.T, old bool, all *atomic.Pointer[[]resource]) (c *Connection, asked *atomic.Int32) {
	t.Helper()
	asked = &atomic.Int32{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if strings.HasPrefix(r.URL.Path, "/apis/"+silent) {
			http.Error(w, "it is down", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		var answer any
		switch all := *all.Load(); {
		case !old && (r.URL.Path == "/api" || r.URL.Path == "/apis") && strings.Contains(r.Header.Get("Accept"), "APIGroupDiscoveryList"):
			answer = inOneAnswer(all, r.URL.Path == "/api")
		case r.URL.Path == "/api":
			answer = metav1.APIVersions{Versions: []string{"v1"}}
		case r.URL.Path == "/apis":
			answer = groupList(all)
		default:
			answer = resourceList(all, r.URL.Path)
		}
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	return connectTo(t, server.URL), asked
}

func connectTo(t *testing.T, url string) *Connection {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	config := fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: c, cluster: {server: %q}}]\ncontexts: [{name: c, context: {cluster: c}}]\n", url)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := (&ConnectionFlags{Kubeconfig: file}).LoadClusterConnection()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestKindsAreFoundAsKubectlFindsThem, by servers that tell all at once and by old ones.
func TestKindsAreFoundAsKubectlFindsThem(t *testing.T) {
	for _, old := range []bool{false, true} {
		var all atomic.Pointer[[]resource]
		all.Store(&some)
		c, asked := serve(t, old, &all)
		kinds := c.ServedKinds()
		want := int32(2)
		if old {
			want += int32(len(groupVersions(some)))
		}
		for range 2 {
			if _, err := kinds.MappingByName(t.Context(), "deploy"); err != nil || asked.Load() != want {
				t.Errorf("old=%t: it asks %d times, wanted %d: %v", old, asked.Load(), want, err)
			}
		}
		for text, want := range map[string]string{
			"deployment": "apps/v1 deployments", "Deployments": "apps/v1 deployments", "deploy": "apps/v1 deployments", "Deploy": "apps/v1 deployments", "deployments.apps": "apps/v1 deployments",
			"deployments.v1.apps": "apps/v1 deployments", "deploy.apps": "apps/v1 deployments", "ns": "v1 namespaces", "ev": "v1 events", "event.events.k8s.io": "events.k8s.io/v1 events",
			"hpa": "autoscaling/v2 horizontalpodautoscalers", "horizontalpodautoscaler.v1.autoscaling": "autoscaling/v1 horizontalpodautoscalers",
			"svc": "v1 services", "service": "v1 services", "services.knative.example": "knative.example/v1 services", "ksvc": "knative.example/v1 services",
			"service.knative": "knative.example/v1 services", "ksvc.knative": "knative.example/v1 services",
			"deployment.zeta.example": "zeta.example/v1 deployments", "silences": "",
			"none": "", "svc.apps": "", "deployments/status": "",
		} {
			got := ""
			m, err := kinds.MappingByName(t.Context(), text)
			if err == nil {
				got = m.Resource.GroupVersion().String() + " " + m.Resource.Resource
			} else if !meta.IsNoMatchError(err) {
				t.Errorf("old=%t: %q: %v", old, text, err)
			}
			if got != want {
				t.Errorf("old=%t: %q is %q, wanted %q", old, text, got, want)
			}
		}
		m, err := kinds.MappingFor(t.Context(), schema.GroupVersionKind{Version: "v1", Kind: "Namespace"})
		if err != nil || m.Scope.Name() != meta.RESTScopeNameRoot {
			t.Errorf("old=%t: namespaces are %+v, %v", old, m, err)
		}
	}
}

// TestKindsThatComeAreFound: what is not known is asked for again.
func TestKindsThatComeAreFound(t *testing.T) {
	var all atomic.Pointer[[]resource]
	few := some[:4]
	all.Store(&few)
	c, _ := serve(t, false, &all)
	kinds := c.ServedKinds()
	hpa := schema.GroupVersionKind{Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler"}
	if _, err := kinds.MappingFor(t.Context(), hpa); !meta.IsNoMatchError(err) {
		t.Fatalf("what is not served is found: %v", err)
	}
	all.Store(&some)
	if m, err := kinds.MappingFor(t.Context(), hpa); err != nil || m.Scope.Name() != meta.RESTScopeNameNamespace {
		t.Errorf("it has come, and is %+v, %v", m, err)
	}
}

// TestAServerThatIsAwayIsSaidToBe, and nothing is said of kinds.
func TestAServerThatIsAwayIsSaidToBe(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	c := connectTo(t, server.URL)
	server.Close()
	if _, err := c.MappingFor(t.Context(), "deployments"); err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("the error is %v", err)
	}
}

// TestWhoStopsAskingHasNoKinds: the kinds read until then are not all.
func TestWhoStopsAskingHasNoKinds(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/api":
			fmt.Fprint(w, `{}`)
		case "/apis":
			fmt.Fprint(w, `{"groups": [{"name": "apps", "versions": [{"version": "v1"}]}]}`)
		default:
			stop()
			<-r.Context().Done() // the client has gone
		}
	}))
	defer server.Close()
	if _, err := connectTo(t, server.URL).ServedKinds().MappingByName(ctx, "pods"); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
}
