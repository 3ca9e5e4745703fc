package ownership

import (
	"slices"
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

var (
	shop     = atoll.NamespaceKey("shop")
	shopItem = atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "settings"}
)

// bookWithNamespace returns a Book that holds nothing but a namespace that the agent made.
func bookWithNamespace() *OwnershipRecords {
	b := NewOwnershipRecords()
	b.IntendNamespace("shop")
	b.RecordMadeNamespace("shop", Fact{UID: "n1", Hash: "h", Label: "b1", Owned: "o"})
	return b
}

// manifestOf returns a manifest with items that carry the template "t".
func manifestOf(bundle string, generation int64, keys ...atoll.ItemKey) atoll.Manifest {
	m := atoll.Manifest{Bundle: bundle, Generation: generation}
	for _, key := range keys {
		m.Items = append(m.Items, atoll.RenderedItem{Key: key, UID: "t", Hash: "h"})
	}
	return m
}

// A namespace that the agent made is deleted only for a reason: the hub's namespace is deleted, or
// the agent parts with it. Something that needs it again takes the reason away.
func TestNamespaceIsDeletedOnlyForAReason(t *testing.T) {
	doom := func(b *OwnershipRecords) {
		m := manifestOf("b1", 1)
		m.DeletedNamespaces = []string{"shop"}
		if touched := b.FoldHolding(BundleHolding{Manifest: m}); !slices.Contains(touched, shop) {
			t.Errorf("the doomed namespace is not among the changed keys %v", touched)
		}
	}
	part := func(b *OwnershipRecords) { b.SetNamespaceRemovalWhenUnused("shop", true) }
	for _, c := range []struct {
		name  string
		steps []func(*OwnershipRecords)
		want  Verb
	}{
		{"no reason", nil, Nothing},
		{"the hub deleted it", []func(*OwnershipRecords){doom}, DeleteNamespace},
		{"the agent parts with it", []func(*OwnershipRecords){part}, DeleteNamespace},
		{"the parting ends", []func(*OwnershipRecords){part, func(b *OwnershipRecords) { b.SetNamespaceRemovalWhenUnused("shop", false) }}, Nothing},
		{"it is kept after the hub deleted it", []func(*OwnershipRecords){doom, func(b *OwnershipRecords) { b.CancelNamespaceRemoval("shop") }}, Nothing},
		{"it is kept while the agent parts with it", []func(*OwnershipRecords){part, func(b *OwnershipRecords) { b.CancelNamespaceRemoval("shop") }}, Nothing},
		{"an item in it arrives", []func(*OwnershipRecords){doom, func(b *OwnershipRecords) { b.FoldHolding(BundleHolding{Manifest: manifestOf("b2", 1, shopItem)}) }}, Nothing},
		{"an item in it arrives while the agent parts", []func(*OwnershipRecords){part, func(b *OwnershipRecords) { b.FoldHolding(BundleHolding{Manifest: manifestOf("b2", 1, shopItem)}) }}, Nothing},
		{"an item elsewhere arrives", []func(*OwnershipRecords){doom, func(b *OwnershipRecords) {
			b.FoldHolding(BundleHolding{Manifest: manifestOf("b2", 1, atoll.ItemKey{Kind: "ConfigMap", Namespace: "other", Name: "x"})})
		}}, DeleteNamespace},
		{"it is itself an item", []func(*OwnershipRecords){doom, func(b *OwnershipRecords) { b.FoldHolding(BundleHolding{Manifest: manifestOf("b2", 1, shop)}) }}, Apply},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := bookWithNamespace()
			for _, step := range c.steps {
				step(b)
			}
			if got := b.Next(shop); got.Verb != c.want {
				t.Errorf("next is %s, want %s", got.Verb, c.want)
			}
		})
	}
}

// Only the record of a namespace that the agent meant to make, and has not made, is dropped when
// the namespace turns out to exist.
func TestForeignNamespaceIsNotTheAgents(t *testing.T) {
	b := NewOwnershipRecords()
	b.RecordForeignNamespace("shop")
	if _, ok := b.Record(shop); ok {
		t.Error("an unknown namespace has a record after it was found")
	}
	b.IntendNamespace("shop")
	b.RecordForeignNamespace("shop")
	if r, ok := b.Record(shop); ok {
		t.Errorf("a foreign namespace has the record %+v", r)
	}
	made := bookWithNamespace()
	made.RecordForeignNamespace("shop")
	if r, ok := made.Record(shop); !ok || !r.Implicit || r.UID != "n1" {
		t.Errorf("a namespace that the agent made has the record %+v, %t", r, ok)
	}
	wanted := NewOwnershipRecords()
	wanted.FoldHolding(BundleHolding{Manifest: manifestOf("b1", 1, shop)})
	wanted.IntendNamespace("shop")
	if r, _ := wanted.Record(shop); r.Implicit {
		t.Error("a namespace that a Bundle wants is recorded as the agent's own")
	}
	wanted.RecordForeignNamespace("shop")
	if r, ok := wanted.Record(shop); !ok || r.Claims["b1"].State != Wanted {
		t.Errorf("a namespace that a Bundle wants has the record %+v, %t", r, ok)
	}
}

