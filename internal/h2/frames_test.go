package h2

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// peerOf plays a server frame by frame, and gives how the call ended.
func peerOf(t *testing.T, play func(f *http2.Framer) error) (messages []string, err error) {
	ours, theirs := net.Pipe()
	played := make(chan error, 1)
	go func() {
		played <- func() error {
			if _, err := io.CopyN(io.Discard, theirs, int64(len(http2.ClientPreface))); err != nil {
				return err
			}
			f := http2.NewFramer(theirs, theirs)
			for range 3 { // settings, window, request
				if _, err := f.ReadFrame(); err != nil {
					return err
				}
			}
			return play(f)
		}()
		theirs.Close()
	}()
	c, err := Open(ours, &CallOptions{Authority: "hub", Method: "/a/b", MessageMost: 100})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	err = c.Serve(func(m []byte) error { messages = append(messages, string(m)); return nil })
	ours.Close()
	if err := <-played; err != nil {
		t.Errorf("the peer: %v", err)
	}
	return messages, err
}

func encodePairs(pairs ...string) []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	e.SetMaxDynamicTableSize(0)
	for i := 0; i < len(pairs); i += 2 {
		_ = e.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1]})
	}
	return b.Bytes()
}

func TestFrames(t *testing.T) {
	well := func(f *http2.Framer) error {
		return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true, EndStream: true, BlockFragment: encodePairs("grpc-status", "0")})
	}
	cases := map[string]struct {
		play     func(f *http2.Framer) error
		code     codes.Code
		messages int
	}{
		"messages cut anywhere": {func(f *http2.Framer) error {
			wire := append(FrameMessage([]byte("one")), append(FrameMessage(nil), FrameMessage([]byte(strings.Repeat("x", 90)))...)...)
			for _, b := range wire {
				if err := f.WriteData(1, false, []byte{b}); err != nil {
					return err
				}
			}
			return well(f)
		}, codes.OK, 3},
		"padding": {func(f *http2.Framer) error {
			if err := f.WriteDataPadded(1, false, FrameMessage([]byte("one")), make([]byte, 200)); err != nil {
				return err
			}
			return well(f)
		}, codes.OK, 1},
		"fields that go on": {func(f *http2.Framer) error {
			block := encodePairs(":status", "200", "content-type", "application/grpc", "grpc-status", "7", "grpc-message", "no")
			if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndStream: true, BlockFragment: block[:3]}); err != nil {
				return err
			}
			return f.WriteContinuation(1, true, block[3:])
		}, codes.PermissionDenied, 0},
		"a table that is said to be empty": {func(f *http2.Framer) error {
			return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true, EndStream: true, BlockFragment: append([]byte{0x20}, encodePairs("grpc-status", "0")...)})
		}, codes.OK, 0},
		"reset": {func(f *http2.Framer) error { return f.WriteRSTStream(1, http2.ErrCodeRefusedStream) }, codes.Unavailable, 0},
		"gone before the call": {func(f *http2.Framer) error {
			return f.WriteGoAway(0, http2.ErrCodeNo, nil)
		}, codes.Unavailable, 0},
		"too many pings": {func(f *http2.Framer) error {
			return f.WriteGoAway(1, http2.ErrCodeEnhanceYourCalm, []byte("too_many_pings"))
		}, codes.Unavailable, 0},
		"gone after the call": {func(f *http2.Framer) error {
			if err := f.WriteGoAway(1, http2.ErrCodeNo, nil); err != nil {
				return err
			}
			return well(f)
		}, codes.OK, 0},
		"HTTP": {func(f *http2.Framer) error {
			return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true, EndStream: true, BlockFragment: encodePairs(":status", "503")})
		}, codes.Unavailable, 0},
		"data at the end": {func(f *http2.Framer) error { return f.WriteData(1, true, nil) }, codes.Internal, 0},
		"compressed": {func(f *http2.Framer) error {
			return f.WriteData(1, false, []byte{1, 0, 0, 0, 1, 0})
		}, codes.ResourceExhausted, 0},
		"nothing": {func(*http2.Framer) error { return nil }, codes.Unknown, 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			messages, err := peerOf(t, c.play)
			if status.Code(err) != c.code || len(messages) != c.messages {
				t.Errorf("%q and %v, want %d messages and %v", messages, err, c.messages, c.code)
			}
		})
	}
}

// TestAnswers to what a peer asks of every connection.
func TestAnswers(t *testing.T) {
	_, err := peerOf(t, func(f *http2.Framer) error {
		data := [8]byte{1, 2, 3}
		if err := f.WritePing(false, data); err != nil {
			return err
		}
		answer, err := f.ReadFrame()
		if p, ok := answer.(*http2.PingFrame); !ok || !p.IsAck() || p.Data != data {
			return fmt.Errorf("the answer to a ping is %v: %w", answer, err)
		}
		if err := f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 10}); err != nil {
			return err
		}
		answer, err = f.ReadFrame()
		if s, ok := answer.(*http2.SettingsFrame); !ok || !s.IsAck() {
			return fmt.Errorf("the answer to settings is %v: %w", answer, err)
		}
		for range callWindow / 2 / 100 { // the window is opened again, once half of it is used
			if err := f.WriteData(1, false, FrameMessage(make([]byte, 95))); err != nil {
				return err
			}
		}
		if err := f.WriteData(1, false, FrameMessage(make([]byte, 95))); err != nil {
			return err
		}
		opened := uint32(0)
		for range 2 {
			answer, err = f.ReadFrame()
			w, ok := answer.(*http2.WindowUpdateFrame)
			if !ok || w.Increment < callWindow/2 {
				return fmt.Errorf("%v comes in place of a window: %w", answer, err)
			}
			opened += w.StreamID
		}
		if opened != 1 {
			return fmt.Errorf("windows of the connection and of the call are not opened")
		}
		return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true, EndStream: true, BlockFragment: encodePairs("grpc-status", "0")})
	})
	if err != nil {
		t.Error(err)
	}
}
