package ownership

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// A manifest of a lower generation is ignored. One of the same generation is taken.
func TestAnOlderManifestIsIgnored(t *testing.T) {
	for generation, want := range map[int64]bool{1: false, 2: true, 3: true} {
		b := NewOwnershipRecords()
		b.FoldHolding(BundleHolding{Manifest: manifestOf("b1", 2)})
		touched := b.FoldHolding(BundleHolding{Manifest: manifestOf("b1", generation, shopItem)})
		if (len(touched) == 1) != want || (len(b.RecordedKeys()) == 1) != want {
			t.Errorf("generation %d changes %v", generation, touched)
		}
	}
}

// The changed keys are all that the Bundle lists, keeps or claims, and what waits for a move. They come by their string.
func TestTheKeysThatAManifestChanges(t *testing.T) {
	key := func(name string) atoll.ItemKey {
		return atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: name}
	}
	b := NewOwnershipRecords()
	b.FoldHolding(BundleHolding{Manifest: manifestOf("b1", 1, key("e"), key("c"))})
	b.RestoreRecord(Record{Key: key("a"), UID: "u", Claims: map[string]Claim{"b9": {State: Parked, Template: "t", MovedTo: []string{"b8"}}}})
	kept := []atoll.RenderedItem{{Key: key("d"), UID: "t"}}
	got := b.FoldHolding(BundleHolding{Manifest: manifestOf("b1", 2, key("b"), key("c")), Kept: kept})
	if want := []atoll.ItemKey{key("a"), key("b"), key("c"), key("d"), key("e")}; !slices.Equal(got, want) {
		t.Errorf("they are %v, want %v", got, want)
	}
	for name, want := range map[string]State{"b": Wanted, "c": Wanted, "d": Kept, "e": Kept} {
		if r, _ := b.Record(key(name)); r.Claims["b1"].State != want {
			t.Errorf("the claim on %s is %s, want %s", name, r.Claims["b1"].State, want)
		}
	}
}

// Many changed keys come by their string, too.
func TestManyChangedKeysAreSorted(t *testing.T) {
	var keys []atoll.ItemKey
	for i := range 40 {
		keys = append(keys, atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: string(rune('A' + i))})
	}
	got := NewOwnershipRecords().FoldHolding(BundleHolding{Manifest: manifestOf("b1", 1, keys...)})
	if len(got) != 40 || !slices.IsSortedFunc(got, CompareKeys) || got[0].Name != "A" || got[39].Name != keys[39].Name {
		t.Errorf("they are %v", got)
	}
}

// A Bundle that comes back is not removed any more: what moves to it waits for it.
func TestABundleThatComesBackIsWaitedFor(t *testing.T) {
	b := appliedBook()
	b.RememberRemovedBundle("b2", 1)
	b.FoldHolding(BundleHolding{Manifest: manifestOf("b2", 1)})
	b.FoldHolding(movedTo("b1", 2, "b2"))
	if s := b.Next(shopItem); s.Verb != Nothing {
		t.Errorf("next is %s", s.Verb)
	}
}

// The namespaces of a manifest replace those of the one before. Those without anything in them may have to be made.
func TestTheNamespacesOfAManifestReplaceThoseBefore(t *testing.T) {
	b := bookWithNamespace()
	has := func(generation int64, names ...string) atoll.Manifest {
		m := manifestOf("b1", generation, shopItem)
		m.Namespaces = map[string]atoll.NamespaceMeta{}
		for _, ns := range names {
			m.Namespaces[ns] = atoll.NamespaceMeta{}
		}
		return m
	}
	b.FoldHolding(BundleHolding{Manifest: has(1, "shop", "blog")})
	if got := b.FoldHolding(BundleHolding{Manifest: has(2, "shop", "wiki")}); !slices.Equal(got, []atoll.ItemKey{shopItem, atoll.NamespaceKey("wiki")}) {
		t.Errorf("changed are %v", got)
	}
	for ns, want := range map[string][]string{"shop": {"b1"}, "wiki": {"b1"}, "blog": nil} {
		if got := b.BundlesWithNamespace(ns); !slices.Equal(got, want) {
			t.Errorf("%s is of %q", ns, got)
		}
	}
	gone := has(3, "shop")
	gone.Remove = true
	b.FoldHolding(BundleHolding{Manifest: gone})
	if got := b.BundlesWithNamespace("shop"); len(got) > 0 {
		t.Errorf("after the removal the namespace is of %q", got)
	}
}

