package manifest_test

import (
	"slices"
	"testing"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/manifest"
)

// A member gets the finalizers that a template lost, and a manifest of its own for each. Those that the template
// still has concern the hub alone.
func TestATombstoneIsSentWithReleasedFinalizers(t *testing.T) {
	build := func(kept, released []string) atoll.Manifest {
		return manifest.BuildManifest(manifest.ManifestInput{Content: &atoll.Content{Tombstones: []atoll.Tombstone{
			{Key: atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "a"}, UID: "u", Cause: atoll.CauseDeleted, Finalizers: kept, ReleasedFinalizers: released},
		}}})
	}
	both, one := build([]string{"x.dev/one", "x.dev/two"}, nil), build([]string{"x.dev/two"}, []string{"x.dev/one"})
	if got := one.Tombstones[0]; len(got.Finalizers) > 0 || !slices.Equal(got.ReleasedFinalizers, []string{"x.dev/one"}) {
		t.Errorf("%+v", got)
	}
	if none := build(nil, nil); both.Content == one.Content || both.Content != none.Content {
		t.Errorf("manifests %s, %s, and without finalizers %s", both.Content, one.Content, none.Content)
	}
}
