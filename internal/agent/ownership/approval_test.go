package ownership

import (
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

// An ID of drift stays while the differences stay, ends with its use, and never comes again.
func TestTheIDOfADrift(t *testing.T) {
	key := atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "a"}
	b := NewOwnershipRecords()
	if b.RecordDrift(key, "h1", "id1") != "" || b.SpendApproval(key, "id1") || b.IsKeptForOther(key) {
		t.Error("an object without a record has drift")
	}
	b.ensureRecord(key)
	step := func(what, got, want string, stores bool) {
		t.Helper()
		dirty := b.DirtyShards()
		if got != want || (len(dirty) > 0) != stores {
			t.Errorf("%s: %q, want %q; %d shards to store", what, got, want, len(dirty))
		}
		for _, shard := range dirty {
			b.MarkClean(shard)
		}
	}
	for _, shard := range b.DirtyShards() {
		b.MarkClean(shard)
	}
	step("no drift", b.RecordDrift(key, "", "id0"), "", false)
	step("drift", b.RecordDrift(key, "h1", "id1"), "id1", true)
	step("the same drift", b.RecordDrift(key, "h1", "id2"), "id1", false)
	step("other drift", b.RecordDrift(key, "h2", "id3"), "id3", true)
	step("the first drift again", b.RecordDrift(key, "h1", "id4"), "id4", true)
	if b.SpendApproval(key, "id1") || b.SpendApproval(key, "") || len(b.DirtyShards()) > 0 {
		t.Error("an approval of other drift is used")
	}
	if !b.SpendApproval(key, "id4") || b.SpendApproval(key, "id4") {
		t.Error("an approval is used twice, or never")
	}
	b.ReturnApproval(key, "id4")
	step("nothing was changed", b.RecordDrift(key, "h1", "id5"), "id4", true)
	b.SpendApproval(key, "id4")
	step("the same drift after the use", b.RecordDrift(key, "h1", "id6"), "id6", true)
	b.ReturnApproval(key, "id4")
	step("a late return", b.RecordDrift(key, "h1", "id7"), "id6", false)
	b.SpendApproval(key, "id6")
	step("no drift after the use", b.RecordDrift(key, "", "id8"), "", true)
	b.ReturnApproval(key, "id6")
	step("a return without drift", b.RecordDrift(key, "", "id9"), "", false)
}

// An ID of drift ends when the object's rule changes, so that it is good for nothing when the rule returns. A failed
// render changes no rule.
func TestTheIDOfADriftUnderAnotherRule(t *testing.T) {
	of := func(generation int64, observed atoll.Observation, failure string) BundleHolding {
		m := manifestOf("b1", generation, shopItem)
		m.Items[0].Observe, m.Items[0].Error = observed, failure
		return BundleHolding{Manifest: m}
	}
	for name, c := range map[string]struct {
		between BundleHolding
		want    string
	}{
		"reported":   {of(2, atoll.ObserveDrift, atoll.UnknownObservation), "id2"},
		"read only":  {of(2, atoll.ObserveHealth, atoll.UnknownObservation), "id2"},
		"written":    {of(2, "", ""), "id2"},
		"it fails":   {of(2, "", "it cannot be rendered"), "id1"},
		"the same":   {of(2, atoll.ObserveForApproval, atoll.UnknownObservation), "id1"},
		"not listed": {BundleHolding{Manifest: manifestOf("b1", 2)}, "id1"},
	} {
		b := NewOwnershipRecords()
		b.FoldHolding(of(1, atoll.ObserveForApproval, atoll.UnknownObservation))
		b.RecordDrift(shopItem, "h1", "id1")
		b.FoldHolding(c.between)
		b.FoldHolding(of(3, atoll.ObserveForApproval, atoll.UnknownObservation))
		if got := b.RecordDrift(shopItem, "h1", "id2"); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
