package ownership

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

// withAccount returns a manifest of b1 whose items name a ServiceAccount, as a hub sends it.
func withAccount(generation int64, account string, keys ...atoll.ItemKey) BundleHolding {
	m := manifestOf("b1", generation, keys...)
	for i := range m.Items {
		if m.Items[i].ServiceAccount = account; account != "" {
			m.Items[i].Error = atoll.UnknownServiceAccount
		}
	}
	return BundleHolding{Manifest: m}
}

// The ServiceAccount of an item's last manifest counts for its writes, and for its removal after the item is gone. It
// survives a restart.
func TestTheServiceAccountOfAStep(t *testing.T) {
	b := NewOwnershipRecords()
	expect := func(what string, verb Verb, account string) {
		t.Helper()
		if s := b.Next(shopItem); s.Verb != verb || s.Account != account {
			t.Errorf("%s: %s by %q, want %s by %q", what, s.Verb, s.Account, verb, account)
		}
	}
	b.FoldHolding(withAccount(1, "shop/a", shopItem))
	expect("a new object", Apply, "shop/a")
	b.RecordApplied(shopItem, Fact{UID: "u", Template: "t", Hash: "h", Label: "b1"})
	expect("nothing to do", Nothing, "shop/a")
	b.FoldHolding(withAccount(2, "shop/b", shopItem))
	expect("another account", Nothing, "shop/b")
	failing := withAccount(3, "", shopItem)
	failing.Manifest.Items[0].Error = "it cannot be rendered"
	failing = Merge(&BundleHolding{Manifest: withAccount(2, "shop/b", shopItem).Manifest}, failing.Manifest)
	b.FoldHolding(failing)
	expect("it fails, and keeps its content", Nothing, "shop/b")
	b.FoldHolding(withAccount(4, "shop/c", shopItem))
	gone := manifestOf("b1", 5)
	gone.Tombstones = []atoll.Tombstone{{Key: shopItem, UID: "t"}}
	b.FoldHolding(BundleHolding{Manifest: gone})
	expect("a removal", Delete, "shop/c")

	record, _ := b.Record(shopItem)
	text, err := json.Marshal(record)
	var stored Record
	if err != nil || json.Unmarshal(text, &stored) != nil {
		t.Fatal(err)
	}
	b = NewOwnershipRecords()
	b.RestoreRecord(stored)
	expect("a removal after a restart", Delete, "shop/c")
}

// A record without a ServiceAccount has no byte of one.
func TestARecordWithoutAServiceAccount(t *testing.T) {
	b := bookWithNamespace()
	b.FoldHolding(withAccount(1, "", shopItem))
	for _, key := range []atoll.ItemKey{shopItem, shop} {
		r, _ := b.Record(key)
		if text, err := json.Marshal(r); err != nil || strings.Contains(string(text), `"sa"`) {
			t.Errorf("%s, %v", text, err)
		}
	}
}

