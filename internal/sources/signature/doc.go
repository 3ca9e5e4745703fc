// Package signature verifies the signatures of commits and tags of git, of artifacts in OCI registries, and of Helm charts, by trusted
// keys of OpenPGP, of SSH, and in PEM.
//
// Contract: functions are pure: the time comes from the caller. Nothing is parsed before its size is checked. The bytes of an
// object are verified as git hashes them, and an artifact by the digest of its manifest. Everything that is not a valid signature
// of a trusted key, which is valid now, is a *Refusal. No Refusal has a text that the author of the content wrote.
package signature

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"atoll.dev/atoll/internal/atoll"
)

// Bounds of what is parsed.
const (
	// MaxObjectBytes is the most of a commit or a tag, and maxSignatureBytes of a signature in it.
	MaxObjectBytes    = 1 << 20
	maxSignatureBytes = 64 << 10
	// MaxKeyBytes is the most of all trusted keys, and maxKeys their number.
	MaxKeyBytes = 256 << 10
	maxKeys     = 200
)

// Mode is what must be signed.
type Mode string

// The modes, which are those of the API.
const (
	ModeCommit       Mode = "Commit"
	ModeTag          Mode = "Tag"
	ModeTagAndCommit Mode = "TagAndCommit"
	ModeArtifact     Mode = "Artifact"
	ModeProvenance   Mode = "Provenance"
)

// IsOfGit reports whether commits or tags must be signed.
func (m Mode) IsOfGit() bool { return m == ModeCommit || m == ModeTag || m == ModeTagAndCommit }

// CanFollow reports whether a signature can come after what it is of: cosign signs what a registry has.
func (m Mode) CanFollow() bool { return m == ModeArtifact || m == ModeProvenance }

// NeedsCommit reports whether the commit must be signed. A mode that is not known needs all.
func (m Mode) NeedsCommit() bool { return m != ModeTag }

// NeedsTag reports whether the tag must be signed.
func (m Mode) NeedsTag() bool { return m != ModeCommit }

// Refusal is why something is not verified.
type Refusal struct {
	Reason  atoll.Reason
	Message string
	// byTrusted is true for what a trusted key signed.
	byTrusted bool
}

// Error returns the message.
func (r *Refusal) Error() string { return r.Message }

func newRefusal(reason atoll.Reason, format string, args ...any) *Refusal {
	return &Refusal{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Signer is the key that made a signature, such as "ssh-ed25519 SHA256:...", "OpenPGP FINGERPRINT" or "ECDSA sha256:...".
type Signer string

// signedObject is what a signature is of.
type signedObject struct {
	// noun is "commit", "tag" or "provenance".
	noun    string
	payload []byte
	text    []byte
	// isText is true where lines are signed, and not bytes.
	isText bool
}

// refuseInvalid returns the refusal of a signature that is not valid.
func (o signedObject) refuseInvalid(why string) *Refusal {
	return newRefusal(atoll.ReasonSignatureInvalid, "the signature of the %s %s", o.noun, why)
}

// verifyObject returns the signer of an object.
func (k *TrustedKeys) verifyObject(o signedObject, now time.Time) (Signer, error) {
	switch {
	case len(o.text) == 0:
		return "", newRefusal(atoll.ReasonSignatureMissing, "the %s is not signed", o.noun)
	case len(o.text) > maxSignatureBytes:
		return "", newRefusal(atoll.ReasonSignatureInvalid, "the signature of the %s has more than %d bytes", o.noun, maxSignatureBytes)
	}
	for _, f := range formats {
		if bytes.HasPrefix(o.text, []byte(f.begin)) {
			return f.verify(k, o, now)
		}
	}
	return "", newRefusal(atoll.ReasonSignatureInvalid, "the signature of the %s is neither one of OpenPGP nor one of SSH", o.noun)
}

// format is one form of signatures.
type format struct {
	begin  string
	verify func(*TrustedKeys, signedObject, time.Time) (Signer, error)
}

// The first lines of signatures.
const (
	beginOpenPGP = "-----BEGIN PGP SIGNATURE-----"
	beginSSH     = "-----BEGIN SSH SIGNATURE-----"
)

// formats are all forms of signatures that are verified.
var formats = []format{
	{beginOpenPGP, (*TrustedKeys).verifyOpenPGP},
	{beginSSH, (*TrustedKeys).verifySSH},
}

// signatureLines begin the signature at the end of a tag. Those of X.509 and of PGP messages are found and refused.
var signatureLines = []string{beginOpenPGP, beginSSH, "-----BEGIN PGP MESSAGE-----", "-----BEGIN SIGNED MESSAGE-----"}

// beginsSignature reports whether a line begins a signature.
func beginsSignature(line []byte) bool {
	return slices.ContainsFunc(signatureLines, func(begin string) bool { return bytes.HasPrefix(line, []byte(begin)) })
}
