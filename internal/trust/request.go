package trust

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
)

const (
	hashPrefix     = "sha256:"
	minimumRSABits = 2048
)

// KeyHash of a public key: "sha256:<hex of its SPKI>". It identifies an agent's key
// and, as CA hash, what an agent pins.
func KeyHash(public crypto.PublicKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return "", fmt.Errorf("hash a public key of type %T: %w", public, err)
	}
	return hashSPKI(der), nil
}

// CertificateHash is KeyHash of the certificate's key.
func CertificateHash(c *x509.Certificate) string { return hashSPKI(c.RawSubjectPublicKeyInfo) }

func hashSPKI(der []byte) string {
	h := sha256.Sum256(der)
	return hashPrefix + hex.EncodeToString(h[:])
}

// NewRequest makes a PKCS#10 request in DER, which proves possession of the key.
func NewRequest(key crypto.Signer, name string) ([]byte, error) {
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: name}}, key)
	if err != nil {
		return nil, fmt.Errorf("make a certificate request: %w", err)
	}
	return der, nil
}

// Request is a certificate request whose signature holds.
type Request struct {
	DER     []byte
	Public  crypto.PublicKey
	KeyHash string
}

// ParseRequest checks a PKCS#10 request in DER: that its signature proves possession
// of the key, and that the key is strong enough. Its subject means nothing.
func ParseRequest(der []byte) (Request, error) {
	csr, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return Request{}, fmt.Errorf("read the certificate request: %w", err)
	}
	if err := csr.CheckSignature(); err != nil {
		return Request{}, fmt.Errorf("the certificate request does not prove possession of its key: %w", err)
	}
	switch k := csr.PublicKey.(type) {
	case *ecdsa.PublicKey, ed25519.PublicKey:
	case *rsa.PublicKey:
		if k.N.BitLen() < minimumRSABits {
			return Request{}, fmt.Errorf("the RSA key of the certificate request has %d bits; %d are the least", k.N.BitLen(), minimumRSABits)
		}
	default:
		return Request{}, fmt.Errorf("the certificate request has a key of type %T; use ECDSA, Ed25519 or RSA", k)
	}
	return Request{DER: der, Public: csr.PublicKey, KeyHash: hashSPKI(csr.RawSubjectPublicKeyInfo)}, nil
}

// PEM form of the request, as CertificateSigningRequests hold it.
func (r Request) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: r.DER})
}

// ParseRequestPEM is ParseRequest of what PEM gives.
func ParseRequestPEM(b []byte) (Request, error) {
	block, _ := pem.Decode(b)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return Request{}, errors.New("read the certificate request: it is no PEM block of type CERTIFICATE REQUEST")
	}
	return ParseRequest(block.Bytes)
}
