package ownership

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

// appliedBook is a Book of one object that the Bundle b1 applied by the template "t".
func appliedBook() *OwnershipRecords {
	b := NewOwnershipRecords()
	b.FoldHolding(BundleHolding{Manifest: manifestOf("b1", 1, shopItem)})
	b.RecordApplied(shopItem, Fact{UID: "u", APIVersion: "v1", Template: "t", Hash: "h", Label: "b1", Owned: "o"})
	return b
}

// cleanShards marks all shards as stored, and forgets which Bundles changed.
func cleanShards(b *OwnershipRecords) {
	for _, shard := range b.DirtyShards() {
		b.MarkClean(shard)
	}
	b.TakeChangedBundles()
}

// A Book answers what is recorded and what the manifests say.
func TestABookAnswersWhatItHolds(t *testing.T) {
	b := appliedBook()
	if uid, ok := b.ObjectUID(shopItem); uid != "u" || !ok {
		t.Errorf("the UID is %q, %t", uid, ok)
	}
	if uid, ok := b.ObjectUID(shop); uid != "" || ok {
		t.Errorf("the UID of an unknown object is %q, %t", uid, ok)
	}
	if got := b.NamespacesWithRecords(); !slices.Equal(got, []string{"shop"}) {
		t.Errorf("the namespaces are %q", got)
	}
	if got := b.KeysInNamespace("shop"); !slices.Equal(got, []atoll.ItemKey{shopItem}) {
		t.Errorf("in the namespace are %v", got)
	}
	if !b.HasKind("", "ConfigMap") || b.HasKind("apps", "ConfigMap") || b.HasKind("", "Namespace") {
		t.Error("the recorded kinds are others")
	}
	if got := b.KeysClaimedByBundle("b1"); !slices.Equal(got, []atoll.ItemKey{shopItem}) {
		t.Errorf("the Bundle claims %v", got)
	}
	if got := b.BundleUIDs(); !slices.Equal(got, []string{"b1"}) || b.HoldingOf("b1").Manifest.Generation != 1 || b.HoldingOf("b2") != nil {
		t.Errorf("held are %q", got)
	}
	if b.ItemToApply("b1", shopItem).Hash != "h" || b.ItemToApply("b1", shop) != nil || b.ItemToApply("b2", shopItem) != nil {
		t.Error("the item to apply is another one")
	}
	b.RecordGone(shopItem, "u", nil)
	b.FoldHolding(BundleHolding{Manifest: atoll.Manifest{Bundle: "b1", Generation: 2, Remove: true}})
	b.RecordGone(shopItem, "", nil)
	if len(b.NamespacesWithRecords())+len(b.KeysInNamespace("shop"))+len(b.KeysClaimedByBundle("b1"))+len(b.RecordedKeys()) > 0 || b.HasKind("", "ConfigMap") {
		t.Errorf("after the removal there are %v in %v", b.RecordedKeys(), b.NamespacesWithRecords())
	}
}

// A part is found by its hash in the manifest and in what is kept of older ones.
func TestPartsAreFoundByTheirHash(t *testing.T) {
	m := manifestOf("b1", 1, shopItem)
	m.Items[0].Object = json.RawMessage(`{"a":1}`)
	kept := atoll.RenderedItem{Key: shop, UID: "t", Hash: "k", Object: json.RawMessage(`{"b":1}`)}
	b := NewOwnershipRecords()
	b.FoldHolding(BundleHolding{Manifest: m, Kept: []atoll.RenderedItem{kept}})
	for hash, want := range map[string]string{"h": `{"a":1}`, "k": `{"b":1}`, "other": ""} {
		if got, ok := b.ObjectByHash(hash); string(got) != want || ok != (want != "") {
			t.Errorf("of %s it is %s, %t", hash, got, ok)
		}
	}
}

