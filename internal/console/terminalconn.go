package console

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"atoll.dev/atoll/internal/pace"
)

const (
	// idleTime is how long a terminal stays open without input of its person.
	idleTime = time.Hour
	// maxMessage bounds a message to the browser, which a browser keeps whole before the page reads it.
	maxMessage = 1 << 20
	// maxAnswerHeader bounds the answer that opens a WebSocket.
	maxAnswerHeader = 64 << 10
	// outputTime bounds the time in which a browser takes a piece of the output, and closeTime that of the last frame.
	outputTime = time.Minute
	closeTime  = 2 * time.Second
)

// outputRate is the output of a terminal in KiB. A browser keeps all that arrives before a page has drawn it; more waits in the container.
var outputRate = pace.PerSecond(2048, 1024)

// closeReason is the code of the WebSocket's close frame, by which the page shows why the hub closed a terminal.
type closeReason uint16

const (
	closeSessionOver closeReason = 4001
	closeSignedOut   closeReason = 4002
	closeIdle        closeReason = 4003
)

var (
	errMessageTooLong = errors.New("a message of the container is longer than the console passes on")
	errNotAFrame      = errors.New("the answer is no WebSocket")
)

// terminalConn is the connection to a browser. It bounds idle time, messages and output, and ends at any time between
// two frames. It does not read the messages.
type terminalConn struct {
	net.Conn
	idle   *time.Timer
	output *pace.Limiter
	// ctx ends with the connection.
	ctx  context.Context
	stop context.CancelFunc

	mu sync.Mutex
	// answer is the answer that opens the WebSocket, as far as it has come; isOpen: it is written.
	answer []byte
	isOpen bool
	frames frameScanner
	closed bool
}

func newTerminalConn(ctx context.Context, conn net.Conn, end func(closeReason)) *terminalConn {
	ctx, stop := context.WithCancel(ctx)
	return &terminalConn{Conn: conn, output: outputRate.NewLimiter(), ctx: ctx, stop: stop, idle: time.AfterFunc(idleTime, func() { end(closeIdle) })}
}

// Read reads the input of the person.
func (c *terminalConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.idle.Reset(idleTime)
	}
	return n, err
}

// Write writes the output of the container, at its rate.
func (c *terminalConn) Write(b []byte) (int, error) {
	if err := c.output.WaitTokens(c.ctx, len(b)>>10+1); err != nil {
		return 0, net.ErrClosed
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return 0, net.ErrClosed
	}
	out, err := b, error(nil)
	if !c.isOpen {
		out, err = c.takeAnswer(b)
	} else {
		err = c.frames.scanFrames(b)
	}
	if err == nil && len(out) > 0 {
		_ = c.Conn.SetWriteDeadline(time.Now().Add(outputTime)) // a connection without deadlines ends with the session
		if c.ctx.Err() != nil {
			_ = c.Conn.SetWriteDeadline(time.Now().Add(closeTime)) // endConn has set it before, and waits
		}
		_, err = c.Conn.Write(out)
	}
	if err != nil {
		c.closed = true // a part of a frame may be written
		return 0, err
	}
	return len(b), nil
}

// takeAnswer keeps the answer that opens the WebSocket until it is whole. It returns the answer with the headers of a WebSocket
// alone, because a member could set cookies of the hub's address by others, and the frames after it.
func (c *terminalConn) takeAnswer(b []byte) ([]byte, error) {
	c.answer = append(c.answer, b...)
	end := bytes.Index(c.answer, []byte("\r\n\r\n")) + 4
	if end < 4 {
		if len(c.answer) > maxAnswerHeader {
			return nil, errNotAFrame
		}
		return nil, nil
	}
	head, frames := c.answer[:end], c.answer[end:]
	answer, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(head)), nil)
	if err != nil || answer.StatusCode != http.StatusSwitchingProtocols || !slices.Contains(terminalProtocols, answer.Header.Get("Sec-Websocket-Protocol")) {
		return nil, errNotAFrame
	}
	c.answer, c.isOpen = nil, true
	if err := c.frames.scanFrames(frames); err != nil {
		return nil, err
	}
	own := "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
	for _, name := range []string{"Sec-WebSocket-Accept", "Sec-WebSocket-Protocol"} {
		own += name + ": " + answer.Header.Get(name) + "\r\n"
	}
	return append([]byte(own+"\r\n"), frames...), nil
}

// endConn closes the connection. The page receives the reason unless a part of a frame is under way.
func (c *terminalConn) endConn(why closeReason) {
	c.stop()
	_ = c.Conn.SetWriteDeadline(time.Now().Add(closeTime)) // ends a write that the browser does not take
	c.mu.Lock()
	if !c.closed && c.isOpen && c.frames.isBetweenFrames() {
		_, _ = c.Conn.Write(append([]byte{0x88, 2}, binary.BigEndian.AppendUint16(nil, uint16(why))...)) // the browser may have gone
	}
	c.closed = true
	c.mu.Unlock()
	_ = c.Close()
}

// Close closes the connection.
func (c *terminalConn) Close() error {
	c.stop()
	c.idle.Stop()
	return c.Conn.Close()
}

// frameScanner follows the frames of a server, and keeps only the header of one.
type frameScanner struct {
	header  []byte
	payload uint64 // bytes of the frame that are still to come
	message uint64 // bytes of the message, of all its frames
}

// isBetweenFrames reports whether another frame can be written.
func (f *frameScanner) isBetweenFrames() bool { return f.payload == 0 && len(f.header) == 0 }

// scanFrames follows what is about to be written. It fails for a message that is too long.
func (f *frameScanner) scanFrames(b []byte) error {
	for len(b) > 0 {
		if f.payload > 0 {
			n := min(f.payload, uint64(len(b)))
			f.payload -= n
			b = b[n:]
			continue
		}
		f.header = append(f.header, b[0])
		b = b[1:]
		if err := f.readHeader(); err != nil {
			return err
		}
	}
	return nil
}

// readHeader reads the header of a frame once it is whole.
func (f *frameScanner) readHeader() error {
	h := f.header
	if len(h) < headerSize(h) {
		return nil
	}
	length := uint64(h[1] & 0x7f)
	switch length {
	case 126:
		length = uint64(binary.BigEndian.Uint16(h[2:]))
	case 127:
		length = binary.BigEndian.Uint64(h[2:])
	}
	isControl, isMasked, continues := h[0]&0x08 != 0, h[1]&0x80 != 0, h[0]&0x0f == 0
	f.header, f.payload = h[:0], length
	if isMasked || isControl && length > 125 {
		return errNotAFrame
	}
	if isControl {
		return nil
	}
	if !continues {
		f.message = 0
	}
	if length > maxMessage || f.message+length > maxMessage {
		return errMessageTooLong
	}
	f.message += length
	return nil
}

// headerSize returns the size of a frame's header, as far as its beginning states it.
func headerSize(h []byte) int {
	if len(h) < 2 {
		return 2
	}
	switch h[1] & 0x7f {
	case 126:
		return 4
	case 127:
		return 10
	}
	return 2
}
