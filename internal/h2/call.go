package h2

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
)

const (
	streamID = 1
	// window is what the peer may send before we say more.
	window = 256 << 10
	// windowStart is what HTTP/2 begins with, both ways.
	windowStart = 64<<10 - 1
	// frameMost is the largest frame of HTTP/2 as it begins; ours stays so.
	frameMost = 16 << 10
	// PrefixBytes come before each message of gRPC: whether it is compressed (0), and
	// its length in four bytes, high first.
	PrefixBytes = 5
	headBytes   = 9 // of a frame
)

// Options of a Call.
type Options struct {
	// Authority, such as HOST:PORT.
	Authority string
	// Method is the full name, such as /package.Service/Method.
	Method string
	// MessageMost bounds what is received, in bytes.
	MessageMost int
	// Counts are added to; nil: nowhere.
	Counts *Counts
}

// Counts of what crossed, for any number of calls.
type Counts struct {
	// BytesUp and BytesDown that were written and read, HTTP/2 included.
	BytesUp, BytesDown atomic.Int64
}

// Call is one gRPC call, the only one on its connection.
type Call struct {
	conn net.Conn
	o    *Options

	lastRead atomic.Int64 // Unix nanoseconds
	head     [headBytes]byte
	inbox    inbox

	mu       sync.Mutex
	flushing bool
	closing  bool // no more is written
	out      [][]byte
	sent     int  // bytes of out[0] that are sent
	last     bool // the call is half-closed after out
	lastSent bool
	pings    [][8]byte
	settings int    // to be acknowledged
	opened   uint32 // window to give back

	sendConn, sendStream, sendStart int64
	frameMost                       int
}

// Open a call: preface, settings and request go out at once. o is kept and may be
// shared by calls.
func Open(conn net.Conn, o *Options) (*Call, error) {
	c := &Call{conn: conn, o: o, sendConn: windowStart, sendStream: windowStart, sendStart: windowStart, frameMost: frameMost}
	c.lastRead.Store(time.Now().UnixNano())
	w := writers.Get().(*writer)
	defer w.release()
	w.WriteString(http2.ClientPreface)
	err := errors.Join(
		w.framer.WriteSettings(
			http2.Setting{ID: http2.SettingHeaderTableSize, Val: 0},
			http2.Setting{ID: http2.SettingEnablePush, Val: 0},
			http2.Setting{ID: http2.SettingInitialWindowSize, Val: window},
		),
		w.framer.WriteWindowUpdate(0, window-windowStart),
		w.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: streamID, EndHeaders: true, BlockFragment: requestFields(o)}),
	)
	if err == nil {
		err = c.write(w)
	}
	if err != nil {
		return nil, fmt.Errorf("open a call: %w", err)
	}
	return c, nil
}

// Queue messages, each with its prefix of PrefixBytes, to be sent by Flush, in order.
// They belong to the Call from then on.
func (c *Call) Queue(framed ...[]byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.last && !c.closing {
		c.out = append(c.out, framed...)
	}
}

// Frame gives a message its prefix.
func Frame(message []byte) []byte {
	b := make([]byte, PrefixBytes, PrefixBytes+len(message))
	binary.BigEndian.PutUint32(b[1:], uint32(len(message)))
	return append(b, message...)
}

// CloseSend tells the peer, after all that was sent, that nothing more comes.
func (c *Call) CloseSend() {
	c.mu.Lock()
	c.last = true
	c.mu.Unlock()
	c.Flush()
}

// Ping the peer, so that LastRead moves if it lives.
func (c *Call) Ping() {
	w := writers.Get().(*writer)
	defer w.release()
	c.mu.Lock()
	busy := c.flushing || c.closing
	c.flushing = true
	c.mu.Unlock()
	if busy {
		return // what is being written makes the peer answer as well
	}
	err := w.framer.WritePing(false, [8]byte{})
	if err == nil {
		err = c.write(w)
	}
	c.mu.Lock()
	c.flushing = false
	c.mu.Unlock()
	if err != nil {
		c.Close()
		return
	}
	c.Flush()
}

