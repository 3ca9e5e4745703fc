package fleet

import (
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"
)

// What --link makes of a link.
const (
	linkRTT       = 50 * time.Millisecond
	linkLoss      = 0.0002 // of packets
	linkBytes     = 20e6 / 8
	packetBytes   = 1448
	retransmitted = 250 * time.Millisecond // what a lost packet costs
)

// shaped is a connection with the delays of a long line. The whole round trip is
// waited for before a read of something new, which is what the read had to wait for,
// or what comes after a write: neither end can tell where on the way the time went.
// What is there already follows at the line's rate.
type shaped struct {
	net.Conn
	read, written time.Time    // when the line is free again
	asked         atomic.Int64 // when was written since the last read, Unix nanoseconds
}

// newShaped takes the time of TCP's own handshake.
func newShaped(c net.Conn) *shaped {
	time.Sleep(linkRTT)
	return &shaped{Conn: c}
}

// waited is how long a read takes that had to wait.
const waited = 200 * time.Microsecond

// Read what has come, when it would have.
func (s *shaped) Read(p []byte) (int, error) {
	begin := time.Now()
	n, err := s.Conn.Read(p)
	now := time.Now()
	asked := s.asked.Swap(0)
	switch {
	case now.Sub(begin) > waited:
		s.read = later(s.read, now.Add(linkRTT))
	case asked != 0:
		s.read = later(s.read, time.Unix(0, asked).Add(linkRTT))
	}
	s.read = later(s.read, now).Add(onLine(n))
	time.Sleep(time.Until(s.read))
	return n, err
}

// Write no faster than the line's rate.
func (s *shaped) Write(p []byte) (int, error) {
	s.written = later(s.written, time.Now()).Add(onLine(len(p)))
	time.Sleep(time.Until(s.written))
	s.asked.Store(time.Now().UnixNano())
	return s.Conn.Write(p)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// onLine is how long so many bytes take, lost packets included.
func onLine(n int) time.Duration {
	d := time.Duration(float64(n) / linkBytes * float64(time.Second))
	for ; n > 0; n -= packetBytes {
		if rand.Float64() < linkLoss {
			d += retransmitted
		}
	}
	return d
}
