package live

import (
	"context"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	metricsv1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"atoll.dev/atoll/internal/agent/member"
)

// serveUsage answers for what metrics-server measures: of nodes as one sum, whose name is empty,
// so that however many there are, one is carried; of pods those that are placed.
func (s *PlacedObjectServer) serveUsage(w http.ResponseWriter, r *http.Request, a liveRequest) error {
	if a.options.Watch || a.log || a.resource == "nodes" && (a.name != "" || a.namespace != "") {
		return errUnknown
	}
	select {
	case s.slots <- struct{}{}:
	case <-r.Context().Done():
		return nil
	}
	obj, err := s.measureUsage(r.Context(), a)
	<-s.slots
	if err != nil {
		return err
	}
	return write(w, a.GroupVersion(), obj)
}

func (s *PlacedObjectServer) measureUsage(ctx context.Context, a liveRequest) (runtime.Object, error) {
	switch {
	case a.resource == "nodes":
		var all metricsv1.NodeMetricsList
		if err := s.getMemberMetrics(ctx, a, metav1.ListOptions{}, &all); err != nil {
			return nil, err
		}
		return &metricsv1.NodeMetricsList{Items: sumNodeMetrics(all.Items)}, nil
	case a.name != "":
		if _, err := s.getPlaced(ctx, a.asPodListRequest()); err != nil {
			return nil, err
		}
		var one metricsv1.PodMetrics
		return &one, s.getMemberMetrics(ctx, a, metav1.ListOptions{}, &one)
	}
	pods, err := s.listPlaced(ctx, a.asPodListRequest())
	if err != nil {
		return nil, err
	}
	var all metricsv1.PodMetricsList
	if err := s.getMemberMetrics(ctx, a, metav1.ListOptions{LabelSelector: a.options.LabelSelector}, &all); err != nil {
		return nil, err
	}
	placed := map[types.NamespacedName]bool{}
	err = meta.EachListItem(pods, func(obj runtime.Object) error {
		pod, err := meta.Accessor(obj)
		if err == nil {
			placed[types.NamespacedName{Namespace: pod.GetNamespace(), Name: pod.GetName()}] = true
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	out := &metricsv1.PodMetricsList{}
	for _, p := range all.Items {
		if placed[types.NamespacedName{Namespace: p.Namespace, Name: p.Name}] {
			out.Items = append(out.Items, p)
		}
	}
	return out, nil
}

// asPodListRequest returns the request for the pods whose metrics are requested.
func (a liveRequest) asPodListRequest() liveRequest {
	a.kind = kinds[[2]string{"/api/v1", "pods"}]
	a.client = a.core
	return a
}

// getMemberMetrics reads the metrics that the member serves.
func (s *PlacedObjectServer) getMemberMetrics(ctx context.Context, a liveRequest, options metav1.ListOptions, into runtime.Object) error {
	ctx, cancel := context.WithTimeout(ctx, member.RequestTimeout)
	defer cancel()
	request := a.client.Get().NamespaceIfScoped(a.namespace, a.namespace != "").Resource(a.resource)
	if a.name != "" {
		request = request.Name(a.name)
	}
	err := request.VersionedParams(&options, params).Do(ctx).Into(into)
	if apierrors.IsServiceUnavailable(err) {
		return apierrors.NewServiceUnavailable(fmt.Sprintf("its metrics-server does not answer; the reason is in the APIService %s.%s: %v",
			metricsv1.SchemeGroupVersion.Version, metricsv1.GroupName, err))
	}
	if !apierrors.IsNotFound(err) {
		return err
	}
	// It may be that one object alone is not there.
	if none := a.client.Get().AbsPath("/apis/" + metricsv1.SchemeGroupVersion.String()).Do(ctx).Error(); apierrors.IsNotFound(none) {
		return apierrors.NewServiceUnavailable(fmt.Sprintf("it serves no %s: it has no metrics-server", metricsv1.SchemeGroupVersion))
	}
	return err
}

// sumNodeMetrics returns the sum of what nodes use, since the earliest of the times at which they were measured; none
// of none.
func sumNodeMetrics(nodes []metricsv1.NodeMetrics) []metricsv1.NodeMetrics {
	if len(nodes) == 0 {
		return nil
	}
	out := metricsv1.NodeMetrics{Timestamp: nodes[0].Timestamp, Usage: corev1.ResourceList{}}
	for i := range nodes {
		n := &nodes[i]
		if n.Timestamp.Before(&out.Timestamp) {
			out.Timestamp = n.Timestamp
		}
		out.Window.Duration = max(out.Window.Duration, n.Window.Duration)
		for name, used := range n.Usage {
			total := out.Usage[name]
			total.Add(used)
			out.Usage[name] = total
		}
	}
	return []metricsv1.NodeMetrics{out}
}