// A removal drops the items and the kept content, whatever the manifest has.
func TestARemovalHasNoItems(t *testing.T) {
	m := manifestOf("b1", 1, shopItem)
	m.Remove = true
	b := NewOwnershipRecords()
	b.FoldHolding(BundleHolding{Manifest: m, Kept: []atoll.RenderedItem{{Key: shop, UID: "t"}}})
	if h := b.HoldingOf("b1"); len(h.Manifest.Items)+len(h.Kept)+len(b.RecordedKeys()) > 0 {
		t.Errorf("held is %+v, recorded are %v", h, b.RecordedKeys())
	}
}

// An item that is gone from the manifest leaves by its tombstone or by the removal. Without either it is kept.
func TestTheClaimOnAnItemThatIsGone(t *testing.T) {
	tomb := func(edit func(*atoll.Tombstone)) []atoll.Tombstone {
		d := atoll.Tombstone{Key: shopItem, UID: "t", Cause: atoll.CauseDeleted}
		edit(&d)
		return []atoll.Tombstone{d}
	}
	moves := func(d *atoll.Tombstone) { d.MovedTo = []string{"b2"} }
	orphans := func(d *atoll.Tombstone) { d.Orphan = true }
	movesAndOrphans := func(d *atoll.Tombstone) { moves(d); orphans(d) }
	for name, c := range map[string]struct {
		tombstones     []atoll.Tombstone
		remove, decomm bool
		removal        v1alpha1.RemovalMode
		before         Claim
		want           Claim
		wantsNoChange  bool
	}{
		"without a tombstone":               {want: Claim{State: Kept}},
		"a tombstone of another":            {tombstones: tomb(func(d *atoll.Tombstone) { d.UID = "t0" }), want: Claim{State: Kept}},
		"deleted":                           {tombstones: tomb(func(*atoll.Tombstone) {}), want: Claim{State: Leaving}},
		"orphaned":                          {tombstones: tomb(orphans), want: Claim{State: Leaving, Orphan: true}},
		"moved":                             {tombstones: tomb(moves), want: Claim{State: Parked, MovedTo: []string{"b2"}}},
		"moved, and the cluster leaves":     {tombstones: tomb(moves), remove: true, decomm: true, want: Claim{State: Parked, MovedTo: []string{"b2"}, Orphan: true, Noted: true}},
		"moved as an orphan, and it leaves": {tombstones: tomb(movesAndOrphans), remove: true, decomm: true, want: Claim{State: Parked, MovedTo: []string{"b2"}, Orphan: true}},
		"deleted, and the cluster leaves":   {tombstones: tomb(func(*atoll.Tombstone) {}), remove: true, decomm: true, removal: v1alpha1.RemoveOrphan, want: Claim{State: Leaving}},
		"the Bundle is removed":             {remove: true, removal: v1alpha1.RemoveDelete, want: Claim{State: Leaving}},
		"the Bundle is orphaned":            {remove: true, removal: v1alpha1.RemoveOrphan, want: Claim{State: Leaving, Orphan: true}},
		"the cluster leaves":                {remove: true, removal: v1alpha1.RemoveOrphan, decomm: true, want: Claim{State: Leaving, Orphan: true, Noted: true}},
		"the cluster leaves, and deletes":   {remove: true, removal: v1alpha1.RemoveDelete, decomm: true, want: Claim{State: Leaving}},
		"a move that is over by removal":    {before: Claim{State: Parked, MovedTo: []string{"b2"}}, remove: true, removal: v1alpha1.RemoveDelete, want: Claim{State: Leaving}},
		"a move that the manifest forgot":   {before: Claim{State: Parked, MovedTo: []string{"b2"}}, want: Claim{State: Parked, MovedTo: []string{"b2"}}, wantsNoChange: true},
		"a deletion that goes on":           {before: Claim{State: Leaving}, want: Claim{State: Leaving}, wantsNoChange: true},
		"a note that was to be left":        {before: Claim{State: Leaving, Orphan: true, Noted: true}, tombstones: tomb(func(*atoll.Tombstone) {}), want: Claim{State: Leaving}},
	} {
		t.Run(name, func(t *testing.T) {
			before, want := c.before, c.want
			if before.State == "" {
				before.State = Wanted
			}
			before.Template, want.Template = "t", "t"
			b := NewOwnershipRecords()
			b.RestoreRecord(Record{Key: shopItem, UID: "u", Template: "t", Owner: "b1", Claims: map[string]Claim{"b1": before}})
			m := manifestOf("b1", 2)
			m.Tombstones, m.Remove, m.ClusterDecommissioned, m.Removal = c.tombstones, c.remove, c.decomm, c.removal
			b.FoldHolding(BundleHolding{Manifest: m})
			if r, _ := b.Record(shopItem); !reflect.DeepEqual(r.Claims["b1"], want) {
				t.Errorf("the claim is %+v, want %+v", r.Claims["b1"], want)
			}
			if changed := len(b.TakeChangedBundles()) > 0; changed == c.wantsNoChange {
				t.Errorf("the Bundle is reported: %t", changed)
			}
		})
	}
}

