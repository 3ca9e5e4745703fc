package h2

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/bits"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// frameWriter collects frames for one write.
type frameWriter struct {
	bytes.Buffer
	framer *http2.Framer
}

var writers = sync.Pool{New: func() any {
	w := &frameWriter{}
	w.framer = http2.NewFramer(&w.Buffer, nil)
	return w
}}

func (w *frameWriter) release() {
	w.Reset()
	if w.Cap() <= 8*maxFrameBytes {
		writers.Put(w)
	}
}

// frameReader reads one frame whose header was read already.
type frameReader struct {
	framer *http2.Framer
	head   []byte
	rest   io.Reader
	fields *hpack.Decoder
}

var readers = sync.Pool{New: func() any {
	r := &frameReader{fields: hpack.NewDecoder(0, nil)}
	r.framer = http2.NewFramer(nil, r)
	r.framer.SetReuseFrames()
	r.framer.SetMaxReadFrameSize(maxFrameBytes)
	r.framer.AllowIllegalReads = true // it reads single frames, so their order is checked elsewhere
	return r
}}

// Read returns the frame's header, then its body.
func (r *frameReader) Read(p []byte) (int, error) {
	if len(r.head) > 0 {
		n := copy(p, r.head)
		r.head = r.head[n:]
		return n, nil
	}
	return r.rest.Read(p)
}

func (r *frameReader) release() {
	r.head, r.rest = nil, nil
	readers.Put(r)
}

// readFrame reads and handles one frame, whose header is in c.frameHeader. It reports whether
// the call is over.
func (c *ClientCall) readFrame(r *frameReader, handle func([]byte) error) (over bool, err error) {
	r.head, r.rest = c.frameHeader[:], c.conn
	f, err := r.framer.ReadFrame()
	if err != nil {
		return false, fmt.Errorf("read a frame: %w", err)
	}
	if c.options.Counts != nil {
		c.options.Counts.BytesDown.Add(frameHeaderBytes + int64(f.Header().Length))
	}
	switch f := f.(type) {
	case *http2.DataFrame:
		return c.handleData(f, handle)
	case *http2.HeadersFrame:
		return c.readHeaders(r, f)
	case *http2.SettingsFrame:
		return false, c.applySettings(f)
	case *http2.PingFrame:
		c.queuePingAnswer(f)
	case *http2.WindowUpdateFrame:
		c.enlargeSendWindow(f)
	case *http2.RSTStreamFrame:
		return true, status.Errorf(codes.Unavailable, "the peer reset the call: %v", f.ErrCode)
	case *http2.GoAwayFrame:
		return handleGoAway(f)
	case *http2.PushPromiseFrame:
		return true, peerViolationError("a push, which is disabled")
	}
	return false, nil
}

// handleData passes the messages that a DATA frame completes to handle.
func (c *ClientCall) handleData(f *http2.DataFrame, handle func([]byte) error) (over bool, err error) {
	if f.StreamID != streamID {
		return false, peerViolationError("data on an unopened stream")
	}
	c.mu.Lock()
	c.unreturnedWindow += f.Length
	c.mu.Unlock()
	if err := c.messages.readData(f.Data(), c.options.MessageMost, handle); err != nil {
		return false, err
	}
	if f.StreamEnded() {
		return true, peerViolationError("the end of the call without a status")
	}
	return false, nil
}

// queuePingAnswer queues the answer to a ping of the peer.
func (c *ClientCall) queuePingAnswer(f *http2.PingFrame) {
	if f.IsAck() {
		return
	}
	c.mu.Lock()
	c.unansweredPings = append(c.unansweredPings, f.Data)
	c.mu.Unlock()
}

// handleGoAway ends the call when a GOAWAY covers it or reports an error.
func handleGoAway(f *http2.GoAwayFrame) (over bool, err error) {
	if f.LastStreamID < streamID || f.ErrCode != http2.ErrCodeNo {
		return true, status.Errorf(codes.Unavailable, "the peer sent GOAWAY: %v: %s", f.ErrCode, f.DebugData())
	}
	return false, nil
}

