// Package memory keeps the hub's process small, and lets it spend memory on speed while there is
// work.
//
// Contract: while the hub is busy, heap and stacks may grow to baseHeapBytes before garbage is
// collected, or to the sum of bytesPerCluster and bytesPerBundle if that is more. They may not grow for that beyond half of the memory of the cgroup or
// machine. The heap may always grow by two fifths of the live part; that of a quiet hub by a
// fifth. The garbage of a burst, such as a joining fleet, goes back to the system once the hub is
// quiet again; a hub that has been quiet for long is left alone. A set GOGC decides instead.
package memory

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

const (
	// sampleInterval is how often the allocated memory is read.
	sampleInterval = 2 * time.Second
	// quietSamples in a row with few allocations are quiet: no request waits for the hub.
	quietSamples = 10
	// quietBytes allocated between two looks are little.
	quietBytes = 4 << 20
	// burstBytes since memory was last given back are enough to do it again.
	burstBytes = 128 << 20

	// baseHeapBytes is what heap and stacks of a busy hub may always grow to. Collecting
	// costs what lives, as often as the room above it is filled; but spans in which a
	// burst has left something stay: of 10,000 agents that had joined 361 MB lived in spans of
	// 635, with 768 MiB of room.
	baseHeapBytes = 640 << 20
	// bytesPerCluster is the growth for each cluster where that is more. A fleet makes garbage by
	// its size, joins and check-ins, and has more live memory. With half of that, a quarter of the
	// cost of 100,000 joining clusters was garbage collection, and a seventh near the end with 16
	// KiB for each. The live part was 2.5 GB when they got their first applications.
	bytesPerCluster = 48 << 10
	// bytesPerBundle is what they may grow to for each Bundle beside that. A policy that lands
	// on thousands of applications makes some hundreds of kilobytes of garbage for each,
	// and each has its template in the API server's cache and in the table, rows, and what
	// is known of it, all of which is looked at whenever that garbage is collected.
	bytesPerBundle = 320 << 10
	// busyPercent is the least room of a busy hub, of what lives; quietPercent is that
	// of a quiet one, which makes little garbage.
	busyPercent, quietPercent = 40, 20
	// maxPercent is the most room: a small heap is collected soon enough.
	maxPercent = 400
	// percentStep is the least change that is worth stopping the world for.
	percentStep = 10
	// shrinkCollections of stacks after a burst: each collection halves those that are hardly
	// used.
	shrinkCollections = 3
)

// burstDetector returns when one is over. The runtime alone gives memory back only above what
// the next collection may grow to, and a quiet hub may not collect for hours.
type burstDetector struct {
	// lastAllocated is what had been allocated at the last look, in bytes; given, when memory
	// was last given back.
	lastAllocated, lastReturned uint64
	quietCount                  int // looks in a row
}

// addSample records the total of allocated bytes, and reports whether the hub is quiet and whether
// a burst is over.
func (b *burstDetector) addSample(allocated uint64) (quiet, over bool) {
	if allocated-b.lastAllocated < quietBytes {
		b.quietCount++
	} else {
		b.quietCount = 0
	}
	b.lastAllocated = allocated
	if b.quietCount < quietSamples {
		return false, false
	}
	if allocated-b.lastReturned < burstBytes {
		return true, false
	}
	b.lastReturned = allocated
	return true, true
}

// footprint of the process, in bytes.
type footprint struct {
	live      uint64 // in the heap, when it was collected last
	stacks    uint64 // of goroutines
	roots     uint64 // what is in use of stacks, and globals
	holdings  Holdings
	available uint64 // what the cgroup or the machine has; 0: not known
}

// Holdings of a hub, by number, that its memory is used for.
type Holdings struct{ Clusters, Bundles int }

func (h Holdings) heapBytes() int64 {
	return int64(h.Clusters)*bytesPerCluster + int64(h.Bundles)*bytesPerBundle
}

// gcPercent returns the GC percentage for the footprint, as runtime/debug.SetGCPercent counts it.
func (f footprint) gcPercent(quiet bool) int {
	if quiet {
		return quietPercent
	}
	most := max(baseHeapBytes, f.holdings.heapBytes())
	if half := int64(f.available / 2); half > 0 {
		most = min(most, max(baseHeapBytes, half))
	}
	room := most - int64(f.live) - int64(f.stacks)
	return int(min(max(room*100/max(int64(f.live+f.roots), 1), busyPercent), maxPercent))
}

// newSamples returns the runtime metrics that Keep reads: allocated bytes and the live footprint.
func newSamples() []metrics.Sample {
	return []metrics.Sample{
		{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"},
		{Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"},
	}
}

// readSamples reads the samples, and returns the total of allocated bytes and the footprint.
func readSamples(samples []metrics.Sample) (allocated uint64, f footprint) {
	metrics.Read(samples)
	n := func(i int) uint64 { return samples[i].Value.Uint64() }
	return n(0), footprint{live: n(1), stacks: n(2), roots: n(3) + n(4)}
}

// availableMemory returns the memory that the process may use, in bytes: the limit of its cgroup,
// or the machine's memory; 0 where neither is known.
func availableMemory() (bytes uint64) {
	for _, ask := range []memlimit.Provider{memlimit.FromCgroup, memlimit.FromSystem} {
		if n, err := ask(); err == nil && n > 0 && (bytes == 0 || n < bytes) {
			bytes = n
		}
	}
	return bytes
}

// RunGCTuner keeps the process of a hub small until ctx ends; has counts what it holds.
func RunGCTuner(ctx context.Context, has func() Holdings) error {
	var b burstDetector
	steers, now, all, own := os.Getenv("GOGC") == "", 0, newSamples(), availableMemory()
	tick := time.NewTicker(sampleInterval)
	defer tick.Stop()
	for {
		allocated, f := readSamples(all)
		f.holdings, f.available = has(), own
		quiet, over := b.addSample(allocated)
		if want := f.gcPercent(quiet); steers && (want-now >= percentStep || now-want >= percentStep) {
			now = want
			debug.SetGCPercent(now)
		}
		if over {
			for range shrinkCollections - 1 {
				runtime.GC()
			}
			debug.FreeOSMemory()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
