package listener

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"atoll.dev/atoll/internal/apiserver/keptport"
	"atoll.dev/atoll/internal/apiserver/keys"
	"atoll.dev/atoll/internal/peer"
)

// fakeAuthorities are CAs that the test rotates.
type fakeAuthorities struct {
	now    *keys.Authorities
	onTurn func()
}

func (f *fakeAuthorities) CurrentAuthorities() *keys.Authorities { return f.now }

func (f *fakeAuthorities) OnAuthorityChangeOrRenewal(fn func()) { f.onTurn = fn }

func newAuthorities(t *testing.T) *fakeAuthorities {
	t.Helper()
	set, err := keys.LoadOrCreate(t.TempDir(), true)
	if err != nil {
		t.Fatal(err)
	}
	return &fakeAuthorities{now: set.FileAuthorities()}
}

func newOptions(t *testing.T) Options {
	return Options{DataDir: t.TempDir(), AdvertiseHost: "10.1.2.3", Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
}

// open opens a listener that the test closes.
func open(t *testing.T, o Options, a Authorities) *GatewayListener {
	t.Helper()
	l, err := Open(o, a)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

func TestThePortIsRemembered(t *testing.T) {
	o, a := newOptions(t), newAuthorities(t)
	first := open(t, o, a)
	port := keptport.PortOf(first.listener)
	first.Close()
	if second := open(t, o, a); keptport.PortOf(second.listener) != port {
		t.Errorf("port %d after port %d", keptport.PortOf(second.listener), port)
	}
	if raw, err := os.ReadFile(filepath.Join(o.DataDir, portFile)); err != nil || !strings.HasSuffix(string(raw), "\n") {
		t.Errorf("%q, %v", raw, err)
	}
}

// A port that was asked for and is taken is an error that names the flag.
func TestATakenPortIsRefused(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	o, a := newOptions(t), newAuthorities(t)
	o.Port = keptport.PortOf(taken)
	if _, err := Open(o, a); err == nil || !strings.Contains(err.Error(), "--gateway-port") {
		t.Errorf("%v", err)
	}
	o.Port, o.WebSocketBind = 0, taken.Addr().String()
	if _, err := Open(o, a); err == nil || !strings.Contains(err.Error(), "--websocket-bind") {
		t.Errorf("%v", err)
	}
	o.WebSocketBind, o.Address = "", "no port"
	if _, err := Open(o, a); err == nil || !strings.Contains(err.Error(), "--gateway-address") {
		t.Errorf("%v", err)
	}
	o.Address = ""
	open(t, o, a) // the port that is remembered is free again
}

func TestAddresses(t *testing.T) {
	for _, c := range []struct{ bind, address, local string }{
		{"", "", "127.0.0.1"},
		{"127.0.0.1", "", "127.0.0.1"},
		{"0.0.0.0", "hub.example:6444,10.0.0.2:6444", "127.0.0.1"},
		{"::", "", "[::1]"},
	} {
		o := newOptions(t)
		o.BindAddress, o.Address = c.bind, c.address
		l, err := Open(o, newAuthorities(t))
		if err != nil && c.bind == "::" {
			continue // the machine has no IPv6
		}
		if err != nil {
			t.Fatal(err)
		}
		port := strings.TrimPrefix(l.SelfAddress(), "10.1.2.3:")
		if got := l.LocalAddress(); got != c.local+":"+port {
			t.Errorf("%q: local address %s", c.bind, got)
		}
		if got := l.AdvertisedAddress(); got != cmp.Or(c.address, "10.1.2.3:"+port) {
			t.Errorf("%q: advertised address %s", c.bind, got)
		}
		l.Close()
	}
}

// Agents find every name of the gateway in its certificate, and the CA that they pin in its chain.
func TestTheServingCertificate(t *testing.T) {
	o, a := newOptions(t), newAuthorities(t)
	o.Address, o.ExtraSANs, o.CertificateLifetime = "hub.example:6444", []string{"other.example", "10.9.9.9"}, time.Hour
	l := open(t, o, a)
	leaf := l.Trust().Serving.Leaf
	for _, name := range []string{"localhost", "127.0.0.1", "10.1.2.3", "hub.example", "other.example", "10.9.9.9"} {
		if _, err := leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: a.now.ClusterCAPool()}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if left := time.Until(leaf.NotAfter); left > time.Hour {
		t.Errorf("it ends in %s", left)
	}
	if c := l.CertificateStatus(); c.Name != "gateway" || !c.Own || !c.Ends.Equal(leaf.NotAfter) {
		t.Errorf("%+v", c)
	}
}

func TestARotationChangesTheTrust(t *testing.T) {
	a := newAuthorities(t)
	l := open(t, newOptions(t), a)
	before := l.Trust()
	select {
	case <-l.TrustChanged():
		t.Error("changed before the CAs did")
	default:
	}
	next, err := a.now.BeginRotation(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	a.now = next
	a.onTurn()
	a.onTurn() // signals are merged
	<-l.TrustChanged()
	after := l.Trust()
	if after == before || after.Generation != 2 || after.Edition <= before.Edition {
		t.Errorf("generation %d, edition %d", after.Generation, after.Edition)
	}
	if _, err := after.Serving.Leaf.Verify(x509.VerifyOptions{Roots: next.Cluster.CertPool()}); err != nil {
		t.Error(err)
	}
}

// The certificate for other hubs has their name, and its CA is the one that gateways trust.
func TestTheCertificateForOtherHubs(t *testing.T) {
	a := newAuthorities(t)
	config := open(t, newOptions(t), a).PeerTLSConfig("10.0.0.7")
	pair, err := config.GetClientCertificate(&tls.CertificateRequestInfo{})
	if err != nil {
		t.Fatal(err)
	}
	usage := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: a.now.AgentCAPool(), KeyUsages: usage}); err != nil {
		t.Error(err)
	}
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: a.now.ClusterCAPool(), KeyUsages: usage}); err == nil {
		t.Error("the API would accept it, too")
	}
	if s := pair.Leaf.Subject; s.CommonName != peer.CommonName || !slices.Contains(s.Organization, peer.Organization) || config.ServerName != "10.0.0.7" || config.MinVersion != tls.VersionTLS13 {
		t.Errorf("%v, %+v", s, config)
	}
}

// A taken listener stays open when the Listener is closed.
func TestTakenListenersStayOpen(t *testing.T) {
	o := newOptions(t)
	o.WebSocketBind = "127.0.0.1:0"
	l := open(t, o, newAuthorities(t))
	taken := l.TakeListener()
	l.Close()
	for _, one := range []net.Listener{taken, l.WebSockets()} {
		conn, err := net.Dial("tcp", one.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
		one.Close()
	}
}
