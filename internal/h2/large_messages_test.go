package h2

import (
	"encoding/binary"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/protobuf/proto"

	pb "atoll.dev/atoll/internal/session/sessionpb"
)

// sender sends one message in its wire form, within the windows that the server gives.
type sender struct {
	*rawClient
	rest         []byte
	stream, conn int // windows that are left, in bytes
}

// openSender opens a call for a message of about that many bytes.
func openSender(t *testing.T, s *Server, size int) *sender {
	t.Helper()
	message, err := proto.Marshal(&pb.FromAgent{Frame: &pb.FromAgent_Report{Report: &pb.Report{Status: make([]byte, size)}}})
	if err != nil {
		t.Fatal(err)
	}
	p := &sender{rawClient: connectRawClient(t, s), stream: testOptions().Window, conn: initialWindow}
	p.rest = append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
	p.sendPreface()
	if err := p.openStream(1, false); err != nil {
		t.Fatal(err)
	}
	return p
}

// sendAllowed sends what the windows allow until the server gives no more, and returns the frames that
// came for the call, without windows.
func (p *sender) sendAllowed(t *testing.T) (frames []string) {
	t.Helper()
	for {
		synctest.Wait()
		for len(p.frames) > 0 {
			f := <-p.frames
			kind, rest, _ := strings.Cut(f, " ")
			var id, n int
			switch n = parseNumbers(rest, &id); {
			case kind == "WINDOW" && id == 0:
				p.conn += n
			case kind == "WINDOW":
				p.stream += n
			case id == 1:
				frames = append(frames, f)
			}
		}
		n := min(p.stream, p.conn, len(p.rest), 16<<10)
		if n == 0 {
			return frames
		}
		if err := p.framer.WriteData(1, false, p.rest[:n]); err != nil {
			t.Fatal(err)
		}
		p.stream, p.conn, p.rest = p.stream-n, p.conn-n, p.rest[n:]
	}
}

// parseNumbers reads the stream of a frame's text, and the number behind it, if there is one.
func parseNumbers(text string, id *int) (n int) {
	for i, field := range strings.Fields(text) {
		v := 0
		for _, c := range field {
			if c < '0' || c > '9' {
				return n
			}
			v = 10*v + int(c-'0')
		}
		if i == 0 {
			*id = v
		} else {
			n = v
		}
	}
	return n
}

// Messages that are larger than the window take turns. A peer that holds back the end of one delays others
// for a bounded time, and small messages not at all.
func TestLargeMessagesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions()
		o.LargeMessages, o.LargeTimeout, o.PingAfter = 1, time.Minute, time.Hour
		s := NewServer(t.Context(), o)
		defer s.Stop()
		received := make(chan int, 10)
		pb.RegisterSessionServer(s, &testServer{connect: func(r rpc) error {
			f, err := r.Recv()
			if err == nil {
				received <- len(f.GetReport().GetStatus())
			}
			return err
		}})
		const large = 200 << 10
		stuck, next, last := openSender(t, s, large), openSender(t, s, large), openSender(t, s, large)
		stuck.rest = stuck.rest[:100<<10] // and nothing more
		stuck.sendAllowed(t)
		if len(stuck.rest) > 0 {
			t.Fatalf("the first large message is not received: %d bytes are left", len(stuck.rest))
		}
		for _, p := range []*sender{next, last} {
			if p.sendAllowed(t); len(p.rest) < large-o.Window {
				t.Errorf("a large message has no turn, and the server takes %d bytes of it", large-len(p.rest))
			}
		}
		small := openSender(t, s, 10<<10)
		if small.sendAllowed(t); len(small.rest) > 0 || <-received != 10<<10 {
			t.Error("a small message waits for a turn")
		}
		time.Sleep(o.LargeTimeout - time.Second)
		if frames := stuck.sendAllowed(t); len(frames) > 0 || len(next.sendAllowed(t)) > 0 || len(received) > 0 {
			t.Errorf("before the timeout came %q, and %d messages", frames, len(received))
		}
		time.Sleep(2 * time.Second)
		if frames := stuck.sendAllowed(t); len(frames) == 0 || !strings.HasPrefix(frames[0], http2.FrameHeaders.String()) {
			t.Errorf("the call that holds back its message goes on: %q", frames)
		}
		for _, p := range []*sender{next, last} {
			if p.sendAllowed(t); len(p.rest) > 0 || <-received != large {
				t.Errorf("a large message is not received in its turn: %d bytes are left", len(p.rest))
			}
		}
		if n := s.large.receiving; n != 0 || len(s.large.waiting) > 0 {
			t.Errorf("%d turns are taken, and %d calls wait", n, len(s.large.waiting))
		}
	})
}

// A call that ends while it waits for its turn, or just when it gets it, keeps no turn.
func TestCallsThatEndKeepNoTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions()
		o.LargeMessages, o.LargeTimeout, o.PingAfter = 1, time.Hour, time.Hour
		s := NewServer(t.Context(), o)
		defer s.Stop()
		pb.RegisterSessionServer(s, &testServer{connect: func(r rpc) error { _, err := r.Recv(); return err }})
		holder, waiting, closed := openSender(t, s, 200<<10), openSender(t, s, 200<<10), openSender(t, s, 200<<10)
		holder.rest = holder.rest[:100<<10]
		for _, p := range []*sender{holder, waiting, closed} {
			p.sendAllowed(t)
		}
		closed.Close()
		synctest.Wait()
		if n := len(s.large.waiting); n != 1 {
			t.Errorf("%d calls wait after one of two has ended", n)
		}
		holder.Close()
		if waiting.sendAllowed(t); len(waiting.rest) > 0 {
			t.Errorf("the turn of a call that ended is not passed on: %d bytes are left", len(waiting.rest))
		}
		synctest.Wait()
		if n := s.large.receiving; n != 0 {
			t.Errorf("%d turns are taken", n)
		}
	})
}
