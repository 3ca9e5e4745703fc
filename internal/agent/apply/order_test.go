package apply

import (
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

// Objects that others need are applied before them, and objects that watch others after them.
func TestObjectsAreAppliedAfterWhatTheyNeed(t *testing.T) {
	key := func(group, kind string) atoll.ItemKey { return atoll.ItemKey{Group: group, Kind: kind, Name: "x"} }
	order := [][]atoll.ItemKey{
		{key("", "Namespace")},
		{key("apiextensions.k8s.io", "CustomResourceDefinition")},
		{key("rbac.authorization.k8s.io", "Role"), key("scheduling.k8s.io", "PriorityClass"), key("storage.k8s.io", "StorageClass"), key("node.k8s.io", "RuntimeClass"), key("", "ServiceAccount"), key("", "LimitRange"), key("", "ResourceQuota")},
		{key("", "ConfigMap"), key("", "Secret"), key("", "PersistentVolumeClaim"), key("", "PersistentVolume")},
		{key("apps", "Deployment"), key("", "Pod"), key("", "Service"), key("example.io", "Namespace"), key("example.io", "Secret"), key("example.io", "ServiceAccount")},
		{key("autoscaling", "HorizontalPodAutoscaler")},
		{key("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"), key("apiregistration.k8s.io", "APIService")},
	}
	if len(order) != tiers {
		t.Fatalf("%d tiers, want %d", tiers, len(order))
	}
	for tier, keys := range order {
		for _, k := range keys {
			if got := applyTier(k); got != tier {
				t.Errorf("%s/%s is applied in tier %d, want %d", k.Group, k.Kind, got, tier)
			}
		}
	}
}
