package live

import (
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/internal/atoll"
)

// OwnerGroupVersion is that of the owners of what is shown, which no API serves.
const OwnerGroupVersion = "live.atoll.dev/v1"

// Member of which something is shown.
type Member struct {
	Cluster string
	// Template gives the template on the hub with a key, which is not to be changed; false
	// where none is.
	Template func(atoll.ItemKey) (metav1.Object, bool)
}

// Show makes of an object of the member what the hub shows. Of what is shared with it
// nothing is changed but the object itself.
func (m Member) Show(obj metav1.Object) {
	namespace := obj.GetNamespace()
	switch o := obj.(type) {
	case *corev1.Event:
		m.object(&o.InvolvedObject, namespace)
		if o.Related != nil {
			related := *o.Related
			m.object(&related, namespace)
			o.Related = &related
		}
	case *corev1.Pod:
		m.onNode(o)
	case *appsv1.ReplicaSet:
		m.placing(o)
	case *discoveryv1.EndpointSlice:
		o.Endpoints = slices.Clone(o.Endpoints)
		for i := range o.Endpoints {
			if t := o.Endpoints[i].TargetRef; t != nil {
				target := *t
				m.object(&target, namespace)
				o.Endpoints[i].TargetRef = &target
			}
			if o.Endpoints[i].NodeName != nil {
				o.Endpoints[i].NodeName = &m.Cluster
			}
		}
	}
	obj.SetName(Name(obj.GetName(), m.Cluster))
	labels := maps.Clone(obj.GetLabels())
	if labels == nil {
		labels = map[string]string{}
	}
	labels[atoll.LabelCluster] = m.Cluster
	owners := m.owners(obj)
	relabel(labels, obj.GetOwnerReferences(), owners)
	obj.SetLabels(labels)
	obj.SetManagedFields(nil)
	obj.SetOwnerReferences(owners)
}

// onNode shows a pod on the node that its cluster is on the hub: nodes of several members
// may have one name, and that of a cluster besides.
func (m Member) onNode(pod *corev1.Pod) {
	if pod.Spec.NodeName == "" {
		return // it is not on any yet
	}
	pod.Annotations = maps.Clone(pod.Annotations)
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[atoll.AnnotationNode] = pod.Spec.NodeName
	pod.Spec.NodeName = m.Cluster
}

// placing gives a ReplicaSet what Atoll's annotations of its template say, as it has the
// template's others: who goes back to one writes its annotations in the place of the template's,
// which would not be placed any more without them. What the member has of Atoll's is left out,
// or a member could say where the template goes.
func (m Member) placing(rs *appsv1.ReplicaSet) {
	owner := metav1.GetControllerOfNoCopy(rs)
	if owner == nil {
		return
	}
	gv, err := schema.ParseGroupVersion(owner.APIVersion)
	if err != nil {
		return // nobody's template
	}
	if template, ok := m.Template(atoll.ItemKey{Group: gv.Group, Kind: owner.Kind, Namespace: rs.Namespace, Name: owner.Name}); ok {
		rs.Annotations = placing(rs.Annotations, template.GetAnnotations())
	}
}

// owners as they are shown.
func (m Member) owners(obj metav1.Object) []metav1.OwnerReference {
	owners := slices.Clone(obj.GetOwnerReferences())
	for i := range owners {
		o := &owners[i]
		ref := corev1.ObjectReference{APIVersion: o.APIVersion, Kind: o.Kind, Namespace: obj.GetNamespace(), Name: o.Name, UID: o.UID}
		m.object(&ref, obj.GetNamespace())
		o.APIVersion, o.Name, o.UID, o.BlockOwnerDeletion = OwnerGroupVersion, ref.Name, ref.UID, nil
	}
	return owners
}

// relabel what a Job's pods say of it: its UID as it is shown, by which its template on the
// hub selects them.
func relabel(labels map[string]string, there, shown []metav1.OwnerReference) {
	for i, o := range there {
		for _, key := range ownerLabels {
			if labels[key] == string(o.UID) {
				labels[key] = string(shown[i].UID)
			}
		}
	}
}

// object that is referred to: a template on the hub, or something that runs in the member.
func (m Member) object(ref *corev1.ObjectReference, namespace string) {
	gvk := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	key := atoll.ItemKey{Group: gvk.Group, Kind: gvk.Kind, Namespace: namespace, Name: ref.Name}
	if template, ok := m.Template(key); ok {
		ref.UID = template.GetUID()
		return
	}
	if ref.Name != "" {
		ref.Name = Name(ref.Name, m.Cluster)
	}
}
