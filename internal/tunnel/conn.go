package tunnel

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/types/known/wrapperspb"
)

// PieceMost is the most that one piece carries, in bytes: two frames of HTTP/2.
const PieceMost = 32 << 10

// partingMost is how long a peer may take to read the last that was written.
const partingMost = time.Minute

// Stream is either end of a gRPC stream of pieces. One goroutine may send while another
// receives.
type Stream interface {
	Send(*wrapperspb.BytesValue) error
	Recv() (*wrapperspb.BytesValue, error)
}

// Conn is a connection over a Stream. Make it with New.
type Conn struct {
	stream Stream
	end    func()
	name   addr

	incoming chan []byte   // from PumpMessages, without a buffer
	finished chan struct{} // closed when nothing more comes
	why      error         // valid once finished is closed

	reading sync.Mutex
	unread  []byte // of the piece that is being read
	until   deadline

	writing       sync.Mutex
	deadlineTimer *time.Timer // closes the connection; nil: no deadline. Under until.mu
	idle          *time.Timer // closes it when nothing moves; nil: it does not. Under until.mu
	parting       *time.Timer // cuts off a closed connection that the peer does not end. Under until.mu

	once   sync.Once
	closed chan struct{}
	moved  atomic.Int64 // when something came or went, in Unix nanoseconds
}

// New returns a connection over the stream. end cuts the stream off, whichever goroutine waits for
// it, and loses data under way. It is called once or never: a stream with a CloseSend, as a
// client's, is closed by that where it can, and the caller cuts it off once PumpMessages has
// returned. name is the text of the connection's addresses.
func New(s Stream, end func(), name string) *Conn {
	c := &Conn{stream: s, end: end, name: addr(name), incoming: make(chan []byte), finished: make(chan struct{}), closed: make(chan struct{})}
	c.moved.Store(time.Now().UnixNano())
	return c
}

// PumpMessages passes data to the reader, until the stream or the connection is over. It is called
// once, and returns why the stream ended: nil where either end closed it.
func (c *Conn) PumpMessages() error {
	// A thousand wait here. With a smaller stack under it, each has half as large a one.
	return c.endReading(c.pumpMessages())
}

// endReading ends reads with the reason.
func (c *Conn) endReading(err error) error {
	if errors.Is(err, io.EOF) {
		c.why = io.EOF
		err = nil
	} else if c.why = err; err == nil {
		c.why = net.ErrClosed
	}
	close(c.finished)
	c.until.mu.Lock()
	defer c.until.mu.Unlock()
	if c.parting != nil {
		c.parting.Stop()
	}
	return err
}

func (c *Conn) pumpMessages() error {
	for {
		p, err := c.stream.Recv()
		if err != nil {
			select {
			case <-c.closed:
				return nil // this end did it
			default:
				return err
			}
		}
		c.moved.Store(time.Now().UnixNano())
		if len(p.GetValue()) == 0 {
			continue
		}
		select {
		case c.incoming <- p.GetValue():
		case <-c.closed: // until the peer has ended it, or end did
		}
	}
}

// CloseWhenIdle closes the connection once nothing came or went for so long. It is called
// before the connection is used, once at most.
func (c *Conn) CloseWhenIdle(limit time.Duration) {
	c.until.mu.Lock()
	defer c.until.mu.Unlock()
	c.idle = time.AfterFunc(limit, func() {
		c.until.mu.Lock()
		defer c.until.mu.Unlock()
		if isClosed(c.closed) {
			return
		}
		if left := limit - time.Since(time.Unix(0, c.moved.Load())); left > 0 {
			c.idle.Reset(left)
		} else {
			go c.Close() // which takes the lock
		}
	})
}

// Read reads received data.
func (c *Conn) Read(b []byte) (int, error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	if len(c.unread) == 0 {
		passed := c.until.wait()
		if isClosed(passed) {
			return 0, os.ErrDeadlineExceeded
		}
		select {
		case c.unread = <-c.incoming:
		case <-c.finished:
			return 0, c.why
		case <-c.closed:
			if isClosed(c.finished) {
				return 0, c.why // it ended before it was closed
			}
			return 0, net.ErrClosed
		case <-passed:
			return 0, os.ErrDeadlineExceeded
		}
	}
	n := copy(b, c.unread)
	if c.unread = c.unread[n:]; len(c.unread) == 0 {
		c.unread = nil
	}
	return n, nil
}

