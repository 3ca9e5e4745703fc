package ownership

import (
	"slices"
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

// A tombstone is carried out when the object of its template is gone, adopted, taken over, or
// wanted again.
func TestTombstonesThatAreCarriedOut(t *testing.T) {
	tomb := atoll.Tombstone{Key: shopItem, UID: "t"}
	withTombstone := func(uid string, generation int64, keys ...atoll.ItemKey) BundleHolding {
		m := manifestOf(uid, generation, keys...)
		m.Tombstones = []atoll.Tombstone{tomb}
		return BundleHolding{Manifest: m}
	}
	applied := func(adopted bool) *OwnershipRecords {
		b := NewOwnershipRecords()
		b.FoldHolding(BundleHolding{Manifest: manifestOf("b1", 1, shopItem)})
		b.RecordApplied(shopItem, Fact{UID: "u", Template: "t", Hash: "h", Label: "b1", Adopted: adopted})
		return b
	}
	for _, c := range []struct {
		name string
		book func() *OwnershipRecords
		want bool
	}{
		{"nothing is recorded", func() *OwnershipRecords {
			b := NewOwnershipRecords()
			b.FoldHolding(withTombstone("b1", 1))
			return b
		}, true},
		{"the object is still there", func() *OwnershipRecords {
			b := applied(false)
			b.FoldHolding(withTombstone("b1", 2))
			return b
		}, false},
		{"the object is gone", func() *OwnershipRecords {
			b := applied(false)
			b.FoldHolding(withTombstone("b1", 2))
			b.RecordGone(shopItem, "u", nil)
			return b
		}, true},
		{"the item came back", func() *OwnershipRecords {
			b := applied(false)
			b.FoldHolding(withTombstone("b1", 2, shopItem))
			return b
		}, true},
		{"another Bundle has it", func() *OwnershipRecords {
			b := applied(false)
			b.FoldHolding(BundleHolding{Manifest: manifestOf("b2", 1, shopItem)})
			b.FoldHolding(withTombstone("b1", 2))
			return b
		}, true},
		{"the object waits for another Bundle's template", func() *OwnershipRecords {
			b := applied(false)
			other := manifestOf("b2", 1, shopItem)
			other.Items[0].UID = "t2"
			b.FoldHolding(withTombstone("b1", 2))
			b.FoldHolding(BundleHolding{Manifest: other})
			return b
		}, false},
		{"the object was there before Atoll, and another Bundle's template has it", func() *OwnershipRecords {
			b := applied(true)
			other := manifestOf("b2", 1, shopItem)
			other.Items[0].UID = "t2"
			b.FoldHolding(withTombstone("b1", 2))
			b.FoldHolding(BundleHolding{Manifest: other})
			return b
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := []string(nil)
			if c.want {
				want = []string{TombstoneID(tomb)}
			}
			if got := c.book().CompletedTombstoneIDs("b1"); !slices.Equal(got, want) {
				t.Errorf("done is %q, want %q", got, want)
			}
		})
	}
	if got := NewOwnershipRecords().CompletedTombstoneIDs("b1"); got != nil {
		t.Errorf("an unknown Bundle has carried out %q", got)
	}
}

// A Bundle's report is written again when a claim or a tombstone of it is concerned, and not when
// another Bundle's object changes.
func TestBundlesThatAKeyConcerns(t *testing.T) {
	b := NewOwnershipRecords()
	b.FoldHolding(BundleHolding{Manifest: manifestOf("claims", 1, shopItem)})
	removed := manifestOf("removed", 1)
	removed.Tombstones = []atoll.Tombstone{{Key: shopItem, UID: "old"}}
	b.FoldHolding(BundleHolding{Manifest: removed})
	b.FoldHolding(BundleHolding{Manifest: manifestOf("other", 1, shop)})
	got := b.BundlesWithClaimOrTombstone(shopItem)
	slices.Sort(got)
	if !slices.Equal(got, []string{"claims", "removed"}) {
		t.Errorf("%q are concerned", got)
	}
	if got := b.BundlesWithClaimOrTombstone(atoll.ItemKey{Kind: "Secret", Namespace: "shop", Name: "x"}); len(got) > 0 {
		t.Errorf("an unknown key concerns %q", got)
	}
}

// A manifest that claims what the last one claimed changes no record and no report.
func TestTheSameClaimsChangeNothing(t *testing.T) {
	base := manifestOf("b1", 1, shopItem)
	b := NewOwnershipRecords()
	b.FoldHolding(BundleHolding{Manifest: base})
	settle := func() {
		for _, shard := range b.DirtyShards() {
			b.MarkClean(shard)
		}
		b.TakeChangedBundles()
	}
	settle()
	for _, c := range []struct {
		name   string
		change func(*atoll.Manifest)
		want   bool
	}{
		{"the same items", func(*atoll.Manifest) {}, false},
		{"other content", func(m *atoll.Manifest) { m.Items[0].Hash = "h2" }, false},
		{"only a dependency now", func(m *atoll.Manifest) { m.Items[0].Dependency = true }, true},
		{"another template", func(m *atoll.Manifest) { m.Items[0].UID = "t2" }, true},
		{"without the item", func(m *atoll.Manifest) { m.Items = nil }, true},
		{"moved", func(m *atoll.Manifest) {
			m.Items, m.Tombstones = nil, []atoll.Tombstone{{Key: shopItem, UID: "t2", MovedTo: []string{"b2"}}}
		}, true},
		{"moved to another Bundle", func(m *atoll.Manifest) {
			m.Items, m.Tombstones = nil, []atoll.Tombstone{{Key: shopItem, UID: "t2", MovedTo: []string{"b3"}}}
		}, true},
	} {
		base.Generation++
		base.Items = slices.Clone(base.Items)
		c.change(&base)
		b.FoldHolding(BundleHolding{Manifest: base})
		stored, reported := len(b.DirtyShards()) > 0, slices.Contains(b.TakeChangedBundles(), "b1")
		if stored != c.want || reported != c.want {
			t.Errorf("%s: to be stored %t, to be reported %t, want %t", c.name, stored, reported, c.want)
		}
		settle()
	}
}

// Content that the manifest lacks without a tombstone is kept, and keeps the Bundle's claim.
func TestKeptContentIsAppliedStill(t *testing.T) {
	kept := atoll.RenderedItem{Key: shopItem, UID: "t", Hash: "h", Dependency: true}
	b := NewOwnershipRecords()
	b.FoldHolding(BundleHolding{Manifest: manifestOf("b1", 1), Kept: []atoll.RenderedItem{kept}})
	if r, _ := b.Record(shopItem); r.Owner != "b1" || r.Claims["b1"].State != Kept || r.Claims["b1"].Template != "t" || !r.Claims["b1"].Dependency || r.Chosen {
		t.Errorf("the record of kept content is %+v", r)
	}
	if s := b.Next(shopItem); s.Verb != Apply || s.Item == nil || s.Item.Hash != "h" {
		t.Errorf("kept content: %s of %+v", s.Verb, s.Item)
	}
	failed := manifestOf("b1", 2, shopItem)
	failed.Items[0].Error = "it cannot be rendered"
	b.FoldHolding(BundleHolding{Manifest: failed, Kept: []atoll.RenderedItem{kept}})
	if r, _ := b.Record(shopItem); r.Claims["b1"].State != Wanted {
		t.Errorf("a listed item without content has the claim %+v", r.Claims["b1"])
	}
	if s := b.Next(shopItem); s.Item == nil || s.Item.Hash != "h" {
		t.Errorf("an item that cannot be rendered is applied as %+v, not with its last good content", s.Item)
	}
}
