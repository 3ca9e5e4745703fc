package link

import (
	"crypto/tls"
	"sync"
)

// ticket by which a session is resumed with the hub that gave it: nothing is signed or
// verified then, and the hub asks for no certificate. It is used once, so that whatever
// may be wrong with it the next handshake is a full one. It is safe for concurrent use.
type ticket struct {
	mu    sync.Mutex
	hub   string
	state *tls.ClientSessionState // nil: there is none
}

// drop it, since it speaks for a certificate that is not ours any more.
func (t *ticket) drop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.state = nil
}

// with is the ticket for a session with the hub.
func (t *ticket) with(hub string) tls.ClientSessionCache { return ticketWith{t, hub} }

type ticketWith struct {
	t   *ticket
	hub string
}

// Get takes the ticket.
func (w ticketWith) Get(string) (*tls.ClientSessionState, bool) {
	w.t.mu.Lock()
	defer w.t.mu.Unlock()
	if w.t.hub != w.hub {
		return nil, false
	}
	state := w.t.state
	w.t.state = nil
	return state, state != nil
}

// Put keeps the hub's newest.
func (w ticketWith) Put(_ string, state *tls.ClientSessionState) {
	w.t.mu.Lock()
	defer w.t.mu.Unlock()
	w.t.hub, w.t.state = w.hub, state
}
