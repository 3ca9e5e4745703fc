package rowcodec

import (
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

// The pods of a row that waits count for its cluster, as the scores assume that subtract them again.
func TestPodsOfAPendingRowCount(t *testing.T) {
	for _, phase := range []atoll.RowPhase{atoll.RowActive, atoll.RowPending} {
		line := EncodeSpec(atoll.RowSpec{UID: "u", Generation: 3, Revision: "web-1", Phase: phase, RequestedPods: 50}, nil)
		if got := DecodeRequestedPods(line); got != 50 {
			t.Errorf("%s: %d pods of %q, want 50", phase, got, line)
		}
	}
}
