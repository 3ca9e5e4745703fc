package ownership

import (
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

// An object that was left behind is adopted for its own template; only a definition means the same
// under another one.
func TestTakesUp(t *testing.T) {
	claim := atoll.ItemKey{Kind: "PersistentVolumeClaim", Namespace: "shop", Name: "data"}
	crd := atoll.ItemKey{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition", Name: "widgets.x.dev"}
	for name, c := range map[string]struct {
		key                  atoll.ItemKey
		leftBehind, template string
		want                 bool
	}{
		"its own template":               {claim, "u1", "u1", true},
		"another template":               {claim, "u1", "u2", false},
		"it was not left behind":         {claim, "", "", false},
		"a definition of another":        {crd, "u1", "u2", true},
		"a definition, not left behind":  {crd, "", "u2", false},
		"a kind of a definition's name":  {atoll.ItemKey{Group: "x.dev", Kind: "CustomResourceDefinition", Name: "widgets.x.dev"}, "u1", "u2", false},
		"a kind of a definition's group": {atoll.ItemKey{Group: "apiextensions.k8s.io", Kind: "Widget", Name: "w"}, "u1", "u2", false},
	} {
		if got := CanReadoptLeftBehind(c.key, c.leftBehind, c.template); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// An object whose deletion takes data or other objects along stays when a Bundle had it only as a dependency.
func TestADependencyWithDataIsNotDeleted(t *testing.T) {
	for name, c := range map[string]struct {
		key  atoll.ItemKey
		want Verb // of a dependency
	}{
		"a volume claim":                  {atoll.ItemKey{Kind: "PersistentVolumeClaim", Namespace: "shop", Name: "data"}, Release},
		"a volume":                        {atoll.ItemKey{Kind: "PersistentVolume", Name: "data"}, Release},
		"a definition":                    {atoll.ItemKey{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition", Name: "widgets.x.dev"}, Release},
		"a namespace":                     {atoll.NamespaceKey("shop"), Release},
		"a kind of a volume claim's name": {atoll.ItemKey{Group: "x.dev", Kind: "PersistentVolumeClaim", Namespace: "shop", Name: "data"}, Delete},
		"a ConfigMap":                     {atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "settings"}, Delete},
	} {
		for _, dependency := range []bool{true, false} {
			m := manifestOf("b1", 1, c.key)
			m.Items[0].Dependency = dependency
			b := NewOwnershipRecords()
			b.FoldHolding(BundleHolding{Manifest: m})
			b.RecordApplied(c.key, Fact{UID: "u", Template: "t", Hash: "h", Label: "b1"})
			gone := manifestOf("b1", 2)
			gone.Tombstones = []atoll.Tombstone{{Key: c.key, UID: "t", Cause: atoll.CauseUnused}}
			b.FoldHolding(BundleHolding{Manifest: gone})
			want := Delete
			if dependency {
				want = c.want
			}
			if s := b.Next(c.key); s.Verb != want {
				t.Errorf("%s, dependency %t: %s, want %s", name, dependency, s.Verb, want)
			}
		}
	}
}
