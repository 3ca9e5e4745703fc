package fleet

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"atoll.dev/atoll/internal/trust"
)

// identity is the stored identity of an agent at its hub.
type identity struct {
	Name string `json:"name"`
	UID  string `json:"uid"`
	// Key is in PKCS#8, Chain holds certificates in DER.
	Key   []byte    `json:"key"`
	Chain [][]byte  `json:"chain"`
	Until time.Time `json:"until"`
	Renew time.Time `json:"renew"`
}

// newKey creates the key of a joining agent.
func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	return key, nil
}

// newIdentity returns the identity in the answer of the hub.
func newIdentity(name, uid string, key *ecdsa.PrivateKey, chainPEM []byte) (*identity, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode a key: %w", err)
	}
	id := &identity{Name: name, UID: uid, Key: der}
	return id, id.setCertificate(chainPEM)
}

// setCertificate replaces the certificate.
func (id *identity) setCertificate(chainPEM []byte) error {
	var chain [][]byte
	for block, rest := pem.Decode(chainPEM); block != nil; block, rest = pem.Decode(rest) {
		chain = append(chain, block.Bytes)
	}
	if len(chain) == 0 {
		return errors.New("the hub gave no certificate in PEM")
	}
	leaf, err := x509.ParseCertificate(chain[0])
	if err != nil {
		return fmt.Errorf("read the certificate that the hub gave: %w", err)
	}
	id.Chain, id.Until, id.Renew = chain, leaf.NotAfter, trust.IssuedAt(leaf).Add(trust.RenewAfter(leaf))
	return nil
}

// privateKey decodes the stored key.
func (id *identity) privateKey() (*ecdsa.PrivateKey, error) {
	key, err := x509.ParsePKCS8PrivateKey(id.Key)
	if err != nil {
		return nil, fmt.Errorf("read the kept key of %s: %w", id.Name, err)
	}
	own, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("the kept key of %s is a %T", id.Name, key)
	}
	return own, nil
}

// identityLocation is the place of an identity on disk: the keys and certificates of a
// fleet would fill memory.
type identityLocation struct {
	file   *os.File
	offset int64
	length int32
}

// identityStore stores identities in one file per process of a simulator. Records are
// appended; the last record of a name counts.
type identityStore struct {
	mu        sync.Mutex
	ownFile   *os.File
	endOffset int64
}

// identityFiles matches the identity files in a simulator's directory.
const identityFiles = "identities-*.log"

// openIdentityStore opens the store of one process and calls found for every stored identity of any
// process.
func openIdentityStore(dir string, process int, found func(id *identity, at identityLocation)) (*identityStore, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("directory of the simulator: %w", err)
	}
	own := filepath.Join(dir, strings.Replace(identityFiles, "*", fmt.Sprint(process), 1))
	file, err := os.OpenFile(own, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("identities of the simulator: %w", err)
	}
	v := &identityStore{ownFile: file}
	names, err := filepath.Glob(filepath.Join(dir, identityFiles))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		from := file
		if name != own {
			if from, err = os.Open(name); err != nil {
				return nil, fmt.Errorf("identities of the simulator: %w", err)
			}
		}
		end, err := scanRecords(from, found)
		if err != nil {
			return nil, fmt.Errorf("identities in %s: %w; remove the file and those agents join again", name, err)
		}
		if name == own {
			v.endOffset = end
		}
	}
	return v, nil
}

// scanRecords reads the records of a file. An incomplete record at the end, left by a
// crash, is skipped.
func scanRecords(file *os.File, found func(id *identity, at identityLocation)) (end int64, err error) {
	data, err := io.ReadAll(file)
	if err != nil {
		return 0, err
	}
	for {
		rest := data[end:]
		if len(rest) < 4 || len(rest)-4 < int(binary.BigEndian.Uint32(rest)) {
			return end, nil
		}
		n := int64(binary.BigEndian.Uint32(rest))
		var id identity
		if err := json.Unmarshal(rest[4:4+n], &id); err != nil {
			return end, err
		}
		found(&id, identityLocation{file, end + 4, int32(n)})
		end += 4 + n
	}
}

// put stores an identity.
func (v *identityStore) put(id *identity) (identityLocation, error) {
	body, err := json.Marshal(id)
	if err != nil {
		return identityLocation{}, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	record := append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
	if _, err := v.ownFile.WriteAt(record, v.endOffset); err != nil {
		return identityLocation{}, fmt.Errorf("keep the identity of %s: %w", id.Name, err)
	}
	at := identityLocation{v.ownFile, v.endOffset + 4, int32(len(body))}
	v.endOffset += int64(len(record))
	return at, nil
}

// readIdentity reads an identity.
func (p identityLocation) readIdentity() (*identity, error) {
	body := make([]byte, p.length)
	if _, err := p.file.ReadAt(body, p.offset); err != nil {
		return nil, fmt.Errorf("read a kept identity: %w", err)
	}
	id := &identity{}
	if err := json.Unmarshal(body, id); err != nil {
		return nil, fmt.Errorf("read a kept identity: %w", err)
	}
	return id, nil
}

// tlsCertificate returns the certificate of a stored identity for TLS. TLS calls it only
// when the hub requests a certificate, which a valid ticket avoids. The connection keeps
// its configuration as long as it lives.
func (p identityLocation) tlsCertificate() (*tls.Certificate, error) {
	id, err := p.readIdentity()
	if err != nil {
		return nil, err
	}
	key, err := id.privateKey()
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: id.Chain, PrivateKey: key}, nil
}
