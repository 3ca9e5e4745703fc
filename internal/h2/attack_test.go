package h2

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	pb "atoll.dev/atoll/internal/session/sessionpb"
)

// rawClient is a client that sends single frames.
type rawClient struct {
	net.Conn
	framer *http2.Framer
	frames chan string // frames as text, until the connection ends
	done   chan struct{}
}

// newRawClient returns a client, connected to a server in memory, that has not sent its preface.
func newRawClient(t testing.TB, impl *testServer) *rawClient {
	s := NewServer(t.Context(), testOptions())
	pb.RegisterSessionServer(s, impl)
	pb.RegisterRegistrationServer(s, impl)
	t.Cleanup(s.Stop)
	return connectRawClient(t, s)
}

// connectRawClient returns a client, connected to the server in memory, that has not sent its preface.
func connectRawClient(t testing.TB, s *Server) *rawClient {
	mine, its := net.Pipe()
	p := &rawClient{Conn: mine, framer: http2.NewFramer(mine, mine), frames: make(chan string, 10_000), done: make(chan struct{})}
	p.framer.AllowIllegalWrites = true
	go func() { defer close(p.done); s.Serve(its, nil) }()
	go func() {
		defer close(p.frames)
		for {
			f, err := p.framer.ReadFrame()
			if err != nil {
				return
			}
			select {
			case p.frames <- describe(f):
			default:
			}
		}
	}()
	t.Cleanup(func() { mine.Close(); <-p.done })
	return p
}

func describe(f http2.Frame) string {
	switch f := f.(type) {
	case *http2.GoAwayFrame:
		return "GOAWAY " + f.ErrCode.String()
	case *http2.RSTStreamFrame:
		return fmt.Sprintf("RST %d %s", f.StreamID, f.ErrCode)
	case *http2.PingFrame:
		return fmt.Sprintf("PING %t", f.IsAck())
	case *http2.WindowUpdateFrame:
		return fmt.Sprintf("WINDOW %d %d", f.StreamID, f.Increment)
	default:
		return fmt.Sprintf("%s %d", f.Header().Type, f.Header().StreamID)
	}
}

// sendPreface sends the client's preface and settings.
func (p *rawClient) sendPreface() {
	_, _ = io.WriteString(p, http2.ClientPreface)
	_ = p.framer.WriteSettings()
}

// expectFrame waits for a frame.
func (p *rawClient) expectFrame(t *testing.T, want string) {
	t.Helper()
	var all []string
	for f := range p.frames {
		if f == want {
			return
		}
		all = append(all, f)
	}
	t.Errorf("no %s came, but %q", want, all[max(0, len(all)-10):])
}

func requestBlock(path string, more ...string) []byte {
	return encodePairs(append([]string{":method", "POST", ":scheme", "https", ":path", path, ":authority", "hub", "content-type", "application/grpc", "te", "trailers"}, more...)...)
}

func (p *rawClient) openStream(id uint32, last bool) error {
	return p.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndHeaders: true, EndStream: last, BlockFragment: requestBlock(pb.Session_Connect_FullMethodName)})
}

// writeUntilClosed writes until the server closes the connection.
func writeUntilClosed(write func(i uint32) error) error {
	for i := range uint32(1 << 20) {
		if write(i) != nil {
			return nil
		}
	}
	return errors.New("the server accepts everything")
}

