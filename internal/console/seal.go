package console

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"atoll.dev/atoll/internal/console/issuer"
)

const (
	// sealLabel separates the key of sessions from all other uses of the hub key.
	sealLabel = "atoll console sessions v1"
	// maxToken is the longest token in bytes, and the longest chain of certificates: the sealed form fits into two cookies.
	maxToken = 5600
	// chainMark begins a credential that is a chain of certificates. No token has this byte.
	chainMark = "\x00"
	// maxSealed is the longest text of a sealed session.
	maxSealed = 2 * maxPart
	timeBytes = 8
)

var errNoSession = errors.New("the session is not valid")

// session is a signed-in person: its credential, until the time. The credential is a token or a chain.
type session struct {
	token string
	// chain is the person's client certificate, then its intermediates. The key of the certificate was proven in the TLS
	// handshake of the request for the session's code.
	chain []*x509.Certificate
	until time.Time
}

// pageName returns the name by which a page states the session that it shows: its end, and a hash of its certificate, because
// certificates that are made together can end together. A renewed session keeps its name.
func (s session) pageName() string {
	name := strconv.FormatInt(s.until.Unix(), 10)
	if len(s.chain) > 0 {
		name += "-" + issuer.HashToken(s.encodeCredential())
	}
	return name
}

// encodeCredential returns the session's credential as one text.
func (s session) encodeCredential() string {
	if len(s.chain) == 0 {
		return s.token
	}
	text := []byte(chainMark)
	for _, c := range s.chain {
		text = append(text, c.Raw...)
	}
	return string(text)
}

// decodeCredential returns the session, without an end, of the text of a credential.
func decodeCredential(text string) (session, error) {
	if isToken(text) {
		return session{token: text}, nil
	}
	raw, isChain := strings.CutPrefix(text, chainMark)
	if !isChain || len(text) > maxToken {
		return session{}, errNoSession
	}
	chain, err := x509.ParseCertificates([]byte(raw))
	if err != nil || len(chain) == 0 {
		return session{}, errNoSession
	}
	return session{chain: chain}, nil
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

// sealSession returns the text of a session's cookie.
func (s *sealer) sealSession(v session) string { return s.sealPerson(sealLabel, v) }

// openSession returns the session in the text of a cookie, unless it is forged, malformed or over.
func (s *sealer) openSession(text string, now time.Time) (session, error) {
	return s.openPerson(sealLabel, text, now)
}

// sealPerson returns the text of a cookie with a person's credential and its end. Only openPerson with the same purpose opens it.
func (s *sealer) sealPerson(purpose string, v session) string {
	credential := v.encodeCredential()
	plain := binary.BigEndian.AppendUint64(make([]byte, 0, timeBytes+len(credential)), uint64(v.until.Unix()))
	return s.sealText(purpose, append(plain, credential...))
}

// openPerson returns what sealPerson has sealed for the purpose, unless it is forged, malformed or over.
func (s *sealer) openPerson(purpose, text string, now time.Time) (session, error) {
	plain, err := s.openText(purpose, text)
	if err != nil || len(plain) <= timeBytes {
		return session{}, errNoSession
	}
	v, err := decodeCredential(string(plain[timeBytes:]))
	if err != nil {
		return session{}, err
	}
	if v.until = time.Unix(int64(binary.BigEndian.Uint64(plain)), 0); !now.Before(v.until) {
		return session{}, errNoSession
	}
	return v, nil
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

// sealValue returns the text of a cookie with a value; "": the text is longer than one cookie.
func (s *sealer) sealValue(purpose string, value any) string {
	plain, err := json.Marshal(value)
	if err != nil {
		return ""
	}
	if text := s.sealText(purpose, plain); len(text) <= maxPart {
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
