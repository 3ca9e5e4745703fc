// Package keys owns the key set of a hub: its certificate authorities, its
// service account key, the key that Secrets are encrypted with at rest, and the
// hub key.
//
// Contract: LoadOrCreate either returns the whole set or an error; a key that
// exists on disk is never rewritten, and a key that is missing is made only when the caller
// confirms that no data depends on it yet. Files have mode 0600 in a
// directory of mode 0700 and are complete or absent, whatever the moment of a
// crash. The CAs of the files count until a rotation puts others in their place, which
// are no part of the files: Authorities are values, which a Set seals and opens. A Set
// is immutable after loading and safe for concurrent use. Key material is never logged
// and never part of an error text.
package keys

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"atoll.dev/atoll/internal/apiserver/datadir"
)

// Names of the files in the key directory. Together they are what a backup has
// to save besides etcd.
const (
	clusterCAName      = "cluster-ca"
	agentCAName        = "agent-ca"
	frontProxyCAName   = "front-proxy-ca"
	serviceAccountFile = "service-account.key"
	encryptionFile     = "encryption.key"
	hubFile            = "hub.key"
	secretKeyBytes     = 32
)

// KeySet is the key set of one hub, or of several hubs that share an etcd.
type KeySet struct {
	// Dir is the directory that the set was loaded from.
	Dir string
	// ClusterCA signs the API server's serving certificate and the client
	// certificates of administrators, until the first rotation: see Authorities. The
	// API server trusts no other one.
	ClusterCA *Authority
	// AgentCA signs the certificates of agents, until the first rotation. The API
	// server does not trust it; the gateway does.
	AgentCA *Authority
	// FrontProxyCA signs the certificate that the aggregator shows to
	// extension API servers.
	FrontProxyCA *Authority
	// ServiceAccountKeyFile holds the private key that signs service account
	// tokens.
	ServiceAccountKeyFile string
	// EncryptionKey (32 bytes) encrypts Secrets at rest unless the operator
	// brings an encryption configuration of their own.
	EncryptionKey []byte
	// HubKey (32 bytes) is for message authentication codes: the names of
	// revisions and the proof of a hub's history to agents.
	HubKey []byte
}

// MissingError reports that a key is not there that may not be made, since data depends on it
// or others share it.
type MissingError struct {
	// Path is the file that is missing.
	Path string
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("%s is missing, and only a new hub makes keys, in its data directory; restore the key set from a backup or copy it from another hub of the same etcd", e.Path)
}

// KeyFiles returns the paths, relative to the key directory, of everything in a
// key set.
func KeyFiles() []string {
	return []string{
		clusterCAName + ".key", clusterCAName + ".crt",
		agentCAName + ".key", agentCAName + ".crt",
		frontProxyCAName + ".key", frontProxyCAName + ".crt",
		serviceAccountFile, encryptionFile, hubFile,
	}
}

// LoadOrCreate reads the key set in dir. Keys that are missing are made when
// mayCreate is true; otherwise the error is a *MissingError.
func LoadOrCreate(dir string, mayCreate bool) (*KeySet, error) {
	if mayCreate {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("make key directory %s: %w", dir, err)
		}
	}
	l := keySetLoader{dir: dir, mayCreate: mayCreate}
	s := &KeySet{
		Dir:                   dir,
		ClusterCA:             l.loadAuthority(clusterCAName, "atoll-cluster-ca"),
		AgentCA:               l.loadAuthority(agentCAName, "atoll-agent-ca"),
		FrontProxyCA:          l.loadAuthority(frontProxyCAName, "atoll-front-proxy-ca"),
		ServiceAccountKeyFile: filepath.Join(dir, serviceAccountFile),
		EncryptionKey:         l.loadSecret(encryptionFile),
		HubKey:                l.loadSecret(hubFile),
	}
	l.privateKey(serviceAccountFile)
	if l.err != nil {
		return nil, l.err
	}
	if !mayCreate {
		return s, nil
	}
	return s, datadir.SyncDirectory(dir)
}