// enlargeSendWindow applies a WINDOW_UPDATE of the peer.
func (c *ClientCall) enlargeSendWindow(f *http2.WindowUpdateFrame) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.StreamID == 0 {
		c.connSendWindow += int64(f.Increment)
	} else {
		c.streamSendWindow += int64(f.Increment)
	}
}

func peerViolationError(what string) error {
	return status.Error(codes.Internal, "the peer sent "+what)
}

// applySettings applies the peer's settings.
func (c *ClientCall) applySettings(f *http2.SettingsFrame) error {
	if f.IsAck() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unackedSettings++
	return f.ForeachSetting(func(s http2.Setting) error {
		switch s.ID {
		case http2.SettingInitialWindowSize:
			c.streamSendWindow += int64(s.Val) - c.initialSendWindow
			c.initialSendWindow = int64(s.Val)
		case http2.SettingMaxFrameSize:
			c.peerMaxFrameBytes = int(min(s.Val, maxFrameBytes))
		}
		return s.Valid()
	})
}

// messageReader assembles messages from DATA frames.
type messageReader struct {
	prefix       [PrefixBytes]byte
	prefixBytes  int // bytes of prefix that are read
	buffer       *[]byte
	messageBytes int // length of the message
}

// readData reads the data of one frame and passes complete messages to handle.
func (in *messageReader) readData(data []byte, most int, handle func([]byte) error) error {
	for len(data) > 0 {
		if in.prefixBytes < PrefixBytes {
			n, err := in.readPrefix(data, most)
			if err != nil {
				return err
			}
			if data = data[n:]; in.prefixBytes < PrefixBytes {
				return nil
			}
		}
		n, err := in.readBody(data, handle)
		if err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

// readPrefix reads the rest of a message's prefix. It returns how many bytes of data it used.
func (in *messageReader) readPrefix(data []byte, most int) (int, error) {
	n := copy(in.prefix[in.prefixBytes:], data)
	if in.prefixBytes += n; in.prefixBytes < PrefixBytes {
		return n, nil
	}
	in.messageBytes = int(binary.BigEndian.Uint32(in.prefix[1:]))
	if in.prefix[0] != 0 || in.messageBytes > most {
		return n, status.Errorf(codes.ResourceExhausted, "the peer sent a message of %d bytes (compression flag %d); at most %d bytes, uncompressed, are accepted", in.messageBytes, in.prefix[0], most)
	}
	return n, nil
}

// readBody reads the rest of a message's body, and passes a complete message to handle. It returns how
// many bytes of data it used. A message that lies within one frame is not copied.
func (in *messageReader) readBody(data []byte, handle func([]byte) error) (int, error) {
	missing := in.messageBytes
	if in.buffer != nil {
		missing -= len(*in.buffer)
	}
	part := data[:min(missing, len(data))]
	if in.buffer == nil && len(part) == in.messageBytes {
		in.prefixBytes = 0
		return len(part), handle(part)
	}
	if in.buffer == nil {
		in.buffer = getBuffer(in.messageBytes)
	}
	*in.buffer = append(*in.buffer, part...)
	if len(*in.buffer) < in.messageBytes {
		return len(part), nil
	}
	err := handle(*in.buffer)
	in.dropBuffer()
	in.prefixBytes = 0
	return len(part), err
}

// dropBuffer recycles the buffer of an incomplete message.
func (in *messageReader) dropBuffer() {
	if in.buffer != nil {
		recycleBuffer(in.buffer)
		in.buffer = nil
	}
}

// buffers holds free buffers by the power of two of their size.
var buffers [32]sync.Pool

func getBuffer(size int) *[]byte {
	class := bits.Len(uint(size))
	if b, ok := buffers[class].Get().(*[]byte); ok {
		return b
	}
	b := make([]byte, 0, 1<<class)
	return &b
}

func recycleBuffer(b *[]byte) {
	*b = (*b)[:0]
	buffers[bits.Len(uint(cap(*b)))-1].Put(b)
}
