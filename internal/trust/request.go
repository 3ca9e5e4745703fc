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
	// maximumRSABits bounds the cost of a verification, which grows with its square.
	maximumRSABits = 4096
	// MaxRequestBytes is the largest certificate request in DER. One with an RSA key of
	// maximumRSABits has about 1,100.
	MaxRequestBytes = 4 << 10
)

// KeyHash returns the hash of a public key: "sha256:<hex of its SPKI>". It identifies an agent's
// key, and the CA that an agent pins.
func KeyHash(public crypto.PublicKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return "", fmt.Errorf("hash a public key of type %T: %w", public, err)
	}
	return hashSPKI(der), nil
}

// CertificateKeyHash returns the KeyHash of the certificate's key.
func CertificateKeyHash(c *x509.Certificate) string { return hashSPKI(c.RawSubjectPublicKeyInfo) }

func hashSPKI(der []byte) string {
	h := sha256.Sum256(der)
	return hashPrefix + hex.EncodeToString(h[:])
}

// NewCertificateRequest returns a PKCS#10 request in DER, which proves possession of the key.
func NewCertificateRequest(key crypto.Signer, name string) ([]byte, error) {
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: name}}, key)
	if err != nil {
		return nil, fmt.Errorf("make a certificate request: %w", err)
	}
	return der, nil
}

// CertificateRequest is a certificate request whose key is of a permitted type and length.
type CertificateRequest struct {
	DER     []byte
	Public  crypto.PublicKey
	KeyHash string
	csr     *x509.CertificateRequest
}

// ParseUnverifiedRequest reads a PKCS#10 request in DER and checks its size, and the type and length of its
// key. It does not verify the signature: call VerifySignature before the request is used. Its
// subject means nothing.
func ParseUnverifiedRequest(der []byte) (CertificateRequest, error) {
	if len(der) > MaxRequestBytes {
		return CertificateRequest{}, fmt.Errorf("the certificate request has %d bytes; %d are the most", len(der), MaxRequestBytes)
	}
	csr, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return CertificateRequest{}, fmt.Errorf("read the certificate request: %w", err)
	}
	switch k := csr.PublicKey.(type) {
	case *ecdsa.PublicKey, ed25519.PublicKey:
	case *rsa.PublicKey:
		if n := k.N.BitLen(); n < minimumRSABits || n > maximumRSABits {
			return CertificateRequest{}, fmt.Errorf("the RSA key of the certificate request has %d bits; it must have %d to %d", n, minimumRSABits, maximumRSABits)
		}
	default:
		return CertificateRequest{}, fmt.Errorf("the certificate request has a key of type %T; use ECDSA, Ed25519 or RSA", k)
	}
	return CertificateRequest{DER: der, Public: csr.PublicKey, KeyHash: hashSPKI(csr.RawSubjectPublicKeyInfo), csr: csr}, nil
}

// ErrNoPossession means that the signature of a certificate request is not of its key.
var ErrNoPossession = errors.New("the certificate request does not prove possession of its key")

// VerifySignature checks that the signature of the request proves possession of its key. The error
// wraps ErrNoPossession.
func (r CertificateRequest) VerifySignature() error {
	if err := r.csr.CheckSignature(); err != nil {
		return fmt.Errorf("%w: %w", ErrNoPossession, err)
	}
	return nil
}

// ParseCertificateRequest is ParseUnverifiedRequest with VerifySignature.
func ParseCertificateRequest(der []byte) (CertificateRequest, error) {
	r, err := ParseUnverifiedRequest(der)
	if err == nil {
		err = r.VerifySignature()
	}
	if err != nil {
		return CertificateRequest{}, err
	}
	return r, nil
}

// PEM returns the PEM form of the request, as CertificateSigningRequests hold it.
func (r CertificateRequest) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: r.DER})
}

// ParseCertificateRequestPEM parses a PKCS#10 request in PEM as ParseCertificateRequest does.
func ParseCertificateRequestPEM(b []byte) (CertificateRequest, error) {
	block, _ := pem.Decode(b)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return CertificateRequest{}, errors.New("read the certificate request: it is no PEM block of type CERTIFICATE REQUEST")
	}
	return ParseCertificateRequest(block.Bytes)
}
