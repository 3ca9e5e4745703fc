package trust

import (
	"crypto/tls"
	"sync"
)

// Ticket holds the TLS session ticket with which an agent resumes a session with its hub. A
// resumed handshake has no signatures and requests no certificate. A ticket is used once, so a
// handshake after a failed resumption is a full one. The zero value holds no ticket. It is safe
// for concurrent use.
type Ticket struct {
	mu    sync.Mutex
	hub   string
	state *tls.ClientSessionState // nil without a ticket
}

// DropTicket discards the ticket, because it belongs to a certificate that the agent no longer
// uses.
func (t *Ticket) DropTicket() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.state = nil
}

// CacheForHub returns the session cache for the hub at that address.
func (t *Ticket) CacheForHub(hub string) tls.ClientSessionCache { return hubTicketCache{t, hub} }

type hubTicketCache struct {
	*Ticket
	hub string
}

// Get returns the ticket and removes it.
func (t hubTicketCache) Get(string) (*tls.ClientSessionState, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.Ticket.hub != t.hub {
		return nil, false
	}
	state := t.state
	t.state = nil
	return state, state != nil
}

// Put stores the hub's newest ticket.
func (t hubTicketCache) Put(_ string, state *tls.ClientSessionState) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.Ticket.hub, t.state = t.hub, state
}
