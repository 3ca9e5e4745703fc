package fairness

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// The keys take turns: much work of one key delays one piece of another by one turn.
func TestKeysTakeTurnsForSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slots := NewSlots(2)
		var mu sync.Mutex
		var done []string
		running, most := 0, 0
		work := func(key string) {
			release := slots.Acquire(key)
			mu.Lock()
			running++
			most = max(most, running)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			running--
			done = append(done, key)
			mu.Unlock()
			release()
		}
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() { work("much") })
			synctest.Wait()
		}
		for _, key := range []string{"a", "b"} {
			all.Go(func() { work(key) })
			synctest.Wait()
		}
		begin := time.Now()
		all.Wait()
		if took := time.Since(begin); took != 26*time.Second || most != 2 || len(done) != 52 {
			t.Errorf("%d pieces of work took %s, %d at a time; want 52 in 26s, two at a time", len(done), took, most)
		}
		if i, k := slices.Index(done, "a"), slices.Index(done, "b"); i > 6 || k > 6 {
			t.Errorf("work of other keys is done as number %d and %d", i, k)
		}
		slots.Acquire("later")()
		if slots.free != 2 {
			t.Errorf("%d slots are free at the end, want 2", slots.free)
		}
	})
}
