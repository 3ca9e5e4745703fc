package place

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

// What waits for a confirmation is told to whoever may see the Bundle, and names no
// Secret.
func TestHeldRemovalsNameNoSecret(t *testing.T) {
	secret := atoll.ItemKey{Kind: "Secret", Namespace: "shop", Name: "tls-of-bank"}
	web := atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}
	content := &atoll.Content{Items: []atoll.Item{
		{Key: secret, UID: "u1", State: atoll.ItemRemovalHeld, Recalled: "deleted yesterday"},
		{Key: web, UID: "u2", State: atoll.ItemRemovalHeld, Recalled: "deleted yesterday"},
	}}
	m := newMemory()
	r := New(Config{
		Bundles: memBundles{m}, Rows: memRows{m}, Clusters: memClusters{m}, Revisions: memRevisions{m},
		Namespaces: memNamespaces{m}, Hub: memHub{m}, Events: memEvents{m},
	})
	b := state.Bundle{Ref: enginev1.BundleRef{UID: "b", Namespace: "shop", Name: "web"}}
	r.index.view(b, schedule.Terms{}, time.Now())
	r.report(b, recalled("b", content), rollout.Output{Plan: &rollout.Plan{Hash: "h", Lines: []string{
		"remove from a: " + atoll.Tombstone{Key: secret, UID: "u1"}.ID() + ", " + atoll.Tombstone{Key: web, UID: "u2"}.ID(),
		"remove from b: " + atoll.Tombstone{Key: secret, UID: "u1"}.ID(),
	}}})
	if len(m.told()) != 2 {
		t.Fatalf("told %q", m.told())
	}
	for _, told := range m.told() {
		if strings.Contains(told, "tls-of-bank") || strings.Contains(told, "u1") || !strings.Contains(told, "a Secret") || !strings.Contains(told, "web") {
			t.Errorf("told %q", told)
		}
	}
}
