package keys

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"time"
)

// Storage of rotated authorities
//
// The files of a key set never change, and hubs that share an etcd have copies of them. Rotated
// authorities are in the etcd, visible to all hubs, and in the same backups as the Clusters whose
// agents they certify. They are sealed under the hub key, which only the files have: a reader of
// the etcd alone cannot open them.

// record of Authorities that are not those of the files.
type record struct {
	Generation int            `json:"generation"`
	Began      time.Time      `json:"began,omitzero"`
	Cluster    keyPair        `json:"cluster"`
	Agent      keyPair        `json:"agent"`
	Former     []formerRecord `json:"former"`
}

type keyPair struct {
	Certificate []byte `json:"certificate"` // DER, as the next ones
	Key         []byte `json:"key"`
}

type formerRecord struct {
	Cluster []byte `json:"cluster"`
	Agent   []byte `json:"agent"`
	Cross   []byte `json:"cross"`
}

// SealAuthorities encrypts the CAs that a rotation made, for storage in etcd.
func (s *KeySet) SealAuthorities(a *Authorities) ([]byte, error) {
	r := record{Generation: a.Generation, Began: a.Began}
	for _, p := range []struct {
		to   *keyPair
		from *Authority
	}{{&r.Cluster, a.Cluster}, {&r.Agent, a.Agent}} {
		key, err := x509.MarshalECPrivateKey(p.from.key)
		if err != nil {
			return nil, fmt.Errorf("encode the key of a CA: %w", err)
		}
		*p.to = keyPair{p.from.Cert.Raw, key}
	}
	for _, f := range a.former {
		r.Former = append(r.Former, formerRecord{f.cluster.Raw, f.agent.Raw, f.cross.Raw})
	}
	plain, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode the hub's CAs: %w", err)
	}
	box, err := s.newAEAD()
	if err != nil {
		return nil, err
	}
	nonce := make([]byte, box.NonceSize(), box.NonceSize()+len(plain)+box.Overhead())
	if _, err := rand.Read(nonce); err != nil {
		return nil, fmt.Errorf("draw a nonce: %w", err)
	}
	return box.Seal(nonce, nonce, plain, nil), nil
}

// UnsealAuthorities opens what Seal made.
func (s *KeySet) UnsealAuthorities(sealed []byte) (*Authorities, error) {
	box, err := s.newAEAD()
	if err != nil {
		return nil, err
	}
	if len(sealed) < box.NonceSize() {
		return nil, errors.New("the hub's rotated CAs in the etcd are damaged; restore the etcd from a backup")
	}
	plain, err := box.Open(nil, sealed[:box.NonceSize()], sealed[box.NonceSize():], nil)
	if err != nil {
		return nil, fmt.Errorf("the hub's rotated CAs in the etcd were not sealed by the hub key in %s; bring the key set of the hub that wrote them", s.Dir)
	}
	var r record
	if err := json.Unmarshal(plain, &r); err != nil {
		return nil, fmt.Errorf("read the hub's rotated CAs: %w", err)
	}
	a := &Authorities{Generation: r.Generation, Began: r.Began}
	if a.Cluster, err = r.Cluster.parseAuthority(); err != nil {
		return nil, err
	}
	if a.Agent, err = r.Agent.parseAuthority(); err != nil {
		return nil, err
	}
	for _, one := range r.Former {
		var f former
		for _, c := range []struct {
			to   **x509.Certificate
			from []byte
		}{{&f.cluster, one.Cluster}, {&f.agent, one.Agent}, {&f.cross, one.Cross}} {
			if *c.to, err = x509.ParseCertificate(c.from); err != nil {
				return nil, fmt.Errorf("read a former CA of the hub: %w", err)
			}
		}
		a.former = append(a.former, f)
	}
	if len(a.former) == 0 || a.Generation < 2 {
		return nil, errors.New("the hub's rotated CAs in the etcd came out of no rotation; restore the etcd from a backup")
	}
	return a, nil
}

func (s *KeySet) newAEAD() (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, s.HubKey, nil, "atoll authorities", secretKeyBytes)
	if err != nil {
		return nil, fmt.Errorf("derive the key that the hub's CAs are sealed by: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

func (p keyPair) parseAuthority() (*Authority, error) {
	cert, err := x509.ParseCertificate(p.Certificate)
	if err != nil {
		return nil, fmt.Errorf("read a CA of the hub: %w", err)
	}
	key, err := x509.ParseECPrivateKey(p.Key)
	if err != nil {
		return nil, fmt.Errorf("read the key of a CA of the hub: %w", err)
	}
	if !key.PublicKey.Equal(cert.PublicKey) {
		return nil, fmt.Errorf("the key and the certificate of the CA %s do not belong together; restore the etcd from a backup", cert.Subject.CommonName)
	}
	return &Authority{Cert: cert, CertPEM: certificatePEM(cert), key: key}, nil
}

func certificatePEM(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}
