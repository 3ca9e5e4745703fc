package delivery

import (
	"bytes"
	"crypto/tls"
	"net"
	"testing"
	"time"

	"atoll.dev/atoll/internal/testwait"
)

// recordHellos returns a listener that a client can dial, and the first record of each connection
// to it.
func recordHellos(t *testing.T, config *tls.Config) (address string, records <-chan []byte) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	out := make(chan []byte, 10)
	go func() {
		for {
			raw, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer raw.Close()
				begun, err := readHello(&trackedConn{Conn: raw, onClose: func() {}})
				if err != nil {
					return
				}
				out <- bytes.Clone(begun.head)
				conn := tls.Server(begun, config)
				_, _ = conn.Write([]byte{0}) // the ticket comes with it
			}()
		}
	}()
	return l.Addr().String(), out
}

// Only a ticket that this process made for an agent is valid.
func TestTicketsInClientHellos(t *testing.T) {
	h := newTestHub(t)
	_, id := h.createCluster("tokyo")
	g := &tlsAcceptor{trust: h.trust.Load}
	config := g.currentState().config
	address, records := recordHellos(t, config)
	dial := func(c *tls.Config) []byte {
		t.Helper()
		_, _ = handshakeOnce(address, c) // an end without a byte is no failure here
		select {
		case record := <-records:
			return record
		case <-time.After(testwait.HangLimit):
			t.Fatal("no ClientHello comes")
			return nil
		}
	}
	agent := h.ticketConfig(id)
	first, second := dial(agent), dial(agent)
	if holdsValidTicket(first, config) {
		t.Error("a ClientHello without a ticket counts as one with a ticket")
	}
	if !holdsValidTicket(second, config) {
		t.Fatal("the ticket of an agent is not valid")
	}
	if holdsValidTicket(second, (&tlsAcceptor{trust: g.trust}).currentState().config) {
		t.Error("the ticket of another process is valid")
	}
	stranger := h.ticketConfig()
	dial(stranger)
	if holdsValidTicket(dial(stranger), config) {
		t.Error("a caller without a certificate has a valid ticket")
	}
	ticket := offeredTicket(second)
	for i := range second {
		changed := bytes.Clone(second)
		changed[i] ^= 0xff
		if holdsValidTicket(changed, config) && !bytes.Equal(offeredTicket(changed), ticket) {
			t.Fatalf("a ticket is valid that was changed with byte %d", i)
		}
		if holdsValidTicket(second[:i], config) {
			t.Fatalf("a record that ends at byte %d has a valid ticket", i)
		}
	}
}

// FuzzOfferedTicket: no record makes the reader fail or return bytes that are not in it.
func FuzzOfferedTicket(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x16\x03\x01\x00\x04\x01\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, record []byte) {
		if ticket := offeredTicket(record); !bytes.Contains(record, ticket) {
			t.Errorf("%q is not in the record", ticket)
		}
	})
}
