package ownership

import (
	"slices"
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

// takeOut returns records of the three objects that Bundle b1 had, and a manifest that takes them out.
func takeOut(tombstones ...atoll.Tombstone) (*OwnershipRecords, [3]atoll.ItemKey) {
	keys := [3]atoll.ItemKey{}
	b := NewOwnershipRecords()
	for i, name := range []string{"a", "b", "last"} {
		keys[i] = atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: name}
		b.RestoreRecord(Record{Key: keys[i], UID: "u-" + name, Template: "t-" + name, Owner: "b1", Chosen: true, Applied: "h", Label: "b1", Claims: map[string]Claim{"b1": {State: Wanted, Template: "t-" + name}}})
	}
	b.FoldHolding(BundleHolding{Manifest: atoll.Manifest{Bundle: "b1", Generation: 2, Remove: true, Tombstones: tombstones}})
	return b, keys
}

// The object that is removed last waits until all others that the Bundle removes are gone.
func TestTheLastObjectWaitsForAllOthers(t *testing.T) {
	last := atoll.Tombstone{Key: atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "last"}, UID: "t-last", Last: true}
	b, keys := takeOut(last)
	want := func(when string, n int, verbs ...Verb) {
		t.Helper()
		for i, key := range keys {
			if got := b.Next(key).Verb; got != verbs[i] {
				t.Errorf("%s: %s of %s, want %s", when, got, key, verbs[i])
			}
		}
		if got := b.LeavingBefore(keys[2]).Objects; got != n {
			t.Errorf("%s: it waits for %d", when, got)
		}
	}
	want("at first", 2, Delete, Delete, Nothing)
	b.RecordGone(keys[0], "u-a", nil)
	if got := b.TakeUnblocked(); got != nil {
		t.Errorf("unblocked are %v", got)
	}
	want("after one", 1, Nothing, Delete, Nothing)
	b.RecordReleased(keys[1])
	if got := b.TakeUnblocked(); !slices.Equal(got, keys[2:]) {
		t.Errorf("unblocked are %v", got)
	}
	if got := b.TakeUnblocked(); got != nil {
		t.Errorf("unblocked twice are %v", got)
	}
	want("after both", 0, Nothing, Nothing, Delete)
}

// Objects that nothing removes are not waited for, nor those of another Bundle.
func TestTheLastObjectWaitsForNothingElse(t *testing.T) {
	b, keys := takeOut(atoll.Tombstone{Key: atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "last"}, UID: "t-last", Last: true})
	for _, key := range keys[:2] {
		b.FoldHolding(BundleHolding{Manifest: atoll.Manifest{Bundle: "b2-" + key.Name, Generation: 1, Items: []atoll.RenderedItem{{Key: key, UID: "t-" + key.Name, Hash: "h"}}}})
	}
	if got := b.Next(keys[2]).Verb; got != Delete {
		t.Errorf("where another Bundle keeps the others: %s", got)
	}
	if got := b.TakeUnblocked(); !slices.Equal(got, keys[2:]) {
		t.Errorf("unblocked are %v", got)
	}

	// A second Bundle that takes the object out without such a rule deletes it at once.
	b, keys = takeOut(atoll.Tombstone{Key: keys[2], UID: "t-last", Last: true})
	r := b.records[keys[2]]
	b.setClaim(r, "b2", &Claim{State: Leaving, Template: "t-last"})
	if got := b.LeavingBefore(keys[2]).Objects; got != 0 {
		t.Errorf("it waits for %d", got)
	}
}

// Nothing waits for an object that itself stays until the last ones are gone: both would stay forever.
func TestTheLastObjectDoesNotWaitForWhatWaitsForIt(t *testing.T) {
	last := atoll.ItemKey{Group: "example.org", Kind: "Database", Namespace: "shop", Name: "last"}
	for other, want := range map[atoll.ItemKey]Verb{
		{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition", Name: "databases.example.org"}: Delete,
		atoll.NamespaceKey("shop"):                                                             Delete,
		{Kind: "PersistentVolumeClaim", Namespace: "shop", Name: "data"}:                       Delete,
		{Group: "example.org", Kind: "PersistentVolumeClaim", Namespace: "shop", Name: "data"}: Nothing,
	} {
		b := NewOwnershipRecords()
		for _, key := range []atoll.ItemKey{last, other} {
			b.RestoreRecord(Record{Key: key, UID: "u-" + key.Name, Template: "t-" + key.Name, Owner: "b1", Chosen: true, Applied: "h", Label: "b1", Claims: map[string]Claim{"b1": {State: Wanted, Template: "t-" + key.Name}}})
		}
		b.FoldHolding(BundleHolding{Manifest: atoll.Manifest{Bundle: "b1", Generation: 2, Remove: true, Tombstones: []atoll.Tombstone{{Key: last, UID: "t-last", Last: true}}}})
		if got := b.Next(last).Verb; got != want {
			t.Errorf("with %s: %s of the last one, want %s", other, got, want)
		}
	}
}

// After a restart it waits as before.
func TestTheLastObjectWaitsAfterARestart(t *testing.T) {
	b, keys := takeOut(atoll.Tombstone{Key: atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "last"}, UID: "t-last", Last: true})
	again := NewOwnershipRecords()
	for _, key := range keys {
		r, _ := b.Record(key)
		again.RestoreRecord(r)
	}
	again.FoldHolding(*b.HoldingOf("b1"))
	if got := again.LeavingBefore(keys[2]).Objects; got != 2 || again.Next(keys[2]).Verb != Nothing {
		t.Errorf("it waits for %d", got)
	}
}