func TestBreaches(t *testing.T) {
	waits := &testServer{connect: func(r rpc) error {
		for {
			if _, err := r.Recv(); errors.Is(err, io.EOF) {
				<-r.Context().Done()
			} else if err != nil {
				return err
			}
		}
	}}
	connect := pb.Session_Connect_FullMethodName
	deaf := &testServer{connect: func(r rpc) error { <-r.Context().Done(); return nil }}
	for name, c := range map[string]struct {
		play func(p *rawClient) error
		want string
	}{
		"no settings": {func(p *rawClient) error {
			_, err := io.WriteString(p, http2.ClientPreface)
			return errors.Join(err, p.framer.WritePing(false, [8]byte{}))
		}, "GOAWAY PROTOCOL_ERROR"},
		"HTTP/1": {func(p *rawClient) error {
			_, err := io.WriteString(p, "GET / HTTP/1.1\r\nHost: hub\r\n\r\n")
			return err
		}, "GOAWAY PROTOCOL_ERROR"},
		"pings": {func(p *rawClient) error {
			p.sendPreface()
			return writeUntilClosed(func(uint32) error { return p.framer.WritePing(false, [8]byte{}) })
		}, "GOAWAY ENHANCE_YOUR_CALM"},
		"answers to no ping": {func(p *rawClient) error {
			p.sendPreface()
			return writeUntilClosed(func(uint32) error { return p.framer.WritePing(true, [8]byte{}) })
		}, "GOAWAY ENHANCE_YOUR_CALM"},
		"settings": {func(p *rawClient) error {
			p.sendPreface()
			return writeUntilClosed(func(uint32) error { return p.framer.WriteSettings() })
		}, "GOAWAY ENHANCE_YOUR_CALM"},
		"empty data": {func(p *rawClient) error {
			p.sendPreface()
			return errors.Join(p.openStream(1, false), writeUntilClosed(func(uint32) error { return p.framer.WriteData(1, false, nil) }))
		}, "GOAWAY ENHANCE_YOUR_CALM"},
		"windows": {func(p *rawClient) error {
			p.sendPreface()
			return writeUntilClosed(func(uint32) error { return p.framer.WriteWindowUpdate(0, 1) })
		}, "GOAWAY ENHANCE_YOUR_CALM"},
		"priorities": {func(p *rawClient) error {
			p.sendPreface()
			return writeUntilClosed(func(uint32) error { return p.framer.WritePriority(1, http2.PriorityParam{StreamDep: 3}) })
		}, "GOAWAY ENHANCE_YOUR_CALM"},
		"calls that are reset": {func(p *rawClient) error {
			p.sendPreface()
			return writeUntilClosed(func(i uint32) error {
				return errors.Join(p.openStream(2*i+1, false), p.framer.WriteRSTStream(2*i+1, http2.ErrCodeCancel))
			})
		}, "GOAWAY ENHANCE_YOUR_CALM"},
		"unknown calls": {func(p *rawClient) error {
			p.sendPreface()
			block := requestBlock("/no.Such/Method")
			return writeUntilClosed(func(i uint32) error {
				return p.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, EndHeaders: true, EndStream: true, BlockFragment: block})
			})
		}, "GOAWAY ENHANCE_YOUR_CALM"},
		"fields without end": {func(p *rawClient) error {
			p.sendPreface()
			err := p.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: requestBlock(connect)})
			return errors.Join(err, writeUntilClosed(func(uint32) error { return p.framer.WriteContinuation(1, false, encodePairs("x", "y")) }))
		}, "GOAWAY ENHANCE_YOUR_CALM"},
		"fields without bytes": {func(p *rawClient) error {
			p.sendPreface()
			err := p.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: requestBlock(connect)})
			return errors.Join(err, writeUntilClosed(func(uint32) error { return p.framer.WriteContinuation(1, false, nil) }))
		}, "GOAWAY ENHANCE_YOUR_CALM"},
		"fields broken off": {func(p *rawClient) error {
			p.sendPreface()
			err := p.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: requestBlock(connect)})
			return errors.Join(err, p.framer.WriteData(1, false, nil))
		}, "GOAWAY PROTOCOL_ERROR"},
		"fields that cannot be read": {func(p *rawClient) error {
			p.sendPreface()
			return p.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true, BlockFragment: []byte{0x80 | 70}})
		}, "GOAWAY COMPRESSION_ERROR"},
		"too large a frame": {func(p *rawClient) error {
			p.sendPreface()
			return writeUntilClosed(func(uint32) error {
				return p.framer.WriteRawFrame(http2.FrameData, 0, 1, make([]byte, maxFrameBytes+1))
			})
		}, "GOAWAY FRAME_SIZE_ERROR"},
		"a small ping": {func(p *rawClient) error {
			p.sendPreface()
			return p.framer.WriteRawFrame(http2.FramePing, 0, 0, []byte{1})
		}, "GOAWAY FRAME_SIZE_ERROR"},
		"more than the window": {func(p *rawClient) error {
			p.sendPreface()
			return errors.Join(p.openStream(1, false), writeUntilClosed(func(uint32) error { return p.framer.WriteData(1, false, make([]byte, maxFrameBytes)) }))
		}, "RST 1 FLOW_CONTROL_ERROR"},
		"data of no stream": {func(p *rawClient) error {
			p.sendPreface()
			return p.framer.WriteData(7, false, []byte("x"))
		}, "GOAWAY PROTOCOL_ERROR"},
		"data after the end": {func(p *rawClient) error {
			p.sendPreface()
			return errors.Join(p.openStream(1, true), p.framer.WriteData(1, false, []byte("x")))
		}, "RST 1 STREAM_CLOSED"},
		"a window that overflows": {func(p *rawClient) error {
			p.sendPreface()
			return errors.Join(p.framer.WriteWindowUpdate(0, 1<<31-1), p.framer.WriteWindowUpdate(0, 1))
		}, "GOAWAY FLOW_CONTROL_ERROR"},
		"a call's window that overflows": {func(p *rawClient) error {
			p.sendPreface()
			return errors.Join(p.openStream(1, false), p.framer.WriteWindowUpdate(1, 1<<31-1))
		}, "RST 1 FLOW_CONTROL_ERROR"},
		"windows that settings overflow": {func(p *rawClient) error {
			p.sendPreface()
			return errors.Join(p.openStream(1, false), p.framer.WriteWindowUpdate(1, 1<<31-1-initialWindow),
				p.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20}))
		}, "GOAWAY FLOW_CONTROL_ERROR"},
		"a window of nothing": {func(p *rawClient) error {
			p.sendPreface()
			return p.framer.WriteWindowUpdate(0, 0)
		}, "GOAWAY PROTOCOL_ERROR"},
		"bad settings": {func(p *rawClient) error {
			p.sendPreface()
			return p.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 31})
		}, "GOAWAY FLOW_CONTROL_ERROR"},
		"even streams": {func(p *rawClient) error { p.sendPreface(); return p.openStream(2, false) }, "GOAWAY PROTOCOL_ERROR"},
		"a push": {func(p *rawClient) error {
			p.sendPreface()
			return p.framer.WritePushPromise(http2.PushPromiseParam{StreamID: 1, PromiseID: 2, EndHeaders: true})
		}, "GOAWAY PROTOCOL_ERROR"},
		"too many calls": {func(p *rawClient) error {
			p.sendPreface()
			for i := range uint32(testStreams + 1) {
				if err := p.openStream(2*i+1, false); err != nil {
					return err
				}
			}
			return nil
		}, fmt.Sprintf("RST %d REFUSED_STREAM", 2*testStreams+1)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				impl := waits
				if name == "more than the window" {
					impl = deaf
				}
				p := newRawClient(t, impl)
				played := make(chan error, 1)
				go func() { played <- c.play(p) }()
				p.expectFrame(t, c.want)
				p.Close()
				<-played // it may be cut off while it writes
			})
		})
	}
}

