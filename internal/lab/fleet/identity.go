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

// identity is who an agent is to its hub, as it is kept on disk.
type identity struct {
	Name string `json:"name"`
	UID  string `json:"uid"`
	// Key in PKCS#8, Chain of certificates in DER.
	Key   []byte    `json:"key"`
	Chain [][]byte  `json:"chain"`
	Until time.Time `json:"until"`
	Renew time.Time `json:"renew"`
}

// newKey of an agent that joins.
func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	return key, nil
}

// newIdentity of what the hub answered.
func newIdentity(name, uid string, key *ecdsa.PrivateKey, chainPEM []byte) (*identity, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode a key: %w", err)
	}
	id := &identity{Name: name, UID: uid, Key: der}
	return id, id.certify(chainPEM)
}

// certify takes a new certificate.
func (id *identity) certify(chainPEM []byte) error {
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
	id.Chain, id.Until, id.Renew = chain, leaf.NotAfter, trust.Issued(leaf).Add(trust.RenewAfter(leaf))
	return nil
}

// key as it was made.
func (id *identity) key() (*ecdsa.PrivateKey, error) {
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

// place of an identity on disk: a fleet's keys and certificates would fill memory.
type place struct {
	file   *os.File
	offset int64
	length int32
}

// vault keeps identities: one file per process of a simulator, to which records are
// appended; of those for one name the last counts.
type vault struct {
	mu  sync.Mutex
	own *os.File
	end int64
}

// identityFiles of a simulator, below its directory.
const identityFiles = "identities-*.log"

// openVault gives the vault of one process and calls found for every identity that
// is kept there by any.
func openVault(dir string, process int, found func(id *identity, at place)) (*vault, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("directory of the simulator: %w", err)
	}
	own := filepath.Join(dir, strings.Replace(identityFiles, "*", fmt.Sprint(process), 1))
	file, err := os.OpenFile(own, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("identities of the simulator: %w", err)
	}
	v := &vault{own: file}
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
		end, err := scan(from, found)
		if err != nil {
			return nil, fmt.Errorf("identities in %s: %w; remove the file and those agents join anew", name, err)
		}
		if name == own {
			v.end = end
		}
	}
	return v, nil
}

// scan the records of a file; what a crash left at its end is none.
func scan(file *os.File, found func(id *identity, at place)) (end int64, err error) {
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
		found(&id, place{file, end + 4, int32(n)})
		end += 4 + n
	}
}

// put an identity.
func (v *vault) put(id *identity) (place, error) {
	body, err := json.Marshal(id)
	if err != nil {
		return place{}, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	record := append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
	if _, err := v.own.WriteAt(record, v.end); err != nil {
		return place{}, fmt.Errorf("keep the identity of %s: %w", id.Name, err)
	}
	at := place{v.own, v.end + 4, int32(len(body))}
	v.end += int64(len(record))
	return at, nil
}

// get an identity.
func (p place) get() (*identity, error) {
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

// certificate for TLS of a kept identity. It is read when a hub asks for it, which it
// does not where a ticket is good: the connection keeps its configuration as long as it
// lives.
func (p place) certificate() (*tls.Certificate, error) {
	id, err := p.get()
	if err != nil {
		return nil, err
	}
	key, err := id.key()
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: id.Chain, PrivateKey: key}, nil
}
