package memory

import (
	"runtime"
	"testing"
)

const mib = 1 << 20

func TestMemoryIsGivenBackOnceABurstIsOver(t *testing.T) {
	var b burstDetector
	allocated := uint64(0)
	for i, phase := range []struct {
		looks int
		bytes uint64 // allocated before each
		over  int    // how often a burst is over
		quiet bool   // at the end
	}{
		{1, 1000 * mib, 0, false},                // a start
		{1, 1000 * mib, 0, false},                // more of it
		{quietSamples - 1, 1 * mib, 0, false},    // not for long enough
		{1, 1 * mib, 1, true},                    // quiet
		{20, 1 * mib, 0, true},                   // nothing new to give back
		{1, 90 * mib, 0, false},                  // little
		{quietSamples, 1 * mib, 0, true},         // and over
		{1, 90 * mib, 0, false},                  // with this
		{quietSamples, 1 * mib, 1, true},         // it is enough since the last time
		{quietSamples, quietBytes, 0, false},     // steady work
		{3 * quietSamples, quietBytes, 0, false}, // is no burst that ends
		{quietSamples, quietBytes / 2, 1, true},  // before it does
		{burstBytes / mib, 1 * mib, 1, true},     // a quiet hub makes garbage too
		{burstBytes / mib, 1 * mib, 1, true},     // which goes back as rarely
		{2 * quietSamples, 100 * mib, 0, false},  // busy again
		{quietSamples - 1, quietBytes, 0, false}, // not yet
		{quietSamples, quietBytes - 1, 1, true},  // quiet
		{quietSamples, 0, 0, true},               // nothing at all
		{1, burstBytes + quietBytes, 0, false},   // the next
	} {
		over, quiet := 0, false
		for range phase.looks {
			allocated += phase.bytes
			var o bool
			if quiet, o = b.addSample(allocated); o {
				over++
			}
		}
		if over != phase.over || quiet != phase.quiet {
			t.Errorf("phase %d: over %d times, quiet %t; want %d, %t", i, over, quiet, phase.over, phase.quiet)
		}
	}
}

func TestABusyHubHasRoom(t *testing.T) {
	for _, x := range []struct {
		live, stacks, roots uint64
		fleet, bundles      int
		quiet               bool
		want                int
	}{
		{0, 0, 0, 0, 0, false, maxPercent},
		{100 * mib, 20 * mib, 10 * mib, 0, 0, false, maxPercent},
		{200 * mib, 168 * mib, 0, 0, 0, false, 136},
		{300 * mib, 68 * mib, 100 * mib, 0, 0, false, 68},
		{350 * mib, 48 * mib, 100 * mib, 0, 0, false, 53},
		{400 * mib, 300 * mib, 100 * mib, 0, 0, false, busyPercent},
		{5000 * mib, 0, 0, 0, 0, false, busyPercent},
		{100 * mib, 0, 0, 0, 0, true, quietPercent},
		{5000 * mib, 0, 0, 0, 0, true, quietPercent},
		{600 * mib, 50 * mib, 50 * mib, 1000, 0, false, busyPercent}, // a small fleet brings less than that
		{640 * mib, 0, 0, 40 * 1024, 0, false, 200},
		{1500 * mib, 100 * mib, 100 * mib, 100 * 1024, 0, false, 200},
		{4000 * mib, 400 * mib, 0, 100 * 1024, 0, false, busyPercent},
		{200 * mib, 0, 0, 50 * 1024, 0, false, maxPercent},
		{640 * mib, 0, 0, 50 * 1024, 0, true, quietPercent},
		{300 * mib, 0, 0, 1000, 1000, false, 113},      // 1,000 applications are little
		{800 * mib, 0, 0, 1024, 10 * 1024, false, 306}, // 48 and 3,200 MiB
		{3000 * mib, 0, 0, 1024, 10 * 1024, false, busyPercent},
		{800 * mib, 0, 0, 0, 10 * 1024, true, quietPercent},
	} {
		f := footprint{x.live, x.stacks, x.roots, Holdings{Clusters: x.fleet, Bundles: x.bundles}, 0}
		if got := f.gcPercent(x.quiet); got != x.want {
			t.Errorf("%d MB live, %d of stacks, %d clusters, %d Bundles, quiet %t: %d %%, want %d", x.live/mib, x.stacks/mib, x.fleet, x.bundles, x.quiet, got, x.want)
		}
	}
}

// The load of a hub allows no more than half of the memory, and the allowance of any hub stays.
func TestRoomEndsWhereMemoryDoes(t *testing.T) {
	for _, x := range []struct {
		live, own uint64
		want      int
	}{
		{1000 * mib, 0, 220},
		{1000 * mib, 16384 * mib, 220},
		{1000 * mib, 4096 * mib, 104},
		{1000 * mib, 2048 * mib, busyPercent},
		{384 * mib, 1024 * mib, 66},
	} {
		f := footprint{live: x.live, holdings: Holdings{Bundles: 10 * 1024}, available: x.own}
		if got := f.gcPercent(false); got != x.want {
			t.Errorf("%d MB live, of %d: %d %%, want %d", x.live/mib, x.own/mib, got, x.want)
		}
	}
	if availableMemory() == 0 {
		t.Error("the size of the memory is unknown")
	}
}

func TestTheRuntimeTellsWhatIsAsked(t *testing.T) {
	runtime.GC()
	allocated, f := readSamples(newSamples())
	if allocated == 0 || f.live == 0 || f.stacks == 0 || f.roots == 0 {
		t.Errorf("%d allocated, %+v", allocated, f)
	}
}
