package ownership

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

// waveItem returns an item of a wave.
func waveItem(name string, wave int32) atoll.RenderedItem {
	return atoll.RenderedItem{Key: atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: name}, UID: "t-" + name, Hash: "h", Wave: wave}
}

// openNames lets a gate open waves while the named items are ready, and returns the names that it opened.
func openNames(g *WaveGate, ready string) string {
	var names []string
	for _, key := range g.Advance(func(entry GateEntry) bool { return strings.Contains(ready, entry.Item.Key.Name) }) {
		names = append(names, key.Name)
	}
	return strings.Join(names, "")
}

// A wave opens when all items of the one before are ready. It stays open.
func TestAWaveOpensAfterTheOneBefore(t *testing.T) {
	g := NewWaveGate(&atoll.Manifest{Items: []atoll.RenderedItem{waveItem("d", 7), waveItem("a", -1), waveItem("b", 0), waveItem("c", 0), waveItem("e", 7)}}, true)
	for _, step := range []struct {
		ready, opens, awaited string
		wave                  int32
	}{
		{"", "", "a", -1},
		{"bcde", "", "a", -1},
		{"ab", "bc", "c", 0},
		{"", "", "c", 0},
		{"c", "", "b", 0}, // both at the same time
		{"b", "", "c", 0},
		{"bc", "de", "", 7},
		{"", "", "", 7},
	} {
		if got := openNames(g, step.ready); got != step.opens || g.OpenStep().Wave != step.wave {
			t.Errorf("with %q it opens %q up to wave %d", step.ready, got, g.OpenStep().Wave)
		}
		if step.awaited != "" && g.Awaited().Item.Key.Name != step.awaited {
			t.Errorf("with %q it waits for %s", step.ready, g.Awaited().Item.Key.Name)
		}
		for _, wave := range []int32{-2, -1, 0, 3, 7, 8} {
			if want := wave <= step.wave || step.wave == 7; g.IsOpen(GateStep{Wave: wave}) != want {
				t.Errorf("with %q wave %d is open: %t", step.ready, wave, !want)
			}
		}
	}
}

// Waves that are ready open at once, as after a restart.
func TestReadyWavesOpenAtOnce(t *testing.T) {
	g := NewWaveGate(&atoll.Manifest{Items: []atoll.RenderedItem{waveItem("a", 1), waveItem("b", 2), waveItem("c", 3), waveItem("d", 4)}}, true)
	if got := openNames(g, "abd"); got != "bc" {
		t.Errorf("it opens %q", got)
	}
}

// Items of one wave need no gate, whatever its number. A missing gate holds nothing.
func TestOneWaveNeedsNoGate(t *testing.T) {
	for _, items := range [][]atoll.RenderedItem{nil, {waveItem("a", 0), waveItem("b", 0)}, {waveItem("a", 5), waveItem("b", 5)}} {
		if g := NewWaveGate(&atoll.Manifest{Items: items}, true); g != nil {
			t.Errorf("%v have a gate", items)
		}
	}
	var none *WaveGate
	if !none.IsOpen(GateStep{Wave: 9}) || none.Advance(func(GateEntry) bool { return true }) != nil {
		t.Error("a missing gate holds items")
	}
}

// A dependency without a wave of its own is applied in the first wave, and removed in the last turn.
func TestADependencyIsOfTheFirstWave(t *testing.T) {
	config, later := waveItem("config", 0), waveItem("later", 4)
	config.Dependency, later.Dependency = true, true
	m := atoll.Manifest{Bundle: "b1", Generation: 1, Items: []atoll.RenderedItem{config, waveItem("app", -2), waveItem("plain", 0), later}}
	g := NewWaveGate(&m, true)
	if got := openNames(g, "app"); got != "" || g.Awaited().Item.Key != config.Key {
		t.Errorf("it opens %q, and waits for %s", got, g.Awaited().Item.Key)
	}
	b := NewOwnershipRecords()
	b.FoldHolding(BundleHolding{Manifest: m})
	for name, want := range map[string]int32{"config": -2, "app": -2, "plain": 0, "later": 4} {
		r, _ := b.Record(waveItem(name, 0).Key)
		if got := r.Claims["b1"].Wave; got != want {
			t.Errorf("%s is of wave %d, want %d", name, got, want)
		}
	}
}

