package h2

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/credentials"
)

// pastDeadline makes a blocked read return at once.
var pastDeadline = time.Unix(1, 0)

// closeTimeout limits how long a failed connection can still write.
const closeTimeout = time.Second

// serverConn is one connection of a Server. Locks are taken in the order bulkMu, writeMu, mu.
type serverConn struct {
	server      *Server
	netConn     net.Conn
	baseContext context.Context // parent of the calls' contexts

	lastRead     atomic.Int64 // time of the last read, in Unix nanoseconds
	writeStarted atomic.Int64 // start of the current write, in Unix nanoseconds; 0 when no write is running
	pingedAt     int64        // when the keepalive pinged a silent peer; used by the keepalive ticker only

	input input // used by the reading goroutine

	mu              sync.Mutex
	change          sync.Cond // broadcast after every event that a goroutine can wait for
	waiting         int       // goroutines in awaitCondition
	beingRead       bool      // one of them reads
	readInterrupted bool      // the read deadline was set to interrupt it
	// the peer's first SETTINGS frame was read
	settingsReceived bool
	err              error // why the connection ended

	streams      []*serverStream
	lastStreamID uint32        // highest stream that the peer opened
	idle         bool          // the connection's goroutine runs no call
	nextStream   *serverStream // call that the connection's goroutine runs next

	sendWindow        int64 // of the connection
	initialSendWindow int64 // of a new stream
	maxSendWindow     int64 // highest value that sendWindow has had
	recvWindow        int64 // size of the receive window
	recvAvailable     int64 // part of it that the peer can still use
	flood             floodGuard

	// A call that is not Inline holds bulkMu for each chunk of a message. So an Inline call waits for
	// at most one chunk before it writes.
	bulkMu, writeMu sync.Mutex
}

// input is the frame that is being read, and the state that is kept between frames.
type input struct {
	// of the header; then the length of the whole frame
	haveBytes int
	header    [frameHeaderBytes]byte
	frame     *[]byte        // header and body, once the header is complete
	block     *headerBlock   // header block that a CONTINUATION frame continues
	decoder   *hpack.Decoder // nil while its dynamic table is empty
}

func newConn(s *Server, nc net.Conn, info credentials.AuthInfo) *serverConn {
	c := &serverConn{
		server: s, netConn: nc, baseContext: withPeer(s.baseContext, nc, info),
		sendWindow: initialWindow, maxSendWindow: initialWindow, initialSendWindow: initialWindow, recvWindow: int64(max(s.options.Window, initialWindow)),
	}
	c.recvAvailable = c.recvWindow
	c.change.L = &c.mu
	now := time.Now().UnixNano()
	c.lastRead.Store(now)
	c.flood.periodStart = now
	return c
}

// serve serves the connection until it ends.
func (c *serverConn) serve() {
	if err := c.exchangePrefaces(); err != nil {
		c.fail(err)
	}
	c.mu.Lock()
	for {
		c.idle = true
		c.awaitCondition(func() bool { return c.nextStream != nil || c.err != nil })
		c.idle = false
		s := c.nextStream
		c.nextStream = nil
		if s == nil {
			break
		}
		c.mu.Unlock()
		s.run()
		c.mu.Lock()
	}
	for c.beingRead { // another goroutine still reads; its read was interrupted
		c.change.Wait()
	}
	err, highest := c.err, c.lastStreamID
	c.mu.Unlock()
	c.close(err, highest)
}

// exchangePrefaces sends the server's settings and checks the client's preface.
func (c *serverConn) exchangePrefaces() error {
	o := &c.server.options
	w := writers.Get().(*frameWriter)
	defer w.release()
	err := errors.Join(
		w.framer.WriteSettings(
			http2.Setting{ID: http2.SettingHeaderTableSize, Val: 0},
			http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: uint32(o.Streams)},
			http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(o.Window)},
			http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: uint32(o.FieldsMost)},
		),
	)
	if o.Window > initialWindow {
		err = errors.Join(err, w.framer.WriteWindowUpdate(0, uint32(o.Window-initialWindow)))
	}
	if err == nil {
		c.writeMu.Lock()
		err = c.flush(w)
		c.writeMu.Unlock()
	}
	if err != nil {
		return err
	}
	preface := getBuffer(len(http2.ClientPreface))
	defer recycleBuffer(preface)
	b := (*preface)[:len(http2.ClientPreface)]
	if _, err := io.ReadFull(c.netConn, b); err != nil {
		return fmt.Errorf("read the preface: %w", err)
	}
	if string(b) != http2.ClientPreface {
		return connError{http2.ErrCodeProtocol, "the client's preface is not that of HTTP/2"}
	}
	return nil
}

// close closes the connection. It sends a GOAWAY when the server stops, and when why is a
// connError with a code.
func (c *serverConn) close(why error, highest uint32) {
	if c.input.frame != nil {
		recycleBuffer(c.input.frame)
		c.input.frame = nil
	}
	code, tell := http2.ErrCodeNo, errors.Is(why, errStopped)
	var b connError
	if errors.As(why, &b) && b.code != 0 {
		code, tell = b.code, true
	}
	if tell {
		w := writers.Get().(*frameWriter)
		defer w.release()
		c.writeMu.Lock()
		defer c.writeMu.Unlock()
		if err := w.framer.WriteGoAway(highest, code, []byte(why.Error())); err == nil && c.flush(w) == nil {
			_ = c.netConn.Close() // with TLS's close_notify
			return
		}
	}
	c.dropConnection()
}

