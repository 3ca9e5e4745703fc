package ownership

import (
	"reflect"
	"slices"
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

// The owner stays while it writes and its content is known. Else a writer comes first, then the object's template, then a wish, then the lowest name.
func TestTheOwnerOfAnObject(t *testing.T) {
	wanted, kept := Claim{State: Wanted, Template: "t"}, Claim{State: Kept, Template: "t"}
	other := Claim{State: Wanted, Template: "t2"}
	needed := Claim{State: Wanted, Template: "t", Dependency: true}
	leaving, parked := Claim{State: Leaving, Template: "t"}, Claim{State: Parked, Template: "t"}
	for name, c := range map[string]struct {
		owner   string
		uid     string
		claims  map[string]Claim
		known   []string // Bundles that are held
		observe []string // and observe it
		want    string
	}{
		"the owner stays":                  {"b2", "u", map[string]Claim{"b1": wanted, "b2": other}, nil, nil, "b2"},
		"a known owner that keeps it":      {"b2", "u", map[string]Claim{"b1": wanted, "b2": kept}, []string{"b2"}, nil, "b2"},
		"an unknown owner that keeps it":   {"b2", "u", map[string]Claim{"b1": wanted, "b2": kept}, nil, nil, "b1"},
		"an owner that leaves":             {"b2", "u", map[string]Claim{"b1": wanted, "b2": leaving}, nil, nil, "b1"},
		"an owner that observes":           {"b2", "u", map[string]Claim{"b1": wanted, "b2": wanted}, nil, []string{"b2"}, "b1"},
		"all observe":                      {"", "u", map[string]Claim{"b1": wanted, "b2": wanted}, nil, []string{"b1", "b2"}, "b1"},
		"a writer of another template":     {"", "u", map[string]Claim{"b1": wanted, "b2": other}, nil, []string{"b1"}, "b2"},
		"the template of the object":       {"", "u", map[string]Claim{"b1": other, "b2": {State: Kept, Template: "t", Dependency: true}}, nil, nil, "b2"},
		"the template of no object":        {"", "", map[string]Claim{"b1": other, "b2": kept}, nil, nil, "b1"},
		"a wish before what is kept":       {"", "u", map[string]Claim{"b1": kept, "b2": needed}, nil, nil, "b2"},
		"a wish before a dependency":       {"", "u", map[string]Claim{"b1": needed, "b2": wanted}, nil, nil, "b2"},
		"the lowest name":                  {"", "u", map[string]Claim{"b2": wanted, "b1": wanted}, nil, nil, "b1"},
		"none lives":                       {"b9", "u", map[string]Claim{"b1": leaving, "b2": parked}, nil, nil, "b9"},
		"it is kept for another Bundle":    {"", "u", map[string]Claim{"b1": other, "b2": parked}, nil, nil, ""},
		"kept for another, to be made":     {"", "", map[string]Claim{"b1": other, "b2": parked}, nil, nil, "b1"},
		"another template is kept for one": {"", "u", map[string]Claim{"b1": other, "b2": {State: Parked, Template: "t9"}}, nil, nil, "b1"},
		"the template that is kept":        {"", "u", map[string]Claim{"b1": kept, "b2": parked}, nil, nil, "b1"},
	} {
		b := NewOwnershipRecords()
		for _, uid := range c.known {
			b.putHolding(indexHolding(BundleHolding{Manifest: manifestOf(uid, 1)}))
		}
		for _, uid := range c.observe {
			m := manifestOf(uid, 1, shopItem)
			m.Items[0].Observe = atoll.ObserveHealth
			b.putHolding(indexHolding(BundleHolding{Manifest: m}))
		}
		if got := b.pickOwner(&Record{Key: shopItem, UID: c.uid, Template: "t", Owner: c.owner, Claims: c.claims}); got != c.want {
			t.Errorf("%s: the owner is %q, want %q", name, got, c.want)
		}
	}
}

// A move is followed through the moves of its targets. A removed Bundle is not waited for, and a circle is.
func TestMovesAreFollowed(t *testing.T) {
	const c0 = "b0"
	for name, c := range map[string]struct {
		to       []string
		holdings []BundleHolding
		claims   map[string]Claim
		buried   []string
		waiting  []string
		taken    bool
	}{
		"to an unknown Bundle":            {to: []string{"b1"}, waiting: []string{"b1"}},
		"to a known one without it":       {to: []string{"b1"}, holdings: []BundleHolding{{Manifest: manifestOf("b1", 1)}}, waiting: []string{"b1"}},
		"to a removed one":                {to: []string{"b1"}, buried: []string{"b1"}},
		"to one that claims it":           {to: []string{"b1"}, claims: map[string]Claim{"b1": {State: Kept, Template: "t"}}, taken: true},
		"to one that claims another":      {to: []string{"b1"}, claims: map[string]Claim{"b1": {State: Kept, Template: "t2"}}, waiting: []string{"b1"}},
		"to one whose claim leaves":       {to: []string{"b1"}, claims: map[string]Claim{"b1": {State: Leaving, Template: "t"}}, waiting: []string{"b1"}},
		"to one where it was deleted":     {to: []string{"b1"}, holdings: []BundleHolding{movedTo("b1", 1)}},
		"and on to another":               {to: []string{"b1"}, holdings: []BundleHolding{movedTo("b1", 1, "b2")}, waiting: []string{"b2"}},
		"and on to one that claims it":    {to: []string{"b1"}, holdings: []BundleHolding{movedTo("b1", 1, "b2")}, claims: map[string]Claim{"b2": {State: Wanted, Template: "t"}}, taken: true},
		"and back, in a circle":           {to: []string{"b1"}, holdings: []BundleHolding{movedTo("b1", 1, c0)}, waiting: []string{c0}},
		"on in a circle of its targets":   {to: []string{"b1"}, holdings: []BundleHolding{movedTo("b1", 1, "b2"), movedTo("b2", 1, "b1")}, waiting: []string{"b1"}},
		"twice to the same":               {to: []string{"b1", "b2"}, holdings: []BundleHolding{movedTo("b1", 1, "b3"), movedTo("b2", 1, "b3")}, buried: []string{"b3"}},
		"twice to an unknown one":         {to: []string{"b1", "b2"}, holdings: []BundleHolding{movedTo("b1", 1, "b3"), movedTo("b2", 1, "b3")}, waiting: []string{"b3"}},
		"to a removed and an unknown one": {to: []string{"b1", "b2"}, buried: []string{"b1"}, waiting: []string{"b2"}},
	} {
		b := NewOwnershipRecords()
		for _, h := range c.holdings {
			b.putHolding(indexHolding(h))
		}
		for _, uid := range c.buried {
			b.buried[uid] = 1
		}
		r := &Record{Key: shopItem, Claims: c.claims}
		waiting, taken := b.followMoveTargets(r, c0, Claim{State: Parked, Template: "t", MovedTo: c.to})
		if !slices.Equal(waiting, c.waiting) || taken != c.taken {
			t.Errorf("%s: waited for %q, taken %t; want %q, %t", name, waiting, taken, c.waiting, c.taken)
		}
	}
}

// Claims come to rest: leaving ones end while another lives and the object is known, and moves end with their targets.
func TestClaimsComeToRest(t *testing.T) {
	kept := Claim{State: Kept, Template: "t"}
	leaving := Claim{State: Leaving, Template: "t"}
	parked := Claim{State: Parked, Template: "t", MovedTo: []string{"b9"}}
	for name, c := range map[string]struct {
		record Record
		buried bool // b9 was removed
		want   map[string]Claim
		parked bool
		forgot bool
		owner  string
	}{
		"a live one ends a leaving one":    {record: Record{UID: "u", Claims: map[string]Claim{"b1": kept, "b2": leaving}}, want: map[string]Claim{"b1": kept}, owner: "b1"},
		"not while the object is unknown":  {record: Record{Claims: map[string]Claim{"b1": kept, "b2": leaving}}, want: map[string]Claim{"b1": kept, "b2": leaving}, owner: "b1"},
		"a waiting move ends one":          {record: Record{UID: "u", Claims: map[string]Claim{"b1": parked, "b2": leaving}}, want: map[string]Claim{"b1": parked}, parked: true},
		"a leaving one alone stays":        {record: Record{UID: "u", Claims: map[string]Claim{"b2": leaving}}, want: map[string]Claim{"b2": leaving}},
		"a move whose target was removed":  {record: Record{UID: "u", Claims: map[string]Claim{"b1": parked}}, buried: true, want: map[string]Claim{"b1": leaving}},
		"a move whose target claims it":    {record: Record{UID: "u", Claims: map[string]Claim{"b1": parked, "b9": kept}}, want: map[string]Claim{"b9": kept}, owner: "b9"},
		"without a claim it is forgotten":  {record: Record{}, forgot: true},
		"without a claim, and it exists":   {record: Record{UID: "u"}, want: map[string]Claim{}},
		"without a claim, of the agent":    {record: Record{Implicit: true}, want: map[string]Claim{}},
		"a claim on what is not made":      {record: Record{Claims: map[string]Claim{"b1": kept}}, want: map[string]Claim{"b1": kept}, owner: "b1"},
		"a move on what is not made waits": {record: Record{Claims: map[string]Claim{"b1": parked}}, want: map[string]Claim{"b1": parked}, parked: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := NewOwnershipRecords()
			c.record.Key, c.record.Template = shopItem, "t"
			b.RestoreRecord(c.record)
			if b.parked[shopItem] = true; c.buried {
				b.buried["b9"] = 1
			}
			b.resolveClaims(shopItem)
			r, known := b.Record(shopItem)
			if known == c.forgot || known && !reflect.DeepEqual(r.Claims, c.want) || r.Owner != c.owner || b.parked[shopItem] != c.parked {
				t.Errorf("the record is %+v, %t; a move waits: %t", r, known, b.parked[shopItem])
			}
			if c.forgot && (len(b.NamespacesWithRecords()) > 0 || len(b.DirtyShards()) != 1) {
				t.Errorf("left are %q", b.NamespacesWithRecords())
			}
			if (len(b.DirtyShards()) == 1) != (c.owner != "" || c.forgot || !reflect.DeepEqual(c.record.Claims, c.want) && len(c.want) > 0) {
				t.Errorf("to be stored are %q", b.DirtyShards())
			}
		})
	}
	b := NewOwnershipRecords()
	b.resolveClaims(shopItem)
	if len(b.RecordedKeys())+len(b.DirtyShards()) > 0 {
		t.Error("an unknown key is recorded")
	}
}

