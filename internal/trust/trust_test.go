package trust

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"
)

func TestToken(t *testing.T) {
	token := NewToken()
	parsed, err := ParseToken(" " + token.RevealSecret() + "\n")
	if err != nil || parsed != token || !parsed.MatchesHash(token.SecretHash()) {
		t.Fatalf("parsed %v, %v", parsed, err)
	}
	other := NewToken()
	if other.MatchesHash(token.SecretHash()) || (Token{ID: token.ID, secret: other.secret}).MatchesHash(token.SecretHash()) {
		t.Error("another secret matches")
	}
	if (Token{ID: other.ID, secret: token.secret}).MatchesHash(token.SecretHash()) {
		t.Error("the secret of another token matches")
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
		if out := fmt.Sprintf(verb, token); strings.Contains(out, token.secret) || strings.Contains(out, fmt.Sprintf("%x", token.secret)) {
			t.Errorf("%s prints the secret: %s", verb, out)
		}
	}
	if strings.Contains(token.SecretHash(), token.secret) {
		t.Error("the hash holds the secret")
	}
	for _, bad := range []string{"", "atoll1", "atoll1.a.b", "atoll2" + token.RevealSecret()[6:], token.RevealSecret() + "a", token.RevealSecret() + ".x", strings.ToUpper(token.RevealSecret()),
		"atoll1." + token.ID[1:] + "." + token.secret, "atoll1." + token.ID + "x." + token.secret, "atoll1." + token.ID[1:] + "/." + token.secret} {
		if _, err := ParseToken(bad); err == nil {
			t.Errorf("%q is taken for a token", bad)
		}
	}
}

func FuzzParseToken(f *testing.F) {
	f.Add(NewToken().RevealSecret())
	f.Add("atoll1..")
	f.Fuzz(func(t *testing.T, s string) {
		if token, err := ParseToken(s); err == nil && token.RevealSecret() != strings.TrimSpace(s) {
			t.Errorf("%q became %q", s, token.RevealSecret())
		}
	})
}

func TestRequest(t *testing.T) {
	key := newECKey(t)
	der, err := NewCertificateRequest(key, "x")
	if err != nil {
		t.Fatal(err)
	}
	r, err := ParseCertificateRequest(der)
	if err != nil {
		t.Fatal(err)
	}
	want, err := KeyHash(key.Public())
	if err != nil || r.KeyHash != want || !IsValidKeyHash(want) {
		t.Errorf("key hash %s, want %s, %v", r.KeyHash, want, err)
	}
	if again, err := ParseCertificateRequestPEM(r.PEM()); err != nil || again.KeyHash != want {
		t.Errorf("by PEM: %v", err)
	}
	if _, err := ParseCertificateRequestPEM(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})); err == nil {
		t.Error("what its PEM calls a certificate is taken for a request")
	}
	forged := append([]byte(nil), der...)
	forged[len(forged)-5] ^= 1
	if _, err := ParseCertificateRequest(forged); err == nil {
		t.Error("a request whose signature does not hold is taken")
	}
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	if err == nil {
		if der, err := NewCertificateRequest(weak, "x"); err == nil {
			if _, err := ParseCertificateRequest(der); err == nil {
				t.Error("a weak key is taken")
			}
		}
	}
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err = NewCertificateRequest(ed, "x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ParseCertificateRequest(der); err != nil {
		t.Errorf("an Ed25519 key is refused: %v", err)
	}
}

// requestOf returns a request in DER with an RSA key of that length and a signature that is not of
// that key.
func requestOf(t testing.TB, bits int) []byte {
	t.Helper()
	modulus := new(big.Int).Lsh(big.NewInt(1), uint(bits-1))
	spki, err := x509.MarshalPKIXPublicKey(&rsa.PublicKey{N: modulus.Add(modulus, big.NewInt(1)), E: 65537})
	if err != nil {
		t.Fatal(err)
	}
	var request struct {
		Info struct {
			Version    int
			Subject    asn1.RawValue
			PublicKey  asn1.RawValue
			Attributes []asn1.RawValue `asn1:"tag:0"`
		}
		Algorithm pkix.AlgorithmIdentifier
		Signature asn1.BitString
	}
	request.Info.Subject.FullBytes = []byte{0x30, 0}
	request.Info.PublicKey.FullBytes = spki
	request.Algorithm.Algorithm = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 11} // SHA-256 with RSA
	request.Signature = asn1.BitString{Bytes: make([]byte, bits/8), BitLength: bits}
	der, err := asn1.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// Size, type and length of the key are checked before the signature, whose verification costs
// time with the square of the key's length.
func TestRequestsAreBoundedBeforeTheirSignature(t *testing.T) {
	for bits, want := range map[int]string{
		1024: "must have 2048 to 4096", 8192: "must have 2048 to 4096", 1 << 17: "bytes; 4096 are the most",
	} {
		_, err := ParseUnverifiedRequest(requestOf(t, bits))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d bits: %v, want %q", bits, err, want)
		}
	}
	r, err := ParseUnverifiedRequest(requestOf(t, 4096))
	if err != nil || !IsValidKeyHash(r.KeyHash) {
		t.Fatalf("4096 bits: %v", err)
	}
	if err := r.VerifySignature(); !errors.Is(err, ErrNoPossession) {
		t.Errorf("the signature of another key: %v", err)
	}
}

