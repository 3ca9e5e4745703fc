package sources

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
)

// A running Reconciler checks a Repository at once, after its interval, and when a spec changes. Each check serves
// several changes.
func TestRunChecksInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub(t, branch)
		h.setCommit("c1", "a=1")
		ctx, stop := context.WithCancel(t.Context())
		var done sync.WaitGroup
		done.Go(func() {
			if err := h.r.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		expect := func(when string, checks int) {
			t.Helper()
			synctest.Wait()
			if got := h.countRequests(); got != checks {
				t.Errorf("%s: %d checks, want %d", when, got, checks)
			}
		}
		expect("at once", 1)
		if got := h.listConditions(); got != good {
			t.Error(got)
		}
		time.Sleep(v1alpha1.DefaultRepositoryInterval * 8 / 10)
		expect("within the interval", 1)
		time.Sleep(v1alpha1.DefaultRepositoryInterval / 4)
		expect("after the interval", 2)
		for range 10 {
			h.r.sourceChanged(sourceKey)
		}
		time.Sleep(2 * maxChangeDebounce)
		synctest.Wait()
		if n := h.countRequests(); n < 3 || n > 4 {
			t.Errorf("ten changes at once cost %d checks", n-2)
		}
		stop()
		done.Wait()
	})
}

// Content that is not applied is tried again after waits that double up to the interval.
func TestTriesDoubleTheirWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub(t, branch)
		h.refuse["a"] = errRefused
		h.setCommit("c1", "a=1")
		ctx, stop := context.WithCancel(t.Context())
		var done sync.WaitGroup
		done.Go(func() {
			if err := h.r.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		// 30 s, 1 min, 2 min, 4 min, and 5 min from then on, each shorter by up to a tenth.
		time.Sleep(30*time.Second + time.Minute + 2*time.Minute + 4*time.Minute + 5*time.Minute + time.Second)
		synctest.Wait()
		if n := h.countRequests(); n != 6 {
			t.Errorf("%d checks within 12 minutes, want 6", n)
		}
		stop()
		done.Wait()
	})
}
