// Package progress shows on a terminal how far a scenario is.
//
// Contract: a Bar writes to one writer, usually standard error. On a terminal it draws a
// bar, elsewhere a line per step. It is safe for concurrent use.
package progress

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// ProgressBar shows the progress of the present step.
type ProgressBar struct {
	out      io.Writer
	terminal bool

	mu    sync.Mutex
	bar   *progressbar.ProgressBar
	what  string
	begun time.Time
	total int
	done  int
}

// NewProgressBar returns a bar on the writer.
func NewProgressBar(out io.Writer) *ProgressBar {
	f, ok := out.(*os.File)
	return &ProgressBar{out: out, terminal: ok && term.IsTerminal(int(f.Fd()))}
}

// BeginStep begins another step; total is 0 if it is unknown.
func (b *ProgressBar) BeginStep(what string, total int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.finishLocked()
	b.what, b.begun, b.total, b.done = what, time.Now(), total, 0
	if !b.terminal {
		return
	}
	if total == 0 {
		total = -1 // a spinner
	}
	b.bar = progressbar.NewOptions(total, progressbar.OptionSetWriter(b.out), progressbar.OptionSetDescription(what),
		progressbar.OptionShowCount(), progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionFullWidth())
}

// SetDone sets the finished part of the step.
func (b *ProgressBar) SetDone(done int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.done = done
	if b.bar != nil {
		_ = b.bar.Set(done) // a bar that cannot be drawn is no reason to end
	}
}

// FinishStep finishes the last step.
func (b *ProgressBar) FinishStep() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.finishLocked()
}

func (b *ProgressBar) finishLocked() {
	if b.what == "" {
		return
	}
	if b.bar != nil {
		_ = b.bar.Clear()
		b.bar = nil
	}
	count := ""
	if b.total > 0 {
		count = fmt.Sprintf(" (%d of %d)", b.done, b.total)
	}
	fmt.Fprintf(b.out, "%7.1fs  %s%s\n", time.Since(b.begun).Seconds(), b.what, count)
	b.what = ""
}
