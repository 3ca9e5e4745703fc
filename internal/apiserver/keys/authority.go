package keys

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"

	"atoll.dev/atoll/internal/trust"
)

const authorityLifetime = 20 * 365 * 24 * time.Hour

// Authority is a certificate authority of the set.
type Authority struct {
	// Cert is the authority's own certificate.
	Cert *x509.Certificate
	// CertPEM is Cert in PEM; callers do not modify it.
	CertPEM []byte
	// CertFile is where CertPEM is stored; empty for one that a rotation made.
	CertFile string

	key *ecdsa.PrivateKey
}

// Request is the requested content of a certificate.
type Request struct {
	// CommonName and Organization are the subject; the API server reads them
	// as the user and the groups of a client.
	CommonName   string
	Organization []string
	// DNSNames, IPs and URIs are subject alternative names.
	DNSNames []string
	IPs      []net.IP
	// Usages default to client authentication.
	Usages []x509.ExtKeyUsage
	// NotBefore is the moment from which it is valid, less trust.Backdated for
	// clocks that are behind. Lifetime must be positive, and is cut to the
	// authority's own.
	NotBefore time.Time
	Lifetime  time.Duration
}

// IssueCertificate makes a new key and a certificate for it, both in PEM.
func (a *Authority) IssueCertificate(r Request) (certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("generate key for %s: %w", r.CommonName, err)
	}
	if keyPEM, err = encodePrivateKey(key); err != nil {
		return nil, nil, fmt.Errorf("encode key for %s: %w", r.CommonName, err)
	}
	certPEM, err = a.SignKey(key.Public(), r)
	return certPEM, keyPEM, err
}

// SignKey certifies a key that the caller has shown to be its peer's.
func (a *Authority) SignKey(public crypto.PublicKey, r Request) ([]byte, error) {
	if r.Lifetime <= 0 || r.CommonName == "" {
		return nil, errors.New("a certificate needs a common name and a positive lifetime")
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	usages := r.Usages
	if len(usages) == 0 {
		usages = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	}
	notAfter := r.NotBefore.Add(r.Lifetime)
	if notAfter.After(a.Cert.NotAfter) {
		notAfter = a.Cert.NotAfter
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: r.CommonName, Organization: r.Organization},
		NotBefore:             r.NotBefore.Add(-trust.Backdated),
		NotAfter:              notAfter,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           usages,
		BasicConstraintsValid: true,
		DNSNames:              r.DNSNames,
		IPAddresses:           r.IPs,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.Cert, public, a.key)
	if err != nil {
		return nil, fmt.Errorf("sign certificate of %s: %w", r.CommonName, err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

// CertPool returns a new pool that trusts this authority alone.
func (a *Authority) CertPool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.Cert)
	return p
}

// crossCertify certifies the key of another authority, for clients of this one.
func (a *Authority) crossCertify(other *x509.Certificate) (*x509.Certificate, error) {
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: other.Subject, SubjectKeyId: other.SubjectKeyId,
		NotBefore: other.NotBefore, NotAfter: a.Cert.NotAfter,
		KeyUsage: other.KeyUsage, BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.Cert, other.PublicKey, a.key)
	if err != nil {
		return nil, fmt.Errorf("certify the CA %s by the one before: %w", other.Subject.CommonName, err)
	}
	return x509.ParseCertificate(der)
}

// newAuthority returns an authority with a key of its own.
func newAuthority(commonName string, now time.Time) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate the key of %s: %w", commonName, err)
	}
	certPEM, err := selfSign(key, commonName, now)
	if err != nil {
		return nil, fmt.Errorf("sign the certificate of %s: %w", commonName, err)
	}
	block, _ := pem.Decode(certPEM)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("read the certificate of %s: %w", commonName, err)
	}
	return &Authority{Cert: cert, CertPEM: certPEM, key: key}, nil
}

func selfSign(key *ecdsa.PrivateKey, commonName string, now time.Time) ([]byte, error) {
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: commonName},
		NotBefore:             now.Add(-trust.Backdated),
		NotAfter:              now.Add(authorityLifetime),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

func newSerial() (*big.Int, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("draw a serial number: %w", err)
	}
	return serial.Add(serial, big.NewInt(1)), nil
}
