package h2

import (
	"time"
)

const (
	// keepaliveInterval is how often all connections are checked. A check takes some
	// nanoseconds; a timer per connection would cost memory and wake-ups.
	keepaliveInterval = time.Second
	// readForHandlersAfter is the silence after which another goroutine reads a connection whose
	// handlers are busy. With keepaliveInterval it starts after at most 4 s. Until then, answers
	// to pings, window updates, new calls and the end of a call are delayed. A peer must
	// therefore allow more than 4 s for the answer to a ping.
	readForHandlersAfter = 3 * time.Second
)

// keepaliveTicker checks all connections of a server at an interval.
type keepaliveTicker struct {
	stop     chan struct{}
	duePings []*serverConn // connections to ping; kept to reuse the memory
}

// runKeepalive checks the connections until the server stops.
func (s *Server) runKeepalive() {
	tick := time.NewTicker(keepaliveInterval)
	defer tick.Stop()
	for {
		select {
		case <-s.keepalive.stop:
			return
		case now := <-tick.C:
			s.checkConnections(now)
		}
	}
}

// checkConnections checks all connections, and pings those that are silent.
func (s *Server) checkConnections(now time.Time) {
	due := s.keepalive.duePings[:0]
	s.mu.Lock()
	for c := range s.conns {
		if c.checkKeepalive(now.UnixNano()) {
			due = append(due, c)
		}
	}
	s.mu.Unlock()
	for _, c := range due {
		s.running.Go(c.sendPing)
	}
	clear(due)
	s.keepalive.duePings = due
}

// checkKeepalive closes a connection whose peer does not respond. It reports whether the peer is
// to be pinged.
func (c *serverConn) checkKeepalive(now int64) bool {
	o := &c.server.options
	if at := c.writeStarted.Load(); at != 0 && now-at > int64(o.WriteTimeout) {
		c.closeNow(connError{0, "the peer reads nothing"})
		return false
	}
	silent := now - c.lastRead.Load()
	switch {
	case silent < int64(readForHandlersAfter):
		c.pingedAt = 0
		return false
	case c.hasNoReader():
		c.server.running.Go(c.readUntilHandlerWaits)
		return false
	case silent < int64(o.PingAfter):
		c.pingedAt = 0
		return false
	case c.pingedAt == 0:
		c.pingedAt = now
		return true
	case now-c.pingedAt >= int64(o.PingTimeout):
		c.closeNow(connError{0, "the peer did not answer a ping"})
	}
	return false
}

// hasNoReader reports whether no goroutine reads the connection because all handlers are busy.
func (c *serverConn) hasNoReader() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.beingRead && c.settingsReceived && c.err == nil
}

// readUntilHandlerWaits reads the connection until a handler waits for a message or a window.
func (c *serverConn) readUntilHandlerWaits() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.beingRead {
		return
	}
	c.lastRead.Store(time.Now().UnixNano()) // the silence was the server's: it did not read
	c.awaitCondition(func() bool { return c.err != nil || c.waiting > 1 })
}

// sendPing pings the peer, unless a write is running: the peer answers that, too.
func (c *serverConn) sendPing() {
	if !c.writeMu.TryLock() {
		return
	}
	defer c.writeMu.Unlock()
	w := writers.Get().(*frameWriter)
	defer w.release()
	if err := w.framer.WritePing(false, [8]byte{}); err == nil {
		c.flush(w)
	}
}
