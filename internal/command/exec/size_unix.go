//go:build !windows

package exec

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// resized tells when the terminal has another size.
func resized(ctx context.Context) <-chan os.Signal {
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, syscall.SIGWINCH)
	context.AfterFunc(ctx, func() { signal.Stop(changed) })
	return changed
}
