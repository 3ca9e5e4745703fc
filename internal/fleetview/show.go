package fleetview

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

// ConvertToHubForm changes an object of the member to its form on the hub. It changes only the object
// itself, nothing that it shares.
func (m Member) ConvertToHubForm(obj metav1.Object) {
	namespace := obj.GetNamespace()
	switch o := obj.(type) {
	case *corev1.Event:
		m.convertReference(&o.InvolvedObject, namespace)
		if o.Related != nil {
			related := *o.Related
			m.convertReference(&related, namespace)
			o.Related = &related
		}
	case *corev1.Pod:
		m.showOnClusterNode(o)
	case *appsv1.ReplicaSet:
		m.copyTemplateAtollAnnotations(o)
	case *discoveryv1.EndpointSlice:
		o.Endpoints = slices.Clone(o.Endpoints)
		for i := range o.Endpoints {
			if t := o.Endpoints[i].TargetRef; t != nil {
				target := *t
				m.convertReference(&target, namespace)
				o.Endpoints[i].TargetRef = &target
			}
			if o.Endpoints[i].NodeName != nil {
				o.Endpoints[i].NodeName = &m.Cluster
			}
		}
	}
	obj.SetName(FullName(obj.GetName(), m.Cluster))
	labels := maps.Clone(obj.GetLabels())
	if labels == nil {
		labels = map[string]string{}
	}
	labels[atoll.LabelCluster] = m.Cluster
	owners := m.shownOwners(obj)
	relabelJobPod(labels, obj.GetOwnerReferences(), owners)
	obj.SetLabels(labels)
	obj.SetManagedFields(nil)
	obj.SetOwnerReferences(owners)
}

// ConvertSelectedToHubForm changes an object of the member to its form in a selection. An object that is
// selected by its own name keeps that name, and so does the pod that a selected Event is about:
// clients compare the name in the answer with the name in the request.
func (m Member) ConvertSelectedToHubForm(obj metav1.Object, s FleetSelection) {
	own := obj.GetName()
	m.ConvertToHubForm(obj)
	if s.ownIn == m.Cluster {
		obj.SetName(own)
	}
	if e, ok := obj.(*corev1.Event); ok && e.InvolvedObject.Kind == "Pod" {
		if about := s.eventObjectName(); about != "" && e.InvolvedObject.Name == FullName(about, m.Cluster) {
			e.InvolvedObject.Name = about
		}
	}
}

// showOnClusterNode shows a pod on the node that its cluster is on the hub: nodes of several members
// may have one name, and that of a cluster besides.
func (m Member) showOnClusterNode(pod *corev1.Pod) {
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

// copyTemplateAtollAnnotations copies to a ReplicaSet its template's annotations of Atoll, as it has the
// template's others. A rollback to one replaces the template's annotations by its own, and the
// template would not be placed any more without them. The member's annotations of Atoll are left
// out, or a member could decide where the template goes.
func (m Member) copyTemplateAtollAnnotations(rs *appsv1.ReplicaSet) {
	owner := metav1.GetControllerOfNoCopy(rs)
	if owner == nil {
		return
	}
	gv, err := schema.ParseGroupVersion(owner.APIVersion)
	if err != nil {
		return // of no template
	}
	if template, ok := m.Template(atoll.ItemKey{Group: gv.Group, Kind: owner.Kind, Namespace: rs.Namespace, Name: owner.Name}); ok {
		rs.Annotations = withTemplateAtollAnnotations(rs.Annotations, template.GetAnnotations())
	}
}

// shownOwners returns the owners as they are shown.
func (m Member) shownOwners(obj metav1.Object) []metav1.OwnerReference {
	owners := slices.Clone(obj.GetOwnerReferences())
	for i := range owners {
		o := &owners[i]
		ref := corev1.ObjectReference{APIVersion: o.APIVersion, Kind: o.Kind, Namespace: obj.GetNamespace(), Name: o.Name, UID: o.UID}
		m.convertReference(&ref, obj.GetNamespace())
		o.APIVersion, o.Name, o.UID, o.BlockOwnerDeletion = OwnerGroupVersion, ref.Name, ref.UID, nil
	}
	return owners
}

// relabelJobPod changes the reference of a Job's pods to it: its UID as it is shown, by which its template on the
// hub selects them.
func relabelJobPod(labels map[string]string, there, shown []metav1.OwnerReference) {
	for i, o := range there {
		for _, key := range ownerLabels {
			if labels[key] == string(o.UID) {
				labels[key] = string(shown[i].UID)
			}
		}
	}
}

// convertReference returns the object that is referred to: a template on the hub, or something that runs in the member.
func (m Member) convertReference(ref *corev1.ObjectReference, namespace string) {
	gvk := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	key := atoll.ItemKey{Group: gvk.Group, Kind: gvk.Kind, Namespace: namespace, Name: ref.Name}
	if template, ok := m.Template(key); ok {
		ref.UID = template.GetUID()
		return
	}
	if ref.Name != "" {
		ref.Name = FullName(ref.Name, m.Cluster)
	}
}
