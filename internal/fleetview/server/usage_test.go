package server

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/metrics/pkg/apis/metrics"
	metricsv1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/memberproxy"
)

// measuring is what the hub knows of clusters that are in the namespace shop.
type measuring []*v1alpha1.Cluster

func (m measuring) Clusters() []*v1alpha1.Cluster { return m }

func (m measuring) Cluster(name string) (*v1alpha1.Cluster, bool) {
	for _, c := range m {
		if c.Name == name {
			return c, true
		}
	}
	return nil, false
}

func (m measuring) PlacedNamespacesByCluster(namespace string) map[string][]string {
	out := map[string][]string{}
	for _, c := range m {
		if namespace == "" || namespace == "shop" {
			out[c.Name] = []string{"shop"}
		}
	}
	return out
}

func (m measuring) PlacedAt(namespace, cluster string) bool {
	_, there := m.Cluster(cluster)
	return there && namespace == "shop"
}

func (measuring) HasRowForTemplate(atoll.ItemKey, string) bool { return false }

func (measuring) HoldersOf(atoll.ItemKey) (map[string]bool, error) { return nil, nil }

func (measuring) ClustersLikelyHolding(string, func(string) bool) map[string]bool { return nil }

func (measuring) TemplatesOfKind(schema.GroupKind, string) []*unstructured.Unstructured { return nil }

func (measuring) RevisionTemplates(context.Context, atoll.ItemKey, types.UID) ([]RevisionTemplate, int64, error) {
	return nil, 0, nil
}

func (measuring) Template(atoll.ItemKey) (metav1.Object, bool) { return nil, false }

// serveAgents answer for clusters a and b; c has no metrics-server, and of d the agent is away.
func serveAgents(w http.ResponseWriter, r *http.Request, cluster string) {
	pod := func(namespace, name string) metricsv1.PodMetrics {
		return metricsv1.PodMetrics{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": "web"}},
			Containers: []metricsv1.ContainerMetrics{{Name: "web", Usage: corev1.ResourceList{"cpu": resource.MustParse("5m")}}},
		}
	}
	var answer runtime.Object
	switch {
	case r.Host != atoll.FleetViewHost || r.Header.Get("Impersonate-User") != "":
		answer = &apierrors.NewForbidden(metrics.Resource("nodes"), "", nil).ErrStatus
	case cluster == "c":
		answer = &apierrors.NewServiceUnavailable("it serves no metrics.k8s.io/v1beta1: it has no metrics-server").ErrStatus
	case r.URL.Path == "/apis/metrics.k8s.io/v1beta1/nodes":
		answer = &metricsv1.NodeMetricsList{Items: []metricsv1.NodeMetrics{{Usage: corev1.ResourceList{"cpu": resource.MustParse("3")}}}}
	case r.URL.Path == "/apis/metrics.k8s.io/v1beta1/namespaces/shop/pods", r.URL.Path == "/apis/metrics.k8s.io/v1beta1/pods":
		// A hub does not trust a member about another namespace than those of its rows.
		answer = &metricsv1.PodMetricsList{Items: []metricsv1.PodMetrics{pod("shop", "web-1"), pod("kube-system", "dns-1")}}
	case r.URL.Path == "/apis/metrics.k8s.io/v1beta1/namespaces/shop/pods/web-1":
		p := pod("shop", "web-1")
		answer = &p
	default:
		answer = &apierrors.NewNotFound(metrics.Resource("pods"), "x").ErrStatus
	}
	info, _ := runtime.SerializerInfoForMediaType(usageCodecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
	gv := runtime.GroupVersioner(metricsv1.SchemeGroupVersion)
	if status, failed := answer.(*metav1.Status); failed {
		w.WriteHeader(int(status.Code))
		gv = metav1.SchemeGroupVersion
	}
	if err := usageCodecs.EncoderForVersion(info.Serializer, gv).Encode(answer, w); err != nil {
		panic(err)
	}
}

// startStorage a fleet, in which a to d are accepted and e is not, by its API group.
func startStorage(t *testing.T) (resources map[string]rest.Storage) {
	t.Helper()
	var fleet measuring
	addresses := map[string]string{}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		c := &v1alpha1.Cluster{Spec: v1alpha1.ClusterSpec{Accepted: name != "e", Region: "eu-" + name}}
		c.Name, c.UID = name, types.UID("uid-"+name)
		fleet = append(fleet, c)
		agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { serveAgents(w, r, name) }))
		t.Cleanup(agent.Close)
		addresses[string(c.UID)] = agent.Listener.Addr().String()
	}
	dial := func(ctx context.Context, uid string) (net.Conn, error) {
		if uid == "uid-d" {
			return nil, fmt.Errorf("its agent is not there")
		}
		return (&net.Dialer{}).DialContext(ctx, "tcp", addresses[uid])
	}
	f := New(Options{
		Tables: func() (Tables, bool) { return Tables{fleet, fleet, fleet}, true },
		Own:    func(u user.Info) bool { return u.GetName() == "hub" },
		Reach:  memberproxy.New(memberproxy.Options{Dial: dial, Log: slog.New(slog.DiscardHandler)}),
	})
	return f.MetricsAPIGroup().VersionedResourcesStorageMap["v1beta1"]
}

