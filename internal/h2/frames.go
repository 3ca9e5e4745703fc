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

// writer gathers frames.
type writer struct {
	bytes.Buffer
	framer *http2.Framer
}

var writers = sync.Pool{New: func() any {
	w := &writer{}
	w.framer = http2.NewFramer(&w.Buffer, nil)
	return w
}}

func (w *writer) release() {
	w.Reset()
	if w.Cap() <= 8*frameMost {
		writers.Put(w)
	}
}

// reader reads one frame, of which the head was read already.
type reader struct {
	framer *http2.Framer
	head   []byte
	rest   io.Reader
	fields *hpack.Decoder
}

var readers = sync.Pool{New: func() any {
	r := &reader{fields: hpack.NewDecoder(0, nil)}
	r.framer = http2.NewFramer(nil, r)
	r.framer.SetReuseFrames()
	r.framer.SetMaxReadFrameSize(frameMost)
	r.framer.AllowIllegalReads = true // it sees single frames, and cannot judge their order
	return r
}}

// Read gives the head, then what follows it.
func (r *reader) Read(p []byte) (int, error) {
	if len(r.head) > 0 {
		n := copy(p, r.head)
		r.head = r.head[n:]
		return n, nil
	}
	return r.rest.Read(p)
}

func (r *reader) release() {
	r.head, r.rest = nil, nil
	readers.Put(r)
}

// frame reads one frame, of which the head is in c.head, and takes it.
func (c *Call) frame(r *reader, handle func([]byte) error) (over bool, err error) {
	r.head, r.rest = c.head[:], c.conn
	f, err := r.framer.ReadFrame()
	if err != nil {
		return false, fmt.Errorf("read a frame: %w", err)
	}
	if c.o.Counts != nil {
		c.o.Counts.BytesDown.Add(headBytes + int64(f.Header().Length))
	}
	switch f := f.(type) {
	case *http2.DataFrame:
		if f.StreamID != streamID {
			return false, protocolError("data of a stream that nobody opened")
		}
		c.mu.Lock()
		c.opened += f.Length
		c.mu.Unlock()
		if err := c.inbox.take(f.Data(), c.o.MessageMost, handle); err != nil {
			return false, err
		}
		if f.StreamEnded() {
			return true, protocolError("the call ended without a status")
		}
	case *http2.HeadersFrame:
		return c.headers(r, f)
	case *http2.SettingsFrame:
		return false, c.take(f)
	case *http2.PingFrame:
		if !f.IsAck() {
			c.mu.Lock()
			c.pings = append(c.pings, f.Data)
			c.mu.Unlock()
		}
	case *http2.WindowUpdateFrame:
		c.mu.Lock()
		if f.StreamID == 0 {
			c.sendConn += int64(f.Increment)
		} else {
			c.sendStream += int64(f.Increment)
		}
		c.mu.Unlock()
	case *http2.RSTStreamFrame:
		return true, status.Errorf(codes.Unavailable, "the peer reset the call: %v", f.ErrCode)
	case *http2.GoAwayFrame:
		if f.LastStreamID < streamID || f.ErrCode != http2.ErrCodeNo {
			return true, status.Errorf(codes.Unavailable, "the peer goes away: %v: %s", f.ErrCode, f.DebugData())
		}
	case *http2.PushPromiseFrame:
		return true, protocolError("a push that was not allowed")
	}
	return false, nil
}

func protocolError(what string) error { return status.Error(codes.Internal, "the peer sent "+what) }

// take the peer's settings.
func (c *Call) take(f *http2.SettingsFrame) error {
	if f.IsAck() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settings++
	return f.ForeachSetting(func(s http2.Setting) error {
		switch s.ID {
		case http2.SettingInitialWindowSize:
			c.sendStream += int64(s.Val) - c.sendStart
			c.sendStart = int64(s.Val)
		case http2.SettingMaxFrameSize:
			c.frameMost = int(min(s.Val, frameMost))
		}
		return s.Valid()
	})
}

// inbox puts messages together out of frames.
type inbox struct {
	prefix [PrefixBytes]byte
	have   int // of the prefix
	buffer *[]byte
	want   int // bytes of the message
}

// take data of the stream and hand over the messages that it completes.
func (in *inbox) take(data []byte, most int, handle func([]byte) error) error {
	for len(data) > 0 {
		if in.have < PrefixBytes {
			n := copy(in.prefix[in.have:], data)
			in.have, data = in.have+n, data[n:]
			if in.have < PrefixBytes {
				return nil
			}
			in.want = int(binary.BigEndian.Uint32(in.prefix[1:]))
			if in.prefix[0] != 0 || in.want > most {
				return status.Errorf(codes.ResourceExhausted, "the peer sent a message of %d bytes, compressed %d; %d and 0 are the most", in.want, in.prefix[0], most)
			}
		}
		missing := in.want
		if in.buffer != nil {
			missing -= len(*in.buffer)
		}
		part := data[:min(missing, len(data))]
		data = data[len(part):]
		if in.buffer == nil && len(part) == in.want { // whole in one frame
			in.have = 0
			if err := handle(part); err != nil {
				return err
			}
			continue
		}
		if in.buffer == nil {
			in.buffer = bufferOf(in.want)
		}
		*in.buffer = append(*in.buffer, part...)
		if len(*in.buffer) < in.want {
			return nil
		}
		err := handle(*in.buffer)
		in.drop()
		in.have = 0
		if err != nil {
			return err
		}
	}
	return nil
}

// drop the buffer.
func (in *inbox) drop() {
	if in.buffer != nil {
		keep(in.buffer)
		in.buffer = nil
	}
}

// buffers by the power of two of their size.
var buffers [32]sync.Pool

func bufferOf(size int) *[]byte {
	class := bits.Len(uint(size))
	if b, ok := buffers[class].Get().(*[]byte); ok {
		return b
	}
	b := make([]byte, 0, 1<<class)
	return &b
}

func keep(b *[]byte) {
	*b = (*b)[:0]
	buffers[bits.Len(uint(cap(*b)))-1].Put(b)
}
