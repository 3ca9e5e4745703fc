// Package pause waits between two tries of something.
//
// Contract: WaitFor may be called concurrently, holds nothing once it returns, and follows the fake
// clock of testing/synctest.
package pause

import (
	"context"
	"time"
)

// WaitFor waits for d, or until ctx ends; then it is false.
func WaitFor(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