// An observed item is read where the object is observed, and the last good content where it is applied.
func TestTheItemOfAnObserverIsTheListedOne(t *testing.T) {
	observed := manifestOf("b1", 1, shopItem)
	observed.Items[0].Observe, observed.Items[0].Error = atoll.ObserveDrift, atoll.UnknownObservation
	failed := manifestOf("b1", 1, shopItem)
	failed.Items[0].Error = "it cannot be rendered"
	kept := []atoll.RenderedItem{{Key: shopItem, UID: "t", Hash: "good"}}
	for name, c := range map[string]struct {
		holding BundleHolding
		want    string
	}{
		"observed": {BundleHolding{Manifest: observed, Kept: kept}, "h"},
		"applied":  {BundleHolding{Manifest: manifestOf("b1", 1, shopItem)}, "h"},
		"failed":   {BundleHolding{Manifest: failed, Kept: kept}, "good"},
	} {
		b := NewOwnershipRecords()
		b.FoldHolding(c.holding)
		if got := b.ItemToApplyOrObserve("b1", shopItem); got == nil || got.Hash != c.want {
			t.Errorf("%s: the item is %+v, want %s", name, got, c.want)
		}
		if bundle, item := b.ObservedItem(shopItem); (item != nil) != (name == "observed") || (bundle == "b1") != (item != nil) {
			t.Errorf("%s: observed is %+v by %q", name, item, bundle)
		}
	}
	if bundle, item := NewOwnershipRecords().ObservedItem(shopItem); bundle != "" || item != nil {
		t.Errorf("observed is %+v by %q without a record", item, bundle)
	}
}

// A namespace is needed by what is in it and not only observed, and by a manifest that has it.
func TestANamespaceIsNeededByWhatIsWritten(t *testing.T) {
	observed := manifestOf("b1", 1, shopItem)
	observed.Items[0].Observe = atoll.ObserveDrift
	has := manifestOf("b1", 1)
	has.Namespaces = map[string]atoll.NamespaceMeta{"shop": {}}
	for name, c := range map[string]struct {
		manifest atoll.Manifest
		want     bool
		has      []string
	}{
		"written":        {manifestOf("b1", 1, shopItem), true, nil},
		"observed":       {observed, false, nil},
		"in a manifest":  {has, true, []string{"b1"}},
		"nothing at all": {manifestOf("b1", 1), false, nil},
	} {
		b := NewOwnershipRecords()
		b.FoldHolding(BundleHolding{Manifest: c.manifest})
		if got := b.NeedsNamespace("shop"); got != c.want || !slices.Equal(b.BundlesWithNamespace("shop"), c.has) {
			t.Errorf("%s: it is needed: %t, by %q", name, got, b.BundlesWithNamespace("shop"))
		}
	}
}

// A stored record comes back with its claims, and is no longer the caller's.
func TestAStoredRecordComesBack(t *testing.T) {
	stored := Record{
		Key: shopItem, UID: "u", Left: []string{"/a"}, SetClaims: []string{"c"},
		Claims: map[string]Claim{"b1": {State: Parked, Template: "t", MovedTo: []string{"b2"}}, "b2": {State: Kept, Template: "t"}},
	}
	want := stored.clone()
	b := NewOwnershipRecords()
	b.RestoreRecord(stored)
	stored.Left[0], stored.SetClaims[0], stored.Claims["b1"] = "changed", "changed", Claim{}
	got, ok := b.Record(shopItem)
	if !ok || !reflect.DeepEqual(got, want) {
		t.Errorf("the record is %+v, want %+v", got, want)
	}
	got.Left[0] = "changed"
	if again, _ := b.Record(shopItem); again.Left[0] != "/a" {
		t.Error("a reader changed the record")
	}
	if !b.parked[shopItem] || len(b.KeysClaimedByBundle("b1")) != 1 || len(b.KeysClaimedByBundle("b2")) != 1 || len(b.DirtyShards()) > 0 {
		t.Errorf("parked is %v, to be stored are %q", b.parked, b.DirtyShards())
	}
	b.RestoreRecord(Record{Key: shop})
	if r, ok := b.Record(shop); !ok || r.Claims == nil || slices.Contains(b.NamespacesWithRecords(), "") {
		t.Errorf("a record without claims is %+v", r)
	}
}

