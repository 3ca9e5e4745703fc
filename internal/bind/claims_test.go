package bind

import (
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/claim"
)

// TestAClaimIsStickyOnceItHasComeToSomething: who applies a policy and then an object means
// that policy, also where the object is heard of first and another policy selects it too.
func TestAClaimIsStickyOnceItHasComeToSomething(t *testing.T) {
	key := atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "web"}
	all, own := claim.BundleID{Namespace: "shop", Name: "all"}, claim.BundleID{Namespace: "shop", Name: "own"}
	c := newClaims()
	holds := func(when, want string) {
		t.Helper()
		got := ""
		if _, source := c.holder(key); source != nil {
			got = source.Name
		}
		if got != want {
			t.Errorf("%s: %q holds it, want %q", when, got, want)
		}
	}
	holds("nobody selects it", "")
	c.place(key, all, origin{source: v1alpha1.BundleSource{Kind: v1alpha1.SourceClusterPropagationPolicy, Name: "all"}})
	holds("nothing is cut yet", "")
	content := &atoll.Content{Items: []atoll.Item{{Key: key}}}
	c.has(all, "u1", 1, content)
	holds("it is cut", "all")
	c.place(key, own, origin{source: v1alpha1.BundleSource{Kind: v1alpha1.SourcePropagationPolicy, Name: "own"}})
	holds("it is about to be taken over", "own")
	c.unplace(key)
	holds("nobody selects it any more, and it is in the content", "all")
	c.has(all, "u1", 2, &atoll.Content{})
	holds("it is in no content", "")
	c.has(all, "u1", 2, &atoll.Content{Items: []atoll.Item{{Key: key, Dependency: true}}})
	holds("it is needed by something else", "")
}
