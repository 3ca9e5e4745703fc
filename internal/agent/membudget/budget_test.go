package membudget

import (
	"math"
	"testing"
)

const mib = 1 << 20

func TestPartsOfALimit(t *testing.T) {
	most := Budget{Stored: 256 * mib, Incomplete: 64 * mib, Queued: 32 * mib, Unsent: 64 * mib, Watches: 32 * mib, Tunnels: 1024}
	for limit, want := range map[uint64]Budget{
		256 * mib:      {Stored: 80 * mib, Incomplete: 32 * mib, Queued: 12 * mib, Unsent: 12 * mib, Watches: 16 * mib, Tunnels: 256},
		128 * mib:      {Stored: 40 * mib, Incomplete: 16 * mib, Queued: 6 * mib, Unsent: 6 * mib, Watches: 8 * mib, Tunnels: 128},
		0:              most,
		8192 * mib:     most,
		math.MaxUint64: most,
	} {
		if got := DivideLimit(limit); got != want {
			t.Errorf("%d MiB: %+v, want %+v", limit/mib, got, want)
		}
	}
}

// A hub can fill at most four fifths of a limit. The program itself takes 34 MB with little to do.
func TestThePartsTogetherLeaveAFifth(t *testing.T) {
	for limit := uint64(64 * mib); limit <= 4096*mib; limit += 7*mib + 13 {
		b := DivideLimit(limit)
		sum := b.Stored + b.Incomplete + b.Queued + b.Unsent + b.Watches + b.Tunnels*tunnelMemory
		if uint64(sum) > limit/5*4 {
			t.Errorf("of %d bytes a hub can fill %d", limit, sum)
		}
	}
}
