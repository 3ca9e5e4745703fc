// Package crash contains a panic in an agent that shares its process with others.
//
// Contract: in a context that Contain gave, a panic of a goroutine that has deferred
// Recover ends that goroutine alone, and who contains is told of it, with the stack. In any
// other context Recover does nothing: an agent that has a process to itself crashes, and is
// started anew by who runs it. Whatever the goroutine held is not given back, so who
// contains must stop all the rest of the agent, and must not wait for it for ever.
// Goroutines of libraries are not contained, nor is what Go ends a process for without a
// panic: maps that are written at once, stacks without end, memory that is not there.
// All functions may be called from any goroutine.
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

// Error says what was panicked about; the stack is for logs.
func (p *Panic) Error() string { return fmt.Sprintf("panic: %v", p.Value) }

type contained struct{}

// container of the panics in one context. Its first one it keeps.
type container struct {
	told  func(*Panic)
	once  sync.Once
	first *Panic // to be read once came is closed
	came  chan struct{}
}

func containerOf(ctx context.Context) *container {
	c, _ := ctx.Value(contained{}).(*container)
	return c
}

// Contain gives a context in whose goroutines a panic is told to who contains, by the
// goroutine that panicked. told must not block.
func Contain(ctx context.Context, told func(*Panic)) context.Context {
	return context.WithValue(ctx, contained{}, &container{told: told, came: make(chan struct{})})
}

// Came is closed once a panic was contained, whether or not the context had ended before; nil
// where none is.
func Came(ctx context.Context) <-chan struct{} {
	if c := containerOf(ctx); c != nil {
		return c.came
	}
	return nil
}

// Of gives the first panic that was contained in a context; nil: there was none.
func Of(ctx context.Context) *Panic {
	select {
	case <-Came(ctx):
		return containerOf(ctx).first
	default:
		return nil
	}
}

// Recover from a panic where the context contains one. It is of use only where a function
// that a goroutine begins with, or all that it does, defers it directly.
func Recover(ctx context.Context) {
	c := containerOf(ctx)
	if c == nil {
		return // the stack of the crash is that of the panic
	}
	if value := recover(); value != nil {
		p := &Panic{Value: value, Stack: string(debug.Stack())}
		c.once.Do(func() { c.first = p; close(c.came) })
		c.told(p)
	}
}