// countReads counts how often a gate reads whether an item is ready.
func countReads(g *WaveGate, ready map[string]bool, reads *int) {
	g.Advance(func(entry GateEntry) bool { *reads++; return ready[entry.Item.Key.Name] })
}

// Items that become ready one after the other cost one read each, and one more for each call.
func TestAWaveIsNotReadFromItsBeginning(t *testing.T) {
	const n = 1000
	m := atoll.Manifest{Items: []atoll.RenderedItem{waveItem("after", 1)}}
	for i := range n {
		m.Items = append(m.Items, waveItem(fmt.Sprint("i", i), 0))
	}
	g, ready, reads := NewWaveGate(&m, true), map[string]bool{}, 0
	for i := range n {
		countReads(g, ready, &reads)
		ready[fmt.Sprint("i", i)] = true
	}
	countReads(g, ready, &reads)
	if !g.IsOpen(GateStep{Wave: 1}) || reads > 4*n {
		t.Errorf("it reads %d items; the wave is open: %t", reads, g.IsOpen(GateStep{Wave: 1}))
	}
}

// takeOutWaves returns records of objects in waves that Bundle b1 had, and that all leave.
func takeOutWaves(tombstones []atoll.Tombstone, items ...atoll.RenderedItem) *OwnershipRecords {
	b := NewOwnershipRecords()
	for _, it := range items {
		b.RestoreRecord(Record{
			Key: it.Key, UID: "u-" + it.Key.Name, Template: it.UID, Owner: "b1", Chosen: true, Applied: "h", Label: "b1",
			Claims: map[string]Claim{"b1": {State: Wanted, Template: it.UID, Wave: it.Wave}},
		})
	}
	b.FoldHolding(BundleHolding{Manifest: atoll.Manifest{Bundle: "b1", Generation: 2, Remove: true, Tombstones: tombstones}})
	return b
}

// leavingNames returns the names of the items that may be deleted now.
func leavingNames(b *OwnershipRecords, items []atoll.RenderedItem) (out []string) {
	for _, it := range items {
		if b.Next(it.Key).Verb == Delete {
			out = append(out, it.Key.Name)
		}
	}
	return out
}

// Objects of later waves are deleted first. Those that go last follow all waves, in reverse order, too.
func TestWavesAreRemovedInReverse(t *testing.T) {
	items := []atoll.RenderedItem{waveItem("a", -1), waveItem("b", 0), waveItem("c", 2), waveItem("d", 2), waveItem("y", 1), waveItem("z", 3)}
	var last []atoll.Tombstone
	for _, it := range items[4:] {
		last = append(last, atoll.Tombstone{Key: it.Key, UID: it.UID, Last: true})
	}
	b := takeOutWaves(last, items...)
	for _, step := range []struct {
		may, gone, unblocked string
		first                LeavingWait // what the object of wave -1 waits for
	}{
		{may: "c d", gone: "c", first: LeavingWait{Objects: 2, Wave: 2}},
		{may: "d", gone: "d", unblocked: "b", first: LeavingWait{Objects: 1, Wave: 2}},
		{may: "b", gone: "b", unblocked: "a", first: LeavingWait{Objects: 1, Wave: 0}},
		{may: "a", gone: "a", unblocked: "z"},
		{may: "z", gone: "z", unblocked: "y"},
		{may: "y", gone: "y"},
	} {
		if got := strings.Join(leavingNames(b, items), " "); got != step.may {
			t.Errorf("%q may be deleted, want %q", got, step.may)
		}
		if got := b.LeavingBefore(items[0].Key); got != step.first {
			t.Errorf("before %s is gone, the first wave waits for %+v", step.gone, got)
		}
		b.RecordGone(waveItem(step.gone, 0).Key, "u-"+step.gone, nil)
		var unblocked []string
		for _, key := range b.TakeUnblocked() {
			unblocked = append(unblocked, key.Name)
		}
		if got := strings.Join(unblocked, " "); got != step.unblocked {
			t.Errorf("after %s is gone, %q is unblocked", step.gone, got)
		}
	}
	if len(b.leaving) > 0 || len(b.RecordedKeys()) > 0 {
		t.Errorf("left are %v", b.RecordedKeys())
	}
}

