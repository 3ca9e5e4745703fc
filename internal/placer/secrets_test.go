package placer

import (
	"strings"
	"testing"
	"time"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

// A held removal names no Secret in its Event, which readers of the Bundle see.
func TestHeldRemovalsNameNoSecret(t *testing.T) {
	secret := atoll.ItemKey{Kind: "Secret", Namespace: "shop", Name: "tls-of-bank"}
	web := atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}
	content := &atoll.Content{Items: []atoll.Item{
		{Key: secret, UID: "u1", State: atoll.ItemRemovalHeld, RecallNote: "deleted yesterday"},
		{Key: web, UID: "u2", State: atoll.ItemRemovalHeld, RecallNote: "deleted yesterday"},
	}}
	m := newFakeHub()
	r := New(Config{
		Bundles: fakeBundles{m}, Rows: fakeRows{m}, RowWriter: fakeRows{m}, Clusters: fakeClusters{m}, Revisions: fakeRevisions{m},
		Namespaces: fakeNamespaces{m}, Hub: fakeHubState{m}, Events: fakeEvents{m},
	})
	b := state.Bundle{Ref: enginev1.BundleRef{UID: "b", Namespace: "shop", Name: "web"}}
	r.index.viewOf(b, schedule.PlacementTerms{}, time.Now())
	r.recordStepWarnings(b, heldBackDeletions("b", content), rollout.Output{PendingRemoval: &rollout.PendingRemoval{Hash: "h", Lines: []string{
		"remove from a: " + atoll.Tombstone{Key: secret, UID: "u1"}.ID() + ", " + atoll.Tombstone{Key: web, UID: "u2"}.ID(),
		"remove from b: " + atoll.Tombstone{Key: secret, UID: "u1"}.ID(),
	}}})
	if len(m.takeWarnings()) != 2 {
		t.Fatalf("warnings %q", m.takeWarnings())
	}
	for _, warning := range m.takeWarnings() {
		if strings.Contains(warning, "tls-of-bank") || strings.Contains(warning, "u1") || !strings.Contains(warning, "a Secret") || !strings.Contains(warning, "web") {
			t.Errorf("warning %q", warning)
		}
	}
}
