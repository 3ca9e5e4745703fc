package member

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
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// certLifetime bounds every certificate of a lab cluster. Labs are short; ten years keeps a
// forgotten one from failing for an expired certificate.
const certLifetime = 10 * 365 * 24 * time.Hour

// certificateAuthority is a certificate authority whose key pair is stored on disk.
type certificateAuthority struct {
	cert    *x509.Certificate
	certPEM []byte
	key     crypto.Signer
}

// pki names the files of a cluster's certificates. Paths are absolute.
type pki struct {
	caFile                              string
	serverCert, serverKey               string
	proxyCAFile                         string
	proxyClientCert, proxyClientKey     string
	kubeletClientCert, kubeletClientKey string
	serviceAccountKey                   string
	caPEM, adminCertPEM, adminKeyPEM    []byte
}

// ensurePKI creates missing files in dir and returns the files' names. Existing files are
// used unchanged.
func ensurePKI(dir string, serviceIP net.IP) (*pki, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	ca, err := ensureAuthority(dir, "ca", "atoll-lab-member")
	if err != nil {
		return nil, err
	}
	proxyCA, err := ensureAuthority(dir, "front-proxy-ca", "atoll-lab-front-proxy")
	if err != nil {
		return nil, err
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	p := &pki{
		caFile: at("ca.crt"), caPEM: ca.certPEM,
		serverCert: at("apiserver.crt"), serverKey: at("apiserver.key"),
		proxyCAFile:     at("front-proxy-ca.crt"),
		proxyClientCert: at("front-proxy-client.crt"), proxyClientKey: at("front-proxy-client.key"),
		kubeletClientCert: at("kubelet-client.crt"), kubeletClientKey: at("kubelet-client.key"),
		serviceAccountKey: at("service-account.key"),
	}
	server := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), serviceIP},
	}
	if _, _, err := ca.ensureLeaf(dir, "apiserver", server); err != nil {
		return nil, err
	}
	client := func(name string, groups ...string) *x509.Certificate {
		return &x509.Certificate{
			Subject:     pkix.Name{CommonName: name, Organization: groups},
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}
	}
	if _, _, err := proxyCA.ensureLeaf(dir, "front-proxy-client", client("front-proxy-client")); err != nil {
		return nil, err
	}
	if _, _, err := ca.ensureLeaf(dir, "kubelet-client", client("kube-apiserver-kubelet-client", "system:masters")); err != nil {
		return nil, err
	}
	p.adminCertPEM, p.adminKeyPEM, err = ca.ensureLeaf(dir, "admin", client("lab-admin", "system:masters"))
	if err != nil {
		return nil, err
	}
	if _, _, err := ensureKey(p.serviceAccountKey); err != nil {
		return nil, err
	}
	return p, nil
}

// ensureAuthority loads or makes the authority dir/name.{crt,key}.
func ensureAuthority(dir, name, commonName string) (*certificateAuthority, error) {
	key, _, err := ensureKey(filepath.Join(dir, name+".key"))
	if err != nil {
		return nil, err
	}
	certFile := filepath.Join(dir, name+".crt")
	certPEM, err := os.ReadFile(certFile)
	if errors.Is(err, fs.ErrNotExist) {
		template := &x509.Certificate{
			Subject:               pkix.Name{CommonName: commonName},
			KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
			IsCA:                  true,
			BasicConstraintsValid: true,
		}
		certPEM, err = signCertificate(template, template, key.Public(), key)
		if err == nil {
			err = writeFile(certFile, certPEM)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("authority %s: %w", name, err)
	}
	block, _ := pem.Decode(certPEM)
	if block == nil {
		return nil, fmt.Errorf("%s holds no PEM certificate: remove the lab directory and start again", certFile)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", certFile, err)
	}
	return &certificateAuthority{cert: cert, certPEM: certPEM, key: key}, nil
}

// ensureLeaf loads or makes dir/name.{crt,key}, signed by a.
func (a *certificateAuthority) ensureLeaf(dir, name string, template *x509.Certificate) (certPEM, keyPEM []byte, err error) {
	key, keyPEM, err := ensureKey(filepath.Join(dir, name+".key"))
	if err != nil {
		return nil, nil, err
	}
	certFile := filepath.Join(dir, name+".crt")
	certPEM, err = os.ReadFile(certFile)
	if err == nil {
		return certPEM, keyPEM, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	certPEM, err = signCertificate(template, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, nil, fmt.Errorf("certificate %s: %w", name, err)
	}
	return certPEM, keyPEM, writeFile(certFile, certPEM)
}

// ensureKey loads or makes an ECDSA P-256 key in PKCS#8 PEM.
func ensureKey(file string) (crypto.Signer, []byte, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return nil, nil, err
		}
		der, err := x509.MarshalECPrivateKey(key)
		if err != nil {
			return nil, nil, err
		}
		data = pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
		return key, data, writeFile(file, data)
	}
	if err != nil {
		return nil, nil, err
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, nil, fmt.Errorf("%s holds no PEM key: remove the lab directory and start again", file)
	}
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", file, err)
	}
	return key, data, nil
}

// signCertificate completes template with serial and validity and returns it as PEM.
func signCertificate(template, parent *x509.Certificate, public crypto.PublicKey, signer crypto.Signer) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	template.NotBefore = time.Now().Add(-time.Hour)
	template.NotAfter = time.Now().Add(certLifetime)
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, signer)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

// writeFile writes data for the owner only, completely or not at all, so that a killed
// process leaves no incomplete file.
func writeFile(file string, data []byte) error {
	tmp := file + ".tmp"
	if err := os.WriteFile(tmp, data, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, file)
}