// A namespace needs the right of one of the accounts of its objects, unless one of them names none.
func TestTheServiceAccountsOfANamespace(t *testing.T) {
	other := shopItem
	other.Name = "other"
	for name, c := range map[string]struct {
		fold func(*OwnershipRecords)
		want []string
	}{
		"nothing":       {func(*OwnershipRecords) {}, nil},
		"one object":    {func(b *OwnershipRecords) { b.FoldHolding(withAccount(1, "shop/a", shopItem, other)) }, []string{"shop/a"}},
		"one without":   {func(b *OwnershipRecords) { b.FoldHolding(withAccount(1, "", shopItem, other)) }, nil},
		"two different": {func(b *OwnershipRecords) { b.FoldHolding(withTwoAccounts("shop/z", "shop/a", shopItem, other)) }, []string{"shop/a", "shop/z"}},
		"one of two":    {func(b *OwnershipRecords) { b.FoldHolding(withTwoAccounts("shop/z", "", shopItem, other)) }, nil},
		"an observed one does not count": {func(b *OwnershipRecords) {
			h := withTwoAccounts("shop/z", "", shopItem, other)
			h.Manifest.Items[1].Observe = atoll.ObserveDrift
			b.FoldHolding(h)
		}, []string{"shop/z"}},
		"an observed one alone": {func(b *OwnershipRecords) {
			h := withAccount(1, "shop/z", shopItem)
			h.Manifest.Items[0].Observe = atoll.ObserveForApproval
			b.FoldHolding(h)
		}, []string{"shop/z"}},
		"a failed observed one does not count": {func(b *OwnershipRecords) {
			h := withTwoAccounts("shop/z", "", shopItem, other)
			h.Manifest.Items[1].Observe = atoll.ObserveDrift
			b.FoldHolding(h)
			failed := withTwoAccounts("shop/z", "", shopItem, other)
			failed.Manifest.Generation, failed.Manifest.Items[1].Error = 2, "it cannot be rendered"
			b.FoldHolding(failed)
		}, []string{"shop/z"}},
		"made by an account, without objects": {func(b *OwnershipRecords) {
			b.RecordMadeNamespace("shop", Fact{UID: "n1", Label: "b1", Account: "shop/a"})
		}, []string{"shop/a"}},
		"alone": {func(b *OwnershipRecords) {
			m := manifestOf("b1", 1)
			m.Namespaces = map[string]atoll.NamespaceMeta{"shop": {ServiceAccount: "shop/a"}}
			b.FoldHolding(BundleHolding{Manifest: m})
		}, []string{"shop/a"}},
	} {
		b := NewOwnershipRecords()
		c.fold(b)
		if got := b.NamespaceAccounts("shop"); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func withTwoAccounts(first, second string, keys ...atoll.ItemKey) BundleHolding {
	h := withAccount(1, first, keys...)
	if h.Manifest.Items[1].ServiceAccount = second; second == "" {
		h.Manifest.Items[1].Error = ""
	}
	return h
}

// The namespace that the agent made is removed by the account that had the right to create it.
func TestANamespaceIsRemovedByTheAccountOfItsCreation(t *testing.T) {
	b := NewOwnershipRecords()
	b.IntendNamespace("shop")
	b.RecordMadeNamespace("shop", Fact{UID: "n1", Hash: "h", Label: "b1", Account: "shop/a"})
	m := manifestOf("b1", 1)
	m.Remove, m.DeletedNamespaces = true, []string{"shop"}
	b.FoldHolding(BundleHolding{Manifest: m})
	if s := b.Next(shop); s.Verb != DeleteNamespace || s.Account != "shop/a" {
		t.Errorf("%s by %q", s.Verb, s.Account)
	}
}

// An observed item that cannot be rendered changes nothing: the object is not replaced for another template, and keeps its
// ServiceAccount.
func TestAnObservedItemThatFails(t *testing.T) {
	for _, observed := range []atoll.Observation{atoll.ObserveHealth, atoll.ObserveDrift, atoll.ObserveForApproval} {
		b := NewOwnershipRecords()
		h := withAccount(1, "shop/a", shopItem)
		h.Manifest.Items[0].Observe = observed
		b.FoldHolding(h)
		b.RecordApplied(shopItem, Fact{UID: "u", Template: "t", Hash: "h", Label: "b1"}) // by an approval
		failing := withAccount(2, "", shopItem)
		failing.Manifest.Items[0].Error, failing.Manifest.Items[0].UID = "it cannot be rendered", "another"
		b.FoldHolding(Merge(&h, failing.Manifest))
		record, _ := b.Record(shopItem)
		b = NewOwnershipRecords()
		b.RestoreRecord(record)
		b.FoldHolding(Merge(&h, failing.Manifest))
		if s := b.Next(shopItem); s.Verb != Nothing || s.Account != "shop/a" {
			t.Errorf("%s: %s by %q", observed, s.Verb, s.Account)
		}
	}
}

// Without a claim of the owner, an account that any claim names counts.
func TestTheServiceAccountWithoutAnOwner(t *testing.T) {
	r := Record{Owner: "gone", Claims: map[string]Claim{"b1": {State: Leaving}, "b2": {State: Leaving, Account: "shop/b"}}}
	if got := r.accountOfStep(); got != "shop/b" {
		t.Errorf("it is %q", got)
	}
}

// A manifest drops an account when it has no item with an account for the object.
func TestManifestsThatDropAServiceAccount(t *testing.T) {
	named := withAccount(1, "shop/a", shopItem)
	kept := BundleHolding{Kept: named.Manifest.Items}
	failing := withAccount(2, "", shopItem).Manifest
	failing.Items[0].Error = "it cannot be rendered"
	bare, gone := withAccount(2, "", shopItem), manifestOf("b1", 2)
	for name, c := range map[string]struct {
		before BundleHolding
		now    atoll.Manifest
		want   bool
	}{
		"the same":     {named, named.Manifest, false},
		"it fails":     {named, failing, true},
		"it is gone":   {named, gone, true},
		"a kept item":  {kept, gone, true},
		"no account":   {bare, gone, false},
		"a new object": {bare, named.Manifest, false},
	} {
		if got := c.before.DropsServiceAccount(&c.now); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
