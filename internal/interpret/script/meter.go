package script

import (
	"fmt"
	"time"

	lua "github.com/yuin/gopher-lua"
)

// The bounds of one answer of a Lua script.
const (
	// MaxSteps of the virtual machine; some 10 to 30 ms of a core.
	MaxSteps = 500_000
	// MaxBytes that an answer may make, the objects that it is asked about included.
	MaxBytes = 12 << 20
	// MaxSource of a script, in bytes.
	MaxSource = 32 << 10
	// maxCalls within each other.
	maxCalls = 80
	// Values on the virtual machine's stack.
	stackValues, maxStackValues = 512, 8192
	// shortText in bytes costs nothing to compare or hash.
	shortText = 256
)

// meter counts what one answer costs. The virtual machine asks its context before each
// instruction whether to stop, and this is that context: hence the signature of Done.
type meter struct {
	steps int64 // that are left
	bytes int64 // that are left
	holes int64 // places in tables that were emptied, which searches pass over
	why   string
	// big whole numbers of the arguments that float64 cannot hold.
	big map[float64]bigNumber
}

type bigNumber struct {
	n         int64
	ambiguous bool
}

var stopped = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// Done is asked before each instruction.
func (m *meter) Done() <-chan struct{} {
	if m.steps--; m.steps >= 0 {
		return nil
	}
	m.stop("")
	return stopped
}

// stop for good: whatever catches the error fails at its next step.
func (m *meter) stop(why string) {
	m.steps = -1
	if m.why == "" {
		if m.why = why; why == "" {
			m.why = fmt.Sprintf("it takes more than %d steps: does a loop not end?", MaxSteps)
		}
	}
}

// pay for what is about to be done; the reason why it may not be.
func (m *meter) pay(steps, bytes int64) (why string) {
	if m.steps -= steps; m.steps < 0 {
		m.stop("")
	}
	if m.bytes -= bytes; m.bytes < 0 {
		m.stop(fmt.Sprintf("it makes more than %d MiB", int64(MaxBytes)>>20))
	}
	if m.steps < 0 {
		return m.why
	}
	return ""
}

// Err is the reason.
func (m *meter) Err() error { return &Error{Why: m.why} }

// Deadline is none.
func (m *meter) Deadline() (time.Time, bool) { return time.Time{}, false }

// Value is none.
func (m *meter) Value(any) any { return nil }

func meterOf(L *lua.LState) *meter { return L.Context().(*meter) }

// charge the script, which ends where it cannot pay.
func charge(L *lua.LState, steps, bytes int64) {
	if why := meterOf(L).pay(steps, bytes); why != "" {
		L.RaiseError("%s", why)
	}
}

// chargeText that is read from end to end.
func chargeText(L *lua.LState, n int) {
	if n > shortText {
		charge(L, int64(n)/64, 0)
	}
}

// Error of a script: which, where and why.
type Error struct {
	// Script is its name and place, Function the one that was called, if any.
	Script, Function string
	// Line and Column in the script, from 1; 0 where they are not known.
	Line, Column int
	// Why in one line.
	Why string
}

// Error in one line.
func (e *Error) Error() string {
	s := e.Script
	if e.Line > 0 {
		s += fmt.Sprintf(", line %d", e.Line)
		if e.Column > 0 {
			s += fmt.Sprintf(", column %d", e.Column)
		}
	}
	if e.Function != "" {
		s += ", " + e.Function
	}
	if s == "" {
		return e.Why
	}
	return s + ": " + e.Why
}
