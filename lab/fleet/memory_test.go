package fleet

import (
	"os"
	"runtime"
	"runtime/pprof"
	"testing"

	"atoll.dev/atoll/internal/testwait"
)

// TestMemory measures agents with ten Bundles each, while they wait at their streams and
// between two check-ins. The hub is another process.
func TestMemory(t *testing.T) {
	const agents = 1000
	for name, c := range map[string]struct {
		checkIn   uint32
		connected int
		// most is the memory in use, live the live part of it. Ended agents leave partly
		// used spans, and their number is random.
		most, live int64
	}{
		"stream":   {0, agents, 30 << 10, 24 << 10},
		"check-in": {600, 0, 8 << 10, 5 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			h := hubProcess(t, 10, c.checkIn)
			before := memoryInUse()
			s, stop := run(t, h.fleetConfig(t, agents))
			testwait.UntilTrue(t, "all hold all and sleep", func() bool {
				stats := mustSucceed(s.readStats(t.Context()))
				return stats.Connected == c.connected && stats.RowsHealthy == 10*agents && s.countSleeping() == agents
			})
			after := memoryInUse()
			each := (after.heap + after.stack - before.heap - before.stack) / agents
			live := (after.live + after.stack - before.live - before.stack) / agents
			t.Logf("%d bytes for each agent, %d of them stack; %d with it are live", each, (after.stack-before.stack)/agents, live)
			if name := os.Getenv("ATOLL_TEST_HEAP"); name != "" {
				f := mustSucceed(os.Create(name))
				defer f.Close()
				_ = pprof.Lookup("heap").WriteTo(f, 0)
			}
			if each > c.most {
				t.Errorf("an agent takes %d bytes; %d are the most", each, c.most)
			}
			if live > c.live {
				t.Errorf("%d bytes of an agent live; %d are the most", live, c.live)
			}
			stop()
		})
	}
}

// memoryInUse returns the memory in use after a garbage collection.
func memoryInUse() (m memoryUsage) {
	for range 3 { // pools take two rounds to be emptied, stacks shrink by half in each
		runtime.GC()
	}
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return memoryUsage{int64(s.HeapInuse), int64(s.StackInuse), int64(s.HeapAlloc)}
}

type memoryUsage struct{ heap, stack, live int64 }

func (s *simulator) countSleeping() (n int) {
	for _, a := range s.agents {
		a.mu.Lock()
		if a.core == nil {
			n++
		}
		a.mu.Unlock()
	}
	return n
}
