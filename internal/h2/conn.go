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

// past is a deadline that ends a read at once.
var past = time.Unix(1, 0)

// farewellTimeout bounds what is still written on a connection that is over.
const farewellTimeout = time.Second

// conn is a connection of a Server. bulk is taken before wmu, wmu before mu.
type conn struct {
	server *Server
	nc     net.Conn
	base   context.Context // of its calls

	heard   atomic.Int64 // when something came last, in Unix nanoseconds
	writing atomic.Int64 // since when a write is on its way; 0: none is
	pinged  int64        // when the peer was, in its silence; the wheel's

	in input // of who reads

	mu      sync.Mutex
	change  sync.Cond // of anything that somebody may wait for
	waiting int       // goroutines in await
	taken   bool      // one of them reads
	poked   bool      // it was told to look up
	greeted bool
	err     error // why the connection is over

	streams []*stream
	highest uint32  // stream that the peer opened
	home    bool    // the connection's goroutine has no call
	next    *stream // for it

	sendWindow, sendStart int64 // of the connection; of a new stream
	sendMost              int64 // that the former ever was
	recvWindow, recvLeft  int64 // what the peer may send before it is read; now
	patience              patience

	// What is not Inline takes bulk for each piece of a message, so that no more than one
	// of them stands before an Inline call that wants to write.
	bulk, wmu sync.Mutex
}

// input is the frame that is being read, and what must be kept from one to the next.
type input struct {
	have   int
	head   [headBytes]byte
	frame  *[]byte        // head and body, once the head is whole
	block  *block         // header fields that go on
	fields *hpack.Decoder // nil while its table is empty
}

func newConn(s *Server, nc net.Conn, info credentials.AuthInfo) *conn {
	c := &conn{
		server: s, nc: nc, base: callerOf(s.base, nc, info),
		sendWindow: windowStart, sendMost: windowStart, sendStart: windowStart, recvWindow: int64(max(s.o.Window, windowStart)),
	}
	c.recvLeft = c.recvWindow
	c.change.L = &c.mu
	now := time.Now().UnixNano()
	c.heard.Store(now)
	c.patience.since = now
	return c
}

// serve the connection until it is over.
func (c *conn) serve() {
	if err := c.greet(); err != nil {
		c.fail(err)
	}
	c.mu.Lock()
	for {
		c.home = true
		c.await(func() bool { return c.next != nil || c.err != nil })
		c.home = false
		s := c.next
		c.next = nil
		if s == nil {
			break
		}
		c.mu.Unlock()
		s.run()
		c.mu.Lock()
	}
	for c.taken { // somebody reads, and was poked
		c.change.Wait()
	}
	err, highest := c.err, c.highest
	c.mu.Unlock()
	c.close(err, highest)
}

// greet the peer, and hear whether it speaks HTTP/2.
func (c *conn) greet() error {
	o := &c.server.o
	w := writers.Get().(*writer)
	defer w.release()
	err := errors.Join(
		w.framer.WriteSettings(
			http2.Setting{ID: http2.SettingHeaderTableSize, Val: 0},
			http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: uint32(o.Streams)},
			http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(o.Window)},
			http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: uint32(o.FieldsMost)},
		),
	)
	if o.Window > windowStart {
		err = errors.Join(err, w.framer.WriteWindowUpdate(0, uint32(o.Window-windowStart)))
	}
	if err == nil {
		c.wmu.Lock()
		err = c.flush(w)
		c.wmu.Unlock()
	}
	if err != nil {
		return err
	}
	preface := bufferOf(len(http2.ClientPreface))
	defer keep(preface)
	b := (*preface)[:len(http2.ClientPreface)]
	if _, err := io.ReadFull(c.nc, b); err != nil {
		return fmt.Errorf("read the preface: %w", err)
	}
	if string(b) != http2.ClientPreface {
		return breach{http2.ErrCodeProtocol, "the peer does not speak HTTP/2"}
	}
	return nil
}

// close the connection, whose end has a reason.
func (c *conn) close(why error, highest uint32) {
	if c.in.frame != nil {
		keep(c.in.frame)
		c.in.frame = nil
	}
	code, tell := http2.ErrCodeNo, errors.Is(why, errStopped)
	var b breach
	if errors.As(why, &b) && b.code != 0 {
		code, tell = b.code, true
	}
	if tell {
		w := writers.Get().(*writer)
		defer w.release()
		c.wmu.Lock()
		defer c.wmu.Unlock()
		if err := w.framer.WriteGoAway(highest, code, []byte(why.Error())); err == nil && c.flush(w) == nil {
			_ = c.nc.Close() // TLS takes its leave
			return
		}
	}
	c.drop()
}