// A tombstone is of the claim's template. Any is, while the template is not known.
func TestTheTombstoneOfATemplate(t *testing.T) {
	nb := indexHolding(movedTo("b1", 1, "b2"))
	for template, want := range map[string]bool{"t": true, "": true, "t0": false} {
		d, dead := nb.tombstoneFor(shopItem, template)
		if dead != want || (d.UID == "t") != want {
			t.Errorf("of template %q it is %+v, %t", template, d, dead)
		}
	}
	if _, dead := nb.tombstoneFor(shop, ""); dead {
		t.Error("another key has a tombstone")
	}
}

// Claims are the same when each of their parts is.
func TestClaimsAreComparedAsAWhole(t *testing.T) {
	base := Claim{State: Parked, Template: "t", Dependency: true, MovedTo: []string{"b2"}, Orphan: true, Noted: true}
	if !sameClaim(base, base) {
		t.Error("a claim differs from itself")
	}
	for name, edit := range map[string]func(*Claim){
		"the state": func(c *Claim) { c.State = Kept }, "the template": func(c *Claim) { c.Template = "" }, "a dependency": func(c *Claim) { c.Dependency = false },
		"the targets": func(c *Claim) { c.MovedTo = nil }, "an orphan": func(c *Claim) { c.Orphan = false }, "the note": func(c *Claim) { c.Noted = false },
	} {
		other := base
		if edit(&other); sameClaim(base, other) {
			t.Errorf("%s makes no difference", name)
		}
	}
}

// An object of an unknown Bundle is kept for the same template. For another template it is as any existing object.
func TestClaimsOfUnknownBundlesOnOtherTemplatesEnd(t *testing.T) {
	record := Record{
		Key: shopItem, APIVersion: "v1", UID: "u", Template: "t0", Owner: "b9", Applied: "h", Label: "b9", Owned: "o", Left: []string{"/a"}, Adopted: true, Chosen: true, Ran: "t0", RanHash: "h",
		Claims: map[string]Claim{"b9": {State: Kept, Template: "t0"}},
	}
	with := func(edit func(*Record)) Record { r := record.clone(); edit(&r); return r }
	for name, c := range map[string]struct {
		record Record
		known  bool
		want   []string // Bundles that claim the object
		forgot bool
	}{
		"an unknown Bundle's":              {record, false, []string{"b1"}, true},
		"a known Bundle's":                 {record, true, []string{"b1", "b9"}, false},
		"of the same template":             {with(func(r *Record) { r.Template, r.Claims["b9"] = "t", Claim{State: Kept, Template: "t"} }), false, []string{"b1", "b9"}, false},
		"it is wanted":                     {with(func(r *Record) { r.Claims["b9"] = Claim{State: Wanted, Template: "t0"} }), false, []string{"b1", "b9"}, false},
		"the object is of the template":    {with(func(r *Record) { r.Template = "t" }), false, []string{"b1"}, false},
		"two unknown ones":                 {with(func(r *Record) { r.Claims["b8"] = Claim{State: Kept, Template: "t0"} }), false, []string{"b1"}, true},
		"one of them of the same template": {with(func(r *Record) { r.Claims["b8"] = Claim{State: Kept, Template: "t"} }), false, []string{"b1", "b8"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := NewOwnershipRecords()
			b.RestoreRecord(c.record)
			if c.known {
				b.putHolding(indexHolding(BundleHolding{Manifest: manifestOf("b9", 1)}))
			}
			b.FoldHolding(BundleHolding{Manifest: manifestOf("b1", 1, shopItem)})
			r, _ := b.Record(shopItem)
			var got []string
			for uid := range r.Claims {
				got = append(got, uid)
			}
			if slices.Sort(got); !slices.Equal(got, c.want) {
				t.Errorf("it is claimed by %q, want %q", got, c.want)
			}
			blank := Record{Key: r.Key, APIVersion: "v1", Owner: r.Owner, Claims: r.Claims, Chosen: true}
			if forgot := reflect.DeepEqual(r, blank); forgot != c.forgot {
				t.Errorf("the record is %+v", r)
			}
		})
	}
}

