package exec

import (
	"context"
	"os"

	"golang.org/x/term"
	"k8s.io/client-go/tools/remotecommand"
)

// terminalSizeQueue has the sizes of a terminal, the first at once and the others as it changes.
type terminalSizeQueue struct {
	ctx     context.Context
	of      *os.File
	changed <-chan os.Signal
	last    remotecommand.TerminalSize
}

func newTerminalSizeQueue(ctx context.Context, of *os.File) *terminalSizeQueue {
	return &terminalSizeQueue{ctx: ctx, of: of, changed: watchTerminalSize(ctx)}
}

// Next returns the next size; nil when there is none any more.
func (s *terminalSizeQueue) Next() *remotecommand.TerminalSize {
	for {
		width, height, err := term.GetSize(int(s.of.Fd()))
		if err != nil {
			return nil
		}
		now := remotecommand.TerminalSize{Width: uint16(width), Height: uint16(height)}
		if now != s.last {
			s.last = now
			return &now
		}
		select {
		case <-s.ctx.Done():
			return nil
		case <-s.changed:
		}
	}
}
