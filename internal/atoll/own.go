package atoll

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	karmada "atoll.dev/atoll/api/karmada/config/v1alpha1"
	multicluster "atoll.dev/atoll/api/multicluster/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
)

// OwnKind tells of the kinds that are about the hub itself, and that no policy and no
// annotation can place: Atoll's, those of other systems that the hub takes for a dialect
// of its own, and the cluster inventory that it publishes.
func OwnKind(gk schema.GroupKind) bool {
	switch gk.Group {
	case v1alpha1.GroupVersion.Group, enginev1.GroupVersion.Group:
		return true
	case multicluster.GroupVersion.Group:
		return gk.Kind == "ClusterProfile"
	case karmada.GroupVersion.Group:
		return gk.Kind == karmada.CustomizationKind
	}
	return false
}

// OwnSecretType tells of the types of Secrets that hold what is the hub's alone: credentials
// of members, join tokens, contents. No policy and no annotation can place them.
func OwnSecretType(secretType string) bool { return OwnKey(secretType) }

// OwnKey tells of keys of labels and annotations that are Atoll's: they are about the hub, and
// members are not told of them.
func OwnKey(key string) bool {
	domain, _, ok := strings.Cut(key, "/")
	return ok && (domain == "atoll.dev" || strings.HasSuffix(domain, ".atoll.dev"))
}
