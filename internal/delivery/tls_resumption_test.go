package delivery

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/testwait"
	"atoll.dev/atoll/internal/trust"
	"atoll.dev/atoll/internal/trust/handshake"
)

// handshakeOnce dials with TLS, reads the first bytes of the hub, the ticket included, and
// closes. err is the first error of either end.
func handshakeOnce(address string, config *tls.Config) (resumed bool, err error) {
	raw, err := net.Dial("tcp", address)
	if err != nil {
		return false, err
	}
	defer raw.Close()
	conn := tls.Client(raw, config)
	if err := conn.Handshake(); err != nil {
		return false, err
	}
	var first [1]byte // of the hub's settings, or of why it will not have us
	_, err = io.ReadFull(conn, first[:])
	return conn.ConnectionState().DidResume, err
}

// ticketConfig returns the client configuration of an agent that keeps tickets.
func (h *testHub) ticketConfig(id ...tls.Certificate) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, ServerName: "127.0.0.1", RootCAs: h.keys.ClusterCA.CertPool(), Certificates: id,
		NextProtos: []string{"h2"}, ClientSessionCache: tls.NewLRUClientSessionCache(0),
	}
}

// A ticket resumes the connections of its agent, any number of times, and of no other.
func TestTicketResumesOnlyTheSameAgent(t *testing.T) {
	h := newTestHub(t)
	uid, id := h.createCluster("tokyo")
	otherUID, otherID := h.createCluster("oslo")
	a, other := h.newAgent(id, "one"), h.newAgent(otherID, "two")
	a.tickets, other.tickets = tls.NewLRUClientSessionCache(0), tls.NewLRUClientSessionCache(0)
	for i := range 3 {
		for _, agent := range []*testAgent{a, other} {
			agent.connectSession()
			testwait.UntilTrue(t, "it is welcome", func() bool { return agent.checkLocked(func() bool { return agent.welcome != nil }) })
			if agent.resumed.Load() != (i > 0) {
				t.Errorf("time %d: resumed is %t", i+1, agent.resumed.Load())
			}
		}
		if a.welcome.GetClusterUid() != uid || other.welcome.GetClusterUid() != otherUID {
			t.Errorf("time %d: taken for %s and %s", i+1, a.welcome.GetClusterUid(), other.welcome.GetClusterUid())
		}
		hash := trust.CertificateKeyHash(leafOf(t, id))
		if s := h.sessions.getByUID(uid); s == nil || s.id != (identity{uid: uid, keyHash: hash}) {
			t.Errorf("time %d: the session is of %+v", i+1, s)
		}
		a.cutStream()
		other.cutStream()
	}
}

