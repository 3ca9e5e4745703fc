package trust

import (
	"crypto/x509"
	"encoding/pem"
	"strings"
	"testing"
	"time"
)

// A hash of a key has a prefix and 64 hexadecimal digits.
func TestFormsOfKeyHashes(t *testing.T) {
	digits := strings.Repeat("0a", 32)
	for hash, want := range map[string]bool{
		"sha256:" + digits: true, digits: false, "sha256:" + digits[2:]: false, "sha256:" + digits + "00": false, "sha256:" + strings.Repeat("xy", 32): false, "sha512:" + digits: false, "": false,
	} {
		if got := IsValidKeyHash(hash); got != want {
			t.Errorf("%s: %t", hash, got)
		}
	}
	if _, err := PinnedTLSConfig("hub", "text", nil); err == nil || !strings.HasPrefix(err.Error(), `"text" is no CA hash; it looks like sha256:<64 hexadecimal digits>`) {
		t.Errorf("%v", err)
	}
	if hash, err := KeyHash("text"); hash != "" || err == nil || !strings.HasPrefix(err.Error(), "hash a public key of type string: ") {
		t.Errorf("%q, %v", hash, err)
	}
}

// A bundle of CAs has a hash where one of its certificates has that key. Blocks that are no certificates do not count.
func TestTheKeysOfABundleOfCAs(t *testing.T) {
	one, _ := newAuthority(t, "one")
	two, _ := newAuthority(t, "two")
	other, _ := newAuthority(t, "other")
	block := func(c *x509.Certificate) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
	}
	broken := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("text")})
	bundle := append(append(append([]byte{}, block(one)...), broken...), block(two)...)
	for name, c := range map[string]struct {
		of   *x509.Certificate
		want bool
	}{"the first": {one, true}, "the last": {two, true}, "another": {other, false}} {
		if got := PEMHasKeyHash(bundle, CertificateKeyHash(c.of)); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	if PEMHasKeyHash([]byte("text"), CertificateKeyHash(one)) || PEMHasKeyHash(nil, "") {
		t.Error("a text has a key")
	}
	if pool, err := PoolFromPEM(broken); pool != nil || err == nil || err.Error() != "there is no certificate in the PEM of the hub's CA" {
		t.Errorf("%v, %v", pool, err)
	}
	if pool, err := PoolFromPEM(bundle); pool == nil || err != nil {
		t.Errorf("%v, %v", pool, err)
	}
}

// The times of a certificate's life count from its issue. A certificate shorter than the reserve counts from
// its beginning.
func TestTheTimesOfACertificatesLife(t *testing.T) {
	begin := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	long := &x509.Certificate{NotBefore: begin, NotAfter: begin.Add(Backdated + 8*time.Hour)}
	if at, life, overdue := IssuedAt(long), CertificateLifetime(long), RenewalOverdueAt(long); !at.Equal(begin.Add(15*time.Minute)) || life != 8*time.Hour || !overdue.Equal(long.NotAfter.Add(-2*time.Hour)) {
		t.Errorf("issued %s, lives %s, overdue at %s", at, life, overdue)
	}
	for _, life := range []time.Duration{Backdated, time.Minute} {
		short := &x509.Certificate{NotBefore: begin, NotAfter: begin.Add(life)}
		if at, lives := IssuedAt(short), CertificateLifetime(short); !at.Equal(begin) || lives != life {
			t.Errorf("issued %s, lives %s", at, lives)
		}
	}
	for life, want := range map[time.Duration]time.Duration{time.Hour: time.Minute, 8 * time.Minute: time.Minute, 80 * time.Second: 10 * time.Second} {
		if got := RenewalRetryInterval(life); got != want {
			t.Errorf("%s: %s", life, got)
		}
	}
}

// A request is read from a PEM block of its type alone.
func TestRequestsInPEM(t *testing.T) {
	der, err := NewCertificateRequest(newECKey(t), "tokyo")
	if err != nil {
		t.Fatal(err)
	}
	good, err := ParseCertificateRequest(der)
	if err != nil {
		t.Fatal(err)
	}
	again, err := ParseCertificateRequestPEM(good.PEM())
	if err != nil || again.KeyHash != good.KeyHash {
		t.Errorf("%s, %v", again.KeyHash, err)
	}
	const none = "read the certificate request: it is no PEM block of type CERTIFICATE REQUEST"
	for name, text := range map[string][]byte{"no PEM": []byte("text"), "another type": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})} {
		if r, err := ParseCertificateRequestPEM(text); err == nil || err.Error() != none || r.KeyHash != "" {
			t.Errorf("%s: %v, %v", name, r.KeyHash, err)
		}
	}
	if _, err := ParseCertificateRequest([]byte("text")); err == nil || !strings.HasPrefix(err.Error(), "read the certificate request: ") {
		t.Errorf("%v", err)
	}
	if _, err := ParseUnverifiedRequest(make([]byte, MaxRequestBytes+1)); err == nil || err.Error() != "the certificate request has 4097 bytes; 4096 are the most" {
		t.Errorf("%v", err)
	}
	if _, err := ParseUnverifiedRequest(make([]byte, MaxRequestBytes)); err == nil || strings.Contains(err.Error(), "are the most") {
		t.Errorf("a request of the largest size: %v", err)
	}
}
