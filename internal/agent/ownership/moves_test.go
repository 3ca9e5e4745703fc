package ownership

import (
	"slices"
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

// movedTo returns a Holding of a Bundle whose item of the template "t" moved to other Bundles.
func movedTo(bundle string, generation int64, others ...string) BundleHolding {
	m := manifestOf(bundle, generation)
	m.Tombstones = []atoll.Tombstone{{Key: shopItem, UID: "t", Cause: atoll.CauseMoved, MovedTo: others}}
	return BundleHolding{Manifest: m}
}

// A move is carried out once one of its targets claims the object. The manifest of another target may never arrive.
func TestAMoveEndsWithTheFirstTargetThatClaimsTheObject(t *testing.T) {
	b := NewOwnershipRecords()
	b.FoldHolding(BundleHolding{Manifest: manifestOf("b1", 1, shopItem)})
	b.RecordApplied(shopItem, Fact{UID: "u", Template: "t", Hash: "h", Label: "b1"})
	moved := movedTo("b1", 2, "b2", "b3")
	b.FoldHolding(moved)
	if done := b.CompletedTombstoneIDs("b1"); len(done) > 0 {
		t.Errorf("the move is carried out before a target arrived: %q", done)
	}
	b.FoldHolding(BundleHolding{Manifest: manifestOf("b2", 1, shopItem)})
	if done, want := b.CompletedTombstoneIDs("b1"), []string{TombstoneID(moved.Manifest.Tombstones[0])}; !slices.Equal(done, want) {
		t.Errorf("the carried out tombstones are %q, want %q", done, want)
	}
	if s := b.Next(shopItem); s.Verb != Apply || s.Owner != "b2" {
		t.Errorf("the next step is %s of %q, want Apply of b2", s.Verb, s.Owner)
	}
}

// A Bundle that keeps an object writes it while another Bundle's move of the object waits for its target.
func TestAMoveThatWaitsOwnsNothing(t *testing.T) {
	kept := atoll.RenderedItem{Key: shopItem, UID: "t", Hash: "h2", Dependency: true}
	b := NewOwnershipRecords()
	b.FoldHolding(BundleHolding{Manifest: manifestOf("b1", 1, shopItem)})
	b.RecordApplied(shopItem, Fact{UID: "u", Template: "t", Hash: "h", Label: "b1"})
	b.FoldHolding(BundleHolding{Manifest: manifestOf("b2", 1), Kept: []atoll.RenderedItem{kept}})
	if s := b.Next(shopItem); s.Verb != Nothing || s.Owner != "b1" {
		t.Errorf("before the move the next step is %s of %q, want Nothing of b1", s.Verb, s.Owner)
	}
	b.FoldHolding(movedTo("b1", 2, "b3"))
	if s := b.Next(shopItem); s.Verb != Apply || s.Owner != "b2" || s.Item == nil || s.Item.Hash != "h2" {
		t.Errorf("the next step is %s of %q with %+v, want Apply of b2 with its content", s.Verb, s.Owner, s.Item)
	}
}

// A template is wanted while a Bundle lists or keeps it, and not after a tombstone.
func TestATemplateIsWantedWhileABundleClaimsIt(t *testing.T) {
	deleted := manifestOf("b1", 2)
	deleted.Tombstones = []atoll.Tombstone{{Key: shopItem, UID: "t", Cause: atoll.CauseDeleted}}
	listed := BundleHolding{Manifest: manifestOf("b1", 1, shopItem)}
	for _, c := range []struct {
		name     string
		holdings []BundleHolding
		key      atoll.ItemKey
		template string
		want     bool
	}{
		{"nothing is recorded", nil, shopItem, "t", false},
		{"a manifest lists it", []BundleHolding{listed}, shopItem, "t", true},
		{"a manifest lists another template", []BundleHolding{listed}, shopItem, "t2", false},
		{"a manifest lists another object", []BundleHolding{listed}, atoll.ItemKey{Kind: "Secret", Namespace: "shop", Name: "settings"}, "t", false},
		{"its content is kept", []BundleHolding{{Manifest: manifestOf("b1", 2), Kept: []atoll.RenderedItem{{Key: shopItem, UID: "t", Hash: "h"}}}}, shopItem, "t", true},
		{"it was deleted", []BundleHolding{listed, {Manifest: deleted}}, shopItem, "t", false},
		{"its move waits", []BundleHolding{listed, movedTo("b1", 2, "b2")}, shopItem, "t", false},
		{"it moved, and the target has it", []BundleHolding{listed, movedTo("b1", 2, "b2"), {Manifest: manifestOf("b2", 1, shopItem)}}, shopItem, "t", true},
	} {
		b := NewOwnershipRecords()
		for i, h := range c.holdings {
			if b.FoldHolding(h); i == 0 {
				b.RecordApplied(shopItem, Fact{UID: "u", Template: "t", Hash: "h", Label: "b1"})
			}
		}
		if got := b.WantsTemplate(c.key, c.template); got != c.want {
			t.Errorf("%s: wanted is %t", c.name, got)
		}
	}
}
