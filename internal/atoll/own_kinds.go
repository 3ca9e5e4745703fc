package atoll

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	karmada "atoll.dev/atoll/api/karmada/config/v1alpha1"
	multicluster "atoll.dev/atoll/api/multicluster/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
)

// IsHubOwnedKind reports whether a kind is about the hub itself, so that no policy and no annotation
// can place it: Atoll's, those of other systems that the hub takes for a dialect of its own,
// and the cluster inventory that it publishes.
func IsHubOwnedKind(gk schema.GroupKind) bool {
	switch gk.Group {
	case v1alpha1.GroupVersion.Group, enginev1.GroupVersion.Group:
		return true
	case multicluster.GroupVersion.Group:
		return gk.Kind == "ClusterProfile" || gk.Kind == "PlacementDecision"
	case karmada.GroupVersion.Group:
		return gk.Kind == karmada.CustomizationKind
	}
	return false
}

// IsOwnSecretType reports whether a type of Secrets belongs to the hub alone: credentials of
// members, join tokens, contents. No policy and no annotation can place them.
func IsOwnSecretType(secretType string) bool { return IsOwnMetadataKey(secretType) }

// IsOwnMetadataKey reports whether a key of labels and annotations is Atoll's own. Such keys are not
// sent to members.
func IsOwnMetadataKey(key string) bool {
	domain, _, ok := strings.Cut(key, "/")
	return ok && (domain == "atoll.dev" || strings.HasSuffix(domain, ".atoll.dev"))
}