// warned are the warnings of a request.
type warned []string

func (w *warned) AddWarning(_, text string) { *w = append(*w, text) }

func whoAsks(t *testing.T, name, namespace string) (context.Context, *warned) {
	w := &warned{}
	ctx := warning.WithWarningRecorder(request.WithUser(t.Context(), &user.DefaultInfo{Name: name}), w)
	return request.WithNamespace(ctx, namespace), w
}

func TestNodesUseWhatTheirClustersDo(t *testing.T) {
	nodes := startStorage(t)["nodes"].(*nodeMetricsStorage)
	ctx, said := whoAsks(t, "jane", "")
	obj, err := nodes.List(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, n := range obj.(*metrics.NodeMetricsList).Items {
		got = append(got, fmt.Sprint(n.Name, n.Usage.Cpu(), n.Labels["topology.kubernetes.io/region"]))
	}
	if want := "[a3eu-a b3eu-b]"; fmt.Sprint(got) != want {
		t.Errorf("measured %v, want %s", got, want)
	}
	if all := strings.Join(*said, "\n"); len(*said) != 2 || !strings.Contains(all, "cluster c: it serves no metrics.k8s.io/v1beta1") || !strings.Contains(all, "cluster d cannot be reached") {
		t.Errorf("the warning of missing members is %q", all)
	}
	region, _ := labels.Parse("topology.kubernetes.io/region=eu-b")
	ctx, said = whoAsks(t, "jane", "")
	obj, err = nodes.List(ctx, &internalversion.ListOptions{LabelSelector: region})
	if err != nil || len(obj.(*metrics.NodeMetricsList).Items) != 1 || len(*said) > 0 {
		t.Errorf("of one region: %v, %v, %v", obj, err, *said)
	}
	if obj, err := nodes.Get(ctx, "a", nil); err != nil || obj.(*metrics.NodeMetrics).Name != "a" {
		t.Errorf("one: %v, %v", obj, err)
	}
	if _, err := nodes.Get(ctx, "c", nil); !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "cluster c: it serves no") {
		t.Errorf("one without a metrics-server: %v", err)
	}
	if _, err := nodes.Get(ctx, "e", nil); !apierrors.IsNotFound(err) {
		t.Errorf("one that is not accepted: %v", err)
	}
}

func TestPodsUseWhatTheyDoUnderTheNamesThatAreShown(t *testing.T) {
	pods := startStorage(t)["pods"].(*podMetricsStorage)
	for namespace, want := range map[string]string{"": "[shop/web-1.a shop/web-1.b]", "shop": "[shop/web-1.a shop/web-1.b]", "other": "[]"} {
		ctx, _ := whoAsks(t, "jane", namespace)
		obj, err := pods.List(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		got := []string{}
		for _, p := range obj.(*metrics.PodMetricsList).Items {
			got = append(got, p.Namespace+"/"+p.Name)
			if p.Labels[atoll.LabelCluster] == "" || p.Containers[0].Usage.Cpu().String() != "5m" {
				t.Errorf("shown is %v", p)
			}
		}
		if fmt.Sprint(got) != want {
			t.Errorf("in %q: %v, want %s", namespace, got, want)
		}
	}
	one, _ := labels.Parse("app=web,atoll.dev/cluster=b")
	ctx, said := whoAsks(t, "jane", "shop")
	obj, err := pods.List(ctx, &internalversion.ListOptions{LabelSelector: one})
	if err != nil || len(obj.(*metrics.PodMetricsList).Items) != 1 || len(*said) > 0 {
		t.Errorf("of one cluster: %v, %v, %v", obj, err, *said)
	}
	if obj, err := pods.Get(ctx, "web-1.a", nil); err != nil || obj.(*metrics.PodMetrics).Name != "web-1.a" {
		t.Errorf("one: %v, %v", obj, err)
	}
	for name, is := range map[string]func(error) bool{
		"web-2.a": apierrors.IsNotFound, "web-1": apierrors.IsNotFound, "web-1.x": apierrors.IsNotFound,
		"web-1.c": apierrors.IsServiceUnavailable, "web-1.d": apierrors.IsServiceUnavailable,
	} {
		if _, err := pods.Get(ctx, name, nil); !is(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTheHubItselfMeasuresNothing(t *testing.T) {
	of := startStorage(t)
	ctx, said := whoAsks(t, "hub", "shop")
	nodes, err := of["nodes"].(rest.Lister).List(ctx, nil)
	if err != nil || len(nodes.(*metrics.NodeMetricsList).Items) > 0 {
		t.Errorf("nodes: %v, %v", nodes, err)
	}
	pods, err := of["pods"].(rest.Lister).List(ctx, nil)
	if err != nil || len(pods.(*metrics.PodMetricsList).Items) > 0 {
		t.Errorf("pods: %v, %v", pods, err)
	}
	if len(*said) > 0 {
		t.Errorf("members were asked: %v", *said)
	}
}
