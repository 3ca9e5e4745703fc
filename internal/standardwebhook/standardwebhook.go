// Package standardwebhook signs requests as Standard Webhooks specify, and reads the keys for it.
//
// Contract: pure functions, which may be called concurrently. No error has a part of a key.
package standardwebhook

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strings"
)

// The headers of a signed request.
const (
	HeaderID        = "webhook-id"
	HeaderTimestamp = "webhook-timestamp"
	HeaderSignature = "webhook-signature"
)

// minKeyBytes is the fewest bytes of a key.
const minKeyBytes = 16

// The errors of ParseKey.
var (
	ErrNotBase64 = errors.New("the key hmac of the Secret begins with whsec_, and is not base64 after that")
	ErrShort     = errors.New("the Secret has no key hmac of at least 16 bytes")
)

// ParseKey returns the key of a Secret: bytes, or whsec_ and base64 as Standard Webhooks write it.
func ParseKey(value []byte) ([]byte, error) {
	key := bytes.TrimSpace(value)
	if text, is := strings.CutPrefix(string(key), "whsec_"); is {
		decoded, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return nil, ErrNotBase64
		}
		key = decoded
	}
	if len(key) < minKeyBytes {
		return nil, ErrShort
	}
	return key, nil
}

// SignRequest returns the signature of a request: the version, and the HMAC-SHA256 of id, time in Unix seconds and body, in base64.
func SignRequest(key []byte, id, at string, body []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + at + "."))
	mac.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}
