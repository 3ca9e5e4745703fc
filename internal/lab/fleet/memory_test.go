package fleet

import (
	"os"
	"runtime"
	"runtime/pprof"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// TestMemory of agents that hold their streams and ten Bundles each, and of ones that
// check in. The hub is another process.
func TestMemory(t *testing.T) {
	const agents, most = 1000, 30 << 10
	h := hubProcess(t, 10)
	before := memory()
	s, _ := run(t, h.crew(t, agents))
	until(t, "all hold all and sleep", func() bool {
		stats := must(s.stats(t.Context()))
		return stats.Connected == agents && stats.RowsHealthy == 10*agents && s.asleep() == agents
	})
	after := memory()
	each := (after.heap + after.stack - before.heap - before.stack) / agents
	t.Logf("%d bytes for each agent, %d of them stack", each, (after.stack-before.stack)/agents)
	if name := os.Getenv("ATOLL_TEST_HEAP"); name != "" {
		f := must(os.Create(name))
		defer f.Close()
		_ = pprof.Lookup("heap").WriteTo(f, 0)
	}
	if each > most {
		t.Errorf("an agent takes %d bytes; %d are the most", each, most)
	}
}

// memory in use, after all that is garbage went.
func memory() (m usage) {
	for range 3 { // pools take two rounds to be emptied, stacks shrink by half in each
		runtime.GC()
	}
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return usage{int64(s.HeapInuse), int64(s.StackInuse)}
}

type usage struct{ heap, stack int64 }

func (s *sim) asleep() (n int) {
	for _, a := range s.agents {
		a.mu.Lock()
		if a.core == nil {
			n++
		}
		a.mu.Unlock()
	}
	return n
}

func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, time.Minute, true, wait.ConditionFunc(func() (bool, error) {
		return ok(), nil
	}).WithContext()); err != nil {
		t.Fatalf("waited in vain until %s: %v", what, err)
	}
}
