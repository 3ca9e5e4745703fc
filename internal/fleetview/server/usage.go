package server

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
	"atoll.dev/atoll/internal/fleetview"
)

// usageScheme has what metrics-server serves.
var usageScheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	install.Install(s)
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	return s
}()

var usageCodecs = serializer.NewCodecFactory(usageScheme)

// MetricsAPIGroup is the API group of what members' metrics-servers measure, for `kubectl top`.
func (f *Fleet) MetricsAPIGroup() *genericapiserver.APIGroupInfo {
	info := genericapiserver.NewDefaultAPIGroupInfo(metrics.GroupName, usageScheme, metav1.ParameterCodec, usageCodecs)
	info.VersionedResourcesStorageMap[metricsv1.SchemeGroupVersion.Version] = map[string]rest.Storage{
		"nodes": &nodeMetricsStorage{metricsStorage{f, metrics.Resource("nodes")}}, "pods": &podMetricsStorage{metricsStorage{f, metrics.Resource("pods")}},
	}
	return &info
}

// metricsStorage serves the usage of a resource.
type metricsStorage struct {
	fleet    *Fleet
	resource schema.GroupResource
}

// Destroy destroys nothing: nothing is stored.
func (u metricsStorage) Destroy() {}

// ConvertToTable converts as upstream prints kinds without printers.
func (u metricsStorage) ConvertToTable(ctx context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	return rest.NewDefaultTableConvertor(u.resource).ConvertToTable(ctx, obj, options)
}

// requestFromMember requests a member's list, or an object of it. Errors name the cluster, but for that of an
// object that is not there.
func (u metricsStorage) requestFromMember(ctx context.Context, m *member, namespace, name string, query url.Values) (runtime.Object, error) {
	path := kind{resource: u.resource.Resource, path: "/apis/" + metricsv1.SchemeGroupVersion.String()}.memberPath(namespace, name)
	obj, err := u.fleet.readBy(ctx, m, path, query, usageAnswers)
	if err != nil && !strings.HasPrefix(err.Error(), "cluster "+m.Name) && !(name != "" && apierrors.IsNotFound(err)) {
		err = apierrors.NewServiceUnavailable(fmt.Sprintf("cluster %s: %v", m.Name, err))
	}
	return obj, err
}

