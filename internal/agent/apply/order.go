package apply

import (
	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/atoll"
)

// tiers is the number of steps in which a pass applies. Deletions go in the
// opposite order.
const tiers = 7

// applyTier returns the tier of a key: what others need comes before them, and what watches others
// comes after them.
func applyTier(key atoll.ItemKey) int {
	switch {
	case key.IsNamespace():
		return 0
	case ownership.IsCRD(key):
		return 1
	case key.Group == "admissionregistration.k8s.io", key.Group == "apiregistration.k8s.io":
		return tiers - 1
	case isHPA(key):
		return tiers - 2 // its target hands its replicas over first, and takes them back last
	case key.Group == rbacGroup, key.Group == "scheduling.k8s.io",
		key.Group == "storage.k8s.io", key.Group == "node.k8s.io":
		return 2
	case key.Group != "":
		return 4
	}
	switch key.Kind {
	case "ServiceAccount", "LimitRange", "ResourceQuota":
		return 2
	case "ConfigMap", "Secret", "PersistentVolumeClaim", "PersistentVolume":
		return 3
	}
	return 4
}
