package ownership

import (
	"reflect"
	"slices"
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

var (
	podKey   = atoll.ItemKey{Kind: "Pod", Namespace: "shop", Name: "once"}
	claimKey = atoll.ItemKey{Kind: "PersistentVolumeClaim", Namespace: "shop", Name: "data"}
	crdKey   = atoll.ItemKey{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition", Name: "widgets.x.dev"}
)

// wantedRecord is the record of an object that b1 applied with the template "t" and the hash "h".
func wantedRecord(edit func(*Record)) *Record {
	r := &Record{Key: shopItem, UID: "u", Template: "t", Owner: "b1", Label: "b1", Applied: "h", Chosen: true, Claims: map[string]Claim{"b1": {State: Wanted, Template: "t"}}}
	edit(r)
	return r
}

// An item is applied where the object lacks it. An object of another template is replaced, or waits for the Bundle that takes it over.
func TestTheVerbOfAWantedItem(t *testing.T) {
	parked := func(template string) func(*Record) {
		return func(r *Record) { r.Template, r.Claims["b9"] = "t0", Claim{State: Parked, Template: template} }
	}
	other := func(key atoll.ItemKey, chosen bool) func(*Record) {
		return func(r *Record) { r.Key, r.Template, r.Chosen = key, "t0", chosen }
	}
	item := &atoll.RenderedItem{UID: "t", Hash: "h"}
	for name, c := range map[string]struct {
		edit func(*Record)
		item *atoll.RenderedItem
		want Verb
	}{
		"it is applied":                      {func(*Record) {}, item, Nothing},
		"it is not made":                     {func(r *Record) { r.UID, r.Template, r.Applied, r.Label = "", "", "h", "b1" }, item, Apply},
		"it has other content":               {func(r *Record) { r.Applied = "h0" }, item, Apply},
		"it carries another label":           {func(r *Record) { r.Label = "b2" }, item, Apply},
		"it is adopted for another template": {func(r *Record) { r.Template, r.Adopted = "t0", true }, item, Apply},
		"no content is known":                {func(r *Record) { r.UID = "" }, nil, Nothing},
		"content of another template":        {func(r *Record) { r.Applied = "h0" }, &atoll.RenderedItem{UID: "t0", Hash: "h"}, Nothing},
		"of another template":                {other(shopItem, true), item, Replace},
		"of another, and no content":         {other(shopItem, true), nil, Replace},
		"of an unknown template":             {func(r *Record) { r.Template = "" }, item, Apply},
		"of another, only a dependency":      {other(shopItem, false), item, Replace},
		"a volume claim of another":          {other(claimKey, true), item, Replace},
		"a volume claim, a dependency":       {other(claimKey, false), item, Apply},
		"a namespace of another":             {other(shop, true), item, Apply},
		"a definition of another":            {other(crdKey, true), item, Apply},
		"kept for a Bundle that takes it":    {parked("t0"), item, Nothing},
		"another is kept for a Bundle":       {parked("t9"), item, Replace},
		"it ran":                             {func(r *Record) { r.Key, r.UID, r.Ran = podKey, "", "t" }, item, Nothing},
		"it ran, and exists":                 {func(r *Record) { r.Key, r.Ran, r.Applied = podKey, "t", "h0" }, item, Apply},
		"another template of it ran":         {func(r *Record) { r.Key, r.UID, r.Ran = podKey, "", "t0" }, item, Apply},
	} {
		r := wantedRecord(c.edit)
		if got := applyVerb(r, r.Claims["b1"], c.item); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// An object that no live claim owns is deleted or released. It waits while a Bundle may take it over, and is searched for where it may exist.
func TestTheVerbOfWhatNoClaimOwns(t *testing.T) {
	made := Record{Key: shop, UID: "n", Implicit: true}
	with := func(edit func(*Record)) Record { r := made; edit(&r); return r }
	object := Record{Key: shopItem, UID: "u", Chosen: true}
	for name, c := range map[string]struct {
		r               Record
		leaving, parked bool
		want            Verb
	}{
		"it leaves":                        {object, true, false, Delete},
		"it leaves, and was adopted":       {Record{Key: shopItem, UID: "u", Adopted: true, Chosen: true}, true, false, Release},
		"it leaves, a claim as dependency": {Record{Key: claimKey, UID: "u"}, true, false, Release},
		"it leaves, a claim":               {Record{Key: claimKey, UID: "u", Chosen: true}, true, false, Delete},
		"it leaves, a dependency":          {Record{Key: shopItem, UID: "u"}, true, false, Delete},
		"it leaves as an orphan":           {Record{Key: shopItem, UID: "u", Chosen: true, Claims: map[string]Claim{"b1": {State: Leaving}, "b2": {State: Leaving, Orphan: true}}}, true, false, Release},
		"it leaves, and may exist":         {Record{Key: shopItem}, true, true, Search},
		"it waits for a move":              {object, true, true, Nothing},
		"it waits for a move alone":        {object, false, true, Nothing},
		"nothing":                          {object, false, false, Nothing},
		"a namespace":                      {made, false, false, Nothing},
		"deleted on the hub":               {with(func(r *Record) { r.Doomed = true }), false, false, DeleteNamespace},
		"parted with":                      {with(func(r *Record) { r.Parting = true }), false, false, DeleteNamespace},
		"deleted, of a Bundle":             {with(func(r *Record) { r.Doomed, r.Claims = true, map[string]Claim{"b1": {State: Kept}} }), false, false, Nothing},
		"deleted, of users":                {with(func(r *Record) { r.Doomed, r.Implicit = true, false }), false, false, Nothing},
	} {
		if got := removalVerb(&c.r, c.leaving, c.parked); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// The next step has the owner, its item and a copy of the record. A leaving claim is searched for where the object may exist.
func TestTheNextStepOfAKey(t *testing.T) {
	b := appliedBook()
	s := b.Next(shopItem)
	r, _ := b.Record(shopItem)
	if s.Verb != Nothing || s.Key != shopItem || s.Owner != "b1" || s.Item == nil || s.Item.Hash != "h" || s.Observed != nil || !reflect.DeepEqual(s.Record, r) {
		t.Errorf("the step is %+v", s)
	}
	s.Record.Claims["b1"] = Claim{}
	if again, _ := b.Record(shopItem); again.Claims["b1"].State != Wanted {
		t.Error("a reader changed the record")
	}
	if got := b.Next(shop); got.Verb != Nothing || got.Key != shop || got.Owner != "" {
		t.Errorf("of an unknown key it is %+v", got)
	}
	for name, c := range map[string]struct {
		uid  string
		item BundleHolding
		more Claim
		want Verb
	}{
		"one leaves, content unknown":            {"", BundleHolding{Manifest: manifestOf("b9", 1)}, Claim{State: Leaving, Template: "t"}, Search},
		"one leaves, content unknown, it exists": {"u", BundleHolding{Manifest: manifestOf("b9", 1)}, Claim{State: Leaving, Template: "t"}, Nothing},
		"one is kept, content unknown":           {"", BundleHolding{Manifest: manifestOf("b9", 1)}, Claim{State: Kept, Template: "t"}, Nothing},
		"one leaves, and the item is to be made": {"", BundleHolding{Manifest: manifestOf("b1", 1, shopItem)}, Claim{State: Leaving, Template: "t"}, Apply},
	} {
		b := NewOwnershipRecords()
		b.FoldHolding(c.item)
		b.RestoreRecord(*wantedRecord(func(r *Record) { r.UID, r.Claims["b2"] = c.uid, c.more }))
		if s := b.Next(shopItem); s.Verb != c.want {
			t.Errorf("%s: %s, want %s", name, s.Verb, c.want)
		}
	}
}

// An object that one Bundle gives up stays while another Bundle's move of it waits.
func TestAnObjectStaysWhileAMoveWaits(t *testing.T) {
	b := NewOwnershipRecords()
	b.RestoreRecord(*wantedRecord(func(r *Record) {
		r.Claims = map[string]Claim{"b1": {State: Leaving, Template: "t"}, "b2": {State: Parked, Template: "t", MovedTo: []string{"b3"}}}
	}))
	if s := b.Next(shopItem); s.Verb != Nothing {
		t.Errorf("next is %s", s.Verb)
	}
}

// An observed object is neither written nor replaced.
func TestAnObservedObjectIsNotWritten(t *testing.T) {
	m := manifestOf("b1", 2, shopItem)
	m.Items[0].Observe, m.Items[0].UID = atoll.ObserveDrift, "t2"
	b := appliedBook()
	b.FoldHolding(BundleHolding{Manifest: m})
	if s := b.Next(shopItem); s.Verb != Nothing || s.Observed == nil || s.Observed.UID != "t2" {
		t.Errorf("the step is %+v", s)
	}
	if done := b.isTombstoneCarriedOut("b1", atoll.Tombstone{Key: shopItem, UID: "t"}); !done {
		t.Error("the tombstone of an observed key is to be carried out")
	}
}

// A deletion has the finalizers that the tombstones of its leaving claims release.
func TestADeletionHasTheReleasedFinalizers(t *testing.T) {
	releases := func(template string) BundleHolding {
		m := manifestOf("b1", 2)
		m.Tombstones = []atoll.Tombstone{{Key: shopItem, UID: template, Cause: atoll.CauseDeleted, ReleasedFinalizers: []string{"x"}}}
		return BundleHolding{Manifest: m}
	}
	for name, c := range map[string]struct {
		claims map[string]Claim
		held   BundleHolding
		want   []string
	}{
		"released":               {map[string]Claim{"b1": {State: Leaving, Template: "t"}}, releases("t"), []string{"x"}},
		"of another template":    {map[string]Claim{"b1": {State: Leaving, Template: "t"}}, releases("t0"), nil},
		"of an unknown template": {map[string]Claim{"b1": {State: Leaving}}, releases("t"), nil},
		"by an unknown Bundle":   {map[string]Claim{"b9": {State: Leaving, Template: "t"}}, releases("t"), nil},
		"it does not leave":      {map[string]Claim{"b1": {State: Parked, Template: "t"}, "b9": {State: Leaving, Template: "t"}}, releases("t"), nil},
	} {
		b := NewOwnershipRecords()
		b.putHolding(indexHolding(c.held))
		if got := b.releasedFinalizers(&Record{Key: shopItem, Claims: c.claims}); !slices.Equal(got, c.want) {
			t.Errorf("%s: they are %q, want %q", name, got, c.want)
		}
	}
	b := appliedBook()
	b.FoldHolding(releases("t"))
	if s := b.Next(shopItem); s.Verb != Delete || !slices.Equal(s.ReleasedFinalizers, []string{"x"}) {
		t.Errorf("the step is %+v", s)
	}
}

// An apply is recorded as a whole. Another object of the name was not there before, unless the apply says so.
func TestAnApplyIsRecordedAsAWhole(t *testing.T) {
	fact := Fact{UID: "u", APIVersion: "v2", Template: "t2", Hash: "h2", Label: "b2", Owned: "o2", Left: []string{"/a"}}
	endless, adopted, same := fact, fact, fact
	endless.Endless, adopted.Adopted, same.Hash = true, true, "h0"
	for name, c := range map[string]struct {
		key          atoll.ItemKey
		uid          string
		before       bool // adopted
		fact         Fact
		adopted      bool
		ran, runHash string
	}{
		"an object":             {shopItem, "u", false, fact, false, "", ""},
		"one that has run":      {shopItem, "u", false, same, false, "t0", "h0"},
		"a new one to run":      {shopItem, "u0", false, same, false, "", ""},
		"one that was adopted":  {shopItem, "u", true, fact, true, "", ""},
		"a new one of its name": {shopItem, "u0", true, fact, false, "", ""},
		"one that is adopted":   {shopItem, "u", false, adopted, true, "", ""},
		"one that runs once":    {podKey, "u", false, fact, false, "t2", "h2"},
		"one that runs forever": {podKey, "u", false, endless, false, "", ""},
	} {
		claims := map[string]Claim{"b1": {State: Wanted, Template: "t2"}}
		b := NewOwnershipRecords()
		b.RestoreRecord(Record{Key: c.key, UID: c.uid, Adopted: c.before, Owner: "b1", Ran: "t0", RanHash: "h0", Going: true, Last: &atoll.ItemStatus{}, Claims: claims})
		b.RecordApplied(c.key, c.fact)
		want := Record{
			Key: c.key, UID: "u", APIVersion: "v2", Template: "t2", Applied: c.fact.Hash, Label: "b2", Owned: "o2", Left: []string{"/a"},
			Owner: "b1", Adopted: c.adopted, Ran: c.ran, RanHash: c.runHash, Claims: claims,
		}
		if got, _ := b.Record(c.key); !reflect.DeepEqual(got, want) || len(b.DirtyShards()) != 1 {
			t.Errorf("%s: the record is %+v, want %+v", name, got, want)
		}
	}
	b := NewOwnershipRecords()
	b.RestoreRecord(Record{Key: shopItem, Owner: "b1", Claims: map[string]Claim{"b1": {State: Wanted, Template: "t2"}, "b2": {State: Leaving, Template: "t2"}}})
	b.RecordApplied(shopItem, fact)
	if got, _ := b.Record(shopItem); len(got.Claims) != 1 {
		t.Errorf("a claim that leaves is kept although the object is known: %+v", got.Claims)
	}
}

// An object that an interrupted apply made is recorded by its labels. Its content is not known.
func TestAFoundObjectIsRecordedByItsLabels(t *testing.T) {
	fact := Fact{UID: "u", Label: "b1", Template: "t", Adopted: true}
	for name, c := range map[string]struct {
		key          atoll.ItemKey
		uid          string
		ran, runHash string
		changes      bool
	}{
		"an object":          {shopItem, "", "", "", true},
		"one that runs once": {podKey, "", "t", "", true},
		"it is known":        {shopItem, "u", "t0", "h0", false},
	} {
		claims := map[string]Claim{"b1": {State: Wanted, Template: "t"}}
		before := Record{Key: c.key, UID: c.uid, Owner: "b1", Applied: "h", Owned: "o", Ran: "t0", RanHash: "h0", Claims: claims}
		b := NewOwnershipRecords()
		b.RestoreRecord(before)
		b.RecordFoundAfterInterruptedApply(c.key, fact)
		want := before
		if c.changes {
			want = Record{Key: c.key, UID: "u", Label: "b1", Template: "t", Adopted: true, Owner: "b1", Ran: c.ran, RanHash: c.runHash, Claims: claims}
		}
		if got, _ := b.Record(c.key); !reflect.DeepEqual(got, want) || (len(b.DirtyShards()) == 1) != c.changes {
			t.Errorf("%s: the record is %+v, want %+v", name, got, want)
		}
	}
	b := NewOwnershipRecords()
	b.RecordFoundAfterInterruptedApply(shopItem, fact)
	if len(b.RecordedKeys()) > 0 {
		t.Error("an object without a claim is recorded")
	}
	b.RestoreRecord(Record{Key: shopItem, Owner: "b1", Claims: map[string]Claim{"b1": {State: Wanted, Template: "t"}, "b2": {State: Leaving, Template: "t"}}})
	if b.RecordFoundAfterInterruptedApply(shopItem, fact); len(b.records[shopItem].Claims) != 1 {
		t.Error("a claim that leaves is kept although the object is known")
	}
}

// A deletion of what runs once is noted once, so that it may run again.
func TestTheDeletionOfARunIsNotedOnce(t *testing.T) {
	b := NewOwnershipRecords()
	if b.RecordRunOnceDeletionStart(podKey) {
		t.Error("the deletion of an unknown object is noted")
	}
	b.RestoreRecord(Record{Key: podKey, UID: "u"})
	b.RestoreRecord(Record{Key: shopItem, UID: "u"})
	if b.RecordRunOnceDeletionStart(shopItem) || len(b.DirtyShards()) > 0 {
		t.Error("the deletion of an object that runs forever is noted")
	}
	if !b.RecordRunOnceDeletionStart(podKey) || !b.records[podKey].Going || len(b.DirtyShards()) != 1 {
		t.Error("the deletion is not noted")
	}
	if b.RecordRunOnceDeletionStart(podKey) {
		t.Error("the deletion is noted twice")
	}
}

// An object that is gone leaves a blank record of what is wanted, with the last report of a run. Its key and its namespace may have work.
func TestWhatIsGoneLeavesABlankRecord(t *testing.T) {
	last := &atoll.ItemStatus{Message: "so"}
	claims := map[string]Claim{"b1": {State: Wanted, Template: "t"}}
	for name, c := range map[string]struct {
		key   atoll.ItemKey
		ran   string
		going bool
		want  Record
	}{
		"an object":                 {shopItem, "", false, Record{}},
		"a run":                     {podKey, "t", false, Record{Ran: "t", RanHash: "h", Last: last}},
		"a run of another template": {podKey, "t0", false, Record{Ran: "t0", RanHash: "h"}},
		"a run that was deleted":    {podKey, "t", true, Record{}},
		"a run by a rule":           {shopItem, "t", false, Record{Ran: "t", RanHash: "h", Last: last}},
		"a deleted run by a rule":   {shopItem, "t", true, Record{}},
	} {
		b := NewOwnershipRecords()
		before := Record{
			Key: c.key, APIVersion: "v1", UID: "u", Template: "t", Owner: "b1", Claims: claims, Applied: "h", Label: "b1", Owned: "o", Left: []string{"/a"},
			Adopted: true, Chosen: true, Ran: c.ran, Going: c.going, SetClaims: []string{"c"},
		}
		if c.ran != "" {
			before.RanHash = "h"
		}
		b.RestoreRecord(before)
		c.want.Key, c.want.APIVersion, c.want.Owner, c.want.Claims, c.want.Chosen, c.want.SetClaims = c.key, "v1", "b1", claims, true, []string{"c"}
		if got := b.RecordGone(c.key, "u", last); !slices.Equal(got, []atoll.ItemKey{c.key, shop}) || len(b.DirtyShards()) != 1 {
			t.Errorf("%s: changed are %v", name, got)
		}
		if got, _ := b.Record(c.key); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: the record is %+v, want %+v", name, got, c.want)
		}
	}
	b := appliedBook()
	if b.RecordGone(shopItem, "other", nil) != nil || b.RecordGone(shop, "", nil) != nil || b.records[shopItem].UID != "u" {
		t.Error("another object's absence is recorded")
	}
	if got := b.RecordGone(shopItem, "", nil); len(got) != 2 || b.records[shopItem].UID != "" {
		t.Errorf("of any object changed are %v", got)
	}
}

// A released object leaves a blank record of what is wanted, and ends the claims that leave.
func TestWhatIsReleasedLeavesABlankRecord(t *testing.T) {
	b := NewOwnershipRecords()
	if got := b.RecordReleased(shopItem); got != nil {
		t.Errorf("of an unknown object changed are %v", got)
	}
	b.RestoreRecord(Record{
		Key: shopItem, APIVersion: "v1", UID: "u", Template: "t", Owner: "b1", Applied: "h", Label: "b1", Owned: "o", Left: []string{"/a"}, Adopted: true,
		Claims: map[string]Claim{"b1": {State: Kept, Template: "t"}, "b2": {State: Leaving, Template: "t"}},
	})
	if got := b.RecordReleased(shopItem); !slices.Equal(got, []atoll.ItemKey{shopItem, shop}) {
		t.Errorf("changed are %v", got)
	}
	want := Record{Key: shopItem, APIVersion: "v1", Owner: "b1", Claims: map[string]Claim{"b1": {State: Kept, Template: "t"}}}
	if got, _ := b.Record(shopItem); !reflect.DeepEqual(got, want) || !slices.Equal(b.TakeChangedBundles(), []string{"b2"}) {
		t.Errorf("the record is %+v, want %+v", got, want)
	}
}

// Volume claims are recorded once each, for a namespace that was deleted on the hub. They end with the deletion.
func TestVolumeClaimsOfADoomedNamespace(t *testing.T) {
	b := bookWithNamespace()
	b.RecordStatefulSetVolumeClaims("shop", []string{"a"})
	b.RecordStatefulSetVolumeClaims("other", []string{"a"})
	if r, _ := b.Record(shop); r.SetClaims != nil {
		t.Errorf("a namespace that stays has %q", r.SetClaims)
	}
	b.markNamespaceDeletedOnHub(shop)
	cleanShards(b)
	b.RecordStatefulSetVolumeClaims("shop", []string{"c", "a"})
	b.RecordStatefulSetVolumeClaims("shop", []string{"b", "c"})
	if r, _ := b.Record(shop); !slices.Equal(r.SetClaims, []string{"a", "b", "c"}) || len(b.DirtyShards()) != 1 {
		t.Errorf("recorded are %q", r.SetClaims)
	}
	gone := bookWithNamespace()
	gone.records[shop].Doomed, gone.records[shop].Parting, gone.records[shop].SetClaims = true, true, []string{"a"}
	gone.sent["shop"] = map[string]bool{"b1": true}
	gone.RecordGone(shop, "", nil)
	if r, _ := gone.Record(shop); r.SetClaims != nil || !r.Implicit || !r.Doomed {
		t.Errorf("a namespace that is needed and gone has %+v", r)
	}
	delete(gone.sent, "shop")
	gone.records[shop].Claims["b1"] = Claim{State: Kept}
	gone.RecordGone(shop, "", nil)
	if r, _ := gone.Record(shop); r.Implicit || r.Doomed || r.Parting {
		t.Errorf("a namespace that a Bundle keeps, and that is gone, has %+v", r)
	}
	b.CancelNamespaceRemoval("shop")
	if r, _ := b.Record(shop); r.SetClaims != nil || r.Doomed || r.Parting {
		t.Errorf("a namespace that is kept has %+v", r)
	}
}

// A namespace that was made is recorded with what it has.
func TestAMadeNamespaceIsRecorded(t *testing.T) {
	b := bookWithNamespace()
	want := Record{Key: shop, UID: "n1", Label: "b1", Applied: "h", Owned: "o", Implicit: true, Claims: map[string]Claim{}}
	if got, _ := b.Record(shop); !reflect.DeepEqual(got, want) || len(b.DirtyShards()) != 1 {
		t.Errorf("the record is %+v, want %+v", got, want)
	}
	b.IntendNamespace("shop")
	if got, _ := b.Record(shop); !reflect.DeepEqual(got, want) {
		t.Errorf("a known namespace becomes %+v", got)
	}
	cleanShards(b)
	b.RecordMadeNamespace("shop", Fact{UID: "n2"})
	if got, _ := b.Record(shop); got.UID != "n2" || len(b.DirtyShards()) != 1 {
		t.Errorf("made again it is %+v", got)
	}
	if b.markNamespaceDeletedOnHub(atoll.NamespaceKey("none")) {
		t.Error("an unknown namespace is marked as deleted")
	}
}

// A released object keeps a note where Atoll made it and no user orphaned it.
func TestWhatLeavesANote(t *testing.T) {
	for name, c := range map[string]struct {
		r    Record
		want bool
	}{
		"made":                       {Record{Template: "t"}, true},
		"adopted":                    {Record{Template: "t", Adopted: true}, false},
		"of an unknown template":     {Record{}, false},
		"orphaned":                   {Record{Template: "t", Claims: map[string]Claim{"b1": {Orphan: true}}}, false},
		"orphaned with a note":       {Record{Template: "t", Claims: map[string]Claim{"b1": {Orphan: true, Noted: true}}}, true},
		"one orphans without a note": {Record{Template: "t", Claims: map[string]Claim{"b1": {Orphan: true, Noted: true}, "b2": {Orphan: true}, "b3": {}}}, false},
	} {
		if got := c.r.LeavesBehind(); got != c.want {
			t.Errorf("%s: it leaves a note: %t", name, got)
		}
	}
}

// A tombstone waits for the claim of its own Bundle on the template, or on one that is not known.
func TestATombstoneWaitsForItsOwnClaim(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*Record)
		want bool
	}{
		"its claim":                    {func(*Record) {}, false},
		"its claim, template unknown":  {func(r *Record) { r.Claims["b1"] = Claim{State: Leaving} }, false},
		"its claim on another":         {func(r *Record) { r.Claims["b1"] = Claim{State: Wanted, Template: "t2"} }, false},
		"that, and the object is it":   {func(r *Record) { r.Template, r.Claims["b1"] = "t2", Claim{State: Wanted, Template: "t2"} }, true},
		"that, and the object is gone": {func(r *Record) { r.UID, r.Claims["b1"] = "", Claim{State: Wanted, Template: "t2"} }, true},
		"another claims the template":  {func(r *Record) { r.Claims = map[string]Claim{"b2": {State: Kept, Template: "t"}} }, true},
	} {
		b := NewOwnershipRecords()
		b.putHolding(indexHolding(BundleHolding{Manifest: manifestOf("b1", 1)}))
		b.RestoreRecord(*wantedRecord(c.edit))
		if got := b.isTombstoneCarriedOut("b1", atoll.Tombstone{Key: shopItem, UID: "t"}); got != c.want {
			t.Errorf("%s: it is carried out: %t", name, got)
		}
	}
}
