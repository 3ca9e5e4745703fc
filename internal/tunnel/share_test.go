package tunnel

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestTunnelsTakeTurns: what they have handed over has a bound together, who waited longest
// is next, and a piece that the other end does not take keeps others for a moment only.
func TestTunnelsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Share
		var loans []*loan
		for range shareBytes / PieceMost {
			l, err := s.take(t.Context(), PieceMost)
			if err != nil {
				t.Fatal(err)
			}
			loans = append(loans, l)
		}
		var mu sync.Mutex
		var served []int
		order := func() []int {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(served)
		}
		for i := range 3 {
			go func() {
				if _, err := s.take(t.Context(), PieceMost); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				served = append(served, i)
			}()
			synctest.Wait()
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.take(gone, PieceMost); err == nil {
			t.Error("one that is closed goes on")
		}
		if got := order(); len(got) > 0 || s.taken != shareBytes {
			t.Errorf("beyond the bound: %v, %d bytes", got, s.taken)
		}
		loans[1].done()
		synctest.Wait()
		if got := order(); !slices.Equal(got, []int{0}) {
			t.Errorf("after one was written: %v", got)
		}
		began := time.Now()
		<-time.After(loanMost)
		synctest.Wait()
		if got := order(); len(got) != 3 {
			t.Errorf("%s after nothing was written: %v", time.Since(began), got)
		}
		for _, l := range loans {
			l.done() // once more, of some
		}
		if s.taken != 2*PieceMost { // the first of the three was too old with the others
			t.Errorf("%d bytes count", s.taken)
		}
	})
}
