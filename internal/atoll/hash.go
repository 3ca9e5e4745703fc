package atoll

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// HashParts returns the hash of the parts, in 32 hexadecimal digits of SHA-256. Parts are framed by
// their lengths, so that no two lists of parts collide by concatenation.
func HashParts(parts ...[]byte) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:", len(p))
		h.Write(p)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// HashJSON hashes v's JSON. It panics on values that cannot be JSON, which are a bug of the
// caller.
func HashJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("atoll: hash of %T: %v", v, err))
	}
	return HashParts(b)
}

// KeyedHash is HashParts under the hub's key, so that a reader of a Revision's name cannot test
// guesses of a Secret's content against it.
func KeyedHash(key []byte, parts ...[]byte) string {
	h := hmac.New(sha256.New, key)
	for _, p := range parts {
		fmt.Fprintf(h, "%d:", len(p))
		h.Write(p)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
