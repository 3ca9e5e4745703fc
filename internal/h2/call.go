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
	// callWindow is the number of bytes that the peer may send before the call returns window.
	callWindow = 256 << 10
	// initialWindow is the flow-control window with which HTTP/2 starts, in both directions.
	initialWindow = 64<<10 - 1
	// maxFrameBytes is HTTP/2's initial limit on the size of a frame. This package never raises
	// it.
	maxFrameBytes = 16 << 10
	// PrefixBytes is the length of the prefix of each gRPC message: one byte for compression
	// (always 0), then four bytes for the length, big-endian.
	PrefixBytes      = 5
	frameHeaderBytes = 9 // of a frame
)

// CallOptions configure a Call.
type CallOptions struct {
	// Authority is the value of :authority, such as HOST:PORT.
	Authority string
	// Method is the method's full name, such as /package.Service/Method.
	Method string
	// MessageMost is the largest message that is accepted, in bytes.
	MessageMost int
	// Counts, where set, receives the traffic of the call.
	Counts *Counts
}

// Counts is the traffic of any number of calls.
type Counts struct {
	// BytesUp and BytesDown are the bytes written and read, including HTTP/2's own.
	BytesUp, BytesDown atomic.Int64
}

// ClientCall is one gRPC call, the only one on its connection.
type ClientCall struct {
	conn    net.Conn
	options *CallOptions

	lastRead    atomic.Int64 // Unix nanoseconds
	frameHeader [frameHeaderBytes]byte
	messages    messageReader

	mu               sync.Mutex
	flushing         bool
	closing          bool // nothing more is written
	sendQueue        [][]byte
	sentBytes        int  // of sendQueue[0]
	sendClosed       bool // half-close the call after sendQueue
	endStreamSent    bool
	unansweredPings  [][8]byte
	unackedSettings  int    // number of the peer's SETTINGS frames to acknowledge
	unreturnedWindow uint32 // handled bytes for which no WINDOW_UPDATE was sent

	connSendWindow, streamSendWindow, initialSendWindow int64
	peerMaxFrameBytes                                   int
}

