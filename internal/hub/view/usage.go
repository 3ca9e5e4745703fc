package view

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/metrics/pkg/apis/metrics"
	"k8s.io/metrics/pkg/apis/metrics/install"
	metricsv1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"atoll.dev/atoll/internal/clusternode"
	"atoll.dev/atoll/internal/live"
)

// usageScheme has what metrics-server serves.
var usageScheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	install.Install(s)
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	return s
}()

var usageCodecs = serializer.NewCodecFactory(usageScheme)

// Usage is the API group of what members' metrics-servers measure, for `kubectl top`.
func (f *Fleet) Usage() *genericapiserver.APIGroupInfo {
	info := genericapiserver.NewDefaultAPIGroupInfo(metrics.GroupName, usageScheme, metav1.ParameterCodec, usageCodecs)
	info.VersionedResourcesStorageMap[metricsv1.SchemeGroupVersion.Version] = map[string]rest.Storage{
		"nodes": &nodeUsage{usage{f, metrics.Resource("nodes")}}, "pods": &podUsage{usage{f, metrics.Resource("pods")}},
	}
	return &info
}

// usage of a resource.
type usage struct {
	fleet    *Fleet
	resource schema.GroupResource
}

// Destroy nothing: nothing is stored.
func (u usage) Destroy() {}

// ConvertToTable as upstream prints kinds that it does not know.
func (u usage) ConvertToTable(ctx context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	return rest.NewDefaultTableConvertor(u.resource).ConvertToTable(ctx, obj, options)
}

// ask a member for its list, or an object of it. Errors name the cluster, but for that of an
// object that is not there.
func (u usage) ask(ctx context.Context, m *member, namespace, name string, query url.Values) (runtime.Object, error) {
	path := kind{resource: u.resource.Resource, path: "/apis/" + metricsv1.SchemeGroupVersion.String()}.at(namespace, name)
	obj, err := u.fleet.readBy(ctx, m, path, query, usageAnswers)
	if err != nil && !strings.HasPrefix(err.Error(), "cluster "+m.Name) && !(name != "" && apierrors.IsNotFound(err)) {
		err = apierrors.NewServiceUnavailable(fmt.Sprintf("cluster %s: %v", m.Name, err))
	}
	return obj, err
}

// measured by all members at once. Who does not answer is named in a warning; where the list is to
// be whole, it is an error.
func measured[T any](ctx context.Context, u usage, whole bool, members []*member, ask func(context.Context, *member) ([]T, error)) (all []T, err error) {
	var got gathered
	var mu sync.Mutex
	ctx, _ = u.fleet.holding(ctx)
	u.fleet.all(members, func(m *member) {
		some, err := ask(ctx, m)
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			got.missing = append(got.missing, err)
		}
		all = append(all, some...)
	})
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if whole {
		return all, got.incomplete("metrics of " + u.resource.Resource)
	}
	got.warn(ctx, "metrics of "+u.resource.Resource)
	return all, nil
}

// strange answer of a member.
func strange(m *member, obj runtime.Object) error {
	return apierrors.NewServiceUnavailable(fmt.Sprintf("cluster %s: its agent answers with a %T", m.Name, obj))
}

// nodeUsage is what clusters use, by the names that they have as nodes.
type nodeUsage struct{ usage }

var (
	_ rest.Lister               = &nodeUsage{}
	_ rest.Getter               = &nodeUsage{}
	_ rest.Scoper               = &nodeUsage{}
	_ rest.KindProvider         = &nodeUsage{}
	_ rest.SingularNameProvider = &nodeUsage{}
)

// New gives an empty object.
func (n *nodeUsage) New() runtime.Object { return &metrics.NodeMetrics{} }

// NewList gives an empty list.
func (n *nodeUsage) NewList() runtime.Object { return &metrics.NodeMetricsList{} }

// Kind of the objects.
func (n *nodeUsage) Kind() string { return "NodeMetrics" }

// NamespaceScoped they are not.
func (n *nodeUsage) NamespaceScoped() bool { return false }

// GetSingularName there is none, as in metrics-server.
func (n *nodeUsage) GetSingularName() string { return "" }

// List what the selected clusters use.
func (n *nodeUsage) List(ctx context.Context, o *internalversion.ListOptions) (runtime.Object, error) {
	out := &metrics.NodeMetricsList{}
	if n.fleet.hubs(ctx) {
		return out, nil
	}
	t, err := n.fleet.tables()
	if err != nil {
		return nil, err
	}
	o, whole, err := complete(o)
	if err != nil {
		return nil, err
	}
	label, field := labelsOf(o), fieldsOf(o)
	var members []*member
	for _, c := range t.Clusters() {
		if clusternode.Shown(c) && label.Matches(labels.Set(clusternode.Labels(c))) && field.Matches(fields.Set{"metadata.name": c.Name}) {
			members = append(members, &member{Cluster: c})
		}
	}
	out.Items, err = measured(ctx, n.usage, whole, members, func(ctx context.Context, m *member) ([]metrics.NodeMetrics, error) {
		one, err := n.sum(ctx, m)
		if err != nil {
			return nil, err
		}
		return []metrics.NodeMetrics{*one}, nil
	})
	slices.SortFunc(out.Items, func(a, b metrics.NodeMetrics) int { return strings.Compare(a.Name, b.Name) })
	return out, err
}

