package console

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

const (
	// sealLabel separates the key of sessions from all other uses of the hub key.
	sealLabel = "atoll console sessions v1"
	// maxToken is the longest token in bytes: its sealed form fits into one cookie of 4,096 bytes.
	maxToken = 2800
	// maxSealed is the longest text of a sealed session.
	maxSealed = 3900
	timeBytes = 8
)

var errNoSession = errors.New("the session is not valid")

// session is a signed-in person: its token, until the time.
type session struct {
	token string
	until time.Time
}

// sealer seals sessions into texts and opens them. It has no state but its key.
type sealer struct{ aead cipher.AEAD }

func newSealer(hubKey []byte) (*sealer, error) {
	key, err := hkdf.Key(sha256.New, hubKey, nil, sealLabel, 32)
	if err != nil {
		return nil, fmt.Errorf("derive the key of console sessions: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("cipher of console sessions: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("cipher of console sessions: %w", err)
	}
	return &sealer{aead: aead}, nil
}

// sealSession returns the text of a cookie.
func (s *sealer) sealSession(v session) string {
	plain := binary.BigEndian.AppendUint64(make([]byte, 0, timeBytes+len(v.token)), uint64(v.until.Unix()))
	return s.sealText(sealLabel, append(plain, v.token...))
}

// sealText returns the text of a cookie with a content. Only openText with the same purpose opens it.
func (s *sealer) sealText(purpose string, plain []byte) string {
	return base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, plain, []byte(purpose)))
}

// openText returns the content of a text that was sealed for the purpose.
func (s *sealer) openText(purpose, text string) ([]byte, error) {
	if len(text) > maxSealed {
		return nil, errNoSession
	}
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return nil, errNoSession
	}
	plain, err := s.aead.Open(nil, nil, sealed, []byte(purpose))
	if err != nil {
		return nil, errNoSession
	}
	return plain, nil
}

// openSession returns the session in the text of a cookie, unless it is forged, malformed or over.
func (s *sealer) openSession(text string, now time.Time) (session, error) {
	plain, err := s.openText(sealLabel, text)
	if err != nil || len(plain) <= timeBytes {
		return session{}, errNoSession
	}
	v := session{until: time.Unix(int64(binary.BigEndian.Uint64(plain)), 0), token: string(plain[timeBytes:])}
	if !now.Before(v.until) || !isToken(v.token) {
		return session{}, errNoSession
	}
	return v, nil
}

// sealValue returns the text of a cookie with a value; "": the text is longer than a cookie.
func (s *sealer) sealValue(purpose string, value any) string {
	plain, err := json.Marshal(value)
	if err != nil {
		return ""
	}
	if text := s.sealText(purpose, plain); len(text) <= maxSealed {
		return text
	}
	return ""
}

// openValue reads the value of a text that was sealed for the purpose.
func (s *sealer) openValue(purpose, text string, value any) error {
	plain, err := s.openText(purpose, text)
	if err != nil {
		return err
	}
	return json.Unmarshal(plain, value)
}

// isToken reports whether a text has the form of a bearer token, so that it can stand in a header.
func isToken(s string) bool {
	if s == "" || len(s) > maxToken {
		return false
	}
	for _, b := range []byte(s) {
		if b <= ' ' || b > '~' {
			return false
		}
	}
	return true
}
