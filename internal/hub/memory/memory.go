// Package memory keeps the hub's process small.
//
// Contract: what a burst leaves, such as a fleet that joins, goes back to the system
// once the hub is quiet again; a hub that is busy, and one that has been quiet for
// long, are left alone.
package memory

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// lookAtMemory is how often it is asked how much was allocated.
	lookAtMemory = 20 * time.Second
	// quietBytes allocated between two looks are few: nobody waits for the hub.
	quietBytes = 20 << 20
	// burstBytes since memory was last given back are enough to do it again.
	burstBytes = 128 << 20
)

// bursts tells when one is over. The runtime alone gives memory back only above what
// the next collection may grow to, and a quiet hub may not collect for hours.
type bursts struct {
	// last is what had been allocated at the last look, in bytes; given, when memory
	// was last given back.
	last, given uint64
}

// due tells whether a burst is over, by the bytes that were ever allocated.
func (m *bursts) due(allocated uint64) bool {
	quiet := allocated-m.last < quietBytes
	m.last = allocated
	if !quiet || allocated-m.given < burstBytes {
		return false
	}
	m.given = allocated
	return true
}

// GiveBack after bursts, until ctx ends.
func GiveBack(ctx context.Context) error {
	var m bursts
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	tick := time.NewTicker(lookAtMemory)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if metrics.Read(sample); m.due(sample[0].Value.Uint64()) {
			debug.FreeOSMemory()
		}
	}
}
