package preview

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/api/v1alpha1"
)

// PolicyNote is a difference on purpose between Atoll and the system that a policy came from.
type PolicyNote struct {
	Object string `json:"object"`
	Note   string `json:"note"`
}

const (
	karmadaDomain      = "karmada.io"
	karmadaPolicyGroup = "policy." + karmadaDomain
	lastApplied        = "kubectl.kubernetes.io/last-applied-configuration"
)

// ListKarmadaNotes returns the differences for the policies that came from Karmada. The objects are
// as their author wrote them, without defaults.
func ListKarmadaNotes(objects []*unstructured.Unstructured) (out []PolicyNote) {
	for _, u := range objects {
		note := ""
		switch gk := u.GroupVersionKind().GroupKind(); {
		case gk.Group == karmadaPolicyGroup:
			note = "it is of Karmada's API, which places nothing here; write apiVersion: " + v1alpha1.GroupVersion.String()
		case isPropagationPolicy(gk) && cameFromKarmada(u) && hasEmptyScheduling(u):
			note = "replicaScheduling has no type: Karmada divides replicas, and Atoll gives each cluster all of them; to divide, state replicaSchedulingType: Divided"
		}
		if note != "" {
			out = append(out, PolicyNote{Object: u.GetKind() + " " + strings.TrimPrefix(u.GetNamespace()+"/"+u.GetName(), "/"), Note: note})
		}
	}
	return out
}

func isPropagationPolicy(gk schema.GroupKind) bool {
	return gk.Group == v1alpha1.GroupVersion.Group && (gk.Kind == v1alpha1.SourcePropagationPolicy || gk.Kind == v1alpha1.SourceClusterPropagationPolicy)
}

// cameFromKarmada reports whether Karmada left a label or an annotation, or kubectl applied the
// policy there.
func cameFromKarmada(u *unstructured.Unstructured) bool {
	for _, keys := range []map[string]string{u.GetLabels(), u.GetAnnotations()} {
		for key := range keys {
			domain, _, prefixed := strings.Cut(key, "/")
			if prefixed && (domain == karmadaDomain || strings.HasSuffix(domain, "."+karmadaDomain)) {
				return true
			}
		}
	}
	return strings.Contains(u.GetAnnotations()[lastApplied], `"`+karmadaPolicyGroup+"/")
}

// hasEmptyScheduling reports whether a policy states replicaScheduling, without a type and without
// a field that divides replicas.
func hasEmptyScheduling(u *unstructured.Unstructured) bool {
	stated, found, err := unstructured.NestedMap(u.Object, "spec", "placement", "replicaScheduling")
	return err == nil && found && len(stated) == 0
}
