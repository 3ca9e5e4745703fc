//go:build soak

package e2e

import (
	"fmt"
	"testing"
)

// TestSoak does random runs with ATOLL_SOAK_SEEDS seeds, from ATOLL_SEED on.
func TestSoak(t *testing.T) {
	first := intFromEnv(t, seedVariable, 1)
	for i := range intFromEnv(t, "ATOLL_SOAK_SEEDS", 20) {
		t.Run(fmt.Sprintf("seed=%d", first+i), func(t *testing.T) { faultRun(t, uint64(first+i)) })
	}
}
