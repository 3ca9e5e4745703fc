package h2

import (
	"time"
)

const (
	// wheelTurns is how often all connections are looked at. A look costs some
	// nanoseconds, timers for each would cost memory and a wake-up.
	wheelTurns = time.Second
	// standInAfter so long a handler that keeps the connection from being read is
	// stood in for. With the turn of the wheel that is after 4 s at most, and only where
	// no goroutine of the connection waits for a message or for a window. What comes late
	// by that can: answers to pings, for which a peer must give more than these 4 s; what
	// is beyond a window; another call; that the peer has gone or ended the call, of which
	// a handler learns when it receives next.
	standInAfter = 3 * time.Second
)

// wheel looks after all connections of a server.
type wheel struct {
	stop chan struct{}
	due  []*conn // to be pinged; kept for its room
}

// turn the wheel until the server stops.
func (s *Server) turn() {
	tick := time.NewTicker(wheelTurns)
	defer tick.Stop()
	for {
		select {
		case <-s.wheel.stop:
			return
		case now := <-tick.C:
			s.look(now)
		}
	}
}

// look at all connections.
func (s *Server) look(now time.Time) {
	due := s.wheel.due[:0]
	s.mu.Lock()
	for c := range s.conns {
		if c.look(now.UnixNano()) {
			due = append(due, c)
		}
	}
	s.mu.Unlock()
	for _, c := range due {
		s.served.Go(c.ping)
	}
	clear(due)
	s.wheel.due = due
}

// look at a connection: whether it is due to be pinged.
func (c *conn) look(now int64) bool {
	o := &c.server.o
	if at := c.writing.Load(); at != 0 && now-at > int64(o.WriteTimeout) {
		c.cut(breach{0, "the peer takes nothing"})
		return false
	}
	silent := now - c.heard.Load()
	switch {
	case silent < int64(standInAfter):
		c.pinged = 0
		return false
	case c.unread():
		c.server.served.Go(c.standIn)
		return false
	case silent < int64(o.PingAfter):
		c.pinged = 0
		return false
	case c.pinged == 0:
		c.pinged = now
		return true
	case now-c.pinged >= int64(o.PingTimeout):
		c.cut(breach{0, "the peer is silent"})
	}
	return false
}

// unread tells whether nobody reads the connection, since handlers are busy.
func (c *conn) unread() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.taken && c.greeted && c.err == nil
}

// standIn reads the connection until a handler waits for it again.
func (c *conn) standIn() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.taken {
		return
	}
	c.heard.Store(time.Now().UnixNano()) // it was we who did not listen
	c.await(func() bool { return c.err != nil || c.waiting > 1 })
}

// ping the peer, unless something is being written, which makes it answer as well.
func (c *conn) ping() {
	if !c.wmu.TryLock() {
		return
	}
	defer c.wmu.Unlock()
	w := writers.Get().(*writer)
	defer w.release()
	if err := w.framer.WritePing(false, [8]byte{}); err == nil {
		c.flush(w)
	}
}
