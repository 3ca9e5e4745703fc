package atoll_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/internal/atoll"
)

func TestOwnKind(t *testing.T) {
	for _, tc := range []struct {
		group, kind string
		own         bool
	}{
		{"atoll.dev", "ResourceInterpreter", true},
		{"engine.atoll.dev", "Revision", true},
		{"config.karmada.io", "ResourceInterpreterCustomization", true},
		{"config.karmada.io", "ResourceInterpreterWebhookConfiguration", false},
		{"policy.karmada.io", "PropagationPolicy", false},
		{"", "ConfigMap", false},
		{"shop.atoll.dev", "Order", false},
	} {
		if got := atoll.IsHubOwnedKind(schema.GroupKind{Group: tc.group, Kind: tc.kind}); got != tc.own {
			t.Errorf("%s of %q: %t", tc.kind, tc.group, got)
		}
	}
}
