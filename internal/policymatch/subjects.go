package policymatch

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/internal/atoll"
)

// Subject is the part of an object that policies and annotations match.
type Subject struct {
	Key         atoll.ItemKey
	UID         string
	Labels      map[string]string
	Annotations map[string]string
	// SecretType of a Secret; empty for other kinds.
	SecretType string
	// Controller that created the object, as Kind/name; empty for what users wrote.
	Controller string
	// Parent is the object of the controller reference; zero without one.
	Parent ParentRef
}

// Namespace is the part of a Subject's namespace that places objects; zero for cluster-scoped
// objects.
type Namespace struct {
	Name        string
	UID         string
	Annotations map[string]string
}

// NewSubject returns the Subject of an object. secretType is the type of a Secret.
func NewSubject(key atoll.ItemKey, obj metav1.Object, secretType string) Subject {
	s := Subject{
		Key: key, UID: string(obj.GetUID()), SecretType: secretType,
		Labels: obj.GetLabels(), Annotations: obj.GetAnnotations(),
	}
	if ref := metav1.GetControllerOfNoCopy(obj); ref != nil {
		s.Controller = ref.Kind + "/" + ref.Name
		s.Parent = newParentRef(ref, key.Namespace)
	}
	return s
}

// SubjectFromObject returns the Subject of an object of the hub.
func SubjectFromObject(obj *unstructured.Unstructured) Subject {
	key := ItemKeyOf(obj)
	secretType := ""
	if key.IsSecret() {
		secretType, _, _ = unstructured.NestedString(obj.Object, "type")
	}
	return NewSubject(key, obj, secretType)
}

// ItemKeyOf returns the key of an object.
func ItemKeyOf(obj *unstructured.Unstructured) atoll.ItemKey {
	gk := obj.GroupVersionKind().GroupKind()
	return atoll.ItemKey{Group: gk.Group, Kind: gk.Kind, Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

// GroupKindOf returns the group and kind of a key.
func GroupKindOf(key atoll.ItemKey) schema.GroupKind {
	return schema.GroupKind{Group: key.Group, Kind: key.Kind}
}

// systemNamespaces hold objects that clusters create for themselves.
var systemNamespaces = map[string]bool{
	metav1.NamespaceSystem: true, metav1.NamespacePublic: true, "kube-node-lease": true, atoll.SystemNamespace: true,
}

// IsSystemNamespace returns whether a namespace holds objects that clusters create for themselves.
func IsSystemNamespace(name string) bool { return systemNamespaces[name] }

// isBuiltInNamespace returns whether every cluster makes the namespace for itself.
func isBuiltInNamespace(namespace string) bool {
	return namespace == metav1.NamespaceDefault || systemNamespaces[namespace]
}

// IsHubSecret returns whether nothing can place the Secret, not even as a dependency.
func IsHubSecret(s Subject) bool { return s.Key.IsSecret() && atoll.IsOwnSecretType(s.SecretType) }

// UnselectableReason returns why a selector without a name leaves the object out although it is of
// its kind; empty when it does not.
func UnselectableReason(s Subject) string {
	switch {
	case atoll.IsHubOwnedKind(GroupKindOf(s.Key)):
		return "of Atoll's own API"
	case s.Key.Group == "" && s.Key.Kind == "ServiceAccount" && s.Key.Name == "default",
		s.Key.Group == "" && s.Key.Kind == "ConfigMap" && s.Key.Name == "kube-root-ca.crt":
		return "made by the hub in every namespace"
	case s.Key.Group == "rbac.authorization.k8s.io" && s.Key.Kind == "RoleBinding" && s.Labels[atoll.LabelTenant] != "":
		return "gives a tenant its rights on the hub"
	}
	if s.Key.Group == "" && s.Key.Kind == "Secret" {
		return machineSecretTypes[s.SecretType]
	}
	return derivedByControllerReason(s)
}

// NamespaceAnnotationSkipReason returns why a namespace's annotation leaves out an object in it; empty
// when it does not.
func NamespaceAnnotationSkipReason(s Subject) string {
	if why := derivedKinds[GroupKindOf(s.Key)]; why != "" {
		return why
	}
	return namespacedExclusionReason(s)
}

// namespacedExclusionReason returns why an object in a namespace, or the Namespace itself, is not a user's to place.
func namespacedExclusionReason(s Subject) string {
	if s.Key.IsNamespace() {
		return DefaultExclusionReason(s)
	}
	if why := UnselectableReason(s); why != "" {
		return why
	}
	if why := eventKinds[GroupKindOf(s.Key)]; why != "" {
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
