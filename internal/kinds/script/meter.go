package script

import (
	"fmt"
	"time"

	lua "github.com/yuin/gopher-lua"
)

// The bounds of one answer of a Lua script.
const (
	// MaxSteps of the virtual machine: 10 to 30 ms of a core.
	MaxSteps = 500_000
	// MaxBytes that an answer may allocate, the tables of its arguments included.
	MaxBytes = 12 << 20
	// MaxSource of a script, in bytes.
	MaxSource = 32 << 10
	// maxCalls is the depth of nested calls.
	maxCalls = 80
	// Values on the virtual machine's stack.
	stackValues, maxStackValues = 512, 8192
	// shortText is the length, in bytes, up to which comparing and hashing is free.
	shortText = 256
)

// costMeter counts the cost of one answer. The virtual machine checks its context before each
// instruction whether to stop, and costMeter is that context. This explains the signature of
// Done. It is not safe for concurrent use.
type costMeter struct {
	stepsLeft  int64
	bytesLeft  int64
	emptySlots int64 // emptied slots in tables; searches walk over them
	stopReason string
	// bigIntegers are whole numbers of the arguments that float64 cannot hold.
	bigIntegers map[float64]bigInteger
}

type bigInteger struct {
	n         int64
	ambiguous bool
}

var closedChannel = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// Done counts a step; the virtual machine calls it before each instruction.
func (m *costMeter) Done() <-chan struct{} {
	if m.stepsLeft--; m.stepsLeft >= 0 {
		return nil
	}
	m.stop("")
	return closedChannel
}

// stop ends the answer for good: a script that catches the error fails at its next step.
func (m *costMeter) stop(why string) {
	m.stepsLeft = -1
	if m.stopReason == "" {
		if m.stopReason = why; why == "" {
			m.stopReason = fmt.Sprintf("it takes more than %d steps: does a loop not end?", MaxSteps)
		}
	}
}

// spendCost charges for the next operation. It returns the reason where a bound is exceeded.
func (m *costMeter) spendCost(steps, bytes int64) (why string) {
	if m.stepsLeft -= steps; m.stepsLeft < 0 {
		m.stop("")
	}
	if m.bytesLeft -= bytes; m.bytesLeft < 0 {
		m.stop(fmt.Sprintf("it makes more than %d MiB", int64(MaxBytes)>>20))
	}
	if m.stepsLeft < 0 {
		return m.stopReason
	}
	return ""
}

// Err implements context.Context.
func (m *costMeter) Err() error { return &Error{Why: m.stopReason} }

// Deadline implements context.Context.
func (m *costMeter) Deadline() (time.Time, bool) { return time.Time{}, false }

// Value implements context.Context.
func (m *costMeter) Value(any) any { return nil }

func meterOf(L *lua.LState) *costMeter { return L.Context().(*costMeter) }

// chargeCost charges the script, and throws where a bound is exceeded.
func chargeCost(L *lua.LState, steps, bytes int64) {
	if why := meterOf(L).spendCost(steps, bytes); why != "" {
		L.RaiseError("%s", why)
	}
}

// chargeString charges for reading a text of n bytes.
func chargeString(L *lua.LState, n int) {
	if n > shortText {
		chargeCost(L, int64(n)/64, 0)
	}
}

// Error is a failure of a script.
type Error struct {
	// Script is the name and place of the script, Function the function that was called, if any.
	Script, Function string
	// Line and Column in the script, from 1; 0 where they are unknown.
	Line, Column int
	// Why is the reason, in one line.
	Why string
}

// Error returns place, function and reason in one line.
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