// A namespace that the agent did not make is neither parted with nor forgotten.
func TestOnlyTheAgentsNamespacesArePartedWith(t *testing.T) {
	b := NewOwnershipRecords()
	b.SetNamespaceRemovalWhenUnused("shop", true)
	b.CancelNamespaceRemoval("shop")
	b.ForgetNamespace("shop")
	if len(b.RecordedKeys()) > 0 {
		t.Errorf("records of an unknown namespace: %v", b.RecordedKeys())
	}
	b.FoldHolding(BundleHolding{Manifest: manifestOf("b1", 1, shop)})
	b.RecordApplied(shop, Fact{UID: "n1", Template: "t", Hash: "h", Label: "b1"})
	b.SetNamespaceRemovalWhenUnused("shop", true)
	b.ForgetNamespace("shop")
	if r, _ := b.Record(shop); r.Parting || r.UID != "n1" {
		t.Errorf("a Bundle's namespace has the record %+v", r)
	}
}

func TestForgottenNamespaceHasNoRecord(t *testing.T) {
	b := bookWithNamespace()
	b.ForgetNamespace("shop")
	if r, ok := b.Record(shop); ok {
		t.Errorf("the record %+v is left", r)
	}
	claimed := bookWithNamespace()
	claimed.FoldHolding(BundleHolding{Manifest: manifestOf("b1", 1, shop)})
	claimed.ForgetNamespace("shop")
	if r, _ := claimed.Record(shop); r.UID != "n1" || !r.Implicit {
		t.Errorf("a namespace with a claim became %+v", r)
	}
}

// A namespace that is gone is made again while something in it is recorded.
func TestGoneNamespaceIsTheAgentsWhileItIsNeeded(t *testing.T) {
	b := bookWithNamespace()
	b.RecordGone(shop, "another", nil)
	if r, _ := b.Record(shop); r.UID != "n1" {
		t.Error("the absence of another namespace is recorded for this one")
	}
	b.FoldHolding(BundleHolding{Manifest: manifestOf("b1", 1, shopItem)})
	b.RecordGone(shop, "n1", nil)
	if r, ok := b.Record(shop); !ok || !r.Implicit || r.UID != "" {
		t.Errorf("a needed namespace has the record %+v, %t", r, ok)
	}
	empty := bookWithNamespace()
	empty.SetNamespaceRemovalWhenUnused("shop", true)
	empty.RecordGone(shop, "", nil)
	if r, ok := empty.Record(shop); ok {
		t.Errorf("a namespace without use has the record %+v", r)
	}
}

// A namespace's record is stored when it changes, and only then.
func TestNamespaceRecordsAreStoredWhenTheyChange(t *testing.T) {
	doomed := manifestOf("b1", 1)
	doomed.DeletedNamespaces = []string{"shop"}
	again := doomed
	again.Generation = 2
	b := bookWithNamespace()
	for _, c := range []struct {
		name string
		act  func()
		want bool
	}{
		{"made", func() {}, true},
		{"doomed", func() { b.FoldHolding(BundleHolding{Manifest: doomed}) }, true},
		{"doomed again", func() { b.FoldHolding(BundleHolding{Manifest: again}) }, false},
		{"kept", func() { b.CancelNamespaceRemoval("shop") }, true},
		{"kept again", func() { b.CancelNamespaceRemoval("shop") }, false},
		{"forgotten", func() { b.ForgetNamespace("shop") }, true},
	} {
		c.act()
		if got := slices.Contains(b.DirtyShards(), ShardOf(shop)); got != c.want {
			t.Errorf("%s: to be stored is %t", c.name, got)
		}
		b.MarkClean(ShardOf(shop))
	}
}

// The Bundle with the lowest UID that names a namespace decides its metadata.
func TestNamespaceMetaIsOfTheLowestBundle(t *testing.T) {
	b := NewOwnershipRecords()
	for uid, value := range map[string]string{"b2": "second", "b1": "first", "b0": ""} {
		m := manifestOf(uid, 1)
		if value != "" {
			m.Namespaces = map[string]atoll.NamespaceMeta{"shop": {Labels: map[string]string{"from": value}}}
		}
		b.FoldHolding(BundleHolding{Manifest: m})
	}
	if got := b.NamespaceMeta("shop").Labels["from"]; got != "first" {
		t.Errorf("the metadata is of the %s Bundle", got)
	}
	if got := b.NamespaceMeta("other"); got.Labels != nil {
		t.Errorf("a namespace without metadata has %+v", got)
	}
}
