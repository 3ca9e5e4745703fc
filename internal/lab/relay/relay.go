// Package relay carries TCP links that can be cut, left half-open, and healed.
//
// Contract:
//
//   - A Link listens on one address and passes every connection to one target,
//     unchanged, in one of three modes. SetMode returns when the new mode is in
//     force for every connection, old and new.
//   - Up passes bytes both ways, and ends of streams too.
//   - Cut resets every connection and refuses new ones: the listener is closed,
//     as on a machine whose service is gone. Back in another mode it listens on
//     the same address.
//   - HalfOpen keeps connections established and takes new ones, but swallows
//     all bytes both ways, and the end of a stream too: each side only sees
//     silence. Connections that lost something that way, or began that way, are
//     reset when the mode changes, since no honest network can continue a
//     stream with a hole in it; those that lost nothing go on.
//   - A Link is safe for concurrent use. Close resets everything and waits for
//     all goroutines.
package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Mode is what a link does with traffic.
type Mode string

// The modes of a link.
const (
	Up       Mode = "Up"
	Cut      Mode = "Cut"
	HalfOpen Mode = "HalfOpen"
)

// dialTimeout bounds the wait for the target of one connection.
const dialTimeout = 5 * time.Second

// Link is one relayed address.
type Link struct {
	listen, target string
	// ctx ends dials; it is the one that Listen got.
	ctx context.Context

	// change serialises SetMode and guards listener.
	change   sync.Mutex
	listener net.Listener
	accepts  sync.WaitGroup
	pumps    sync.WaitGroup

	mu    sync.Mutex
	mode  Mode
	conns map[*conn]struct{}
}

// Listen opens a link in mode Up. With port 0 one is picked, and kept over a
// cut. The end of ctx ends dials to the target; only Close ends the link.
func Listen(ctx context.Context, listen, target string) (*Link, error) {
	l := newLink(ctx, listen, target)
	if err := l.SetMode(ctx, Up); err != nil {
		return nil, err
	}
	return l, nil
}

// newLink makes a link in mode Cut.
func newLink(ctx context.Context, listen, target string) *Link {
	return &Link{listen: listen, target: target, ctx: ctx, mode: Cut, conns: map[*conn]struct{}{}}
}

// Addr is the address that the link listens on when it is not cut.
func (l *Link) Addr() string {
	l.change.Lock()
	defer l.change.Unlock()
	return l.listen
}

// Status is what a link does at a moment.
type Status struct {
	Mode Mode `json:"mode"`
	// Connections counts those that both sides hold open, as far as the relay
	// can know: a half-open one counts until it is reset.
	Connections int `json:"connections"`
}

// Status is the present mode and the number of connections.
func (l *Link) Status() Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Status{Mode: l.mode, Connections: len(l.conns)}
}

// SetMode changes the mode; ctx bounds only the opening of the listener.
func (l *Link) SetMode(ctx context.Context, mode Mode) error {
	l.change.Lock()
	defer l.change.Unlock()
	if mode != Up && mode != Cut && mode != HalfOpen {
		return fmt.Errorf("link mode %q is unknown; use %s, %s or %s", mode, Up, Cut, HalfOpen)
	}
	if mode == Cut {
		l.stopListening()
	}
	l.enforce(mode)
	if mode == Cut {
		return nil
	}
	// The mode is set first, so that no connection comes under the old one.
	if err := l.startListening(ctx); err != nil {
		l.enforce(Cut)
		return err
	}
	return nil
}

// enforce sets the mode and resets the connections that it does not allow.
func (l *Link) enforce(mode Mode) {
	l.mu.Lock()
	l.mode = mode
	var doomed []*conn
	for c := range l.conns {
		if mode == Cut || (mode == Up && c.lost) {
			doomed = append(doomed, c)
		}
	}
	l.mu.Unlock()
	for _, c := range doomed {
		c.reset()
	}
}

// Close ends the link for good.
func (l *Link) Close() {
	// Cut opens nothing, so it cannot fail.
	_ = l.SetMode(l.ctx, Cut)
	l.pumps.Wait()
}

func (l *Link) startListening(ctx context.Context) error {
	if l.listener != nil {
		return nil
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", l.listen)
	if err != nil {
		return fmt.Errorf("link to %s cannot listen: %w", l.target, err)
	}
	l.listener, l.listen = listener, listener.Addr().String()
	l.accepts.Go(func() { l.accept(listener) })
	return nil
}

func (l *Link) stopListening() {
	if l.listener == nil {
		return
	}
	l.listener.Close()
	l.accepts.Wait()
	l.listener = nil
}

// accept takes connections until the listener closes. A connection is known to
// SetMode before accept returns, hence none escapes a cut.
func (l *Link) accept(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			// Out of file descriptors, or the peer went away in between.
			select {
			case <-l.ctx.Done():
			case <-time.After(10 * time.Millisecond):
			}
			continue
		}
		ctx, cancel := context.WithCancel(l.ctx)
		c := &conn{link: l, client: client.(*net.TCPConn), cancel: cancel}
		l.mu.Lock()
		c.lost = l.mode == HalfOpen
		l.conns[c] = struct{}{}
		l.mu.Unlock()
		l.pumps.Go(func() { c.run(ctx) })
	}
}

func (l *Link) forget(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
}