// measureAll returns the usage of all members at once. A missing answer is a warning that names the
// member; in a list that must be complete, it is an error.
func measureAll[T any](ctx context.Context, u metricsStorage, whole bool, members []*member, ask func(context.Context, *member) ([]T, error)) (all []T, err error) {
	var got gatheredObjects
	var mu sync.Mutex
	ctx, _ = u.fleet.withMemoryReservation(ctx)
	u.fleet.forEachMember(members, func(m *member) {
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
		return all, got.incompleteError("metrics of " + u.resource.Resource)
	}
	got.warnMissing(ctx, "metrics of "+u.resource.Resource)
	return all, nil
}

// unexpectedAnswerError returns the error of an unexpected answer of a member.
func unexpectedAnswerError(m *member, obj runtime.Object) error {
	return apierrors.NewServiceUnavailable(fmt.Sprintf("cluster %s: its agent answers with a %T", m.Name, obj))
}

// nodeMetricsStorage is what clusters use, by the names that they have as nodes.
type nodeMetricsStorage struct{ metricsStorage }

var (
	_ rest.Lister               = &nodeMetricsStorage{}
	_ rest.Getter               = &nodeMetricsStorage{}
	_ rest.Scoper               = &nodeMetricsStorage{}
	_ rest.KindProvider         = &nodeMetricsStorage{}
	_ rest.SingularNameProvider = &nodeMetricsStorage{}
)

// New returns an empty object.
func (n *nodeMetricsStorage) New() runtime.Object { return &metrics.NodeMetrics{} }

// NewList returns an empty list.
func (n *nodeMetricsStorage) NewList() runtime.Object { return &metrics.NodeMetricsList{} }

// Kind returns the kind of the objects.
func (n *nodeMetricsStorage) Kind() string { return "NodeMetrics" }

// NamespaceScoped is false: they are not.
func (n *nodeMetricsStorage) NamespaceScoped() bool { return false }

// GetSingularName returns "": there is none, as in metrics-server.
func (n *nodeMetricsStorage) GetSingularName() string { return "" }

// List lists what the selected clusters use.
func (n *nodeMetricsStorage) List(ctx context.Context, o *internalversion.ListOptions) (runtime.Object, error) {
	out := &metrics.NodeMetricsList{}
	if n.fleet.isHubIdentity(ctx) {
		return out, nil
	}
	t, err := n.fleet.hubTables()
	if err != nil {
		return nil, err
	}
	o, whole, err := parseCompleteOption(o)
	if err != nil {
		return nil, err
	}
	label, field := labelsOf(o), fieldsOf(o)
	var members []*member
	for _, c := range t.Clusters() {
		if clusternode.IsShownAsNode(c) && label.Matches(labels.Set(clusternode.NodeLabels(c))) && field.Matches(fields.Set{"metadata.name": c.Name}) {
			members = append(members, &member{Cluster: c})
		}
	}
	out.Items, err = measureAll(ctx, n.metricsStorage, whole, members, func(ctx context.Context, m *member) ([]metrics.NodeMetrics, error) {
		one, err := n.sumNodeUsage(ctx, m)
		if err != nil {
			return nil, err
		}
		return []metrics.NodeMetrics{*one}, nil
	})
	slices.SortFunc(out.Items, func(a, b metrics.NodeMetrics) int { return strings.Compare(a.Name, b.Name) })
	return out, err
}

// Get returns what a cluster uses.
func (n *nodeMetricsStorage) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	if n.fleet.isHubIdentity(ctx) {
		return nil, apierrors.NewNotFound(n.resource, name)
	}
	t, err := n.fleet.hubTables()
	if err != nil {
		return nil, err
	}
	c, ok := t.Cluster(name)
	if !ok || !clusternode.IsShownAsNode(c) {
		return nil, apierrors.NewNotFound(n.resource, name)
	}
	return n.sumNodeUsage(ctx, &member{Cluster: c})
}

// sumNodeUsage returns the sum of what the nodes of a member use.
func (n *nodeMetricsStorage) sumNodeUsage(ctx context.Context, m *member) (*metrics.NodeMetrics, error) {
	obj, err := n.requestFromMember(ctx, m, "", "", nil)
	if err != nil {
		return nil, err
	}
	list, ok := obj.(*metricsv1.NodeMetricsList)
	if !ok || len(list.Items) > 1 {
		return nil, unexpectedAnswerError(m, obj)
	}
	if len(list.Items) == 0 {
		return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("cluster %s: its metrics-server has measured no node yet", m.Name))
	}
	of := &list.Items[0]
	of.ObjectMeta = metav1.ObjectMeta{Name: m.Name, CreationTimestamp: of.Timestamp, Labels: clusternode.NodeLabels(m.Cluster)}
	out := &metrics.NodeMetrics{}
	if err := usageScheme.Convert(of, out, nil); err != nil {
		return nil, fmt.Errorf("read what cluster %s uses: %w", m.Name, err)
	}
	return out, nil
}

// podMetricsStorage is what pods of placed workloads use, by the names under which they are shown.
type podMetricsStorage struct{ metricsStorage }

var (
	_ rest.Lister               = &podMetricsStorage{}
	_ rest.Getter               = &podMetricsStorage{}
	_ rest.Scoper               = &podMetricsStorage{}
	_ rest.KindProvider         = &podMetricsStorage{}
	_ rest.SingularNameProvider = &podMetricsStorage{}
)

// New returns an empty object.
func (p *podMetricsStorage) New() runtime.Object { return &metrics.PodMetrics{} }

// NewList returns an empty list.
func (p *podMetricsStorage) NewList() runtime.Object { return &metrics.PodMetricsList{} }

