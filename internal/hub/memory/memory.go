// Package memory keeps the hub's process small, and lets it spend memory on speed
// while there is work.
//
// Contract: while the hub is busy, heap and stacks may grow to roomBytes, or to clusterBytes
// for each cluster and bundleBytes for each Bundle where that is more, but not for that
// beyond half of the memory that its cgroup or machine has, before they are collected. The
// heap may always grow by two fifths of what lives; that of a quiet hub by a fifth. What a burst
// leaves, such as a fleet that joins, goes back to the system once the hub is quiet again;
// one that has been quiet for long is left alone. Who sets GOGC decides for himself how much
// garbage there may be.
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
	// lookAtMemory is how often it is asked how much was allocated.
	lookAtMemory = 2 * time.Second
	// calmLooks in a row at which little was allocated are quiet: nobody waits for the
	// hub.
	calmLooks = 10
	// calmBytes allocated between two looks are little.
	calmBytes = 4 << 20
	// burstBytes since memory was last given back are enough to do it again.
	burstBytes = 128 << 20

	// roomBytes is what heap and stacks of a busy hub may always grow to. Collecting
	// costs what lives, as often as the room above it is filled; but spans in which a
	// burst has left something stay: of 10,000 agents that had joined 361 MB lived in spans of
	// 635, with 768 MiB of room.
	roomBytes = 640 << 20
	// clusterBytes is what they may grow to for each cluster where that is more. A fleet
	// makes garbage by its size, joins and check-ins, and has more that lives: with half of
	// that as room, a quarter of what 100,000 clusters cost while they joined was
	// collecting, and a seventh near the end with 16 KiB of room for each. What lived was
	// 2.5 GB when they were given their first applications.
	clusterBytes = 48 << 10
	// bundleBytes is what they may grow to for each Bundle beside that. A policy that lands
	// on thousands of applications makes some hundreds of kilobytes of garbage for each,
	// and each has its template in the API server's cache and in the table, rows, and what
	// is known of it, all of which is looked at whenever that garbage is collected.
	bundleBytes = 320 << 10
	// busyPercent is the least room of a busy hub, of what lives; quietPercent is that
	// of a quiet one, which makes little garbage.
	busyPercent, quietPercent = 40, 20
	// mostPercent is the most room: a small heap is collected soon enough.
	mostPercent = 400
	// percentStep is the least change that is worth stopping the world for.
	percentStep = 10
	// shrinkings of stacks after a burst: each collection halves those that are hardly
	// used.
	shrinkings = 3
)

// bursts tells when one is over. The runtime alone gives memory back only above what
// the next collection may grow to, and a quiet hub may not collect for hours.
type bursts struct {
	// last is what had been allocated at the last look, in bytes; given, when memory
	// was last given back.
	last, given uint64
	calm        int // looks in a row
}

// look at the bytes that were ever allocated: whether the hub is quiet, and whether a
// burst is over.
func (b *bursts) look(allocated uint64) (quiet, over bool) {
	if allocated-b.last < calmBytes {
		b.calm++
	} else {
		b.calm = 0
	}
	b.last = allocated
	if b.calm < calmLooks {
		return false, false
	}
	if allocated-b.given < burstBytes {
		return true, false
	}
	b.given = allocated
	return true, true
}

// footprint of the process, in bytes.
type footprint struct {
	live   uint64 // in the heap, when it was collected last
	stacks uint64 // of goroutines
	roots  uint64 // what is in use of stacks, and globals
	has    Holdings
	own    uint64 // what the cgroup or the machine has; 0: not known
}

// Holdings of a hub, by number, that its memory is used for.
type Holdings struct{ Clusters, Bundles int }

func (h Holdings) bytes() int64 { return int64(h.Clusters)*clusterBytes + int64(h.Bundles)*bundleBytes }

// percent of live and roots that may be garbage, as the runtime counts it.
func (f footprint) percent(quiet bool) int {
	if quiet {
		return quietPercent
	}
	most := max(roomBytes, f.has.bytes())
	if half := int64(f.own / 2); half > 0 {
		most = min(most, max(roomBytes, half))
	}
	room := most - int64(f.live) - int64(f.stacks)
	return int(min(max(room*100/max(int64(f.live+f.roots), 1), busyPercent), mostPercent))
}

// samples that Keep reads: what was ever allocated, and a footprint.
func samples() []metrics.Sample {
	return []metrics.Sample{
		{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"},
		{Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"},
	}
}

// read the samples.
func read(samples []metrics.Sample) (allocated uint64, f footprint) {
	metrics.Read(samples)
	n := func(i int) uint64 { return samples[i].Value.Uint64() }
	return n(0), footprint{live: n(1), stacks: n(2), roots: n(3) + n(4)}
}

// owned is how much memory the process may use, in bytes: what its cgroup allows, or what
// the machine has; 0 where neither is told.
func owned() (bytes uint64) {
	for _, ask := range []memlimit.Provider{memlimit.FromCgroup, memlimit.FromSystem} {
		if n, err := ask(); err == nil && n > 0 && (bytes == 0 || n < bytes) {
			bytes = n
		}
	}
	return bytes
}

// Keep the process of a hub small until ctx ends; has counts what it holds.
func Keep(ctx context.Context, has func() Holdings) error {
	var b bursts
	steers, now, all, own := os.Getenv("GOGC") == "", 0, samples(), owned()
	tick := time.NewTicker(lookAtMemory)
	defer tick.Stop()
	for {
		allocated, f := read(all)
		f.has, f.own = has(), own
		quiet, over := b.look(allocated)
		if want := f.percent(quiet); steers && (want-now >= percentStep || now-want >= percentStep) {
			now = want
			debug.SetGCPercent(now)
		}
		if over {
			for range shrinkings - 1 {
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
