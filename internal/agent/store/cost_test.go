package store

import (
	"math"
	"runtime"
	"testing"

	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/atoll"
)

// maxPackBytes is the budget of what packing a small value allocates. The tables of a new gzip writer alone are 800 KB.
const maxPackBytes = 64 << 10

// A value that is stored often makes no new gzip writer.
func TestPackingAValueIsCheap(t *testing.T) {
	records := make([]ownership.Record, 50)
	for i := range records {
		records[i] = ownership.Record{Key: atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: string(rune('a' + i))}, UID: "u", Claims: map[string]ownership.Claim{"b": {}}}
	}
	least := uint64(math.MaxUint64)
	for range 20 { // a collection of garbage drops the writers, and so does the race detector at random
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, _, err := encodeValue(records); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		least = min(least, after.TotalAlloc-before.TotalAlloc)
	}
	if least > maxPackBytes {
		t.Errorf("it allocates %d bytes, of which there may be %d", least, maxPackBytes)
	}
	t.Logf("%d bytes", least)
}

// Values that are packed by one writer after the other are what they were.
func TestAWriterIsUsedAgain(t *testing.T) {
	for _, want := range []string{"one", "", "another"} {
		packed, _, err := encodeValue(want)
		if err != nil {
			t.Fatal(err)
		}
		got, left := "none", memoryAllowance(maxDecoded)
		if err := decodeValue(packed, &got, &left); err != nil || got != want {
			t.Errorf("%q: %q, %v", want, got, err)
		}
	}
}
