// Package crash contains a panic in an agent that shares its process with others.
//
// Contract: in a context of ContainPanics, a panic of a goroutine that has deferred
// RecoverContained ends that goroutine alone. The container's function gets the panic with its
// stack. In any other context RecoverContained does nothing: an agent with its own process
// crashes, and is restarted by its supervisor. Locks of the goroutine stay locked, so the
// container must stop the rest of the agent, and must not wait for it without a limit. Goroutines
// of libraries are not contained. Fatal errors of Go are not contained either: concurrent map
// writes, stack overflow, missing memory. All functions may be called from any goroutine.
package crash

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
)

// Panic that was contained. It is an error.
type Panic struct {
	// Value that panic was called with.
	Value any
	// Stack of the goroutine then.
	Stack string
}

// Error returns what was panicked about; the stack is for logs.
func (p *Panic) Error() string { return fmt.Sprintf("panic: %v", p.Value) }

type contained struct{}

// panicContainer contains the panics in one context. It keeps the first one.
type panicContainer struct {
	report   func(*Panic)
	once     sync.Once
	first    *Panic // to be read once came is closed
	panicked chan struct{}
}

func panicContainerOf(ctx context.Context) *panicContainer {
	c, _ := ctx.Value(contained{}).(*panicContainer)
	return c
}

// ContainPanics returns a context that contains panics of its goroutines. The panicking goroutine
// calls report, which must not block.
func ContainPanics(ctx context.Context, report func(*Panic)) context.Context {
	return context.WithValue(ctx, contained{}, &panicContainer{report: report, panicked: make(chan struct{})})
}

// PanicContained is closed once a panic was contained, whether or not the context had ended before; nil
// where none is.
func PanicContained(ctx context.Context) <-chan struct{} {
	if c := panicContainerOf(ctx); c != nil {
		return c.panicked
	}
	return nil
}

// ContainedPanic returns the first contained panic of a context, or nil.
func ContainedPanic(ctx context.Context) *Panic {
	select {
	case <-PanicContained(ctx):
		return panicContainerOf(ctx).first
	default:
		return nil
	}
}

// RecoverContained recovers from a panic where the context contains one. It is of use only where a function
// that a goroutine begins with, or all that it does, defers it directly.
func RecoverContained(ctx context.Context) {
	c := panicContainerOf(ctx)
	if c == nil {
		return // the stack of the crash is that of the panic
	}
	if value := recover(); value != nil {
		p := &Panic{Value: value, Stack: string(debug.Stack())}
		c.once.Do(func() { c.first = p; close(c.panicked) })
		c.report(p)
	}
}
