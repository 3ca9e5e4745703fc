package delivery

import (
	"bytes"
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

// stranger is a caller without a certificate, on a connection of its own.
type stranger struct {
	writing sync.Mutex // of the framer
	framer  *http2.Framer
	begin   time.Time
	// streams is how many calls the server allows at a time. streamsEnded has the time until each call
	// ended, closed the time until the server closed the connection. They are valid after done is closed.
	streams      uint32
	streamsEnded map[uint32]time.Duration
	closed       time.Duration
	done         chan struct{}
}

// connectStranger opens a connection to the server of callers without a certificate. It answers pings,
// as every HTTP/2 client does.
func connectStranger(t *testing.T, g *Gateway) *stranger {
	server := g.newUncertifiedCallerServer()
	t.Cleanup(server.Stop)
	client, conn := net.Pipe()
	t.Cleanup(func() { _ = client.Close() })
	server.Serve(conn, nil)
	s := &stranger{framer: http2.NewFramer(client, client), begin: time.Now(), streamsEnded: map[uint32]time.Duration{}, done: make(chan struct{})}
	go s.receiveFrames() // the server writes before it reads
	if _, err := io.WriteString(client, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	if err := s.writeFrame(func(f *http2.Framer) error { return f.WriteSettings() }); err != nil {
		t.Fatal(err)
	}
	return s
}

// writeFrame writes a frame while no other goroutine does.
func (s *stranger) writeFrame(write func(*http2.Framer) error) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	return write(s.framer)
}

func (s *stranger) receiveFrames() {
	defer close(s.done)
	for {
		f, err := s.framer.ReadFrame()
		if err != nil {
			s.closed = time.Since(s.begin)
			return
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if v, ok := f.Value(http2.SettingMaxConcurrentStreams); ok {
				s.streams = v
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				_ = s.writeFrame(func(w *http2.Framer) error { return w.WritePing(true, f.Data) }) // the next read has the error
			}
		case *http2.HeadersFrame:
			if f.StreamEnded() {
				s.streamsEnded[f.StreamID] = time.Since(s.begin)
			}
		case *http2.RSTStreamFrame:
			s.streamsEnded[f.StreamID] = time.Since(s.begin)
		}
	}
}

// call sends the header fields of a call, and never its message.
func (s *stranger) call(stream uint32, path string) error {
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, f := range []hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "https"}, {Name: ":path", Value: path},
		{Name: ":authority", Value: "hub"}, {Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"},
	} {
		_ = encoder.WriteField(f) // a bytes.Buffer takes everything
	}
	return s.writeFrame(func(w *http2.Framer) error {
		return w.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: true})
	})
}

// strangerGateway is as much of a gateway as the server of callers without a certificate needs.
func strangerGateway() *Gateway { return &Gateway{options: Options{JoinWait: 40 * time.Second}} }

// A caller without a certificate has few calls at a time, and its connection ends when it has been
// without a call for a while.
func TestQuietStrangersAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := connectStranger(t, strangerGateway())
		<-s.done
		if s.streams != strangerStreams {
			t.Errorf("%d calls are allowed at a time", s.streams)
		}
		if s.closed < strangerIdle || s.closed > strangerIdle+10*time.Second {
			t.Errorf("the connection is closed after %s", s.closed)
		}
	})
}

// A call that never sends its message ends soon after the time that a Join may wait.
func TestCallsOfStrangersEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := strangerGateway()
		s := connectStranger(t, g)
		if err := s.call(1, pb.Registration_Join_FullMethodName); err != nil {
			t.Fatal(err)
		}
		<-s.done
		if took, want := s.streamsEnded[1], g.options.JoinWait+strangerCallGrace; took < want || took > want+time.Second {
			t.Errorf("the call ends after %s, want %s", took, want)
		}
	})
}

// A caller without a certificate that calls again and again is closed at a bounded age.
func TestBusyStrangersAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := connectStranger(t, strangerGateway())
		for stream := uint32(1); s.call(stream, "/none.Service/None") == nil; stream += 2 {
			time.Sleep(strangerIdle / 2)
		}
		<-s.done
		// The library changes the age by a tenth, so that many connections do not end at once.
		if earliest, latest := strangerAge-strangerAge/10, strangerAge+strangerAge/10+strangerGrace; s.closed < earliest || s.closed > latest {
			t.Errorf("the connection is closed after %s", s.closed)
		}
	})
}