// drop the connection without a word, which might have to wait.
func (c *conn) drop() {
	if t, ok := c.nc.(interface{ NetConn() net.Conn }); ok {
		_ = t.NetConn().Close() // nobody is told how it ends
		return
	}
	_ = c.nc.Close()
}

// cut the connection off at once, whoever writes to it.
func (c *conn) cut(why error) {
	c.fail(why)
	c.drop()
}

// fail ends the connection, its calls and all waiting; its goroutine closes it.
func (c *conn) fail(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failLocked(why)
}

func (c *conn) failLocked(why error) {
	if c.err != nil {
		return
	}
	c.err = why
	for _, s := range c.streams {
		s.endLocked(errGone)
	}
	c.poked = true
	_ = c.nc.SetReadDeadline(past)
	_ = c.nc.SetWriteDeadline(time.Now().Add(farewellTimeout)) // else the wheel cuts it off
	c.change.Broadcast()
}

// poke who reads, so that he looks up. The caller holds mu.
func (c *conn) poke() {
	if c.taken {
		c.poked = true
		_ = c.nc.SetReadDeadline(past) // a connection that takes none is closed, and reads end by that
	}
	c.change.Broadcast()
}

// await that done; whoever waits reads the connection where nobody does. The caller
// holds mu. done must hold when the connection is over.
func (c *conn) await(done func() bool) {
	c.waiting++
	for !done() {
		if c.taken {
			c.change.Wait()
			continue
		}
		c.taken = true
		if c.poked {
			c.poked = false
			_ = c.nc.SetReadDeadline(time.Time{}) // as with poke
		}
		c.mu.Unlock()
		err := c.readFrame()
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			_ = c.server.ends.Wait(c.base) // which does not end: nobody is kept for longer than a turn takes
		}
		c.mu.Lock()
		c.taken = false
		if err != nil && (!c.poked || !errors.Is(err, os.ErrDeadlineExceeded)) {
			c.failLocked(err)
		}
		c.change.Broadcast()
	}
	c.waiting--
	c.change.Broadcast()
}

// readFrame reads on until one frame is whole, and takes it. Where reading is broken
// off it may go on later.
func (c *conn) readFrame() error {
	in := &c.in
	for in.have < headBytes {
		n, err := c.nc.Read(in.head[in.have:])
		in.have += n
		if err != nil {
			return err
		}
	}
	if in.frame == nil {
		length := int(in.head[0])<<16 | int(in.head[1])<<8 | int(in.head[2])
		if length > frameMost {
			return breach{http2.ErrCodeFrameSize, "too large a frame"}
		}
		in.frame = bufferOf(headBytes + length)
		*in.frame = append(*in.frame, in.head[:]...)
		in.have = headBytes + length // that are wanted
	}
	for b := *in.frame; len(b) < in.have; *in.frame = b {
		n, err := c.nc.Read(b[len(b):in.have])
		b = b[:len(b)+n]
		if err != nil {
			*in.frame = b
			return err
		}
	}
	c.heard.Store(time.Now().UnixNano())
	frame := in.frame
	in.frame, in.have = nil, 0
	defer keep(frame)
	return c.takeFrame(*frame)
}

// parser reads frames out of memory.
type parser struct {
	bytes.Reader
	framer *http2.Framer
}

var parsers = sync.Pool{New: func() any {
	p := &parser{}
	p.framer = http2.NewFramer(nil, &p.Reader)
	p.framer.SetReuseFrames()
	p.framer.SetMaxReadFrameSize(frameMost)
	p.framer.AllowIllegalReads = true // it sees single frames of many connections; takeFrame judges their order
	return p
}}

// flush what is to be written, all at once. The caller holds wmu.
func (c *conn) flush(w *writer) error {
	c.writing.Store(time.Now().UnixNano())
	_, err := c.nc.Write(w.Bytes())
	c.writing.Store(0)
	if err != nil {
		c.fail(fmt.Errorf("write to the peer: %w", err))
	}
	return err
}

// send what a frame of the peer asks for.
func (c *conn) send(w *writer) {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	_ = c.flush(w) // the connection is over by that
}