// An item that is wanted again, or of another wave, leaves its turn.
func TestAnItemThatReturnsIsNotWaitedFor(t *testing.T) {
	items := []atoll.RenderedItem{waveItem("a", 0), waveItem("b", 1)}
	b := takeOutWaves(nil, items...)
	b.FoldHolding(BundleHolding{Manifest: atoll.Manifest{
		Bundle: "b1", Generation: 3, Items: items[1:], Tombstones: []atoll.Tombstone{{Key: items[0].Key, UID: items[0].UID}},
	}})
	if got := leavingNames(b, items); !slices.Equal(got, []string{"a"}) {
		t.Errorf("%v may be deleted", got)
	}
	if got := b.TakeUnblocked(); !slices.Contains(got, items[0].Key) {
		t.Errorf("unblocked are %v", got)
	}
}

// Two Bundles that take the same objects out in opposite orders do not wait for each other.
func TestOppositeWavesOfTwoBundlesEnd(t *testing.T) {
	items := []atoll.RenderedItem{waveItem("a", 0), waveItem("b", 1)}
	b := takeOutWaves(nil, items...)
	for i, it := range items {
		b.setClaim(b.records[it.Key], "b2", &Claim{State: Leaving, Template: it.UID, Wave: int32(1 - i)})
	}
	if got := leavingNames(b, items); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("%v may be deleted", got)
	}
}

// Each of many turns unblocks the next one alone, without a look at all others.
func TestManyTurnsOfARemoval(t *testing.T) {
	const n = 10_000
	var items []atoll.RenderedItem
	for i := range int32(n) {
		items = append(items, waveItem(fmt.Sprint(i), i))
	}
	b := takeOutWaves(nil, items...)
	for i := n - 1; i >= 0; i-- {
		if got := b.Next(items[i].Key).Verb; got != Delete || i > 0 && b.LeavingBefore(items[i-1].Key).Objects != 1 {
			t.Fatalf("%d: %s", i, got)
		}
		b.RecordGone(items[i].Key, "", nil)
		if got := b.TakeUnblocked(); i > 0 && !slices.Equal(got, []atoll.ItemKey{items[i-1].Key}) {
			t.Fatalf("%d: unblocked are %v", i, got)
		}
	}
}

// The turns that an index opens are those that a look at all claims finds, in whatever order claims come and go.
func TestOpenTurnsAreThoseOfAllClaims(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	kinds := []string{"ConfigMap", "PersistentVolumeClaim"} // nothing waits for the latter
	for range 200 {
		b, held := NewOwnershipRecords(), map[atoll.ItemKey]leavingTurn{}
		isBlocked := func(turn leavingTurn) bool {
			for key, other := range held {
				if !leavesAfterOthers(key) && other.compareTurns(turn) < 0 {
					return true
				}
			}
			return false
		}
		for range 60 {
			blocked := map[atoll.ItemKey]bool{}
			for key, turn := range held {
				blocked[key] = isBlocked(turn)
			}
			key := atoll.ItemKey{Kind: kinds[random.IntN(2)], Namespace: "shop", Name: fmt.Sprint(random.IntN(12))}
			turn := leavingTurn{random.IntN(4) == 0, random.Int32N(5) - 2}
			if _, leaves := held[key]; leaves && random.IntN(3) > 0 {
				delete(held, key)
				b.indexLeaving(key, "b1", nil)
			} else {
				held[key] = turn
				b.indexLeaving(key, "b1", &Claim{State: Leaving, Last: turn.last, Wave: turn.wave})
			}
			unblocked := b.TakeUnblocked()
			for other, turn := range held {
				l := b.leaving["b1"]
				if l.isBlocked(turn) != isBlocked(turn) || l.open[turn] == isBlocked(turn) {
					t.Fatalf("%v waits: %t, want %t", turn, l.isBlocked(turn), isBlocked(turn))
				}
				if other != key && blocked[other] && !isBlocked(turn) && !slices.Contains(unblocked, other) {
					t.Fatalf("%s is not unblocked", other)
				}
			}
		}
	}
}
