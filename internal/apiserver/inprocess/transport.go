// Package inprocess carries HTTP requests to a handler of the same process, where clients would
// otherwise dial their own process: no TLS, no frames, no header coding. A request makes 40
// allocations here, and 83 by HTTP/1.1 and a listener in memory (2026-11-28, go test -bench .).
// docs/design/own-infrastructure.md weighs the two.
//
// Contract: the handler is called as net/http would call it for HTTP/2, on a goroutine of its own,
// with copies of URL and headers. Its context carries nothing of the client's, but ends when the
// client's ends, when the body of the response is closed, and when the handler returns. Its output
// is visible at the latest when it flushes, returns, or has written more than a megabyte that is
// unread, at which it waits. A panicking handler is a broken connection for its client alone.
// There are no trailers, no informational responses, no compression, no connections to take over,
// and no Date or Content-Type but the handler's. Requests wait until Open, and are refused after
// Stop as by a closed port. Stop ends streams and lets other requests finish; Close ends all.
// Neither waits. A Transport is safe for concurrent use.
package inprocess

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"syscall"
)

// remoteAddr is the address of requests, for the audit log and other readers.
const remoteAddr = "127.0.0.1:0"

// Clients treat these errors as those of connections, and try again where that is safe.
var (
	errRefused = fmt.Errorf("the server of this process has stopped: %w", syscall.ECONNREFUSED)
	errStopped = fmt.Errorf("the server of this process stops: %w", syscall.ECONNRESET)
)

// HandlerTransport is an http.RoundTripper to a handler.
type HandlerTransport struct {
	base    context.Context
	opened  chan struct{}
	stopped chan struct{}

	mu      sync.Mutex
	handler http.Handler
	live    map[*exchange]bool // whether it streams
	refuses bool
}

// New makes a transport that waits for its handler. The handler's contexts descend from
// base.
func New(base context.Context) *HandlerTransport {
	return &HandlerTransport{base: base, opened: make(chan struct{}), stopped: make(chan struct{}), live: map[*exchange]bool{}}
}

// Open lets requests through to the handler; call it once.
func (t *HandlerTransport) Open(h http.Handler) {
	t.mu.Lock()
	t.handler = h
	t.mu.Unlock()
	close(t.opened)
}

// Stop refuses what comes from now on, and ends streams. Safe to call again.
func (t *HandlerTransport) Stop() {
	t.refuseAndEndExchanges(func(streams bool) bool { return streams })
}

// Close does what Stop does, and ends all other requests, too.
func (t *HandlerTransport) Close() { t.refuseAndEndExchanges(func(bool) bool { return true }) }

func (t *HandlerTransport) refuseAndEndExchanges(which func(streams bool) bool) {
	t.mu.Lock()
	if !t.refuses {
		t.refuses = true
		close(t.stopped)
	}
	var ends []*exchange
	for e, streams := range t.live {
		if which(streams) {
			ends = append(ends, e)
		}
	}
	t.mu.Unlock()
	for _, e := range ends {
		e.breakOff(errStopped)
	}
}

// RoundTrip implements http.RoundTripper.
func (t *HandlerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	e := newExchange(t, r)
	handler, err := t.admitExchange(r, e)
	if err != nil {
		e.cancel()
		e.upload.Close()
		return nil, err
	}
	stop := context.AfterFunc(r.Context(), func() { e.abandonExchange(r.Context().Err()) })
	go func() {
		defer t.dropExchange(e)
		defer stop()
		e.serve(handler, serverRequest(r, e))
	}()
	return e.awaitResponse(r)
}

// admitExchange admits the exchange once there is a handler.
func (t *HandlerTransport) admitExchange(r *http.Request, e *exchange) (http.Handler, error) {
	if to := r.Header.Get("Upgrade"); to != "" {
		return nil, fmt.Errorf("%s %s: a request inside of the process has no connection that could become one of %s: dial the server's address",
			r.Method, r.URL.Path, to)
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	select {
	case <-t.opened:
	case <-t.stopped:
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.refuses {
		return nil, errRefused
	}
	t.live[e] = false
	return t.handler, nil
}

// markStreaming notes that the exchange does, and reports whether it may.
func (t *HandlerTransport) markStreaming(e *exchange) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.live[e]; ok {
		t.live[e] = true
	}
	return !t.refuses
}

func (t *HandlerTransport) dropExchange(e *exchange) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.live, e)
}

// serverRequest is the client's request as a server sees it.
func serverRequest(r *http.Request, e *exchange) *http.Request {
	to := &url.URL{Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: r.URL.RawQuery, ForceQuery: r.URL.ForceQuery}
	if to.Path == "" {
		to.Path = "/"
	}
	in := &http.Request{
		Method: e.method, URL: to, RequestURI: to.RequestURI(), Host: r.Host,
		Proto: "HTTP/2.0", ProtoMajor: 2,
		Header: r.Header.Clone(), Body: e.upload, ContentLength: r.ContentLength,
		RemoteAddr: remoteAddr,
	}
	if in.Host == "" {
		in.Host = r.URL.Host
	}
	if in.Header == nil {
		in.Header = http.Header{}
	}
	switch {
	case r.Body == nil || r.Body == http.NoBody:
		in.Body, in.ContentLength = http.NoBody, 0
	case r.ContentLength == 0:
		in.ContentLength = -1 // so a client sends a body of unknown length
	}
	return in.WithContext(e.ctx)
}
