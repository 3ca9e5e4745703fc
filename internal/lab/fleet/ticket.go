package fleet

import "crypto/tls"

// ticket by which an agent comes back to the hub that gave it.
type ticket struct {
	hub   int
	state *tls.ClientSessionState // nil: there is none
}

// ticketOf an agent, for a session with one hub; see the agent's own.
type ticketOf struct {
	*agent
	hub int
}

// Get takes the ticket: it is used once.
func (t ticketOf) Get(string) (*tls.ClientSessionState, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ticket.hub != t.hub {
		return nil, false
	}
	state := t.ticket.state
	t.ticket.state = nil
	return state, state != nil
}

// Put keeps the hub's newest.
func (t ticketOf) Put(_ string, state *tls.ClientSessionState) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ticket = ticket{t.hub, state}
}
