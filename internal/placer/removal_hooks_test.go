package placer

import (
	"testing"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

// Clusters remove a Bundle as a whole once users have deleted all of its objects but hooks of removals, and get it again with the
// next object.
func TestABundleOfDeletedObjectsIsRemovedWithItsHooks(t *testing.T) {
	key := func(name string) atoll.ItemKey {
		return atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: name}
	}
	plain := atoll.Item{Key: key("app"), APIVersion: "v1", UID: "u"}
	hook := atoll.Item{Key: key("backup"), APIVersion: "v1", UID: "u", Treatment: &atoll.Treatment{Hook: &atoll.Hook{Events: []atoll.HookEvent{atoll.HookPreDelete}}}}
	gone := func(item atoll.Item) atoll.Tombstone {
		return atoll.Tombstone{Key: item.Key, UID: item.UID, Cause: atoll.CauseDeleted, RemovalHook: item.Treatment != nil}
	}
	m := newFakeHub()
	addClusters(m, "a", "b")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		newPlacedBundle(m, "web", &atoll.Content{Items: []atoll.Item{plain, hook}}, "a")
		m.cutRevision("web", &atoll.Content{Items: []atoll.Item{hook}, Tombstones: []atoll.Tombstone{gone(plain)}, RemovedWithHooks: true})
		expectRows(t, m, "web", "a Removing r1")
		m.changeBundle("web", func(b *state.Bundle) { b.Meta.Annotations = map[string]string{atoll.AnnotationRemovalHooks: "Skip"} })
		expectRows(t, m, "web", "a Removing r1")
		if row := (fakeRows{m}).ListOfBundle("web")[0]; row.Spec.RemovalHooks != "Skip" {
			t.Errorf("the row has the order %q", row.Spec.RemovalHooks)
		}
		m.settleRows("web")
		expectRows(t, m, "web", "")
		m.cutRevision("web", &atoll.Content{Items: []atoll.Item{plain, hook}})
		expectRows(t, m, "web", "a Active r3")
		m.settleRows("web")

		// All at once, with the hook. A deletion of the hook alone removes no row.
		m.cutRevision("web", &atoll.Content{Tombstones: []atoll.Tombstone{gone(plain), gone(hook)}, RemovedWithHooks: true})
		expectRows(t, m, "web", "a Removing r3")

		newPlacedBundle(m, "api", &atoll.Content{Items: []atoll.Item{plain, hook}}, "b")
		m.cutRevision("api", &atoll.Content{Items: []atoll.Item{plain}, Tombstones: []atoll.Tombstone{gone(hook)}})
		expectRows(t, m, "api", "b Active r2")
	})
}
