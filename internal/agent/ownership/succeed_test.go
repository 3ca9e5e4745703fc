package ownership

import (
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

// An agent that has lost its store knows by a label that one Bundle wants an object. Another
// that wants it too, and goes before that one's manifest has come, does not take it along.
func TestARecoveredClaimOutlivesAnother(t *testing.T) {
	key := atoll.ItemKey{Kind: "ConfigMap", Namespace: "n", Name: "x"}
	item := atoll.RenderedItem{Key: key, UID: "t", Hash: "h"}
	b := NewOwnershipRecords()
	b.RestoreRecord(Record{Key: key, UID: "u", Template: "t", Label: "b1", Owner: "b1", Claims: map[string]Claim{"b1": {State: Kept, Template: "t"}}})
	b.FoldHolding(BundleHolding{Manifest: atoll.Manifest{Bundle: "b2", Generation: 1, Items: []atoll.RenderedItem{item}}})
	if s := b.Next(key); s.Verb != Apply || s.Owner != "b2" {
		t.Fatalf("what is known to be wanted is not applied: %s of %q", s.Verb, s.Owner)
	}
	b.RecordApplied(key, Fact{UID: "u", Template: "t", Hash: "h", Label: "b2"})
	b.FoldHolding(BundleHolding{Manifest: atoll.Manifest{Bundle: "b2", Generation: 2, Remove: true}})
	if s := b.Next(key); s.Verb == Delete {
		t.Errorf("it is deleted although b1 has not spoken")
	}
	b.FoldHolding(BundleHolding{Manifest: atoll.Manifest{Bundle: "b1", Generation: 5, Items: []atoll.RenderedItem{item}}})
	if s := b.Next(key); s.Owner != "b1" || s.Verb != Apply {
		t.Errorf("then: %s of %q", s.Verb, s.Owner)
	}
	b.FoldHolding(BundleHolding{Manifest: atoll.Manifest{Bundle: "b1", Generation: 6, Remove: true}})
	if s := b.Next(key); s.Verb != Delete {
		t.Errorf("no Bundle claims it any more: %s", s.Verb)
	}
}

// Another hub's object, made for another template, is treated as foreign: nothing is deleted for
// it.
func TestAnUnknownBundlesObjectIsNotReplaced(t *testing.T) {
	key := atoll.ItemKey{Kind: "ConfigMap", Namespace: "n", Name: "x"}
	b := NewOwnershipRecords()
	b.RestoreRecord(Record{Key: key, UID: "u", Template: "t", Label: "b1", Owner: "b1", Chosen: true, Claims: map[string]Claim{"b1": {State: Kept, Template: "t"}}})
	b.FoldHolding(BundleHolding{Manifest: atoll.Manifest{Bundle: "b2", Generation: 1, Items: []atoll.RenderedItem{{Key: key, UID: "other", Hash: "h"}}}})
	if s := b.Next(key); s.Verb != Apply || s.Record.UID != "" {
		t.Errorf("%s of %q", s.Verb, s.Record.UID)
	}
}
