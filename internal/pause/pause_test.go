package pause

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestWaitFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if !WaitFor(t.Context(), 3*time.Second) || time.Since(began) != 3*time.Second {
			t.Errorf("it is false, or returned after %s; want true after 3s", time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began = time.Now()
		if WaitFor(ctx, 3*time.Second) || time.Since(began) != time.Second {
			t.Errorf("it is true, or returned after %s; want false after 1s", time.Since(began))
		}
	})
}

func TestWaitForWakeup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wake := make(chan struct{}, 1)
		wake <- struct{}{}
		began := time.Now()
		if !WaitForWakeup(t.Context(), wake, time.Minute) || time.Since(began) != 0 {
			t.Errorf("it is false, or returned after %s; want true at once", time.Since(began))
		}
		if !WaitForWakeup(t.Context(), wake, time.Minute) || time.Since(began) != time.Minute {
			t.Errorf("it is false, or returned after %s; want true after 1m", time.Since(began))
		}
	})
}
