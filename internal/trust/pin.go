package trust

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
)

// IsValidKeyHash reports whether s has the form of KeyHash.
func IsValidKeyHash(s string) bool {
	raw, err := hex.DecodeString(strings.TrimPrefix(s, hashPrefix))
	return strings.HasPrefix(s, hashPrefix) && err == nil && len(raw) == 32
}

// ErrOtherCA is the error of a PinnedTLSConfig's handshake with a server that is not the hub.
var ErrOtherCA = errors.New("the hub that answered does not belong to the CA")

// PinnedTLSConfig returns the TLS configuration with which an agent dials a hub when it has only
// the hash of the CA's key. The hub must present a chain that ends in that CA and is valid for
// serverName. seen, unless nil, receives the CA's certificate in PEM after each successful
// handshake, to be stored and trusted.
func PinnedTLSConfig(serverName, caHash string, seen func(caPEM []byte)) (*tls.Config, error) {
	if !IsValidKeyHash(caHash) {
		return nil, fmt.Errorf("%q is no CA hash; it looks like sha256:<64 hexadecimal digits>, and \"atoll token create\" on the hub shows it", caHash)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		ServerName: serverName,
		// The chain is verified below, against the pin in place of a pool.
		InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			ca, err := verifyPinned(s.PeerCertificates, serverName, caHash)
			if err == nil && seen != nil {
				seen(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw}))
			}
			return err
		},
	}, nil
}

// verifyPinned finds the CA with that hash in the presented certificates, and verifies the
// server's certificate under it.
func verifyPinned(shown []*x509.Certificate, serverName, caHash string) (*x509.Certificate, error) {
	if len(shown) == 0 {
		return nil, errors.New("the hub showed no certificate")
	}
	var ca *x509.Certificate
	intermediates := x509.NewCertPool()
	for _, c := range shown[1:] {
		if c.IsCA && CertificateKeyHash(c) == caHash {
			ca = c
		} else {
			intermediates.AddCert(c)
		}
	}
	if ca == nil {
		return nil, fmt.Errorf("%w %s: check the address and the CA hash; if both are right, a proxy or an attacker stands between", ErrOtherCA, caHash)
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	_, err := shown[0].Verify(x509.VerifyOptions{DNSName: serverName, Roots: roots, Intermediates: intermediates})
	if err != nil {
		return nil, fmt.Errorf("verify the hub's certificate under the pinned CA: %w", err)
	}
	return ca, nil
}

// PoolFromPEM returns a pool of at least one certificate.
func PoolFromPEM(b []byte) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(b) {
		return nil, errors.New("there is no certificate in the PEM of the hub's CA")
	}
	return pool, nil
}

// PEMHasKeyHash reports whether one of the certificates has a key of that hash.
func PEMHasKeyHash(b []byte, hash string) bool {
	for block, rest := pem.Decode(b); block != nil; block, rest = pem.Decode(rest) {
		if c, err := x509.ParseCertificate(block.Bytes); err == nil && CertificateKeyHash(c) == hash {
			return true
		}
	}
	return false
}