// LastRead is when something came last.
func (c *Call) LastRead() time.Time { return time.Unix(0, c.lastRead.Load()) }

// Waiting tells whether something is not written yet.
func (c *Call) Waiting() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.flushing || len(c.out) > 0
}

// Close the connection.
func (c *Call) Close() {
	c.mu.Lock()
	c.closing = true
	c.out = nil
	c.mu.Unlock()
	_ = c.conn.Close() // nobody is told how it ends
}

// Flush writes what may be written, unless somebody does already.
func (c *Call) Flush() {
	c.mu.Lock()
	if c.flushing || c.closing || !c.due() {
		c.mu.Unlock()
		return
	}
	c.flushing = true
	c.mu.Unlock()
	w := writers.Get().(*writer)
	defer w.release()
	for {
		c.mu.Lock()
		w.Reset()
		err := c.fill(w)
		if w.Len() == 0 || err != nil || c.closing {
			c.flushing = false
			c.mu.Unlock()
			if err != nil {
				c.Close()
			}
			return
		}
		c.mu.Unlock()
		if err := c.write(w); err != nil {
			c.mu.Lock()
			c.flushing = false
			c.mu.Unlock()
			c.Close()
			return
		}
	}
}

// due tells whether there is something that may be written. The caller holds mu.
func (c *Call) due() bool {
	return len(c.pings) > 0 || c.settings > 0 || c.opened >= window/2 ||
		len(c.out) > 0 && c.sendConn > 0 && c.sendStream > 0 || c.last && !c.lastSent && len(c.out) == 0
}

// fill the writer with what may be written now. The caller holds mu.
func (c *Call) fill(w *writer) error {
	var errs error
	for ; c.settings > 0; c.settings-- {
		errs = errors.Join(errs, w.framer.WriteSettingsAck())
	}
	for _, p := range c.pings {
		errs = errors.Join(errs, w.framer.WritePing(true, p))
	}
	c.pings = nil
	if c.opened >= window/2 {
		errs = errors.Join(errs, w.framer.WriteWindowUpdate(0, c.opened), w.framer.WriteWindowUpdate(streamID, c.opened))
		c.opened = 0
	}
	for len(c.out) > 0 && c.sendConn > 0 && c.sendStream > 0 && w.Len() < 2*frameMost {
		rest := c.out[0][c.sent:]
		n := int(min(int64(len(rest)), c.sendConn, c.sendStream, int64(c.frameMost)))
		end := c.last && len(c.out) == 1 && n == len(rest)
		errs = errors.Join(errs, w.framer.WriteData(streamID, end, rest[:n]))
		c.lastSent = c.lastSent || end
		c.sent += n
		c.sendConn -= int64(n)
		c.sendStream -= int64(n)
		if c.sent == len(c.out[0]) {
			c.out[0], c.sent = nil, 0
			if c.out = c.out[1:]; len(c.out) == 0 {
				c.out = nil
			}
		}
	}
	if c.last && !c.lastSent && len(c.out) == 0 {
		errs = errors.Join(errs, w.framer.WriteData(streamID, true, nil))
		c.lastSent = true
	}
	return errs
}

// write the buffer out.
func (c *Call) write(w *writer) error {
	if c.o.Counts != nil {
		c.o.Counts.BytesUp.Add(int64(w.Len()))
	}
	_, err := c.conn.Write(w.Bytes())
	return err
}

// Serve the call until it is over: nil when the peer ended it well, else why. handle
// gets each message; its error ends the call.
func (c *Call) Serve(handle func(message []byte) error) error {
	defer c.inbox.drop()
	for {
		if _, err := io.ReadFull(c.conn, c.head[:]); err != nil {
			return fmt.Errorf("read from the peer: %w", err)
		}
		c.lastRead.Store(time.Now().UnixNano())
		r := readers.Get().(*reader)
		over, err := c.frame(r, handle)
		r.release()
		if over || err != nil {
			return err
		}
		c.Flush()
	}
}