// Open opens a call: it sends the preface, the settings and the request at once. Calls may share
// o.
func Open(conn net.Conn, o *CallOptions) (*ClientCall, error) {
	c := &ClientCall{conn: conn, options: o, connSendWindow: initialWindow, streamSendWindow: initialWindow, initialSendWindow: initialWindow, peerMaxFrameBytes: maxFrameBytes}
	c.lastRead.Store(time.Now().UnixNano())
	w := writers.Get().(*frameWriter)
	defer w.release()
	w.WriteString(http2.ClientPreface)
	err := errors.Join(
		w.framer.WriteSettings(
			http2.Setting{ID: http2.SettingHeaderTableSize, Val: 0},
			http2.Setting{ID: http2.SettingEnablePush, Val: 0},
			http2.Setting{ID: http2.SettingInitialWindowSize, Val: callWindow},
		),
		w.framer.WriteWindowUpdate(0, callWindow-initialWindow),
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

// QueueMessages queues messages for Flush, each with its prefix of PrefixBytes. The Call owns
// the slices from then on.
func (c *ClientCall) QueueMessages(framed ...[]byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.sendClosed && !c.closing {
		c.sendQueue = append(c.sendQueue, framed...)
	}
}

// FrameMessage returns a message with its prefix.
func FrameMessage(message []byte) []byte {
	b := make([]byte, PrefixBytes, PrefixBytes+len(message))
	binary.BigEndian.PutUint32(b[1:], uint32(len(message)))
	return append(b, message...)
}

// CloseSend half-closes the call after the queued messages.
func (c *ClientCall) CloseSend() {
	c.mu.Lock()
	c.sendClosed = true
	c.mu.Unlock()
	c.Flush()
}

// SendPing pings the peer. The answer updates LastRead.
func (c *ClientCall) SendPing() {
	w := writers.Get().(*frameWriter)
	defer w.release()
	c.mu.Lock()
	busy := c.flushing || c.closing
	c.flushing = true
	c.mu.Unlock()
	if busy {
		return // the peer also answers the frames that are being written
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

// LastRead returns the time of the last read from the peer.
func (c *ClientCall) LastRead() time.Time { return time.Unix(0, c.lastRead.Load()) }

// HasUnwritten reports whether a message is not written yet.
func (c *ClientCall) HasUnwritten() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.flushing || len(c.sendQueue) > 0
}

// Close closes the connection.
func (c *ClientCall) Close() {
	c.mu.Lock()
	c.closing = true
	c.sendQueue = nil
	c.mu.Unlock()
	_ = c.conn.Close() // its end is not reported
}

// Flush writes the queued frames that the windows allow, unless another goroutine is writing.
func (c *ClientCall) Flush() {
	c.mu.Lock()
	if c.flushing || c.closing || !c.hasWritable() {
		c.mu.Unlock()
		return
	}
	c.flushing = true
	c.mu.Unlock()
	w := writers.Get().(*frameWriter)
	defer w.release()
	for {
		c.mu.Lock()
		w.Reset()
		err := c.fillWriter(w)
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

// hasWritable reports whether a frame can be written. The caller holds mu.
func (c *ClientCall) hasWritable() bool {
	return len(c.unansweredPings) > 0 || c.unackedSettings > 0 || c.unreturnedWindow >= callWindow/2 ||
		len(c.sendQueue) > 0 && c.connSendWindow > 0 && c.streamSendWindow > 0 || c.sendClosed && !c.endStreamSent && len(c.sendQueue) == 0
}

// fillWriter adds the frames that can be written now. The caller holds mu.
func (c *ClientCall) fillWriter(w *frameWriter) error {
	errs := c.fillControlFrames(w)
	for len(c.sendQueue) > 0 && c.connSendWindow > 0 && c.streamSendWindow > 0 && w.Len() < 2*maxFrameBytes {
		errs = errors.Join(errs, c.fillDataFrame(w))
	}
	if c.sendClosed && !c.endStreamSent && len(c.sendQueue) == 0 {
		errs = errors.Join(errs, w.framer.WriteData(streamID, true, nil))
		c.endStreamSent = true
	}
	return errs
}

// fillControlFrames adds the answers to the peer's settings and pings, and returns window for the
// data that was handled. The caller holds mu.
func (c *ClientCall) fillControlFrames(w *frameWriter) error {
	var errs error
	for ; c.unackedSettings > 0; c.unackedSettings-- {
		errs = errors.Join(errs, w.framer.WriteSettingsAck())
	}
	for _, p := range c.unansweredPings {
		errs = errors.Join(errs, w.framer.WritePing(true, p))
	}
	c.unansweredPings = nil
	if c.unreturnedWindow >= callWindow/2 {
		errs = errors.Join(errs, w.framer.WriteWindowUpdate(0, c.unreturnedWindow), w.framer.WriteWindowUpdate(streamID, c.unreturnedWindow))
		c.unreturnedWindow = 0
	}
	return errs
}

// fillDataFrame adds one DATA frame with the next part of the queue. The caller holds mu.
func (c *ClientCall) fillDataFrame(w *frameWriter) error {
	rest := c.sendQueue[0][c.sentBytes:]
	n := int(min(int64(len(rest)), c.connSendWindow, c.streamSendWindow, int64(c.peerMaxFrameBytes)))
	end := c.sendClosed && len(c.sendQueue) == 1 && n == len(rest)
	err := w.framer.WriteData(streamID, end, rest[:n])
	c.endStreamSent = c.endStreamSent || end
	c.sentBytes += n
	c.connSendWindow -= int64(n)
	c.streamSendWindow -= int64(n)
	if c.sentBytes == len(c.sendQueue[0]) {
		c.sendQueue[0], c.sentBytes = nil, 0
		if c.sendQueue = c.sendQueue[1:]; len(c.sendQueue) == 0 {
			c.sendQueue = nil
		}
	}
	return err
}

// write sends the writer's content to the peer.
func (c *ClientCall) write(w *frameWriter) error {
	if c.options.Counts != nil {
		c.options.Counts.BytesUp.Add(int64(w.Len()))
	}
	_, err := c.conn.Write(w.Bytes())
	return err
}

// Serve reads from the peer until the call ends. It returns nil when the peer ended the call
// with status OK. handle gets each message; an error from handle ends the call.
func (c *ClientCall) Serve(handle func(message []byte) error) error {
	defer c.messages.dropBuffer()
	for {
		if _, err := io.ReadFull(c.conn, c.frameHeader[:]); err != nil {
			return fmt.Errorf("read from the peer: %w", err)
		}
		c.lastRead.Store(time.Now().UnixNano())
		r := readers.Get().(*frameReader)
		over, err := c.readFrame(r, handle)
		r.release()
		if over || err != nil {
			return err
		}
		c.Flush()
	}
}
