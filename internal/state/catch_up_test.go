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

// It also has what the hub before it sent, so that no message is sent twice.
func TestAHubCatchesUpWithNotifications(t *testing.T) {
	if !slices.Contains(kindsToCatchUp, v1alpha1.GroupVersion.WithKind("Notification")) {
		t.Errorf("a leader may send without the Notifications: %v", kindsToCatchUp)
	}
}
