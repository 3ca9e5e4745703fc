package lab

import (
	"context"
	"time"

	"atoll.dev/atoll/internal/pause"
)

// PauseFor pauses for d, or until ctx ends. It returns the cause of that end.
func PauseFor(ctx context.Context, d time.Duration) error {
	if pause.WaitFor(ctx, d) {
		return nil
	}
	return context.Cause(ctx)
}