// The records of a shard are those of one namespace, by their key.
func TestTheRecordsOfAShard(t *testing.T) {
	b := NewOwnershipRecords()
	for _, name := range []string{"c", "a", "d", "b"} {
		b.RestoreRecord(Record{Key: atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: name}})
		b.RestoreRecord(Record{Key: atoll.ItemKey{Kind: "ConfigMap", Namespace: "blog", Name: name}})
	}
	var got []string
	for _, r := range b.RecordsInShard(ShardOf(shopItem)) {
		got = append(got, r.Key.Namespace+"/"+r.Key.Name)
	}
	if !slices.Equal(got, []string{"shop/a", "shop/b", "shop/c", "shop/d"}) {
		t.Errorf("they are %q", got)
	}
	if ShardOf(shopItem) == ShardOf(shop) || len(ShardOf(shop)) != 8 || b.RecordsInShard("none") != nil {
		t.Errorf("the shards are %s and %s", ShardOf(shopItem), ShardOf(shop))
	}
	b.MarkDirty("b")
	b.MarkDirty("a")
	if got := b.DirtyShards(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("to be stored are %q", got)
	}
	b.MarkClean("a")
	if got := b.DirtyShards(); !slices.Equal(got, []string{"b"}) {
		t.Errorf("to be stored are %q", got)
	}
}

// Removed Bundles are remembered up to a bound. Over it the newest nine tenths stay.
func TestTheNewestRemovedBundlesStay(t *testing.T) {
	b := NewOwnershipRecords()
	for i := range MaxRemoved {
		b.RememberRemovedBundle(fmt.Sprint(i), int64(i))
	}
	if len(b.buried) != MaxRemoved {
		t.Errorf("%d are remembered", len(b.buried))
	}
	b.RememberRemovedBundle("last", MaxRemoved)
	oldest := fmt.Sprint(MaxRemoved + 1 - MaxRemoved*9/10)
	if _, ok := b.buried[oldest]; len(b.buried) != MaxRemoved*9/10 || !ok {
		t.Errorf("%d are remembered, the oldest of them: %t", len(b.buried), ok)
	}
}

// A change of a claim is reported to every Bundle with a claim on the object or a tombstone of it.
func TestAChangedClaimConcernsAllBundlesOfTheObject(t *testing.T) {
	b := appliedBook()
	dead := manifestOf("b3", 1)
	dead.Tombstones = []atoll.Tombstone{{Key: shopItem, UID: "old"}}
	b.FoldHolding(BundleHolding{Manifest: dead})
	cleanShards(b)
	b.FoldHolding(BundleHolding{Manifest: manifestOf("b2", 1, shopItem)})
	if got := b.TakeChangedBundles(); !slices.Equal(got, []string{"b1", "b2", "b3"}) {
		t.Errorf("they are %q", got)
	}
	if got := b.TakeChangedBundles(); len(got) > 0 {
		t.Errorf("they are reported twice: %q", got)
	}
	if !slices.Equal(b.DirtyShards(), []string{ShardOf(shopItem)}) {
		t.Errorf("to be stored are %q", b.DirtyShards())
	}
}

// A forgotten Bundle is not held, is remembered as removed, and frees what moved to it.
func TestAForgottenBundleFreesWhatMovedToIt(t *testing.T) {
	b := appliedBook()
	has := atoll.Manifest{Bundle: "b2", Generation: 1, Remove: true}
	b.FoldHolding(BundleHolding{Manifest: has})
	b.FoldHolding(movedTo("b1", 2, "b2"))
	b.stirred["b2"] = true
	if got := b.ForgetBundle("b2", 7); !slices.Equal(got, []atoll.ItemKey{shopItem}) {
		t.Errorf("changed are %v", got)
	}
	if b.HoldingOf("b2") != nil || b.buried["b2"] != 7 || b.Next(shopItem).Verb != Delete {
		t.Errorf("held are %q, next is %s", b.BundleUIDs(), b.Next(shopItem).Verb)
	}
	if got := b.TakeChangedBundles(); slices.Contains(got, "b2") {
		t.Errorf("reported are %q", got)
	}
}

// A removal is done once nothing is claimed by the Bundle.
func TestARemovalIsDoneWithoutAClaim(t *testing.T) {
	b := appliedBook()
	if b.IsBundleRemovalDone("b1") || b.IsBundleRemovalDone("b9") {
		t.Error("a removal that was not ordered is done")
	}
	b.FoldHolding(BundleHolding{Manifest: atoll.Manifest{Bundle: "b1", Generation: 2, Remove: true}})
	if b.IsBundleRemovalDone("b1") {
		t.Error("a removal is done while the object is there")
	}
	b.RecordGone(shopItem, "u", nil)
	if !b.IsBundleRemovalDone("b1") {
		t.Error("a removal is not done after the object went")
	}
}