// An object is chosen while a Bundle claims it for itself. It stays so after the last claim.
func TestAnObjectIsChosenByADirectClaim(t *testing.T) {
	needs := func(bundle string, generation int64) BundleHolding {
		m := manifestOf(bundle, generation, shopItem)
		m.Items[0].Dependency = true
		return BundleHolding{Manifest: m}
	}
	wants := func(bundle string, generation int64) BundleHolding {
		return BundleHolding{Manifest: manifestOf(bundle, generation, shopItem)}
	}
	for name, c := range map[string]struct {
		holdings []BundleHolding
		want     bool
	}{
		"a dependency":                            {[]BundleHolding{needs("b1", 1)}, false},
		"wanted":                                  {[]BundleHolding{wants("b1", 1)}, true},
		"wanted after a dependency":               {[]BundleHolding{needs("b1", 1), wants("b1", 2)}, true},
		"a dependency after it was wanted":        {[]BundleHolding{wants("b1", 1), needs("b1", 2)}, false},
		"still wanted by another":                 {[]BundleHolding{wants("b1", 1), wants("b2", 1), needs("b1", 2)}, true},
		"another's dependency":                    {[]BundleHolding{wants("b1", 1), needs("b2", 1), needs("b1", 2)}, false},
		"a dependency of two, wanted by one":      {[]BundleHolding{wants("b1", 1), needs("b2", 1)}, true},
		"a dependency, repeated, of a wanted one": {[]BundleHolding{wants("b1", 1), needs("b2", 1), needs("b2", 2)}, true},
		"gone": {[]BundleHolding{wants("b1", 1), {Manifest: manifestOf("b1", 2)}}, true},
	} {
		b := NewOwnershipRecords()
		for _, h := range c.holdings {
			b.FoldHolding(h)
		}
		if r, _ := b.Record(shopItem); r.Chosen != c.want {
			t.Errorf("%s: it is chosen: %t", name, r.Chosen)
		}
	}
	left := NewOwnershipRecords()
	left.RestoreRecord(Record{Key: shopItem, UID: "u", Chosen: true})
	left.FoldHolding(needs("b1", 1))
	if r, _ := left.Record(shopItem); !r.Chosen {
		t.Error("a dependency takes the choice away that outlived its claim")
	}
	r := &Record{Key: shopItem, Chosen: true, Claims: map[string]Claim{"b1": {}}}
	b := NewOwnershipRecords()
	if b.updateHasDirectClaim(r, "b1", false, true); r.Chosen || !slices.Equal(b.DirtyShards(), []string{ShardOf(shopItem)}) {
		t.Errorf("the record is %+v, to be stored are %q", r, b.DirtyShards())
	}
}

// A listed item without any good content stays wanted.
func TestAnItemWithoutContentIsWanted(t *testing.T) {
	m := manifestOf("b1", 1, shopItem)
	m.Items[0].Error = "it cannot be rendered"
	b := NewOwnershipRecords()
	b.FoldHolding(BundleHolding{Manifest: m})
	if r, _ := b.Record(shopItem); r.Claims["b1"].State != Wanted {
		t.Errorf("the claim is %+v", r.Claims["b1"])
	}
}

// A namespace that a manifest has again, for itself or as an item, is no longer to go.
func TestANamespaceThatIsWantedAgainStays(t *testing.T) {
	has := manifestOf("b2", 1)
	has.Namespaces = map[string]atoll.NamespaceMeta{"shop": {}}
	for name, m := range map[string]atoll.Manifest{"for itself": has, "as an item": manifestOf("b2", 1, shop)} {
		b := bookWithNamespace()
		b.markNamespaceDeletedOnHub(shop)
		b.FoldHolding(BundleHolding{Manifest: m})
		if r, _ := b.Record(shop); r.Doomed {
			t.Errorf("%s: it is to go", name)
		}
	}
}

// An intended namespace is the agent's, and is stored before it is made. A forgotten Bundle has none.
func TestAnIntendedNamespaceIsStored(t *testing.T) {
	b := NewOwnershipRecords()
	b.IntendNamespace("shop")
	if r, known := b.Record(shop); !known || !r.Implicit || r.UID != "" || !slices.Equal(b.DirtyShards(), []string{ShardOf(shop)}) {
		t.Errorf("the record is %+v, to be stored are %q", r, b.DirtyShards())
	}
	m := manifestOf("b1", 1)
	m.Namespaces = map[string]atoll.NamespaceMeta{"shop": {}}
	b.FoldHolding(BundleHolding{Manifest: m})
	if b.ForgetBundle("b1", 1); len(b.BundlesWithNamespace("shop")) > 0 {
		t.Errorf("it is of %q", b.BundlesWithNamespace("shop"))
	}
}

// Keys are ordered by their string, whichever of their parts differ.
func TestKeysAreOrderedByTheirString(t *testing.T) {
	var keys []atoll.ItemKey
	for i := range 81 {
		part := func(n int) string { return []string{"", "a", "a-b"}[i/n%3] }
		keys = append(keys, atoll.ItemKey{Group: part(1), Kind: part(3), Namespace: part(9), Name: part(27)})
	}
	for _, x := range keys {
		for _, y := range keys {
			if is, want := CompareKeys(x, y), strings.Compare(x.String(), y.String()); is != want {
				t.Errorf("%s and %s: %d, want %d", x, y, is, want)
			}
		}
	}
}
