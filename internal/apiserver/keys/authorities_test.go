package keys

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net"
	"testing"
	"time"

	"atoll.dev/atoll/internal/trust"
)

func rotateAuthorities(t *testing.T, a *Authorities, finish bool) *Authorities {
	t.Helper()
	next, err := a.BeginRotation(time.Now())
	if err == nil && finish {
		next, err = next.FinishRotation()
	}
	if err != nil {
		t.Fatal(err)
	}
	return next
}

func newSet(t *testing.T) *KeySet {
	t.Helper()
	s, err := LoadOrCreate(t.TempDir(), true)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// shownCertificate by a hub of these authorities: its certificate and what follows it.
func shownCertificate(t *testing.T, a *Authorities) tls.Certificate {
	t.Helper()
	cert, key, err := a.Cluster.IssueCertificate(Request{
		CommonName: "hub", IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		NotBefore: time.Now(), Lifetime: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(append(cert, a.ChainPEM()...), key)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// dialHub reports whether a client of that configuration takes the hub for what it is.
func dialHub(t *testing.T, hub tls.Certificate, client *tls.Config) error {
	t.Helper()
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	go func() { _ = tls.Server(there, &tls.Config{Certificates: []tls.Certificate{hub}}).Handshake() }()
	client.ServerName = "127.0.0.1"
	return tls.Client(here, client).Handshake()
}

// A client with any of the hub's CAs, as a root or by the pin of joining, recognises it after
// rotations, finished or not. A client with another hub's CA does not.
func TestWhoKnewTheHubKnowsItAfterRotations(t *testing.T) {
	first := newSet(t).FileAuthorities()
	second := rotateAuthorities(t, first, true)
	third := rotateAuthorities(t, second, false)
	stranger := newSet(t).FileAuthorities()
	for name, hub := range map[string]*Authorities{"first": first, "second": second, "third, rotating": third, "third": mustAuthorities(third.FinishRotation())} {
		pair := shownCertificate(t, hub)
		for _, knows := range []*Authorities{first, second, third} {
			if knows.Generation > hub.Generation {
				continue
			}
			if err := dialHub(t, pair, &tls.Config{RootCAs: knows.Cluster.CertPool()}); err != nil {
				t.Errorf("%s hub, root of generation %d: %v", name, knows.Generation, err)
			}
			pinned, err := trust.PinnedTLSConfig("127.0.0.1", trust.CertificateKeyHash(knows.Cluster.Cert), nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := dialHub(t, pair, pinned); err != nil {
				t.Errorf("%s hub, pin of generation %d: %v", name, knows.Generation, err)
			}
		}
		if dialHub(t, pair, &tls.Config{RootCAs: stranger.Cluster.CertPool()}) == nil {
			t.Errorf("%s hub: a stranger's", name)
		}
	}
}

func mustAuthorities(a *Authorities, err error) *Authorities {
	if err != nil {
		panic(err)
	}
	return a
}

// Agents of the former CA count while a rotation is under way, and not after it.
func TestFormerAgentsCountUntilTheRotationIsFinished(t *testing.T) {
	first := newSet(t).FileAuthorities()
	agent := func(a *Authorities) *x509.Certificate {
		certPEM, _, err := a.Agent.IssueCertificate(Request{CommonName: "agent", NotBefore: time.Now(), Lifetime: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		block, _ := pem.Decode(certPEM)
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	by := func(a *Authorities, c *x509.Certificate) int {
		chains, err := c.Verify(x509.VerifyOptions{Roots: a.AgentCAPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		if err != nil {
			return -1
		}
		return a.AgentCAGeneration(chains[0][len(chains[0])-1])
	}
	old := agent(first)
	rotating := rotateAuthorities(t, first, false)
	fresh := agent(rotating)
	finished := mustAuthorities(rotating.FinishRotation())
	for _, c := range []struct {
		name string
		a    *Authorities
		old  int
		new  int
		cas  int
	}{{"before", first, 1, -1, 1}, {"in between", rotating, 1, 2, 2}, {"after", finished, -1, 2, 1}} {
		if got := by(c.a, old); got != c.old {
			t.Errorf("%s: the old agent counts as of generation %d", c.name, got)
		}
		if got := by(c.a, fresh); got != c.new {
			t.Errorf("%s: the new agent counts as of generation %d", c.name, got)
		}
		if n := bytes.Count(c.a.ClusterCABundlePEM(), []byte("BEGIN")); n != c.cas {
			t.Errorf("%s: agents are to trust %d CAs", c.name, n)
		}
	}
	if _, err := rotating.BeginRotation(time.Now()); !errors.Is(err, ErrRotating) {
		t.Errorf("rotated twice: %v", err)
	}
	if _, err := finished.FinishRotation(); !errors.Is(err, ErrNotRotating) {
		t.Errorf("finished twice: %v", err)
	}
	if first.TrustEdition() >= rotating.TrustEdition() || rotating.TrustEdition() >= finished.TrustEdition() {
		t.Errorf("editions %d, %d, %d", first.TrustEdition(), rotating.TrustEdition(), finished.TrustEdition())
	}
}

// Sealed authorities are opened whole, and only by the hub key.
func TestSealedAuthorities(t *testing.T) {
	set, other := newSet(t), newSet(t)
	a := rotateAuthorities(t, rotateAuthorities(t, set.FileAuthorities(), true), false)
	sealed, err := set.SealAuthorities(a)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range [][]byte{a.Cluster.Cert.Raw, a.Agent.Cert.Raw, []byte("former")} {
		if bytes.Contains(sealed, key) {
			t.Error("what is sealed can be read")
		}
	}
	back, err := set.UnsealAuthorities(sealed)
	if err != nil {
		t.Fatal(err)
	}
	if !back.Equal(a) || !back.Began.Equal(a.Began) || !bytes.Equal(back.ChainPEM(), a.ChainPEM()) || !bytes.Equal(back.ClusterCABundlePEM(), a.ClusterCABundlePEM()) {
		t.Error("it came back as something else")
	}
	if err := dialHub(t, shownCertificate(t, back), &tls.Config{RootCAs: set.ClusterCA.CertPool()}); err != nil {
		t.Errorf("what came back signs nothing that counts: %v", err)
	}
	if _, err := other.UnsealAuthorities(sealed); err == nil {
		t.Error("another hub opens it")
	}
	for _, damaged := range [][]byte{nil, sealed[:5], append(bytes.Clone(sealed), 1)} {
		if _, err := set.UnsealAuthorities(damaged); err == nil {
			t.Error("damaged, it was opened")
		}
	}
}