// TestKeepalive both ways.
func TestServerKeepalive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // a peer that answers stays
		p := newRawClient(t, &testServer{connect: echoReports})
		p.sendPreface()
		_ = p.openStream(1, false)
		for range 10 {
			p.expectFrame(t, "PING false")
			if err := p.framer.WritePing(true, [8]byte{}); err != nil {
				t.Fatal(err)
			}
		}
		for range 10 { // and may ping itself, not too often
			<-time.After(testOptions().PingsApart)
			if err := p.framer.WritePing(false, [8]byte{}); err != nil {
				t.Fatal(err)
			}
			p.expectFrame(t, "PING true")
		}
	})
	synctest.Test(t, func(t *testing.T) { // one that does not is given up
		p := newRawClient(t, &testServer{connect: echoReports})
		p.sendPreface()
		_ = p.openStream(1, false)
		began := time.Now()
		p.expectFrame(t, "PING false")
		<-p.done
		if took := time.Since(began); took > testOptions().PingAfter+testOptions().PingTimeout+3*keepaliveInterval {
			t.Errorf("it took %s", took)
		}
	})
	synctest.Test(t, func(t *testing.T) { // a peer without a preface does not hold up the end
		mine, its := net.Pipe()
		defer mine.Close()
		go func() { _, _ = io.Copy(io.Discard, mine) }()
		s := NewServer(t.Context(), testOptions())
		served := make(chan bool)
		go func() { s.Serve(its, nil); close(served) }()
		synctest.Wait()
		began := time.Now()
		s.Stop()
		<-served
		if took := time.Since(began); took > closeTimeout {
			t.Errorf("it took %s", took)
		}
	})
	synctest.Test(t, func(t *testing.T) { // one that greets never, too
		mine, its := net.Pipe()
		defer mine.Close()
		go func() { _, _ = io.Copy(io.Discard, mine) }()
		s := NewServer(t.Context(), testOptions())
		defer s.Stop()
		_ = its.SetDeadline(time.Now().Add(time.Second))
		began := time.Now()
		s.Serve(its, nil)
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

// TestStuckPeers that read nothing are cut off, whichever goroutine waits for them.
func TestStuckPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, its := net.Pipe()
		defer mine.Close()
		s := NewServer(t.Context(), testOptions())
		go func() {
			_, _ = io.ReadFull(mine, make([]byte, frameHeaderBytes+4*6+frameHeaderBytes+4)) // settings and a window
			_, _ = io.WriteString(mine, http2.ClientPreface)
			_ = http2.NewFramer(mine, mine).WriteSettings() // of which the acknowledgement is never read
		}()
		began := time.Now()
		s.Serve(its, nil)
		if took := time.Since(began); took > testOptions().WriteTimeout+3*keepaliveInterval {
			t.Errorf("it took %s", took)
		}
		s.Stop()
	})
}

