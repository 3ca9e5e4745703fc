package trust

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// tokenVersion begins every token of this format.
const tokenVersion = "atoll1"

const (
	tokenIDChars     = 10
	tokenSecretChars = 26 // 130 bits
)

// Token allows an agent to request to join. Only its creator and its bearer have the secret; the
// hub stores a hash of it.
type Token struct {
	// ID names the token on the hub and in logs: lower-case letters and digits.
	ID     string
	secret string
}

// NewToken returns a random token.
func NewToken() Token {
	return Token{ID: strings.ToLower(rand.Text()[:tokenIDChars]), secret: strings.ToLower(rand.Text()[:tokenSecretChars])}
}

// ParseToken reads "atoll1.<id>.<secret>".
func ParseToken(s string) (Token, error) {
	parts := strings.Split(strings.TrimSpace(s), ".")
	if len(parts) != 3 || parts[0] != tokenVersion || !isTokenPart(parts[1], tokenIDChars) || !isTokenPart(parts[2], tokenSecretChars) {
		return Token{}, errors.New(`this is not a join token; a token looks like "atoll1.<id>.<secret>", and "atoll token create" on the hub makes one`)
	}
	return Token{ID: parts[1], secret: parts[2]}, nil
}

func isTokenPart(s string, length int) bool {
	return len(s) == length && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz234567") == ""
}

// RevealSecret returns the whole token, to be shown once to its creator or sent to the hub.
func (t Token) RevealSecret() string { return tokenVersion + "." + t.ID + "." + t.secret }

// String returns the token without its secret.
func (t Token) String() string { return tokenVersion + "." + t.ID + ".…" }

// GoString returns the token without its secret.
func (t Token) GoString() string { return t.String() }

// SecretHash returns the hash of the secret, which is what the hub stores.
func (t Token) SecretHash() string {
	h := sha256.Sum256([]byte(tokenVersion + "." + t.ID + "." + t.secret))
	return hex.EncodeToString(h[:])
}

// MatchesHash compares the secret with a stored hash, in constant time.
func (t Token) MatchesHash(hash string) bool {
	return subtle.ConstantTimeCompare([]byte(t.SecretHash()), []byte(hash)) == 1
}

// Format prints the token without its secret for every verb of package fmt.
func (t Token) Format(f fmt.State, _ rune) { fmt.Fprint(f, t.String()) }
