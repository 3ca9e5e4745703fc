package memory

import "testing"

func TestMemoryIsGivenBackOnceABurstIsOver(t *testing.T) {
	var m bursts
	const mib = 1 << 20
	for i, look := range []struct {
		allocated uint64
		due       bool
	}{
		{1000 * mib, false}, // a start
		{2000 * mib, false}, // more of it
		{2010 * mib, true},  // quiet
		{2020 * mib, false}, // nothing new to give back
		{2039 * mib, false},
		{2130 * mib, false}, // little, and not quiet
		{2149 * mib, true},  // enough since the last time, and quiet again
	} {
		if m.due(look.allocated) != look.due {
			t.Errorf("look %d: %t, want %t", i, !look.due, look.due)
		}
	}
}
