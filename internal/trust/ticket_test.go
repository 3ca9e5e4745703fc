package trust

import (
	"crypto/tls"
	"testing"
)

// TestATicketIsUsedOnce: a ticket resumes one session with its hub, and none once it was
// dropped.
func TestATicketIsUsedOnce(t *testing.T) {
	var ticket Ticket
	a, b := ticket.CacheForHub("a:1"), ticket.CacheForHub("b:1")
	a.Put("", &tls.ClientSessionState{})
	if _, ok := b.Get(""); ok {
		t.Error("another hub's ticket is shown")
	}
	if state, ok := a.Get(""); !ok || state == nil {
		t.Error("the ticket is not shown")
	}
	if _, ok := a.Get(""); ok {
		t.Error("the ticket is shown again")
	}
	a.Put("", &tls.ClientSessionState{})
	ticket.DropTicket()
	if _, ok := a.Get(""); ok {
		t.Error("a ticket that was dropped is shown")
	}
}