func leafOf(t *testing.T, id tls.Certificate) *x509.Certificate {
	t.Helper()
	leaf, err := x509.ParseCertificate(id.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	return leaf
}

// An agent that may not connect with its certificate may not connect with a ticket either.
func TestTicketsEndWithAcceptance(t *testing.T) {
	for reason, change := range map[string]func(h *testHub, c *v1alpha1.Cluster) error{
		"NotAccepted": func(h *testHub, c *v1alpha1.Cluster) error {
			c.Spec.Accepted = false
			return h.client.Update(t.Context(), c)
		},
		"Replaced": func(h *testHub, c *v1alpha1.Cluster) error {
			hash, err := trust.KeyHash(newKey(t).Public())
			c.Annotations[handshake.AnnotationAgentKey] = trust.SealKeyHash(h.keys.HubKey, c.Name, hash)
			return errors.Join(err, h.client.Update(t.Context(), c))
		},
		"Unknown": func(h *testHub, c *v1alpha1.Cluster) error { return h.client.Delete(t.Context(), c) },
	} {
		t.Run(reason, func(t *testing.T) {
			h := newTestHub(t)
			_, id := h.createCluster("tokyo")
			a := h.newAgent(id, "one")
			a.tickets = tls.NewLRUClientSessionCache(0)
			a.connectSession()
			testwait.UntilTrue(t, "it is welcome", func() bool { return a.checkLocked(func() bool { return a.welcome != nil }) })
			a.cutStream()
			var c v1alpha1.Cluster
			if err := h.client.Get(t.Context(), client.ObjectKey{Name: "tokyo"}, &c); err != nil {
				t.Fatal(err)
			}
			if err := change(h, &c); err != nil {
				t.Fatal(err)
			}
			a.connectSession()
			<-a.closed
			if a.refused.GetReason() != reason || !a.resumed.Load() {
				t.Errorf("resumed is %t: %v, %v", a.resumed.Load(), a.refused, a.err)
			}
		})
	}
}

// Tickets end with the certificate, and with the trust in its CA.
func TestTicketsEndWithTheCertificate(t *testing.T) {
	h := newTestHub(t)
	_, id := h.createCluster("tokyo")
	now := time.Now()
	config := func() *tls.Config {
		c := &tls.Config{
			MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{h.servingCertificate()}, ClientAuth: tls.VerifyClientCertIfGiven,
			ClientCAs: h.keys.AgentCA.CertPool(), Time: func() time.Time { return now },
		}
		enableResumption(c)
		return c
	}
	hub, agent := config(), h.ticketConfig(id)
	agent.NextProtos = nil
	come := func(hub *tls.Config) (resumed bool, err error) {
		l, e := net.Listen("tcp", "127.0.0.1:0")
		if e != nil {
			t.Fatal(e)
		}
		defer l.Close()
		go func() {
			raw, err := l.Accept()
			if err != nil {
				return
			}
			defer raw.Close()
			conn := tls.Server(raw, hub)
			if conn.Handshake() == nil {
				_, _ = conn.Write([]byte{0})
				_, _ = io.Copy(io.Discard, conn) // until the other end has read it
			}
		}()
		return handshakeOnce(l.Addr().String(), agent)
	}
	steps := func(what string, hub *tls.Config, wantResumed, wantIn bool) {
		t.Helper()
		if resumed, err := come(hub); resumed != wantResumed || (err == nil) != wantIn {
			t.Errorf("%s: resumed is %t, %v", what, resumed, err)
		}
	}
	steps("the first time", hub, false, true)
	steps("the second time", hub, true, true)
	another := config()
	steps("to another hub", another, false, true)
	steps("to that one again", another, true, true)
	now = leafOf(t, id).NotAfter.Add(time.Second)
	agent.Time = func() time.Time { return leafOf(t, id).NotBefore.Add(time.Minute) } // the agent's clock is behind
	steps("after the certificate's end", another, false, false)
	now = time.Now()
	agent.Time = nil
	agent.ClientSessionCache = tls.NewLRUClientSessionCache(0)
	steps("afresh", hub, false, true)
	hub.ClientCAs = x509.NewCertPool()
	steps("when agents are to be signed by others", hub, false, false)
}

// Only agents get tickets that resume connections.
func TestOnlyAgentsGetTickets(t *testing.T) {
	h := newTestHub(t)
	key := newKey(t)
	stranger, err := h.signAgentKey(key.Public(), "stranger", "some-group", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	_, id := h.createCluster("tokyo")
	for name, c := range map[string]struct {
		id   []tls.Certificate
		want bool
	}{
		"an agent":                   {[]tls.Certificate{id}, true},
		"a joining agent":            {nil, false},
		"a peer, not an agent":       {[]tls.Certificate{newKeyPair(t, stranger, key)}, false},
		"an agent without a Cluster": {[]tls.Certificate{h.issueCertificate(atoll.UserClusterPrefix + "unknown")}, true},
	} {
		config := h.ticketConfig(c.id...)
		for i, want := range []bool{false, c.want} {
			if resumed, err := handshakeOnce(h.addr, config); resumed != want || err != nil {
				t.Errorf("%s, time %d: resumed is %t, %v", name, i+1, resumed, err)
			}
		}
	}
}

// issueCertificate issues the certificate of an agent, by its common name.
func (h *testHub) issueCertificate(commonName string) tls.Certificate {
	key := newKey(h.t)
	cert, err := h.signAgentKey(key.Public(), commonName, atoll.GroupAgents, time.Hour)
	if err != nil {
		h.t.Fatal(err)
	}
	return newKeyPair(h.t, cert, key)
}