// TestBusyHandlers do not keep the connection from being read.
func TestBusyHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newRawClient(t, &testServer{connect: func(r rpc) error {
			<-time.After(time.Minute)
			_, err := r.Recv()
			return err
		}})
		p.sendPreface()
		_ = p.openStream(1, false)
		for range 10 {
			<-time.After(testOptions().PingsApart + time.Second)
			if err := p.framer.WritePing(false, [8]byte{}); err != nil {
				t.Fatal(err)
			}
			p.expectFrame(t, "PING true")
		}
		if err := p.framer.WriteData(1, true, FrameMessage(nil)); err != nil {
			t.Fatal(err)
		}
		p.expectFrame(t, "HEADERS 1")
	})
}

// TestTables: a peer that uses a table before it receives the setting that forbids tables is understood.
func TestTables(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		names := make(chan string, 3)
		p := newRawClient(t, &testServer{join: func(_ context.Context, r *pb.JoinRequest) (*pb.JoinReply, error) {
			names <- r.GetName()
			return &pb.JoinReply{}, nil
		}})
		p.sendPreface()
		var b bytes.Buffer
		e := hpack.NewEncoder(&b)
		for i := range uint32(3) {
			b.Reset()
			if i == 2 {
				e.SetMaxDynamicTableSize(0)
			}
			for _, f := range []hpack.HeaderField{
				{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "https"}, {Name: ":path", Value: pb.Registration_Join_FullMethodName},
				{Name: "content-type", Value: "application/grpc"}, {Name: "user-agent", Value: "with a table"},
			} {
				_ = e.WriteField(f)
			}
			id := 2*i + 1
			if err := p.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndHeaders: true, BlockFragment: b.Bytes()}); err != nil {
				t.Fatal(err)
			}
			if err := p.framer.WriteData(id, true, FrameMessage([]byte{0x12, 1, 'a' + byte(i)})); err != nil {
				t.Fatal(err)
			}
			p.expectFrame(t, fmt.Sprintf("HEADERS %d", id))
			<-names
		}
	})
}

// FuzzServer: whatever comes after the greeting, the connection ends with its peer.
func FuzzServer(f *testing.F) {
	add := func(write func(p *http2.Framer)) {
		var b bytes.Buffer
		write(http2.NewFramer(&b, nil))
		f.Add(b.Bytes())
	}
	open := func(p *http2.Framer, id uint32) {
		_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndHeaders: true, BlockFragment: requestBlock(pb.Session_Connect_FullMethodName, "grpc-timeout", "1S", "a-bin", "AAE")})
	}
	add(func(p *http2.Framer) { open(p, 1); _ = p.WriteData(1, true, FrameMessage([]byte("x"))) })
	add(func(p *http2.Framer) {
		open(p, 1)
		_ = p.WriteDataPadded(1, false, binary.BigEndian.AppendUint32([]byte{0}, 1<<20), make([]byte, 100))
		open(p, 3)
		_ = p.WriteRSTStream(1, http2.ErrCodeCancel)
		_ = p.WriteWindowUpdate(3, 10)
	})
	add(func(p *http2.Framer) {
		_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: requestBlock("/x")[:9]})
		_ = p.WriteContinuation(1, true, requestBlock("/x")[9:])
		_ = p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1})
		_ = p.WritePing(false, [8]byte{})
		_ = p.WriteGoAway(0, http2.ErrCodeNo, nil)
	})
	s := NewServer(f.Context(), testOptions())
	impl := &testServer{connect: echoReports, join: func(context.Context, *pb.JoinRequest) (*pb.JoinReply, error) { return &pb.JoinReply{}, nil }}
	pb.RegisterSessionServer(s, impl)
	pb.RegisterRegistrationServer(s, impl)
	f.Cleanup(s.Stop)
	f.Fuzz(func(_ *testing.T, data []byte) {
		mine, its := net.Pipe()
		var wg sync.WaitGroup
		wg.Go(func() { s.Serve(its, nil) })
		wg.Go(func() { _, _ = io.Copy(io.Discard, mine) })
		_, _ = io.WriteString(mine, http2.ClientPreface)
		_ = http2.NewFramer(mine, nil).WriteSettings()
		_, _ = mine.Write(data) // it may have had enough before the end
		mine.Close()
		wg.Wait()
	})
}
