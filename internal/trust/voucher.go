package trust

import (
	"crypto/hmac"
	"crypto/rand"
	"encoding/base32"
	"strings"
)

// NewVoucher returns a token with which an agent that the hub runs itself can join as one
// Cluster, of that UID. It is not stored: the hub verifies it with its key. Each voucher has
// another ID, as tokens do.
func NewVoucher(hubKey []byte, cluster, uid string) Token {
	id := strings.ToLower(rand.Text()[:tokenIDChars])
	return Token{ID: id, secret: voucherSecret(hubKey, cluster, uid, id)}
}

// VouchesFor reports whether the token is a voucher for that Cluster, in constant time.
func (t Token) VouchesFor(hubKey []byte, cluster, uid string) bool {
	return hmac.Equal([]byte(t.secret), []byte(voucherSecret(hubKey, cluster, uid, t.ID)))
}

func voucherSecret(hubKey []byte, cluster, uid, id string) string {
	mac := MAC(hubKey, "push voucher", []byte(cluster), []byte(uid), []byte(id))
	return strings.ToLower(base32.StdEncoding.EncodeToString(mac))[:tokenSecretChars]
}
