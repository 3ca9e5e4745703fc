package link

import "testing"

// An agent with the memory of the chart, of which 96 MiB are for what it stores, has 64 MiB on their way. One with much
// memory has the most of each.
func TestMemoryOnItsWay(t *testing.T) {
	const mib = 1 << 20
	for stored, want := range map[int]transitMemory{
		96 * mib:   {32 * mib, 16 * mib, 16 * mib, 512},
		48 * mib:   {16 * mib, 8 * mib, 8 * mib, 256},
		0:          {64 * mib, 32 * mib, 256 * mib / 6, 1024},
		1024 * mib: {64 * mib, 32 * mib, 64 * mib, 1024},
	} {
		if got := newTransitMemory(stored); got != want {
			t.Errorf("%d MiB stored: %+v, want %+v", stored/mib, got, want)
		}
	}
}