// Write hands bytes to the stream.
func (c *Conn) Write(b []byte) (n int, err error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	for len(b) > 0 {
		if isClosed(c.closed) {
			return n, net.ErrClosed
		}
		part := b[:min(len(b), PieceMost)]
		if err := c.stream.Send(&wrapperspb.BytesValue{Value: part}); err != nil {
			return n, c.toWriteError(err)
		}
		c.moved.Store(time.Now().UnixNano())
		n += len(part)
		b = b[len(part):]
	}
	return n, nil
}

// toWriteError is why nothing can be written any more.
func (c *Conn) toWriteError(err error) error {
	if isClosed(c.closed) {
		return net.ErrClosed
	}
	if errors.Is(err, io.EOF) { // gRPC's word for: Recv returns the reason
		return io.ErrClosedPipe
	}
	return err
}

// Close ends the connection for both ends. Data that was written before arrives, if the peer reads
// it.
func (c *Conn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		parts := c.closeSendingOrEnd()
		c.until.mu.Lock()
		defer c.until.mu.Unlock()
		for _, t := range []*time.Timer{c.deadlineTimer, c.idle} {
			if t != nil {
				t.Stop()
			}
		}
		if parts && !isClosed(c.finished) {
			c.parting = time.AfterFunc(partingMost, c.end)
		}
	})
	return nil
}

// closeSendingOrEnd parts from the peer: true where it is to end the stream once it has read what was
// written. A writer that is stuck is cut off.
func (c *Conn) closeSendingOrEnd() bool {
	s, can := c.stream.(interface{ CloseSend() error })
	if can && c.writing.TryLock() {
		defer c.writing.Unlock()
		if s.CloseSend() == nil {
			return true
		}
	}
	c.end()
	return false
}

// LocalAddr names the tunnel.
func (c *Conn) LocalAddr() net.Addr { return c.name }

// RemoteAddr names the tunnel.
func (c *Conn) RemoteAddr() net.Addr { return c.name }

// SetDeadline sets the deadline for reads and writes.
func (c *Conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline ends reads after t; the zero time: none.
func (c *Conn) SetReadDeadline(t time.Time) error {
	if isClosed(c.closed) {
		return net.ErrClosed
	}
	c.until.set(t)
	return nil
}

// SetWriteDeadline closes the connection after t, unless it is moved on before; the zero
// time: never.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	if isClosed(c.closed) {
		return net.ErrClosed
	}
	c.until.mu.Lock()
	defer c.until.mu.Unlock()
	if c.deadlineTimer != nil {
		c.deadlineTimer.Stop()
		c.deadlineTimer = nil
	}
	if !t.IsZero() {
		c.deadlineTimer = time.AfterFunc(time.Until(t), func() { _ = c.Close() }) // it gives no error
	}
	return nil
}

// addr of a tunnel.
type addr string

func (addr) Network() string  { return "tunnel" }
func (a addr) String() string { return string(a) }

// deadline that may be moved while a goroutine waits for it.
type deadline struct {
	mu     sync.Mutex
	timer  *time.Timer
	passed chan struct{} // closed when it has
}

// wait returns what is closed when the deadline has passed.
func (d *deadline) wait() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.passed == nil {
		d.passed = make(chan struct{})
	}
	return d.passed
}

// set sets the deadline; a goroutine that waits for the one before waits for this one.
func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil && !d.timer.Stop() && d.passed != nil && !isClosed(d.passed) {
		// The timer is about to close it, for a deadline that is not meant any more.
		d.passed = nil
	}
	d.timer = nil
	if d.passed == nil || isClosed(d.passed) {
		d.passed = make(chan struct{})
	}
	if t.IsZero() {
		return
	}
	passed := d.passed
	if wait := time.Until(t); wait > 0 {
		d.timer = time.AfterFunc(wait, func() { close(passed) })
	} else {
		close(passed)
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