// KeyFingerprint identifies the set without disclosing it: hubs of one etcd have
// equal fingerprints.
func (s *KeySet) KeyFingerprint() string {
	h := sha256.New()
	h.Write([]byte("atoll key set v1"))
	for _, a := range []*Authority{s.ClusterCA, s.AgentCA, s.FrontProxyCA} {
		spki := sha256.Sum256(a.Cert.RawSubjectPublicKeyInfo)
		h.Write(spki[:])
	}
	for _, k := range [][]byte{s.EncryptionKey, s.HubKey} {
		sum := sha256.Sum256(append([]byte("atoll key fingerprint"), k...))
		h.Write(sum[:])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// keySetLoader keeps the first error, so that a set can be written as one literal.
type keySetLoader struct {
	dir       string
	mayCreate bool
	err       error
}

// loadFile returns the content of name, made by create when it is absent and may
// be made. It never replaces a file.
func (l *keySetLoader) loadFile(name string, create func() ([]byte, error)) []byte {
	if l.err != nil {
		return nil
	}
	path := filepath.Join(l.dir, name)
	content, err := os.ReadFile(path)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		l.err = wrapError("read key", path, err)
		return content
	}
	if !l.mayCreate {
		l.err = &MissingError{Path: path}
		return nil
	}
	if content, err = create(); err != nil {
		l.err = wrapError("generate", path, err)
		return nil
	}
	if err := writeNew(path, content); err != nil {
		l.err = wrapError("write key", path, err)
		return nil
	}
	return content
}

func (l *keySetLoader) loadSecret(name string) []byte {
	content := l.loadFile(name, func() ([]byte, error) {
		raw := make([]byte, secretKeyBytes)
		_, err := rand.Read(raw)
		return []byte(hex.EncodeToString(raw) + "\n"), err
	})
	if l.err != nil {
		return nil
	}
	key, err := hex.DecodeString(string(trimNewline(content)))
	if err != nil || len(key) != secretKeyBytes {
		l.err = fmt.Errorf("%s is not %d bytes in hexadecimal; restore it from a backup", filepath.Join(l.dir, name), secretKeyBytes)
		return nil
	}
	return key
}

func (l *keySetLoader) privateKey(name string) *ecdsa.PrivateKey {
	content := l.loadFile(name, newPrivateKeyPEM)
	if l.err != nil {
		return nil
	}
	key, err := parsePrivateKey(content)
	if err != nil {
		l.err = fmt.Errorf("parse %s: %w", filepath.Join(l.dir, name), err)
	}
	return key
}

func (l *keySetLoader) loadAuthority(name, commonName string) *Authority {
	key := l.privateKey(name + ".key")
	certPEM := l.loadFile(name+".crt", func() ([]byte, error) { return selfSign(key, commonName, time.Now()) })
	if l.err != nil {
		return nil
	}
	block, _ := pem.Decode(certPEM)
	if block == nil {
		l.err = fmt.Errorf("%s holds no certificate; restore it from a backup", filepath.Join(l.dir, name+".crt"))
		return nil
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		l.err = fmt.Errorf("parse %s: %w", filepath.Join(l.dir, name+".crt"), err)
		return nil
	}
	if !key.PublicKey.Equal(cert.PublicKey) {
		l.err = fmt.Errorf("%s and %s do not belong together; restore both from one backup",
			filepath.Join(l.dir, name+".crt"), filepath.Join(l.dir, name+".key"))
		return nil
	}
	return &Authority{Cert: cert, CertPEM: certPEM, CertFile: filepath.Join(l.dir, name+".crt"), key: key}
}

func newPrivateKeyPEM() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	return encodePrivateKey(key)
}

func encodePrivateKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

func parsePrivateKey(content []byte) (*ecdsa.PrivateKey, error) {
	block, _ := pem.Decode(content)
	if block == nil {
		return nil, errors.New("no PEM block; restore the file from a backup")
	}
	return x509.ParseECPrivateKey(block.Bytes)
}

// writeNew makes path with content, durable and complete, and fails when path
// exists.
func writeNew(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if _, err := f.Write(content); err != nil {
		f.Close()
		return err
	}
	if err := f.Sync(); err != nil {
		f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Link(f.Name(), path)
}

func wrapError(what, path string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", what, path, err)
}

func trimNewline(b []byte) []byte {
	for len(b) > 0 && (b[len(b)-1] == '\n' || b[len(b)-1] == '\r') {
		b = b[:len(b)-1]
	}
	return b
}
