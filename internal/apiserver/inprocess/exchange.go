package inprocess

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
)

const (
	// unreadLimit is how much a handler may write ahead of its client.
	unreadLimit = 1 << 20
	// keptCapacity is how large a buffer a stream keeps while all is read.
	keptCapacity = 64 << 10
)

var errReturned = errors.New("the handler of this request has returned: nothing more can be written")

// exchange is one request and its response: an http.ResponseWriter to the handler, and
// the response's body to the client.
type exchange struct {
	method    string
	upload    *requestBody
	ctx       context.Context // the handler's
	cancel    context.CancelFunc
	header    http.Header // the handler's until it writes
	transport *HandlerTransport

	mu        sync.Mutex
	changed   sync.Cond // of what is below, for both sides
	status    int       // 0: not written
	frozen    http.Header
	declared  int64 // length that the handler promised; -1: none
	written   int64
	unread    bytes.Buffer
	flushed   bool
	headReady bool // the client may have the head
	returned  bool
	err       error // why the exchange ended before the handler returned
}

func newExchange(over *HandlerTransport, r *http.Request) *exchange {
	e := &exchange{method: r.Method, header: http.Header{}, transport: over, declared: -1, upload: newRequestBody(r.Body)}
	if e.method == "" {
		e.method = http.MethodGet
	}
	e.changed.L = &e.mu
	e.ctx, e.cancel = context.WithCancel(over.base)
	return e
}

// serve lets the handler answer. It returns when the handler has.
func (e *exchange) serve(h http.Handler, r *http.Request) {
	orderly := false
	defer func() {
		if p := recover(); !orderly {
			why, _, _ := strings.Cut(fmt.Sprint(p), "\n") // upstream's filters add the stack, and log it
			e.breakOff(fmt.Errorf("%s %s: the handler panicked: %s: %w", r.Method, r.URL.Path, why, syscall.ECONNRESET))
		}
		e.cancel()
		e.upload.Close()
	}()
	h.ServeHTTP(e, r)
	e.finishResponse()
	orderly = true
}

// finishResponse finishes the response of a handler that returned.
func (e *exchange) finishResponse() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.writeHeader(http.StatusOK)
	if e.declared >= 0 && e.written != e.declared && !e.hasNoBody() && e.err == nil {
		e.err = io.ErrUnexpectedEOF
	}
	e.returned, e.headReady = true, e.headReady || e.err == nil
	e.changed.Broadcast()
}

// Header implements http.ResponseWriter.
func (e *exchange) Header() http.Header { return e.header }

// WriteHeader implements http.ResponseWriter.
func (e *exchange) WriteHeader(status int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.writeHeader(status)
}

// writeHeader freezes the head. The caller holds mu.
func (e *exchange) writeHeader(status int) {
	if e.status != 0 || e.returned || status >= 100 && status < 200 {
		return
	}
	e.status, e.frozen = status, e.header.Clone()
	for _, of := range []string{"Connection", "Transfer-Encoding", "Keep-Alive"} {
		delete(e.frozen, of) // there is no connection that they could be of
	}
	if length, err := strconv.ParseInt(e.frozen.Get("Content-Length"), 10, 64); err == nil && length >= 0 {
		e.declared = length
	}
}

// hasNoBody reports whether the response has no body. The caller holds mu.
func (e *exchange) hasNoBody() bool {
	return e.method == http.MethodHead || e.status == http.StatusNoContent || e.status == http.StatusNotModified
}

// Write implements http.ResponseWriter. It waits for a client that reads slowly.
func (e *exchange) Write(p []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.writeHeader(http.StatusOK)
	switch {
	case e.returned:
		return 0, errReturned
	case e.declared >= 0 && e.written+int64(len(p)) > e.declared:
		return 0, http.ErrContentLength
	case e.method == http.MethodHead: // a handler need not check this
		e.written += int64(len(p))
		return len(p), nil
	case e.hasNoBody():
		return 0, http.ErrBodyNotAllowed
	}
	n := 0
	for e.err == nil {
		part := min(len(p)-n, unreadLimit-e.unread.Len())
		e.unread.Write(p[n : n+part])
		n += part
		e.written += int64(part)
		if n == len(p) {
			return n, nil
		}
		e.awaitRoom()
	}
	return n, e.err
}

