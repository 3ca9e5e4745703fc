// Package pause waits between two tries of something.
//
// Contract: all functions may be called concurrently, hold nothing once they return, and follow the
// fake clock of testing/synctest.
package pause

import (
	"context"
	"time"
)

// WaitFor waits for d, or until ctx ends; then it is false.
func WaitFor(ctx context.Context, d time.Duration) bool { return WaitForWakeup(ctx, nil, d) }

// WaitForWakeup waits for d, until wake delivers, or until ctx ends; then it is false.
func WaitForWakeup(ctx context.Context, wake <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-wake:
		return true
	case <-timer.C:
		return true
	}
}
