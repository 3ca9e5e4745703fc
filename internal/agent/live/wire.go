package live

import (
	"errors"
	"net/http"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	restwatch "k8s.io/client-go/rest/watch"
	metricsv1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"atoll.dev/atoll/internal/agent/member"
)

// kind that is answered for.
type kind struct {
	schema.GroupVersionKind
	resource string
	list     func() runtime.Object
}

// kinds by the path of their group and version, and their resource.
var kinds = map[[2]string]kind{
	{"/api/v1", "pods"}:   {corev1.SchemeGroupVersion.WithKind("Pod"), "pods", func() runtime.Object { return &corev1.PodList{} }},
	{"/api/v1", "events"}: {corev1.SchemeGroupVersion.WithKind("Event"), "events", func() runtime.Object { return &corev1.EventList{} }},
	{"/api/v1", "persistentvolumeclaims"}: {
		corev1.SchemeGroupVersion.WithKind(volumeClaim), "persistentvolumeclaims", func() runtime.Object { return &corev1.PersistentVolumeClaimList{} },
	},
	{"/apis/apps/v1", "replicasets"}: {
		appsv1.SchemeGroupVersion.WithKind("ReplicaSet"), "replicasets", func() runtime.Object { return &appsv1.ReplicaSetList{} },
	},
	{"/apis/apps/v1", "controllerrevisions"}: {
		appsv1.SchemeGroupVersion.WithKind("ControllerRevision"), "controllerrevisions", func() runtime.Object { return &appsv1.ControllerRevisionList{} },
	},
	{"/apis/batch/v1", "jobs"}: {batchv1.SchemeGroupVersion.WithKind("Job"), "jobs", func() runtime.Object { return &batchv1.JobList{} }},
	{"/apis/discovery.k8s.io/v1", "endpointslices"}: {
		discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"), "endpointslices", func() runtime.Object { return &discoveryv1.EndpointSliceList{} },
	},
	{"/apis/metrics.k8s.io/v1beta1", "nodes"}: {
		metricsv1.SchemeGroupVersion.WithKind("NodeMetrics"), "nodes", func() runtime.Object { return &metricsv1.NodeMetricsList{} },
	},
	{"/apis/metrics.k8s.io/v1beta1", "pods"}: {
		metricsv1.SchemeGroupVersion.WithKind("PodMetrics"), "pods", func() runtime.Object { return &metricsv1.PodMetricsList{} },
	},
}

// scheme has those kinds, and no others: programs that read more have larger heaps.
var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(corev1.AddToScheme(s))
	utilruntime.Must(appsv1.AddToScheme(s))
	utilruntime.Must(batchv1.AddToScheme(s))
	utilruntime.Must(discoveryv1.AddToScheme(s))
	utilruntime.Must(metricsv1.AddToScheme(s))
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	return s
}()

var (
	codecs   = serializer.NewCodecFactory(scheme)
	plain    = codecs.WithoutConversion()
	params   = runtime.NewParameterCodec(scheme)
	protobuf = func() runtime.SerializerInfo {
		info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
		if !ok {
			panic("kinds are not known as protobuf")
		}
		return info
	}()
)

// newGroupClients returns the clients of the groups of kinds in the member, by group.
func newGroupClients(config *rest.Config) (map[string]rest.Interface, error) {
	clients := map[string]rest.Interface{}
	for _, k := range kinds {
		if clients[k.Group] != nil {
			continue
		}
		client, err := member.ProtobufClient(config, k.GroupVersion(), plain)
		if err != nil {
			return nil, err
		}
		clients[k.Group] = client
	}
	return clients, nil
}

// write writes an object as the answer.
func write(w http.ResponseWriter, gv schema.GroupVersion, obj runtime.Object) error {
	w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
	return codecs.EncoderForVersion(protobuf.Serializer, gv).Encode(obj, w)
}

// writeAPIError answers with an error of the API.
func writeAPIError(w http.ResponseWriter, err error) {
	status := statusOf(err)
	w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
	if d := status.Details; d != nil && d.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(d.RetryAfterSeconds)))
	}
	w.WriteHeader(int(status.Code))
	_ = codecs.EncoderForVersion(protobuf.Serializer, schema.GroupVersion{Version: "v1"}).Encode(status, w) // the only error is that the asker has gone
}

// statusOf returns the Status of an error.
func statusOf(err error) *metav1.Status {
	var known apierrors.APIStatus
	if !errors.As(err, &known) {
		known = apierrors.NewServiceUnavailable("the cluster's API server does not answer its agent: " + err.Error())
	}
	status := known.Status()
	if status.Code < 400 || status.Code > 599 { // which is no error's
		status.Code = http.StatusBadGateway
	}
	return &status
}

// newEventWriter returns the writer of a watch's events.
func newEventWriter(w http.ResponseWriter, gv schema.GroupVersion) func(watch.EventType, runtime.Object) error {
	w.Header().Set("Content-Type", runtime.ContentTypeProtobuf+";stream=watch")
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w).Flush
	_ = flush() // the client sees that the watch has begun; the only error is that the client has gone
	frames := protobuf.StreamSerializer.Framer.NewFrameWriter(w)
	encoder := restwatch.NewEncoder(
		streaming.NewEncoder(frames, codecs.EncoderForVersion(protobuf.StreamSerializer.Serializer, gv)),
		codecs.EncoderForVersion(protobuf.Serializer, gv))
	return func(t watch.EventType, obj runtime.Object) error {
		if err := encoder.Encode(&watch.Event{Type: t, Object: obj}); err != nil {
			return err
		}
		return flush()
	}
}