// Kind returns the kind of the objects.
func (p *podMetricsStorage) Kind() string { return "PodMetrics" }

// NamespaceScoped is true: they are.
func (p *podMetricsStorage) NamespaceScoped() bool { return true }

// GetSingularName returns "": there is none, as in metrics-server.
func (p *podMetricsStorage) GetSingularName() string { return "" }

// List lists what the selected pods use, in a namespace or all.
func (p *podMetricsStorage) List(ctx context.Context, o *internalversion.ListOptions) (runtime.Object, error) {
	out := &metrics.PodMetricsList{}
	if p.fleet.isHubIdentity(ctx) {
		return out, nil
	}
	o, whole, err := parseCompleteOption(o)
	if err != nil {
		return nil, err
	}
	namespace := request.NamespaceValue(ctx)
	label, field := labelsOf(o), fieldsOf(o)
	selected := fleetview.SelectionOf(label, field)
	members, err := p.fleet.membersFor(namespace, selected)
	if err != nil {
		return nil, err
	}
	out.Items, err = measureAll(ctx, p.metricsStorage, whole, members, func(ctx context.Context, m *member) ([]metrics.PodMetrics, error) {
		shown, err := p.list(ctx, m, namespace, selected)
		return slices.DeleteFunc(shown, func(one metrics.PodMetrics) bool {
			return !label.Matches(labels.Set(one.Labels)) || !field.Matches(fields.Set{"metadata.name": one.Name, "metadata.namespace": one.Namespace})
		}), err
	})
	slices.SortFunc(out.Items, func(a, b metrics.PodMetrics) int { return compareByName(&a, &b) })
	return out, err
}

// list lists the pods of a member, as it is shown.
func (p *podMetricsStorage) list(ctx context.Context, m *member, namespace string, s fleetview.FleetSelection) (shown []metrics.PodMetrics, err error) {
	query := url.Values{}
	label, _, _ := s.SelectorsFor(m.Name)
	setNonEmpty(query, "labelSelector", label)
	obj, err := p.requestFromMember(ctx, m, namespace, "", query)
	if err != nil {
		return nil, err
	}
	list, ok := obj.(*metricsv1.PodMetricsList)
	if !ok {
		return nil, unexpectedAnswerError(m, obj)
	}
	for i := range list.Items {
		of := &list.Items[i]
		if !m.isTrustedIn(of.Namespace) || namespace != "" && of.Namespace != namespace {
			continue
		}
		one, err := p.convertPodUsage(m, of)
		if err != nil {
			return nil, err
		}
		shown = append(shown, *one)
	}
	return shown, nil
}

// Get returns what a pod uses.
func (p *podMetricsStorage) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	namespace := request.NamespaceValue(ctx)
	none := apierrors.NewNotFound(p.resource, name)
	if p.fleet.isHubIdentity(ctx) {
		return nil, none
	}
	m, pod, ok := p.fleet.memberOfName(namespace, name)
	if !ok {
		return nil, none
	}
	obj, err := p.requestFromMember(ctx, m, namespace, pod, nil)
	if apierrors.IsNotFound(err) {
		return nil, none
	}
	if err != nil {
		return nil, err
	}
	of, ok := obj.(*metricsv1.PodMetrics)
	if !ok || of.Namespace != namespace || of.Name != pod {
		return nil, unexpectedAnswerError(m, obj)
	}
	return p.convertPodUsage(m, of)
}

// convertPodUsage shows what a pod of a member uses.
func (p *podMetricsStorage) convertPodUsage(m *member, of *metricsv1.PodMetrics) (*metrics.PodMetrics, error) {
	m.ConvertToHubForm(of)
	out := &metrics.PodMetrics{}
	if err := usageScheme.Convert(of, out, nil); err != nil {
		return nil, fmt.Errorf("read what a pod of cluster %s uses: %w", m.Name, err)
	}
	return out, nil
}