// Get what a cluster uses.
func (n *nodeUsage) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	if n.fleet.hubs(ctx) {
		return nil, apierrors.NewNotFound(n.resource, name)
	}
	t, err := n.fleet.tables()
	if err != nil {
		return nil, err
	}
	c, ok := t.Cluster(name)
	if !ok || !clusternode.Shown(c) {
		return nil, apierrors.NewNotFound(n.resource, name)
	}
	return n.sum(ctx, &member{Cluster: c})
}

// sum of what the nodes of a member use.
func (n *nodeUsage) sum(ctx context.Context, m *member) (*metrics.NodeMetrics, error) {
	obj, err := n.ask(ctx, m, "", "", nil)
	if err != nil {
		return nil, err
	}
	list, ok := obj.(*metricsv1.NodeMetricsList)
	if !ok || len(list.Items) > 1 {
		return nil, strange(m, obj)
	}
	if len(list.Items) == 0 {
		return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("cluster %s: its metrics-server has measured no node yet", m.Name))
	}
	of := &list.Items[0]
	of.ObjectMeta = metav1.ObjectMeta{Name: m.Name, CreationTimestamp: of.Timestamp, Labels: clusternode.Labels(m.Cluster)}
	out := &metrics.NodeMetrics{}
	if err := usageScheme.Convert(of, out, nil); err != nil {
		return nil, fmt.Errorf("read what cluster %s uses: %w", m.Name, err)
	}
	return out, nil
}

// podUsage is what pods of placed workloads use, by the names under which they are shown.
type podUsage struct{ usage }

var (
	_ rest.Lister               = &podUsage{}
	_ rest.Getter               = &podUsage{}
	_ rest.Scoper               = &podUsage{}
	_ rest.KindProvider         = &podUsage{}
	_ rest.SingularNameProvider = &podUsage{}
)

// New gives an empty object.
func (p *podUsage) New() runtime.Object { return &metrics.PodMetrics{} }

// NewList gives an empty list.
func (p *podUsage) NewList() runtime.Object { return &metrics.PodMetricsList{} }

// Kind of the objects.
func (p *podUsage) Kind() string { return "PodMetrics" }

// NamespaceScoped they are.
func (p *podUsage) NamespaceScoped() bool { return true }

// GetSingularName there is none, as in metrics-server.
func (p *podUsage) GetSingularName() string { return "" }

// List what the selected pods use, in a namespace or all.
func (p *podUsage) List(ctx context.Context, o *internalversion.ListOptions) (runtime.Object, error) {
	out := &metrics.PodMetricsList{}
	if p.fleet.hubs(ctx) {
		return out, nil
	}
	o, whole, err := complete(o)
	if err != nil {
		return nil, err
	}
	namespace := request.NamespaceValue(ctx)
	label, field := labelsOf(o), fieldsOf(o)
	selected := live.Select(label, field)
	members, err := p.fleet.members(namespace, selected)
	if err != nil {
		return nil, err
	}
	out.Items, err = measured(ctx, p.usage, whole, members, func(ctx context.Context, m *member) ([]metrics.PodMetrics, error) {
		shown, err := p.list(ctx, m, namespace, selected)
		return slices.DeleteFunc(shown, func(one metrics.PodMetrics) bool {
			return !label.Matches(labels.Set(one.Labels)) || !field.Matches(fields.Set{"metadata.name": one.Name, "metadata.namespace": one.Namespace})
		}), err
	})
	slices.SortFunc(out.Items, func(a, b metrics.PodMetrics) int { return byName(&a, &b) })
	return out, err
}

// list of a member, as it is shown.
func (p *podUsage) list(ctx context.Context, m *member, namespace string, s live.Selection) (shown []metrics.PodMetrics, err error) {
	query := url.Values{}
	label, _, _ := s.In(m.Name)
	set(query, "labelSelector", label)
	obj, err := p.ask(ctx, m, namespace, "", query)
	if err != nil {
		return nil, err
	}
	list, ok := obj.(*metricsv1.PodMetricsList)
	if !ok {
		return nil, strange(m, obj)
	}
	for i := range list.Items {
		of := &list.Items[i]
		if !m.shows(of.Namespace) || namespace != "" && of.Namespace != namespace {
			continue
		}
		one, err := p.show(m, of)
		if err != nil {
			return nil, err
		}
		shown = append(shown, *one)
	}
	return shown, nil
}

// Get what a pod uses.
func (p *podUsage) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	namespace := request.NamespaceValue(ctx)
	none := apierrors.NewNotFound(p.resource, name)
	if p.fleet.hubs(ctx) {
		return nil, none
	}
	m, pod, ok := p.fleet.of(namespace, name)
	if !ok {
		return nil, none
	}
	obj, err := p.ask(ctx, m, namespace, pod, nil)
	if apierrors.IsNotFound(err) {
		return nil, none
	}
	if err != nil {
		return nil, err
	}
	of, ok := obj.(*metricsv1.PodMetrics)
	if !ok || of.Namespace != namespace || of.Name != pod {
		return nil, strange(m, obj)
	}
	return p.show(m, of)
}

// show what a pod of a member uses.
func (p *podUsage) show(m *member, of *metricsv1.PodMetrics) (*metrics.PodMetrics, error) {
	m.Show(of)
	out := &metrics.PodMetrics{}
	if err := usageScheme.Convert(of, out, nil); err != nil {
		return nil, fmt.Errorf("read what a pod of cluster %s uses: %w", m.Name, err)
	}
	return out, nil
}
