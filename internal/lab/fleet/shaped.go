package fleet

import (
	"math/rand/v2"
	"net"
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
// waited for before a read that had to wait: neither end can tell where on the way
// the time went. What is there already follows at the line's rate.
type shaped struct {
	net.Conn
	read, written time.Time // when the line is free again
}

// newShaped takes the time of TCP's own handshake.
func newShaped(c net.Conn) *shaped {
	time.Sleep(linkRTT)
	return &shaped{Conn: c}
}

// Read what has come, when it would have.
func (s *shaped) Read(p []byte) (int, error) {
	begin := time.Now()
	n, err := s.Conn.Read(p)
	now := time.Now()
	if now.Sub(begin) > time.Millisecond {
		s.read = now.Add(linkRTT) // it has waited for something new
	}
	s.read = later(s.read, now).Add(onLine(n))
	time.Sleep(time.Until(s.read))
	return n, err
}

// Write no faster than the line's rate.
func (s *shaped) Write(p []byte) (int, error) {
	s.written = later(s.written, time.Now()).Add(onLine(len(p)))
	time.Sleep(time.Until(s.written))
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
