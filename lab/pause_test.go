package lab

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestPauseFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if err := PauseFor(t.Context(), 3*time.Second); err != nil || time.Since(began) != 3*time.Second {
			t.Errorf("%v after %s, want no error after 3s", err, time.Since(began))
		}
		end := errors.New("the end")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(end) })
		began = time.Now()
		if err := PauseFor(ctx, 3*time.Second); err != end || time.Since(began) != time.Second {
			t.Errorf("%v after %s, want the cause after 1s", err, time.Since(began))
		}
	})
}
