package signature

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	_ "crypto/sha512" // what signatures use
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"

	"atoll.dev/atoll/internal/atoll"
)

// pemKey is a public key in PEM, by which cosign signs.
type pemKey struct {
	key    crypto.PublicKey
	signer Signer
}

// beginPEM begins a block of PEM.
const beginPEM = "-----BEGIN "

// The sizes of keys of RSA that count, in bits.
const (
	minRSABits = 2048
	maxRSABits = 8192
)

// addPEM adds the public keys of a file.
func (k *TrustedKeys) addPEM(name string, text []byte) error {
	if bytes.Contains(text, []byte("PRIVATE KEY")) {
		return newRefusal(atoll.ReasonTrustedKeysMissing, "the trusted keys in %s: the file has a private key; give the public key alone", name)
	}
	for n := 1; len(text) > 0; n++ {
		block, rest := cutBlock(text)
		if block == nil {
			return newRefusal(atoll.ReasonTrustedKeysMissing, "the trusted keys in %s: block %d is none of PEM", name, n)
		}
		key, err := parsePublicKey(block)
		if err != nil {
			return newRefusal(atoll.ReasonTrustedKeysMissing, "the trusted keys in %s: block %d %v", name, n, err)
		}
		if k.pem = append(k.pem, key); len(k.pem) > maxKeys {
			return newRefusal(atoll.ReasonTrustedKeysMissing, "there are more than %d trusted keys", maxKeys)
		}
		text = rest
	}
	return nil
}

// cutBlock returns the first block of a text, and what follows it; nil where the text does not begin with a whole block. The
// decoder alone would leave a damaged block out.
func cutBlock(text []byte) (*pem.Block, []byte) {
	block, rest := pem.Decode(text)
	if block == nil || !bytes.HasPrefix(text, []byte(beginPEM)) || bytes.Count(text[:len(text)-len(rest)], []byte(beginPEM)) != 1 {
		return nil, nil
	}
	return block, bytes.TrimSpace(rest)
}

// parsePublicKey reads a public key of a type by which cosign signs.
func parsePublicKey(block *pem.Block) (pemKey, error) {
	var key crypto.PublicKey
	var err error
	switch block.Type {
	case "PUBLIC KEY":
		key, err = x509.ParsePKIXPublicKey(block.Bytes)
	case "RSA PUBLIC KEY":
		key, err = x509.ParsePKCS1PublicKey(block.Bytes)
	default:
		return pemKey{}, errors.New("is no public key")
	}
	if err != nil {
		return pemKey{}, errors.New("has no public key that can be read")
	}
	name := ""
	switch key := key.(type) {
	case *ecdsa.PublicKey:
		if hashesOf(key.Curve) == nil {
			return pemKey{}, errors.New("has a key of ECDSA on another curve than P-256, P-384 and P-521")
		}
		name = "ECDSA"
	case *rsa.PublicKey:
		if bits := key.N.BitLen(); bits < minRSABits || bits > maxRSABits {
			return pemKey{}, fmt.Errorf("has a key of RSA of %d bits; those of %d to %d bits count", bits, minRSABits, maxRSABits)
		}
		name = "RSA"
	case ed25519.PublicKey:
		name = "Ed25519"
	default:
		return pemKey{}, errors.New("has a key of a type that is not used; ECDSA, RSA and Ed25519 are")
	}
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return pemKey{}, errors.New("has no public key that can be read")
	}
	return pemKey{key: key, signer: Signer(fmt.Sprintf("%s sha256:%x", name, sha256.Sum256(der)))}, nil
}

// hashesOf returns the hashes of messages that keys of ECDSA on a curve sign: SHA-256, which older versions of cosign use for all curves,
// and that of the curve; nil for a curve that is not used.
func hashesOf(curve elliptic.Curve) []crypto.Hash {
	switch curve {
	case elliptic.P256():
		return []crypto.Hash{crypto.SHA256}
	case elliptic.P384():
		return []crypto.Hash{crypto.SHA384, crypto.SHA256}
	case elliptic.P521():
		return []crypto.Hash{crypto.SHA512, crypto.SHA256}
	}
	return nil
}

// hashMessage returns the hash of a message.
func hashMessage(h crypto.Hash, message []byte) []byte {
	w := h.New()
	w.Write(message) // a hash returns no error
	return w.Sum(nil)
}

// matchesSignature reports whether a signature of a message is by the key. A key of Ed25519 signs the message, or its SHA-512 as newer
// versions of cosign do (Ed25519ph).
func (k pemKey) matchesSignature(message, signature []byte) bool {
	switch key := k.key.(type) {
	case *ecdsa.PublicKey:
		return slices.ContainsFunc(hashesOf(key.Curve), func(h crypto.Hash) bool {
			return ecdsa.VerifyASN1(key, hashMessage(h, message), signature)
		})
	case *rsa.PublicKey:
		return rsa.VerifyPKCS1v15(key, crypto.SHA256, hashMessage(crypto.SHA256, message), signature) == nil
	case ed25519.PublicKey:
		return ed25519.Verify(key, message, signature) ||
			ed25519.VerifyWithOptions(key, hashMessage(crypto.SHA512, message), signature, &ed25519.Options{Hash: crypto.SHA512}) == nil
	}
	return false
}

// findSigner returns the key in PEM that signed a message; empty where none did.
func (k *TrustedKeys) findSigner(message, signature []byte) Signer {
	for _, key := range k.pem {
		if key.matchesSignature(message, signature) {
			return key.signer
		}
	}
	return ""
}
