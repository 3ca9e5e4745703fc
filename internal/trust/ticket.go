package trust

import (
	"crypto/tls"
	"sync"
)

// Ticket by which an agent resumes TLS with the hub that gave it: nothing is signed or
// verified then, and the hub asks for no certificate. It is used once, so that whatever
// may be wrong with it the next handshake is a full one. The zero value is none. It is
// safe for concurrent use.
type Ticket struct {
	mu    sync.Mutex
	hub   string
	state *tls.ClientSessionState // nil: there is none
}

// Drop it, since it speaks for a certificate that is not the agent's any more.
func (t *Ticket) Drop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.state = nil
}

// With is the ticket for a session with the hub of that address.
func (t *Ticket) With(hub string) tls.ClientSessionCache { return ticketWith{t, hub} }

type ticketWith struct {
	*Ticket
	hub string
}

// Get takes the ticket.
func (t ticketWith) Get(string) (*tls.ClientSessionState, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.Ticket.hub != t.hub {
		return nil, false
	}
	state := t.state
	t.state = nil
	return state, state != nil
}

// Put keeps the hub's newest.
func (t ticketWith) Put(_ string, state *tls.ClientSessionState) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.Ticket.hub, t.state = t.hub, state
}
