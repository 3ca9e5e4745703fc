// Package relay carries TCP links that can be cut, left half-open, and healed.
//
// Contract:
//
//   - A Link listens on one address and forwards every connection to one target, unchanged,
//     in one of three modes. SetMode returns when the new mode is in force for every
//     connection, old and new.
//   - Up forwards bytes both ways, and ends of streams too.
//   - Cut resets every connection and refuses new ones: the listener is closed, as on a
//     machine whose service is gone. In another mode it listens on the same address again.
//   - HalfOpen keeps connections established and accepts new ones, but discards all bytes
//     both ways, and the end of a stream too: each side only sees silence. A connection
//     that lost bytes, or began in this mode, is reset when the mode changes, because no
//     real network can continue a stream with a hole in it. Other connections continue.
//   - A Link is safe for concurrent use. Close resets everything and waits for all
//     goroutines.
package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Mode is the mode of a link's traffic.
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
	// ctx ends dials; it is the ctx of OpenLink.
	ctx context.Context

	// modeChange serialises SetMode and guards listener.
	modeChange  sync.Mutex
	listener    net.Listener
	acceptLoops sync.WaitGroup
	pumps       sync.WaitGroup

	mu    sync.Mutex
	mode  Mode
	conns map[*relayedConn]struct{}
}

// OpenLink opens a link in mode Up. Port 0 picks a port, which stays over a cut. The end of
// ctx ends dials to the target; only Close ends the link.
func OpenLink(ctx context.Context, listen, target string) (*Link, error) {
	l := newLink(ctx, listen, target)
	if err := l.SetMode(ctx, Up); err != nil {
		return nil, err
	}
	return l, nil
}

// newLink returns a link in mode Cut.
func newLink(ctx context.Context, listen, target string) *Link {
	return &Link{listen: listen, target: target, ctx: ctx, mode: Cut, conns: map[*relayedConn]struct{}{}}
}

// ListenAddress is the address of the link's listener when the link is not cut.
func (l *Link) ListenAddress() string {
	l.modeChange.Lock()
	defer l.modeChange.Unlock()
	return l.listen
}

// Status is the state of a link at a moment.
type Status struct {
	Mode Mode `json:"mode"`
	// Connections counts the connections that both sides hold open, as far as the relay
	// can see: a half-open one counts until it is reset.
	Connections int `json:"connections"`
}

// ReadStatus returns the present mode and the number of connections.
func (l *Link) ReadStatus() Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Status{Mode: l.mode, Connections: len(l.conns)}
}

// SetMode changes the mode; ctx bounds only the opening of the listener.
func (l *Link) SetMode(ctx context.Context, mode Mode) error {
	l.modeChange.Lock()
	defer l.modeChange.Unlock()
	if mode != Up && mode != Cut && mode != HalfOpen {
		return fmt.Errorf("link mode %q is unknown; use %s, %s or %s", mode, Up, Cut, HalfOpen)
	}
	if mode == Cut {
		l.stopListening()
	}
	l.enforceMode(mode)
	if mode == Cut {
		return nil
	}
	// The mode is set first, so that no connection starts under the old one.
	if err := l.startListening(ctx); err != nil {
		l.enforceMode(Cut)
		return err
	}
	return nil
}

// enforceMode sets the mode and resets the connections that the mode forbids.
func (l *Link) enforceMode(mode Mode) {
	l.mu.Lock()
	l.mode = mode
	var doomed []*relayedConn
	for c := range l.conns {
		if mode == Cut || (mode == Up && c.bytesLost) {
			doomed = append(doomed, c)
		}
	}
	l.mu.Unlock()
	for _, c := range doomed {
		c.reset()
	}
}

// Close ends the link permanently.
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
	l.acceptLoops.Go(func() { l.acceptConns(listener) })
	return nil
}

func (l *Link) stopListening() {
	if l.listener == nil {
		return
	}
	l.listener.Close()
	l.acceptLoops.Wait()
	l.listener = nil
}

// acceptConns accepts connections until the listener closes. SetMode sees a connection
// before accept returns, so a cut covers all of them.
func (l *Link) acceptConns(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			// No free file descriptor, or the peer has gone.
			select {
			case <-l.ctx.Done():
			case <-time.After(10 * time.Millisecond):
			}
			continue
		}
		ctx, cancel := context.WithCancel(l.ctx)
		c := &relayedConn{link: l, client: client.(*net.TCPConn), cancel: cancel}
		l.mu.Lock()
		c.bytesLost = l.mode == HalfOpen
		l.conns[c] = struct{}{}
		l.mu.Unlock()
		l.pumps.Go(func() { c.run(ctx) })
	}
}

func (l *Link) dropConn(c *relayedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
}
