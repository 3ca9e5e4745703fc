package apply

import (
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

// An object of another group than that of its key is not applied: the member's administrator permits kinds
// and namespaces by the key, and the guards of deletions know namespaces and definitions by it.
func TestAnObjectOfAnotherGroupThanItsKeyIsNotApplied(t *testing.T) {
	w := newWorld(t)
	w.limitAgent(`{kinds: {denied: [{group: "", kinds: [Secret]}]}, namespaces: {denied: [` + w.ns + `-denied]}}`)
	good := w.configMap("good", "x")
	secret := w.newItem("u1", "apiVersion: v1\nkind: Secret\nmetadata: {name: misnamed}")
	namespace := w.newClusterItem("u2", "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+w.ns+"-denied}")
	unversioned := w.newItem("u3", "apiVersion: v1\nkind: Secret\nmetadata: {name: unversioned}")
	true1, true2, true3 := secret.Key, namespace.Key, unversioned.Key
	secret.Key.Group, namespace.Key.Group, unversioned.Key.Group = "apps", "apps", "apps"
	unversioned.APIVersion = ""
	w.storeManifest(newManifest("b1", 1, good, secret, namespace, unversioned))
	w.expectExists(good.Key)
	for _, refused := range []struct {
		key    atoll.ItemKey
		reason atoll.Reason
	}{{secret.Key, atoll.ReasonInvalid}, {namespace.Key, atoll.ReasonInvalid}, {unversioned.Key, atoll.ReasonNotServed}} {
		w.waitForStatus("b1", func(s atoll.RowStatus) bool {
			it, ok := saidOf(s, refused.key)
			return ok && it.Error && it.Reason == refused.reason
		})
	}
	for _, key := range []atoll.ItemKey{true1, true2, true3} {
		if w.get(key) != nil {
			t.Errorf("%s was made, although the policy denies it", key)
		}
	}
}
