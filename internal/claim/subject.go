package claim

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/internal/atoll"
)

// Subject is what policies and annotations see of an object.
type Subject struct {
	Key         atoll.ItemKey
	UID         string
	Labels      map[string]string
	Annotations map[string]string
	// Type of a Secret; empty for other kinds.
	Type string
	// Controller that made the object, as Kind/name; empty for what people wrote.
	Controller string
}

// Namespace is what bind sees of the namespace of a Subject; zero for
// cluster-scoped objects.
type Namespace struct {
	Name        string
	UID         string
	Annotations map[string]string
}

// SubjectOf an object. secretType is the type of a Secret.
func SubjectOf(key atoll.ItemKey, obj metav1.Object, secretType string) Subject {
	s := Subject{
		Key: key, UID: string(obj.GetUID()), Type: secretType,
		Labels: obj.GetLabels(), Annotations: obj.GetAnnotations(),
	}
	if ref := metav1.GetControllerOfNoCopy(obj); ref != nil {
		s.Controller = ref.Kind + "/" + ref.Name
	}
	return s
}

// SubjectFrom an object as it is on the hub.
func SubjectFrom(obj *unstructured.Unstructured) Subject {
	key := KeyOf(obj)
	secretType := ""
	if key.IsSecret() {
		secretType, _, _ = unstructured.NestedString(obj.Object, "type")
	}
	return SubjectOf(key, obj, secretType)
}

// KeyOf an object.
func KeyOf(obj *unstructured.Unstructured) atoll.ItemKey {
	gk := obj.GroupVersionKind().GroupKind()
	return atoll.ItemKey{Group: gk.Group, Kind: gk.Kind, Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

// GroupKind of an object.
func GroupKind(key atoll.ItemKey) schema.GroupKind {
	return schema.GroupKind{Group: key.Group, Kind: key.Kind}
}

// systemNamespaces hold what clusters make for themselves.
var systemNamespaces = map[string]bool{
	metav1.NamespaceSystem: true, metav1.NamespacePublic: true, "kube-node-lease": true, atoll.SystemNamespace: true,
}

// madeByMachinery are the types of Secrets that no person wrote.
var madeByMachinery = map[string]string{
	"kubernetes.io/service-account-token": "a token that the hub issued",
	"helm.sh/release.v1":                  "a record that Helm keeps of its release",
	"bootstrap.kubernetes.io/token":       "a token for joining",
}

var scopeKinds = map[schema.GroupKind]string{
	{Kind: "Event"}:                                    "an event",
	{Group: "events.k8s.io", Kind: "Event"}:            "an event",
	{Group: "coordination.k8s.io", Kind: "Lease"}:      "a lease",
	{Kind: "Endpoints"}:                                "made from a Service",
	{Group: "discovery.k8s.io", Kind: "EndpointSlice"}: "made from a Service",
	{Group: "apps", Kind: "ReplicaSet"}:                "made from a Deployment",
	{Group: "apps", Kind: "ControllerRevision"}:        "made from a workload",
}

// hubsOwn tells of Secrets that nothing can place, by whatever name: not even as what
// something else needs.
func hubsOwn(s Subject) bool { return s.Key.IsSecret() && atoll.OwnSecretType(s.Type) }

// Beyond says why a selector without a name leaves the object out although it is
// of its kind; empty when it does not.
func Beyond(s Subject) string {
	switch {
	case atoll.OwnKind(GroupKind(s.Key)):
		return "of Atoll's own API"
	case s.Key.Group == "" && s.Key.Kind == "ServiceAccount" && s.Key.Name == "default":
		return "made by the hub in every namespace"
	case s.Key.Group == "" && s.Key.Kind == "ConfigMap" && s.Key.Name == "kube-root-ca.crt":
		return "made by the hub in every namespace"
	case s.Key.Group == "rbac.authorization.k8s.io" && s.Key.Kind == "RoleBinding" && s.Labels[atoll.LabelTenant] != "":
		return "gives a tenant its rights on the hub"
	}
	if s.Key.Group == "" && s.Key.Kind == "Secret" {
		return madeByMachinery[s.Type]
	}
	return ""
}

// BeyondScope says why a namespace's annotation leaves an object in it out; empty
// when it does not.
func BeyondScope(s Subject) string {
	if why := Beyond(s); why != "" {
		return why
	}
	if why := scopeKinds[GroupKind(s.Key)]; why != "" {
		return why
	}
	if systemNamespaces[s.Key.Namespace] {
		return "in a system namespace"
	}
	if s.Controller != "" {
		return "made by " + s.Controller
	}
	return ""
}