// Content of an item that fails or is not listed is kept until a tombstone of it comes.
func TestContentIsKeptWithoutATombstone(t *testing.T) {
	prev := &BundleHolding{Manifest: manifestOf("b1", 1, shopItem, podKey), Kept: []atoll.RenderedItem{{Key: claimKey, UID: "t"}}}
	prev.Manifest.Items[1].Error = "it cannot be rendered"
	fails := func(template string) atoll.Manifest {
		m := manifestOf("b1", 2, shopItem)
		m.Items[0].Error, m.Items[0].UID = "it cannot be rendered", template
		return m
	}
	removal := manifestOf("b1", 2)
	removal.Remove = true
	dead := func(template string) atoll.Manifest {
		m := manifestOf("b1", 2)
		m.Tombstones = []atoll.Tombstone{{Key: shopItem, UID: template}}
		return m
	}
	for name, c := range map[string]struct {
		prev *BundleHolding
		next atoll.Manifest
		want []atoll.ItemKey
	}{
		"the first manifest":      {nil, manifestOf("b1", 2), nil},
		"a removal":               {prev, removal, nil},
		"nothing is listed":       {prev, manifestOf("b1", 2), []atoll.ItemKey{shopItem, claimKey}},
		"it is listed":            {prev, manifestOf("b1", 2, shopItem), []atoll.ItemKey{claimKey}},
		"it fails":                {prev, fails("t"), []atoll.ItemKey{shopItem, claimKey}},
		"it fails for another":    {prev, fails("t2"), []atoll.ItemKey{claimKey}},
		"it was deleted":          {prev, dead("t"), []atoll.ItemKey{claimKey}},
		"another one was deleted": {prev, dead("t0"), []atoll.ItemKey{shopItem, claimKey}},
		"what was kept is listed": {prev, manifestOf("b1", 2, shopItem, claimKey), nil},
	} {
		got := Merge(c.prev, c.next)
		var keys []atoll.ItemKey
		for _, it := range got.Kept {
			keys = append(keys, it.Key)
		}
		if !slices.Equal(keys, c.want) || !reflect.DeepEqual(got.Manifest, c.next) {
			t.Errorf("%s: kept are %v, want %v", name, keys, c.want)
		}
	}
}

// A holding that an older agent stored lacks which items are observed, or their ServiceAccounts.
func TestAHoldingWithoutItsObservations(t *testing.T) {
	for name, c := range map[string]struct {
		err     string
		observe atoll.Observation
		account string
		want    bool
	}{
		"observed": {atoll.UnknownObservation, atoll.ObserveDrift, "", false}, "lost": {atoll.UnknownObservation, "", "", true},
		"failed": {"it cannot be rendered", "", "", false}, "fine": {"", "", "", false},
		"by an account": {atoll.UnknownServiceAccount, "", "shop/a", false}, "lost account": {atoll.UnknownServiceAccount, "", "", true},
	} {
		h := BundleHolding{Manifest: manifestOf("b1", 1, podKey, shopItem)}
		h.Manifest.Items[1].Error, h.Manifest.Items[1].Observe = c.err, c.observe
		h.Manifest.Items[1].ServiceAccount = c.account
		if got := h.HasLostFields(); got != c.want {
			t.Errorf("%s: lost are %t", name, got)
		}
	}
}
