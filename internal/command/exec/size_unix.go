//go:build !windows

package exec

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// watchTerminalSize returns a channel that signals each change of the terminal's size.
func watchTerminalSize(ctx context.Context) <-chan os.Signal {
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, syscall.SIGWINCH)
	context.AfterFunc(ctx, func() { signal.Stop(changed) })
	return changed
}
