package hostilehub

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/trust"
)

const (
	certificateLifetime = 24 * time.Hour
	clusterUID          = "attacked"
)

// authority is the hub's CA, which signs the certificates of the hub and of its agent.
type authority struct {
	certificate *x509.Certificate
	key         crypto.Signer
}

// newAuthority returns a CA of its own.
func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("key of the hub's CA: %w", err)
	}
	a := &authority{key: key}
	a.certificate = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "hostile hub"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(certificateLifetime),
	}
	der, err := a.signCertificate(a.certificate, key.Public())
	if err == nil {
		a.certificate, err = x509.ParseCertificate(der)
	}
	if err != nil {
		return nil, fmt.Errorf("the hub's CA: %w", err)
	}
	return a, nil
}

// signCertificate signs a certificate for a public key.
func (a *authority) signCertificate(template *x509.Certificate, public crypto.PublicKey) ([]byte, error) {
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(certificateLifetime)
	return x509.CreateCertificate(rand.Reader, template, a.certificate, public, a.key)
}

// certificatePEM returns the CA's certificate in PEM.
func (a *authority) certificatePEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.certificate.Raw})
}

// serverTLS returns the TLS settings of the hub on the loopback address.
func (a *authority) serverTLS() (*tls.Config, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("key of the hub: %w", err)
	}
	der, err := a.signCertificate(&x509.Certificate{
		SerialNumber: big.NewInt(2), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, key.Public())
	if err != nil {
		return nil, fmt.Errorf("certificate of the hub: %w", err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return &tls.Config{
		MinVersion: tls.VersionTLS13, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: pool,
		Certificates: []tls.Certificate{{Certificate: [][]byte{der, a.certificate.Raw}, PrivateKey: key}},
	}, nil
}

// signAgent signs the certificate that an agent requests, in PEM.
func (a *authority) signAgent(request []byte) ([]byte, error) {
	csr, err := trust.ParseCertificateRequest(request)
	if err != nil {
		return nil, err
	}
	der, err := a.signCertificate(&x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: atoll.UserClusterPrefix + clusterUID, Organization: []string{atoll.GroupAgents}},
		KeyUsage:     x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, csr.Public)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}
