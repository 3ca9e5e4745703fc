package agent

import (
	"math"
	"testing"

	"atoll.dev/atoll/internal/agent/store"
)

func TestThePartOfTheHubOfThePodsMemory(t *testing.T) {
	for limit, want := range map[uint64]int{
		0: 0, 256 << 20: 96 << 20, 512 << 20: 192 << 20, 4 << 30: store.DefaultMemoryBytes, math.MaxInt64: store.DefaultMemoryBytes,
	} {
		if got := hubContentMemoryLimit(limit); got != want {
			t.Errorf("of %d MiB: %d bytes, want %d", limit>>20, got, want)
		}
	}
}
