package h2

import (
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// largeMessages bounds how many messages that are larger than the window of their call are received at
// a time, over all connections of a server. Calls take turns in the order in which they begin such a
// message. It is safe for concurrent use. A connection's mu may be held while its methods are called.
type largeMessages struct {
	most    int // 0: no bound
	timeout time.Duration

	mu        sync.Mutex
	receiving int
	waiting   []*serverStream
}

// takeTurn reports whether the call may receive its message now. A call that may not is in the queue.
func (l *largeMessages) takeTurn(s *serverStream) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.receiving >= l.most {
		l.waiting = append(l.waiting, s)
		return false
	}
	l.receiving++
	return true
}

// leaveQueue removes a call that waits from the queue. A call that has its turn by now is not there.
func (l *largeMessages) leaveQueue(s *serverStream) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.waiting, s); i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	}
}

// passTurn ends a turn. The first call of the queue gets it.
func (l *largeMessages) passTurn() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == 0 {
		l.receiving--
		return
	}
	next := l.waiting[0]
	l.waiting = slices.Delete(l.waiting, 0, 1)
	go next.takeLargeMessageTurn() // which takes the lock of its connection
}

// largeTurn is where a call is in largeMessages.
type largeTurn int

const (
	noTurn largeTurn = iota
	waitsForTurn
	hasTurn
)

// mayExceedWindow reports whether the call may receive more than its window for the message that has
// begun. The caller holds conn.mu.
func (s *serverStream) mayExceedWindow() bool {
	large := &s.conn.server.large
	if length, _, _ := s.received.firstMessage(s.method.maxMessageBytes); large.most == 0 || int64(length) <= s.window {
		return true
	}
	if s.turn == noTurn {
		if s.turn = waitsForTurn; large.takeTurn(s) {
			s.beginTurn()
		}
	}
	return s.turn == hasTurn
}

// beginTurn begins the turn of the call, which must receive its message within the timeout. The caller
// holds conn.mu.
func (s *serverStream) beginTurn() {
	s.turn = hasTurn
	var timer *time.Timer
	timer = time.AfterFunc(s.conn.server.large.timeout, func() {
		s.conn.mu.Lock()
		defer s.conn.mu.Unlock()
		if s.turnTimer == timer {
			s.endLocked(status.Errorf(codes.DeadlineExceeded, "the rest of a message of more than %d bytes did not come within %s", s.window, s.conn.server.large.timeout))
		}
	})
	s.turnTimer = timer
}

// endTurn ends the turn of the call, or its wait, if it has one. The caller holds conn.mu.
func (s *serverStream) endTurn() {
	switch s.turn {
	case waitsForTurn:
		s.conn.server.large.leaveQueue(s)
	case hasTurn:
		s.turnTimer.Stop()
		s.turnTimer = nil
		s.conn.server.large.passTurn()
	}
	s.turn = noTurn
}

// takeLargeMessageTurn begins the turn that another call has passed to this one, and returns window to the
// peer. A call that does not wait any more passes the turn on.
func (s *serverStream) takeLargeMessageTurn() {
	s.conn.mu.Lock()
	if s.turn != waitsForTurn {
		s.conn.mu.Unlock()
		s.conn.server.large.passTurn()
		return
	}
	s.beginTurn()
	increment := s.windowIncrement()
	s.conn.mu.Unlock()
	if increment > 0 {
		s.sendWindowUpdate(increment)
	}
}