// dropConnection closes the connection without a last message, because writing it could block.
func (c *serverConn) dropConnection() {
	if t, ok := c.netConn.(interface{ NetConn() net.Conn }); ok {
		_ = t.NetConn().Close() // its end is not reported
		return
	}
	_ = c.netConn.Close()
}

// closeNow closes the connection at once, even while another goroutine writes to it.
func (c *serverConn) closeNow(why error) {
	c.fail(why)
	c.dropConnection()
}

// fail records why the connection ended, ends its calls and wakes every waiting goroutine. The
// connection's goroutine then closes it.
func (c *serverConn) fail(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failLocked(why)
}

// failLocked is fail for a caller that holds mu.
func (c *serverConn) failLocked(why error) {
	if c.err != nil {
		return
	}
	c.err = why
	for _, s := range c.streams {
		s.endLocked(errConnClosed)
	}
	c.readInterrupted = true
	_ = c.netConn.SetReadDeadline(pastDeadline)
	_ = c.netConn.SetWriteDeadline(time.Now().Add(closeTimeout)) // where this fails, the keepalive closes the connection
	c.change.Broadcast()
}

// wakeReader interrupts the reading goroutine, and wakes the waiting ones. The caller holds mu.
func (c *serverConn) wakeReader() {
	if c.beingRead {
		c.readInterrupted = true
		_ = c.netConn.SetReadDeadline(pastDeadline) // fails only on a closed connection, whose reads return anyway
	}
	c.change.Broadcast()
}

// awaitCondition waits until done returns true. A waiting goroutine reads the connection when no
// other does. The caller holds mu. done must return true once the connection has ended.
func (c *serverConn) awaitCondition(done func() bool) {
	c.waiting++
	for !done() {
		if c.beingRead {
			c.change.Wait()
			continue
		}
		c.beingRead = true
		if c.readInterrupted {
			c.readInterrupted = false
			_ = c.netConn.SetReadDeadline(time.Time{}) // as in wakeReader
		}
		c.mu.Unlock()
		err := c.readFrame()
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			_ = c.server.closeLimiter.Wait(c.baseContext) // baseContext is never canceled; the wait is bounded by the limiter
		}
		c.mu.Lock()
		c.beingRead = false
		if err != nil && (!c.readInterrupted || !errors.Is(err, os.ErrDeadlineExceeded)) {
			c.failLocked(err)
		}
		c.change.Broadcast()
	}
	c.waiting--
	c.change.Broadcast()
}

// readFrame reads and handles one frame. An interrupted read continues at the next call.
func (c *serverConn) readFrame() error {
	in := &c.input
	for in.haveBytes < frameHeaderBytes {
		n, err := c.netConn.Read(in.header[in.haveBytes:])
		in.haveBytes += n
		if err != nil {
			return err
		}
	}
	if in.frame == nil {
		length := int(in.header[0])<<16 | int(in.header[1])<<8 | int(in.header[2])
		if length > maxFrameBytes {
			return connError{http2.ErrCodeFrameSize, "the frame is larger than allowed"}
		}
		in.frame = getBuffer(frameHeaderBytes + length)
		*in.frame = append(*in.frame, in.header[:]...)
		in.haveBytes = frameHeaderBytes + length
	}
	for b := *in.frame; len(b) < in.haveBytes; *in.frame = b {
		n, err := c.netConn.Read(b[len(b):in.haveBytes])
		b = b[:len(b)+n]
		if err != nil {
			*in.frame = b
			return err
		}
	}
	c.lastRead.Store(time.Now().UnixNano())
	frame := in.frame
	in.frame, in.haveBytes = nil, 0
	defer recycleBuffer(frame)
	return c.processFrameRecovering(*frame)
}

// processFrameRecovering processes a frame. A panic ends the connection, and nothing else of the server.
func (c *serverConn) processFrameRecovering(frame []byte) (err error) {
	defer func() {
		value := recover()
		if value == nil {
			return
		}
		if panics := c.server.options.Panics; panics != nil {
			panics.ReportPanic(value)
		}
		err = connError{http2.ErrCodeInternal, "the server failed to handle a frame"}
	}()
	return c.processFrame(frame)
}

// parser parses frames from memory.
type parser struct {
	bytes.Reader
	framer *http2.Framer
}

var parsers = sync.Pool{New: func() any {
	p := &parser{}
	p.framer = http2.NewFramer(nil, &p.Reader)
	p.framer.SetReuseFrames()
	p.framer.SetMaxReadFrameSize(maxFrameBytes)
	p.framer.AllowIllegalReads = true // it parses frames of many connections; checkFrameOrder checks their order
	return p
}}

// flush writes the gathered frames in one write. The caller holds writeMu.
func (c *serverConn) flush(w *frameWriter) error {
	c.writeStarted.Store(time.Now().UnixNano())
	_, err := c.netConn.Write(w.Bytes())
	c.writeStarted.Store(0)
	if err != nil {
		c.fail(fmt.Errorf("write to the peer: %w", err))
	}
	return err
}

// flushReplies writes the frames that answer a frame of the peer.
func (c *serverConn) flushReplies(w *frameWriter) {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	_ = c.flush(w) // a failed write ends the connection
}
