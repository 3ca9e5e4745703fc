package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// proofKind is what a header proves the token by.
type proofKind int

// The kinds of proofs.
const (
	// proofSignature is the HMAC-SHA256 of the body under the token, in hexadecimal digits.
	proofSignature proofKind = iota
	// proofToken is the token itself.
	proofToken
	// proofPassword is a password of HTTP basic authentication, with any name.
	proofPassword
)

// proofs is the table of headers by which servers prove that they have the token of a Repository. The first one that
// a request has counts. The documentation of each server has the header.
var proofs = []struct {
	header, prefix string
	kind           proofKind
}{
	{"X-Hub-Signature-256", "sha256=", proofSignature}, // GitHub, Gitea, Forgejo
	{"X-Hub-Signature", "sha256=", proofSignature},     // Bitbucket; GitHub's own one is of SHA-1, and is not accepted
	{"X-Forgejo-Signature", "", proofSignature},
	{"X-Gitea-Signature", "", proofSignature},
	{"X-Gitlab-Token", "", proofToken},
	{"Authorization", "Bearer ", proofToken},   // registries, scripts
	{"Authorization", "Basic ", proofPassword}, // Azure DevOps
}

// verifyRequest reports whether a request proves the token. It reads the body only where the body is signed, and keeps
// no part of it. The error is that of the body.
func verifyRequest(r *http.Request, token []byte) (bool, error) {
	for _, p := range proofs {
		value, found := strings.CutPrefix(r.Header.Get(p.header), p.prefix)
		if !found || value == "" {
			continue
		}
		switch p.kind {
		case proofToken:
			return isSameSecret([]byte(value), token), nil
		case proofPassword:
			_, password, ok := r.BasicAuth()
			return ok && isSameSecret([]byte(password), token), nil
		}
		sent, err := hex.DecodeString(value)
		if err != nil || len(sent) != sha256.Size {
			return false, nil
		}
		mac := hmac.New(sha256.New, token)
		if _, err := io.Copy(mac, r.Body); err != nil {
			return false, fmt.Errorf("read the body: %w", err)
		}
		return hmac.Equal(sent, mac.Sum(nil)), nil
	}
	return false, nil
}

// isSameSecret compares in a time that depends on neither text.
func isSameSecret(a, b []byte) bool {
	x, y := sha256.Sum256(a), sha256.Sum256(b)
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}
