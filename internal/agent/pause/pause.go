// Package pause waits between two tries of something in the agent.
//
// Contract: For may be called from anywhere, holds nothing once it returns, and
// follows the fake clock of testing/synctest.
package pause

import (
	"context"
	"time"
)

// For waits for d, or until ctx ends; then it is false.
func For(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
