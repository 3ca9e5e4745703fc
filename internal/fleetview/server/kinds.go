package server

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"atoll.dev/atoll/internal/atoll"
)

// kind that is shown, as members serve it.
type kind struct {
	schema.GroupVersionKind
	resource string
	path     string // of the group and version
	list     func() runtime.Object
	// pastOf are the kinds of workloads of which each is how one was.
	pastOf []schema.GroupKind
}

// The kinds of workloads that have a history.
var (
	deployment  = appsv1.SchemeGroupVersion.WithKind("Deployment").GroupKind()
	statefulSet = appsv1.SchemeGroupVersion.WithKind("StatefulSet").GroupKind()
	daemonSet   = appsv1.SchemeGroupVersion.WithKind("DaemonSet").GroupKind()
)

// kinds by resource: Events are one, whichever of their two groups the request names.
var kinds = map[string]kind{
	"pods": {corev1.SchemeGroupVersion.WithKind("Pod"), "pods", "/api/v1", func() runtime.Object { return &corev1.PodList{} }, nil},
	"events": {
		corev1.SchemeGroupVersion.WithKind("Event"), "events", "/api/v1", func() runtime.Object { return &corev1.EventList{} }, nil,
	},
	"persistentvolumeclaims": {
		corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"), "persistentvolumeclaims", "/api/v1",
		func() runtime.Object { return &corev1.PersistentVolumeClaimList{} }, nil,
	},
	"replicasets": {
		appsv1.SchemeGroupVersion.WithKind("ReplicaSet"), "replicasets", "/apis/apps/v1", func() runtime.Object { return &appsv1.ReplicaSetList{} },
		[]schema.GroupKind{deployment},
	},
	"controllerrevisions": {
		appsv1.SchemeGroupVersion.WithKind("ControllerRevision"), "controllerrevisions", "/apis/apps/v1",
		func() runtime.Object { return &appsv1.ControllerRevisionList{} }, []schema.GroupKind{statefulSet, daemonSet},
	},
	"jobs": {batchv1.SchemeGroupVersion.WithKind("Job"), "jobs", "/apis/batch/v1", func() runtime.Object { return &batchv1.JobList{} }, nil},
	"endpointslices": {
		discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"), "endpointslices", "/apis/discovery.k8s.io/v1",
		func() runtime.Object { return &discoveryv1.EndpointSliceList{} }, nil,
	},
}

// memberPath is the path of a list, or of an object where it has a name, in a member.
func (k kind) memberPath(namespace, name string) string {
	path := k.path
	if namespace != "" {
		path += "/namespaces/" + namespace
	}
	path += "/" + k.resource
	if name != "" {
		path += "/" + name
	}
	return path
}

// itemKey returns the key of an object of the kind.
func (k kind) itemKey(m metav1.Object) atoll.ItemKey {
	return atoll.ItemKey{Group: k.Group, Kind: k.Kind, Namespace: m.GetNamespace(), Name: m.GetName()}
}

// newObject returns an empty object as storage has them.
func (k kind) newObject() runtime.Object {
	obj, err := legacyscheme.Scheme.New(schema.GroupVersionKind{Group: k.Group, Version: runtime.APIVersionInternal, Kind: k.Kind})
	if err != nil {
		panic(fmt.Sprintf("%s is not built in: %v", k.Kind, err)) // which no request can bring about
	}
	return obj
}

// toInternal returns a member's object, or list, as storage has them.
func (k kind) toInternal(obj, into runtime.Object) (runtime.Object, error) {
	if err := legacyscheme.Scheme.Convert(obj, into, nil); err != nil {
		return nil, fmt.Errorf("read a %s of a member: %w", k.Kind, err)
	}
	return into, nil
}
