package fleet

import (
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"
)

// The line that --link simulates.
const (
	linkRTT         = 50 * time.Millisecond
	linkLoss        = 0.0002 // share of packets
	linkBytes       = 20e6 / 8
	packetBytes     = 1448
	retransmitDelay = 250 * time.Millisecond // the delay that a lost packet causes
)

// delayedConn is a connection with the delays of a long line. A read waits the whole round
// trip if it had to wait for new data, or if it is the first read after a write. Neither
// end can see on which way the time passes. Data that is available already follows at the
// rate of the line.
type delayedConn struct {
	net.Conn
	readFreeAt, writeFreeAt time.Time    // the line is free again at these times
	lastWriteAt             atomic.Int64 // Unix nanoseconds of the last write since the last read
}

// newDelayedConn returns the connection after the time of TCP's own handshake.
func newDelayedConn(c net.Conn) *delayedConn {
	time.Sleep(linkRTT)
	return &delayedConn{Conn: c}
}

// minReadWait is the duration from which a read counts as one that had to wait.
const minReadWait = 200 * time.Microsecond

// Read returns received data when the line would deliver it.
func (s *delayedConn) Read(p []byte) (int, error) {
	begin := time.Now()
	n, err := s.Conn.Read(p)
	now := time.Now()
	asked := s.lastWriteAt.Swap(0)
	switch {
	case now.Sub(begin) > minReadWait:
		s.readFreeAt = laterTime(s.readFreeAt, now.Add(linkRTT))
	case asked != 0:
		s.readFreeAt = laterTime(s.readFreeAt, time.Unix(0, asked).Add(linkRTT))
	}
	s.readFreeAt = laterTime(s.readFreeAt, now).Add(transmissionTime(n))
	time.Sleep(time.Until(s.readFreeAt))
	return n, err
}

// Write sends no faster than the rate of the line.
func (s *delayedConn) Write(p []byte) (int, error) {
	s.writeFreeAt = laterTime(s.writeFreeAt, time.Now()).Add(transmissionTime(len(p)))
	time.Sleep(time.Until(s.writeFreeAt))
	s.lastWriteAt.Store(time.Now().UnixNano())
	return s.Conn.Write(p)
}

func laterTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// transmissionTime returns the time that n bytes take on the line, with lost packets.
func transmissionTime(n int) time.Duration {
	d := time.Duration(float64(n) / linkBytes * float64(time.Second))
	for ; n > 0; n -= packetBytes {
		if rand.Float64() < linkLoss {
			d += retransmitDelay
		}
	}
	return d
}
