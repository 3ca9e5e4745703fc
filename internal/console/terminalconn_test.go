package console

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

const testAnswer = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\nSec-WebSocket-Accept: x\r\nSet-Cookie: a=b\r\n\r\n"

// frameOf returns a frame of a server with a payload of zeros.
func frameOf(first byte, payload int) []byte {
	out := []byte{first}
	switch {
	case payload < 126:
		out = append(out, byte(payload))
	case payload < 1<<16:
		out = binary.BigEndian.AppendUint16(append(out, 126), uint16(payload))
	default:
		out = binary.BigEndian.AppendUint64(append(out, 127), uint64(payload))
	}
	return append(out, make([]byte, payload)...)
}

// Frames are followed wherever they are cut.
func TestFramesAreFollowed(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	for name, c := range map[string]struct {
		stream []byte
		want   error
		inside bool
	}{
		"nothing":                        {},
		"messages":                       {stream: join(frameOf(0x82, 5), frameOf(0x82, 125), frameOf(0x82, 126), frameOf(0x82, 70_000), frameOf(0x81, 0))},
		"a message of the bound":         {stream: join(frameOf(0x82, maxMessage), frameOf(0x82, maxMessage))},
		"a longer one":                   {stream: frameOf(0x82, maxMessage+1), want: errMessageTooLong},
		"a length of 64 bits":            {stream: []byte{0x82, 127, 255, 255, 255, 255, 255, 255, 255, 255}, want: errMessageTooLong},
		"parts of the bound":             {stream: join(frameOf(0x02, maxMessage/2), frameOf(0x00, maxMessage/2), frameOf(0x80, 0), frameOf(0x82, 1))},
		"parts of a longer one":          {stream: join(frameOf(0x02, maxMessage/2), frameOf(0x89, 125), frameOf(0x00, maxMessage/2), frameOf(0x80, 1)), want: errMessageTooLong},
		"a masked frame":                 {stream: []byte{0x82, 0x80}, want: errNotAFrame},
		"a long control frame":           {stream: frameOf(0x88, 126), want: errNotAFrame},
		"the first byte of a frame":      {stream: []byte{0x82}, inside: true},
		"a part of the length":           {stream: []byte{0x82, 127, 0}, inside: true},
		"all but one byte of a payload":  {stream: frameOf(0x82, 300)[:303], inside: true},
		"a control frame between frames": {stream: join(frameOf(0x02, 1), frameOf(0x8a, 3))},
	} {
		for range 20 {
			var f frameScanner
			var err error
			for rest := c.stream; len(rest) > 0 && err == nil; {
				n := min(1+random.IntN(1+random.IntN(100_000)), len(rest))
				err = f.scanFrames(rest[:n])
				rest = rest[n:]
			}
			if !errors.Is(err, c.want) || err == nil && f.isBetweenFrames() == c.inside {
				t.Fatalf("%s: %v, between frames %t", name, err, f.isBetweenFrames())
			}
		}
	}
}

func FuzzFrames(f *testing.F) {
	f.Add(frameOf(0x82, 200))
	f.Fuzz(func(t *testing.T, stream []byte) {
		var whole, single frameScanner
		wholeErr := whole.scanFrames(stream)
		var err error
		for i := 0; i < len(stream) && err == nil; i++ {
			err = single.scanFrames(stream[i : i+1])
		}
		if !errors.Is(err, wholeErr) || len(single.header) > 10 || err == nil && (single.payload != whole.payload || single.message != whole.message) {
			t.Errorf("at once %v, byte by byte %v", wholeErr, err)
		}
	})
}

