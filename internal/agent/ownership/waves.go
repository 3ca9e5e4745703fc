package ownership

import (
	"cmp"
	"slices"

	"atoll.dev/atoll/internal/atoll"
)

// WaveGate holds back items of one manifest until their wave opens. A nil WaveGate holds no item.
type WaveGate struct {
	// items of the manifest, by wave.
	items     []*atoll.RenderedItem
	firstWave int32
	// The items from begin to end are those of the last open wave. Those from end on are held.
	begin, end int
	// awaited is the item from which on the wave is looked through: the first that was not ready.
	awaited int
}

// NewWaveGate returns a gate whose first wave is open; nil where all items are of one wave. It keeps the items.
func NewWaveGate(m *atoll.Manifest) *WaveGate {
	g := &WaveGate{firstWave: firstWaveOf(m.Items)}
	another := func(it atoll.RenderedItem) bool {
		return waveOf(&it, g.firstWave) != waveOf(&m.Items[0], g.firstWave)
	}
	if !slices.ContainsFunc(m.Items, another) {
		return nil
	}
	for i := range m.Items {
		g.items = append(g.items, &m.Items[i])
	}
	slices.SortStableFunc(g.items, func(x, y *atoll.RenderedItem) int {
		return cmp.Compare(waveOf(x, g.firstWave), waveOf(y, g.firstWave))
	})
	g.openNext()
	return g
}

// firstWaveOf returns the lowest wave of items, which is 0 or below.
func firstWaveOf(items []atoll.RenderedItem) (first int32) {
	for i := range items {
		first = min(first, items[i].Wave)
	}
	return first
}

// waveOf returns the wave of an item. A dependency without a wave of its own is of the first wave, as objects of any
// wave may need it.
func waveOf(it *atoll.RenderedItem, first int32) int32 {
	if it.Dependency && it.Wave == 0 {
		return first
	}
	return it.Wave
}

// openNext opens the next wave.
func (g *WaveGate) openNext() {
	g.begin, g.awaited = g.end, g.end
	for g.end < len(g.items) && waveOf(g.items[g.end], g.firstWave) == waveOf(g.items[g.begin], g.firstWave) {
		g.end++
	}
}

// Advance opens waves as long as all items of the last open one are ready, and returns the keys that it opened. A call
// that finds the same item not ready as the one before looks at no other.
func (g *WaveGate) Advance(isReady func(*atoll.RenderedItem) bool) (opened []atoll.ItemKey) {
	for g != nil && g.end < len(g.items) && g.isWaveReady(isReady) {
		g.openNext()
		for _, it := range g.items[g.begin:g.end] {
			opened = append(opened, it.Key)
		}
	}
	return opened
}

// isWaveReady reports whether all items of the last open wave are ready, and otherwise notes the first that is not.
func (g *WaveGate) isWaveReady(isReady func(*atoll.RenderedItem) bool) bool {
	from := g.awaited
	for i := range g.end - g.begin {
		at := from + i
		if at >= g.end {
			at -= g.end - g.begin
		}
		if !isReady(g.items[at]) {
			g.awaited = at
			return false
		}
	}
	return true
}

// IsOpen reports whether the items of a wave may be applied.
func (g *WaveGate) IsOpen(wave int32) bool {
	return g == nil || g.end == len(g.items) || wave <= g.OpenWave()
}

// OpenWave returns the last wave that is open.
func (g *WaveGate) OpenWave() int32 { return waveOf(g.items[g.begin], g.firstWave) }

// Awaited returns an item of the last open wave that was not ready. Read-only.
func (g *WaveGate) Awaited() *atoll.RenderedItem { return g.items[g.awaited] }
