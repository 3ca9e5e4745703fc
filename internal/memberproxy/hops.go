package memberproxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"atoll.dev/atoll/internal/tunnel"
)

// lowMemoryReadTransport carries read-only requests to agents: requests without a body that may be made twice. A
// thousand of these wait for silent logs and watches, and net/http's own transport has two
// goroutines and a buffer for each way beside each of them. Here the reader of an answer reads its
// connection, and takes a buffer once data comes. Other requests use other transports.
type lowMemoryReadTransport struct {
	dial   func(ctx context.Context, uid string) (net.Conn, error)
	others http.RoundTripper

	mu   sync.Mutex
	idle map[string][]*requestConn // by UID
}

// readAhead of a connection, in bytes: the part of an answer that is held while it is not read.
const readAhead = 1 << 10

// requestConn is one connection, which carries a request at a time.
type requestConn struct {
	net.Conn
	in    *bufio.Reader
	left  int64 // of what may come
	used  bool  // by a request before
	timer *time.Timer
	// received reports that something has, since the request.
	received atomic.Bool
}

// Read reads for the buffer.
func (h *requestConn) Read(b []byte) (int, error) {
	if h.left <= 0 {
		return 0, fmt.Errorf("the header of its answer is larger than %d bytes", headerMost)
	}
	n, err := h.Conn.Read(b[:min(int64(len(b)), h.left)])
	h.left -= int64(n)
	if n > 0 {
		h.received.Store(true)
	}
	return n, err
}

// RoundTrip makes a request.
func (t *lowMemoryReadTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	if !reads || r.Body != nil && r.Body != http.NoBody || isUpgradeRequest(r) {
		return t.others.RoundTrip(r)
	}
	for {
		h := t.takeIdle(r.URL.Host)
		answer, err := t.roundTrip(r, &h)
		if err == nil {
			return answer, nil
		}
		if ctx := r.Context(); ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if h == nil || !h.used || h.received.Load() {
			return nil, err
		}
		// The agent had closed it in between.
	}
}

// roundTrip uses a connection, a new one where there is none; it is closed where that fails. Work
// that needs much stack, which the waiting goroutine would keep, runs in another one.
func (t *lowMemoryReadTransport) roundTrip(r *http.Request, at **requestConn) (*http.Response, error) {
	var stop func() bool
	wrote := make(chan error, 1)
	go func() {
		if *at == nil {
			conn, err := t.dial(r.Context(), r.URL.Host)
			if err != nil {
				wrote <- err
				return
			}
			*at = newRequestConn(conn)
		}
		h := *at
		h.received.Store(false)
		stop = context.AfterFunc(r.Context(), func() { _ = h.Close() }) // it gives no error
		wrote <- h.writeRequest(r)
	}()
	err := <-wrote
	if *at == nil {
		return nil, err
	}
	h := *at
	var answer *http.Response
	if err == nil {
		answer, err = h.readAnswer(r)
	}
	if err != nil {
		stop()
		_ = h.Close() // it gives no error
		return nil, err
	}
	b := &responseBody{ReadCloser: answer.Body, h: h, awaits: answer.ContentLength < 0}
	b.end = sync.OnceFunc(func() {
		if !stop() || !b.whole || answer.Close || h.in.Buffered() > 0 {
			_ = h.Close() // it gives no error
			return
		}
		t.keepIdle(r.URL.Host, h)
	})
	if answer.Body = b; r.Method == http.MethodHead || answer.ContentLength == 0 {
		b.whole = true
		b.end()
		answer.Body = http.NoBody
	}
	return answer, nil
}

func newRequestConn(conn net.Conn) *requestConn {
	h := &requestConn{Conn: conn}
	h.in = bufio.NewReaderSize(h, readAhead)
	return h
}

// writeRequest writes a request to the tunnel.
func (h *requestConn) writeRequest(r *http.Request) error {
	out := writers.Get().(*bufio.Writer)
	defer writers.Put(out)
	out.Reset(h)
	defer out.Reset(nil)
	return errors.Join(r.Write(out), out.Flush())
}

