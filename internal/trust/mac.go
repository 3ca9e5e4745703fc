package trust

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strings"
)

// MAC returns the MAC of the fields under the hub's key. purpose separates the uses of one key.
func MAC(key []byte, purpose string, fields ...[]byte) []byte {
	h := hmac.New(sha256.New, key)
	var size [8]byte
	for _, f := range append([][]byte{[]byte(purpose)}, fields...) {
		binary.BigEndian.PutUint64(size[:], uint64(len(f)))
		h.Write(size[:])
		h.Write(f)
	}
	return h.Sum(nil)
}

// PositionMAC authenticates a position of the hub's store, so that no agent can forge evidence
// that the store was restored.
func PositionMAC(key []byte, chainID string, revision, issued int64) []byte {
	var n [16]byte
	binary.BigEndian.PutUint64(n[:8], uint64(revision))
	binary.BigEndian.PutUint64(n[8:], uint64(issued))
	return MAC(key, "position", []byte(chainID), n[:])
}

// VerifyPositionMAC verifies PositionMAC in constant time.
func VerifyPositionMAC(key []byte, chainID string, revision, issued int64, mac []byte) bool {
	return hmac.Equal(PositionMAC(key, chainID, revision, issued), mac)
}

// SealKeyHash binds the hash of an agent's key to a Cluster's name. A user that can only edit the
// Cluster cannot replace the key.
func SealKeyHash(hubKey []byte, cluster, keyHash string) string {
	return keyHash + "." + hex.EncodeToString(MAC(hubKey, "agent key", []byte(cluster), []byte(keyHash)))
}

// OpenKeyHash returns the key hash that SealKeyHash sealed for that Cluster.
func OpenKeyHash(hubKey []byte, cluster, sealed string) (keyHash string, ok bool) {
	keyHash, _, ok = strings.Cut(sealed, ".")
	return keyHash, ok && hmac.Equal([]byte(SealKeyHash(hubKey, cluster, keyHash)), []byte(sealed))
}