// The answer that opens the WebSocket has nothing of the member but the WebSocket.
func TestTheAnswerIsTheHubsOwn(t *testing.T) {
	for answer, want := range map[string]error{
		testAnswer: nil,
		strings.Replace(testAnswer, "101 Switching Protocols", "200 OK", 1):                errNotAFrame,
		strings.Replace(testAnswer, "v5.channel.k8s.io", "other", 1):                       errNotAFrame,
		strings.Replace(testAnswer, "Sec-WebSocket-Protocol", "X", 1):                      errNotAFrame,
		"HTTP/1.1 101 Switching Protocols\r\nX: " + strings.Repeat("x", 2*maxAnswerHeader): errNotAFrame,
		"no answer\r\n\r\n": errNotAFrame,
	} {
		browser, hub := net.Pipe()
		c := newTerminalConn(t.Context(), hub, func(closeReason) {})
		got := make(chan string, 1)
		go func() {
			b, _ := io.ReadAll(browser)
			got <- string(b)
		}()
		var err error
		for i := 0; i < len(answer) && err == nil; i += 100 {
			_, err = c.Write([]byte(answer[i:min(i+100, len(answer))]))
		}
		if err == nil {
			_, err = c.Write(frameOf(0x82, 3))
		}
		_ = c.Close()
		text := <-got
		if !errors.Is(err, want) || err != nil && text != "" {
			t.Errorf("%.40q: %v, %q", answer, err, text)
		}
		if head, frames, _ := strings.Cut(text, "\r\n\r\n"); err == nil && (strings.Contains(head, "Cookie") || !strings.Contains(head, "Sec-WebSocket-Accept: x") || frames != "\x82\x03\x00\x00\x00") {
			t.Errorf("the browser gets %q", text)
		}
	}
}

// A terminal without input ends after the idle time, also one with output. Input keeps it open.
func TestIdleTerminalsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		browser, hub := net.Pipe()
		var conn *terminalConn
		start := time.Now()
		conn = newTerminalConn(t.Context(), hub, func(why closeReason) { conn.endConn(why) })
		go func() {
			_, _ = conn.Write([]byte(testAnswer))
			for range 100 {
				time.Sleep(time.Minute)
				_, _ = conn.Write(frameOf(0x82, 1))
			}
		}()
		go func() {
			time.Sleep(idleTime / 2)
			_, _ = browser.Write([]byte("x"))
		}()
		go func() { _, _ = conn.Read(make([]byte, 10)) }()
		got, err := io.ReadAll(browser)
		if err != nil || !bytes.HasSuffix(got, []byte{0x88, 2, 0x0f, 0xa3}) {
			t.Errorf("the terminal ends by %q, %v", got[max(0, len(got)-8):], err)
		}
		if open := time.Since(start); open != idleTime+idleTime/2 {
			t.Errorf("it was open for %s", open)
		}
		time.Sleep(2 * time.Hour)
	})
}

// More output than the rate waits where it comes from.
func TestOutputIsPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		browser, hub := net.Pipe()
		conn := newTerminalConn(t.Context(), hub, func(closeReason) {})
		go func() { _, _ = io.Copy(io.Discard, browser) }()
		_, _ = conn.Write([]byte(testAnswer))
		start := time.Now()
		for range 21 << 10 / 32 {
			if _, err := conn.Write(frameOf(0x82, 32<<10-4)); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(start); took < 9*time.Second || took > 12*time.Second {
			t.Errorf("21 MiB take %s", took)
		}
		_ = conn.Close()
	})
}

// A browser that takes no output does not hold the end of its terminal.
func TestABrowserThatDoesNotRead(t *testing.T) {
	browser, hub := net.Pipe()
	defer browser.Close()
	conn := newTerminalConn(t.Context(), hub, func(closeReason) {})
	failed := make(chan error)
	go func() {
		_, err := conn.Write([]byte(testAnswer))
		failed <- err
	}()
	go conn.endConn(closeSignedOut)
	if err := <-failed; err == nil {
		t.Error("the write ends without an error")
	}
}

// lateConn is a connection whose first write deadline is set after the second one.
type lateConn struct {
	net.Conn
	calls  atomic.Int32
	second chan struct{}
	end    func()
	last   time.Time
}

func (c *lateConn) SetWriteDeadline(at time.Time) error {
	switch c.calls.Add(1) {
	case 1:
		go c.end()
		<-c.second
		c.last = at
	case 2:
		close(c.second)
	default:
		c.last = at
	}
	return nil
}

func (c *lateConn) Write([]byte) (int, error) { return 0, os.ErrDeadlineExceeded }

// The end of a terminal does not wait for a write that begins at the same time.
func TestAWriteDuringTheEndIsShort(t *testing.T) {
	browser, hub := net.Pipe()
	defer browser.Close()
	late := &lateConn{Conn: hub, second: make(chan struct{})}
	conn := newTerminalConn(t.Context(), late, func(closeReason) {})
	late.end = func() { conn.endConn(closeSignedOut) }
	start := time.Now()
	if _, err := conn.Write([]byte(testAnswer)); err == nil {
		t.Error("the write ends without an error")
	}
	if bound := late.last.Sub(start); bound >= outputTime {
		t.Errorf("the write has a bound of %s", bound)
	}
}