// awaitRoom passes the client what there is, and waits until it has read half of it, so
// that the two do not take turns for each small read. The caller holds mu.
func (e *exchange) awaitRoom() {
	e.headReady = true
	e.changed.Broadcast()
	for e.err == nil && e.unread.Len() > unreadLimit/2 {
		e.changed.Wait()
	}
}

// Flush implements http.Flusher.
func (e *exchange) Flush() {
	e.mu.Lock()
	e.writeHeader(http.StatusOK)
	first := !e.flushed
	e.flushed = true
	if e.err == nil {
		e.headReady = true
	}
	e.changed.Broadcast()
	e.mu.Unlock()
	if first && !e.transport.markStreaming(e) {
		e.breakOff(errStopped)
	}
}

// CloseNotify is required by wrappers of HTTP/2 writers, with Flush.
func (e *exchange) CloseNotify() <-chan bool {
	gone := make(chan bool, 1)
	context.AfterFunc(e.ctx, func() { gone <- true })
	return gone
}

// breakOff ends the exchange for both sides; the client may read what it was given.
func (e *exchange) breakOff(why error) {
	e.mu.Lock()
	ended := e.returned || e.err != nil
	if !ended {
		e.err = why
		e.changed.Broadcast()
	}
	e.mu.Unlock()
	if !ended {
		e.cancel()
		e.upload.Close()
	}
}

// abandonExchange ends the exchange because the client does: nothing more is given to it.
func (e *exchange) abandonExchange(why error) {
	e.mu.Lock()
	if e.returned && why != http.ErrBodyReadAfterClose {
		e.mu.Unlock()
		return // all is there to be read
	}
	if e.err == nil || e.returned {
		e.err = why
	}
	e.headReady, e.unread = false, bytes.Buffer{}
	e.changed.Broadcast()
	e.mu.Unlock()
	e.cancel()
	e.upload.Close()
}

// awaitResponse waits for the head.
func (e *exchange) awaitResponse(r *http.Request) (*http.Response, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for !e.headReady && e.err == nil {
		e.changed.Wait()
	}
	if !e.headReady {
		return nil, e.err
	}
	return &http.Response{
		Status:     strconv.Itoa(e.status) + " " + http.StatusText(e.status),
		StatusCode: e.status,
		Proto:      "HTTP/2.0", ProtoMajor: 2,
		Header: e.frozen, Body: (*responseBody)(e), ContentLength: e.contentLength(),
		Request: r,
	}, nil
}

// contentLength returns the length of the response, which is known once the handler returned; -1: unknown. The
// caller holds mu, and the client has read nothing.
func (e *exchange) contentLength() int64 {
	head := e.method == http.MethodHead
	switch {
	case e.declared >= 0 || !e.returned || head && e.written == 0:
		return e.declared
	case head || !e.hasNoBody():
		e.frozen.Set("Content-Length", strconv.FormatInt(e.written, 10))
	}
	return e.written
}

// responseBody is the client's side of an exchange that has a head.
type responseBody exchange

// Read implements io.Reader.
func (b *responseBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		switch {
		case b.unread.Len() > 0 || len(p) == 0:
			before := b.unread.Len()
			n, _ := b.unread.Read(p)
			if b.unread.Len() == 0 && b.unread.Cap() > keptCapacity {
				b.unread = bytes.Buffer{}
			}
			if before > unreadLimit/2 && b.unread.Len() <= unreadLimit/2 {
				b.changed.Broadcast() // a handler may wait for room
			}
			return n, nil
		case b.err != nil:
			return 0, b.err
		case b.returned:
			return 0, io.EOF
		}
		b.changed.Wait()
	}
}

// Close implements io.Closer, and ends a handler that is not done.
func (b *responseBody) Close() error {
	(*exchange)(b).abandonExchange(http.ErrBodyReadAfterClose)
	return nil
}

// requestBody is the body of a request. A handler that outlives its request, as upstream's may
// that timed out, no longer reads it.
type requestBody struct {
	io.ReadCloser
	closed atomic.Bool
}

func newRequestBody(b io.ReadCloser) *requestBody {
	if b == nil {
		b = http.NoBody
	}
	return &requestBody{ReadCloser: b}
}

func (u *requestBody) Read(p []byte) (int, error) {
	if u.closed.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	return u.ReadCloser.Read(p)
}

// Close closes the client's body, once.
func (u *requestBody) Close() error {
	if u.closed.Swap(true) {
		return nil
	}
	return u.ReadCloser.Close()
}