func FuzzParseRequest(f *testing.F) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	der, err := NewCertificateRequest(key, "x")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(der)
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := ParseCertificateRequest(b); err == nil && !IsValidKeyHash(r.KeyHash) {
			t.Errorf("key hash %q", r.KeyHash)
		}
	})
}

// TestPin dials a server by the hash of its CA only.
func TestPin(t *testing.T) {
	ca, caKey := newAuthority(t, "hub")
	other, otherKey := newAuthority(t, "other")
	now := time.Now()
	for _, c := range []struct {
		name  string
		ca    *x509.Certificate // that signs
		key   *ecdsa.PrivateKey
		shown *x509.Certificate // in the chain
		host  string
		until time.Time
		// refused is a part of the expected error; empty: accepted.
		refused string
	}{
		{"the right hub", ca, caKey, ca, "127.0.0.1", now.Add(time.Hour), ""},
		{"another CA", other, otherKey, other, "127.0.0.1", now.Add(time.Hour), "does not belong to the CA"},
		{"another CA that shows ours", other, otherKey, ca, "127.0.0.1", now.Add(time.Hour), "verify the hub's certificate"},
		{"another name", ca, caKey, ca, "127.0.0.2", now.Add(time.Hour), "verify the hub's certificate"},
		{"an expired certificate", ca, caKey, ca, "127.0.0.1", now.Add(-time.Minute), "verify the hub's certificate"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var seen []byte
			cfg, err := PinnedTLSConfig(c.host, CertificateKeyHash(ca), func(pem []byte) { seen = pem })
			if err != nil {
				t.Fatal(err)
			}
			server := issueLeaf(t, c.ca, c.key, c.until)
			server.Certificate = append(server.Certificate, c.shown.Raw)
			err = dialServer(t, server, cfg)
			switch {
			case c.refused == "" && (err != nil || len(seen) == 0):
				t.Errorf("refused: %v", err)
			case c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused) || seen != nil):
				t.Errorf("got %v, want a refusal that says %q", err, c.refused)
			}
		})
	}
	for _, bad := range []string{"sha256:short", "sha256:" + strings.Repeat("a", 62), strings.TrimPrefix(CertificateKeyHash(ca), "sha256:"), ""} {
		if _, err := PinnedTLSConfig("h", bad, nil); err == nil {
			t.Errorf("%q is taken for a hash", bad)
		}
	}
}