var writers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, 4<<10) }}

// readAnswer returns the answer to the request that was written.
func (h *requestConn) readAnswer(r *http.Request) (*http.Response, error) {
	h.left = headerMost
	for {
		answer, err := http.ReadResponse(h.in, r)
		switch {
		case err != nil:
			return nil, fmt.Errorf("read its answer: %w", err)
		case answer.StatusCode == http.StatusSwitchingProtocols:
			return nil, errNobodyAsked
		case answer.StatusCode >= http.StatusContinue && answer.StatusCode < http.StatusOK:
			continue // more is to come
		}
		h.left = math.MaxInt64
		return answer, nil
	}
}

// takeIdle returns a connection that waits; nil where none does.
func (t *lowMemoryReadTransport) takeIdle(uid string) *requestConn {
	t.mu.Lock()
	defer t.mu.Unlock()
	waiting := t.idle[uid]
	for n := len(waiting) - 1; n >= 0; n-- {
		h := waiting[n]
		if waiting = waiting[:n]; n == 0 {
			delete(t.idle, uid)
		} else {
			t.idle[uid] = waiting
		}
		if h.timer.Stop() {
			h.used = true
			return h
		}
	}
	return nil
}

// keepIdle keeps a connection for the next request.
func (t *lowMemoryReadTransport) keepIdle(uid string, h *requestConn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.idle[uid]) >= idlePerCluster {
		_ = h.Close() // it gives no error
		return
	}
	if t.idle == nil {
		t.idle = map[string][]*requestConn{}
	}
	t.idle[uid] = append(t.idle[uid], h)
	h.timer = time.AfterFunc(idleTimeout, func() { t.closeIdleConnection(uid, h) })
}

// closeIdleConnection closes an unused connection.
func (t *lowMemoryReadTransport) closeIdleConnection(uid string, h *requestConn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, one := range t.idle[uid] {
		if one != h {
			continue
		}
		if rest := append(t.idle[uid][:i:i], t.idle[uid][i+1:]...); len(rest) > 0 {
			t.idle[uid] = rest
		} else {
			delete(t.idle, uid)
		}
	}
	_ = h.Close() // it gives no error
}

// CloseIdleConnections closes idle connections that wait for another request.
func (t *lowMemoryReadTransport) CloseIdleConnections() {
	t.mu.Lock()
	idle := t.idle
	t.idle = nil
	t.mu.Unlock()
	for _, waiting := range idle {
		for _, h := range waiting {
			h.timer.Stop()
			_ = h.Close() // it gives no error
		}
	}
	if c, ok := t.others.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// responseBody is the body of an answer. It has one reader.
type responseBody struct {
	io.ReadCloser
	h      *requestConn
	awaits bool // something comes after all that was read, if only its end
	whole  bool // it was read
	end    func()
}

// Read reads the next part of the response's body.
func (b *responseBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.whole = true
		b.end()
	}
	return n, err
}

// Close closes it; a connection of which something is left to read is closed too.
func (b *responseBody) Close() error {
	b.end()
	return nil
}

// AwaitData returns when there is something to read, or nothing more.
func (b *responseBody) AwaitData() {
	if b.awaits && !b.whole {
		_, _ = b.h.in.Peek(1) // a read reports it
	}
}

// WriteTo passes all on. A buffer is taken for what has come, and not for waiting.
func (b *responseBody) WriteTo(w io.Writer) (passed int64, err error) {
	for {
		b.AwaitData()
		n, err := copyOneRead(w, b)
		passed += n
		if err == io.EOF {
			return passed, nil
		}
		if err != nil {
			return passed, err
		}
	}
}

// copyOneRead passes some of what is there.
func copyOneRead(w io.Writer, r io.Reader) (int64, error) {
	buffer := tunnel.Buffers{}.Get()
	defer tunnel.Buffers{}.Put(buffer)
	n, err := r.Read(buffer)
	if n > 0 {
		if _, failed := w.Write(buffer[:n]); failed != nil {
			return int64(n), failed
		}
	}
	return int64(n), err
}
