package state

import (
	"slices"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
)

// A hub that becomes the leader knows a freeze of the HubSettings before it decides. Their table may be late until then.
func TestAHubCatchesUpWithAFreeze(t *testing.T) {
	if !slices.Contains(kindsToCatchUp, v1alpha1.GroupVersion.WithKind("HubSettings")) {
		t.Errorf("a leader may decide without the HubSettings: %v", kindsToCatchUp)
	}
}