// TestACAIsPinned: a pin matches a CA only. The key of a certificate under it does not make a
// hub. Older versions of TLS are refused.
func TestACAIsPinned(t *testing.T) {
	ca, caKey := newAuthority(t, "hub")
	server := issueLeaf(t, ca, caKey, time.Now().Add(time.Hour))
	shown, err := x509.ParseCertificate(server.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := PinnedTLSConfig("127.0.0.1", CertificateKeyHash(shown), nil)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.MinVersion != tls.VersionTLS13 {
		t.Errorf("TLS from version %x on is spoken", cfg.MinVersion)
	}
	server.Certificate = append(server.Certificate, shown.Raw)
	if err := dialServer(t, server, cfg); !errors.Is(err, ErrOtherCA) {
		t.Errorf("a certificate that is no CA's is pinned: %v", err)
	}
	if _, err := verifyPinned(nil, "127.0.0.1", CertificateKeyHash(ca)); err == nil {
		t.Error("a server without a certificate is the hub")
	}
}

// The hub's certificate may be issued by a CA below the pinned one, if the hub presents that CA.
func TestACABelowThePinnedOneIsVerified(t *testing.T) {
	root, rootKey := newAuthority(t, "hub")
	below, belowKey := newAuthorityBelow(t, "issuer", root, rootKey)
	for _, c := range []struct {
		name    string
		shown   []*x509.Certificate
		refused bool
	}{
		{"the whole chain", []*x509.Certificate{below, root}, false},
		{"the chain in another order", []*x509.Certificate{root, below}, false},
		{"without the issuer", []*x509.Certificate{root}, true},
	} {
		leaf := issueLeaf(t, below, belowKey, time.Now().Add(time.Hour))
		shown, err := x509.ParseCertificate(leaf.Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		ca, err := verifyPinned(append([]*x509.Certificate{shown}, c.shown...), "127.0.0.1", CertificateKeyHash(root))
		if (err != nil) != c.refused || err == nil && !ca.Equal(root) {
			t.Errorf("%s: CA %v, error %v", c.name, ca, err)
		}
	}
}

func TestSeals(t *testing.T) {
	key, other := []byte("hub key of 32 bytes, or so it is"), []byte("another hub's key, of 32 bytes!!")
	sealed := SealKeyHash(key, "tokyo", "sha256:aa")
	if got, ok := OpenKeyHash(key, "tokyo", sealed); !ok || got != "sha256:aa" {
		t.Errorf("opened %q, %t", got, ok)
	}
	for name, f := range map[string]func() bool{
		"another cluster": func() bool { _, ok := OpenKeyHash(key, "oslo", sealed); return ok },
		"another hub key": func() bool { _, ok := OpenKeyHash(other, "tokyo", sealed); return ok },
		"another key":     func() bool { _, ok := OpenKeyHash(key, "tokyo", strings.Replace(sealed, "aa", "bb", 1)); return ok },
		"nothing":         func() bool { _, ok := OpenKeyHash(key, "tokyo", ""); return ok },
	} {
		if f() {
			t.Errorf("the seal holds for %s", name)
		}
	}
	mac := PositionMAC(key, "id", 5, 6)
	if VerifyPositionMAC(key, "other", 5, 6, mac) || VerifyPositionMAC(key, "id", 7, 6, mac) || VerifyPositionMAC(key, "id", 5, 7, mac) {
		t.Error("a position holds of which something is another")
	}
	if !VerifyPositionMAC(key, "id", 5, 6, mac) || VerifyPositionMAC(key, "id", 6, 5, mac) || VerifyPositionMAC(other, "id", 5, 6, mac) || VerifyPositionMAC(key, "id", 5, 6, nil) {
		t.Error("positions are not authenticated")
	}
	if string(MAC(key, "a", []byte("bc"), []byte("d"))) == string(MAC(key, "a", []byte("b"), []byte("cd"))) {
		t.Error("fields are not kept apart")
	}
	if string(MAC(key, "a", []byte("b"))) == string(MAC(key, "c", []byte("b"))) {
		t.Error("what is made for one purpose holds for another")
	}
}

// TestRenewAfter: renewal is at about half of a certificate's life, whatever the hub's clock,
// and renewals of certificates of one moment are spread.
func TestRenewAfter(t *testing.T) {
	for _, life := range []time.Duration{time.Minute, time.Hour, 24 * time.Hour} {
		now := time.Now().Truncate(time.Second)
		first, last, counts := life, time.Duration(0), [10]int{}
		for i := range 2000 {
			c := &x509.Certificate{NotBefore: now.Add(-Backdated), NotAfter: now.Add(life), Raw: fmt.Append(nil, "certificate ", i)}
			if !IssuedAt(c).Equal(now) || CertificateLifetime(c) != life || !RenewalOverdueAt(c).Equal(now.Add(life*3/4)) {
				t.Fatalf("issued %s, for %s, overdue %s", IssuedAt(c), CertificateLifetime(c), RenewalOverdueAt(c))
			}
			after := RenewAfter(c)
			first, last = min(first, after), max(last, after)
			counts[int((float64(after)/float64(life)-0.45)*100)]++
		}
		if first < life*45/100 || last > life*55/100 || last-first < life*9/100 {
			t.Errorf("of a life of %s renewed between %s and %s", life, first, last)
		}
		for i, n := range counts {
			if n < 100 || n > 300 { // 200 each, on the average
				t.Errorf("of a life of %s: %d of 2000 in part %d of ten", life, n, i)
			}
		}
	}
	short := &x509.Certificate{NotBefore: time.Unix(0, 0), NotAfter: time.Unix(60, 0)}
	if CertificateLifetime(short) != time.Minute || !IssuedAt(short).Equal(short.NotBefore) {
		t.Errorf("one that is not backdated lives %s from %s", CertificateLifetime(short), IssuedAt(short))
	}
	for life, want := range map[time.Duration]time.Duration{24 * time.Hour: time.Minute, 8 * time.Minute: time.Minute, 4 * time.Minute: 30 * time.Second} {
		if got := RenewalRetryInterval(life); got != want {
			t.Errorf("of a life of %s it is asked again after %s", life, got)
		}
	}
}

func issueLeaf(t *testing.T, ca *x509.Certificate, caKey *ecdsa.PrivateKey, until time.Time) tls.Certificate {
	t.Helper()
	key := newECKey(t)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "gateway"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: until,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}, ca, key.Public(), caKey)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func newAuthority(t *testing.T, name string) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	return newAuthorityBelow(t, name, nil, nil)
}

// newAuthorityBelow returns a CA that another one issued; it issues itself where that is nil.
func newAuthorityBelow(t *testing.T, name string, issuer *x509.Certificate, issuerKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key := newECKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	if issuer == nil {
		issuer, issuerKey = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer, key.Public(), issuerKey)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

func dialServer(t *testing.T, server tls.Certificate, client *tls.Config) error {
	t.Helper()
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	go func() {
		s := tls.Server(a, &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{server}})
		if s.HandshakeContext(t.Context()) != nil {
			return // the client's side tells
		}
	}()
	return tls.Client(b, client).HandshakeContext(t.Context())
}

func newECKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}
