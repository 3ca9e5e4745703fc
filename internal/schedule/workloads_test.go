package schedule

import (
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

// Copies are exclusive by the kinds of the items: claims, and sets that go to clusters as a whole.
func TestExclusiveCopies(t *testing.T) {
	item := func(group, kind string, divided bool) atoll.Item {
		return atoll.Item{Key: atoll.ItemKey{Group: group, Kind: kind, Namespace: "shop", Name: "a"}, Divided: divided}
	}
	for name, c := range map[string]struct {
		items  []atoll.Item
		ranged bool
		want   bool
	}{
		"nothing":                  {},
		"a Deployment":             {items: []atoll.Item{item("apps", "Deployment", true), item("", "ConfigMap", false)}},
		"a claim":                  {items: []atoll.Item{item("apps", "Deployment", true), item("", "PersistentVolumeClaim", false)}, want: true},
		"a kind named as a claim":  {items: []atoll.Item{item("example.com", "PersistentVolumeClaim", false)}},
		"a StatefulSet":            {items: []atoll.Item{item("apps", "StatefulSet", false)}, want: true},
		"a StatefulSet, divided":   {items: []atoll.Item{item("apps", "StatefulSet", true)}, want: true},
		"one with ordinal ranges":  {items: []atoll.Item{item("apps", "StatefulSet", true)}, ranged: true},
		"duplicated beside ranges": {items: []atoll.Item{item("apps", "StatefulSet", false)}, ranged: true, want: true},
		"another kind with ranges": {items: []atoll.Item{item("apps.kruise.io", "StatefulSet", true)}, ranged: true, want: true},
	} {
		if got := HasExclusiveCopies(&atoll.Content{Items: c.items}, c.ranged); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	if HasExclusiveCopies(nil, false) {
		t.Error("a Bundle without a revision has exclusive copies")
	}
}
