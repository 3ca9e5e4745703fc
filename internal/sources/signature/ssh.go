package signature

import (
	"bytes"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"slices"
	"time"

	"golang.org/x/crypto/ssh"

	"atoll.dev/atoll/internal/atoll"
)

// endSSH ends a signature.
const endSSH = "-----END SSH SIGNATURE-----"

// sshMagic begins the binary form of a signature, and what is signed.
const sshMagic = "SSHSIG"

// sshSignature is a signature as OpenSSH's PROTOCOL.sshsig has it.
type sshSignature struct {
	Magic     [6]byte
	Version   uint32
	PublicKey []byte
	Namespace string
	Reserved  string
	Hash      string
	Signature []byte
}

// sshSigned is what a key signs.
type sshSigned struct {
	Magic     [6]byte
	Namespace string
	Reserved  string
	Hash      string
	Digest    []byte
}

var errArmor = errors.New("the signature is not of the form of SSH")

// decodeSSHSignature decodes the text of a signature. Nothing may follow it.
func decodeSSHSignature(text []byte) (s sshSignature, err error) {
	if len(text) > maxSignatureBytes {
		return s, errArmor
	}
	text = bytes.TrimSpace(text)
	body, hasBegin := bytes.CutPrefix(text, []byte(beginSSH+"\n"))
	body, hasEnd := bytes.CutSuffix(body, []byte("\n"+endSSH))
	if !hasBegin || !hasEnd {
		return s, errArmor
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(string(bytes.ReplaceAll(body, []byte("\n"), nil)))
	if err != nil {
		return s, errArmor
	}
	if err := ssh.Unmarshal(raw, &s); err != nil {
		return s, errArmor
	}
	if string(s.Magic[:]) != sshMagic || s.Version != 1 {
		return s, errArmor
	}
	return s, nil
}

// verifySSH verifies a signature of SSH.
func (k *TrustedKeys) verifySSH(o signedObject, now time.Time) (Signer, error) {
	s, err := decodeSSHSignature(o.text)
	if err != nil {
		return "", o.refuseInvalid("is not of the form of SSH")
	}
	if s.Namespace != namespace {
		return "", o.refuseInvalid("was made for another purpose than git")
	}
	key, err := ssh.ParsePublicKey(s.PublicKey)
	if err != nil || !isKeyType(key.Type()) {
		return "", o.refuseInvalid("is of a key of a type that is not used")
	}
	signer := Signer(key.Type() + " " + ssh.FingerprintSHA256(key))
	known := slices.DeleteFunc(slices.Clone(k.ssh), func(t sshKey) bool { return !bytes.Equal(t.key.Marshal(), key.Marshal()) })
	if len(known) == 0 {
		return "", newRefusal(atoll.ReasonSignerUntrusted, "the %s is signed by the key %s, which is none of the trusted keys", o.noun, signer)
	}
	isValid := func(t sshKey) bool {
		return !now.Before(t.validAfter) && (t.validBefore.IsZero() || now.Before(t.validBefore))
	}
	if !slices.ContainsFunc(known, isValid) {
		return "", newRefusal(atoll.ReasonSignerUntrusted, "the %s is signed by the key %s, which is not valid now by the trusted keys", o.noun, signer)
	}
	if err := s.verifyMessage(key, o.payload); err != nil {
		return "", o.refuseInvalid("by the key " + string(signer) + " is wrong: the " + o.noun + " was changed, or the signature is of another one")
	}
	return signer, nil
}

// verifyMessage verifies the signature of a message.
func (s *sshSignature) verifyMessage(key ssh.PublicKey, message []byte) error {
	var digest []byte
	switch s.Hash {
	case "sha256":
		sum := sha256.Sum256(message)
		digest = sum[:]
	case "sha512":
		sum := sha512.Sum512(message)
		digest = sum[:]
	default:
		return errArmor
	}
	var by ssh.Signature
	if err := ssh.Unmarshal(s.Signature, &by); err != nil {
		return errArmor
	}
	if key.Type() == ssh.KeyAlgoRSA && by.Format != ssh.KeyAlgoRSASHA256 && by.Format != ssh.KeyAlgoRSASHA512 {
		return errArmor // of SHA-1
	}
	return key.Verify(ssh.Marshal(sshSigned{s.Magic, s.Namespace, s.Reserved, s.Hash, digest}), &by)
}
