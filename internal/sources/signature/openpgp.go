package signature

import (
	"bytes"
	"crypto"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	pgperrors "github.com/ProtonMail/go-crypto/openpgp/errors"
	"github.com/ProtonMail/go-crypto/openpgp/packet"

	"atoll.dev/atoll/internal/atoll"
)

// addOpenPGP adds the armored keys of a file.
func (k *TrustedKeys) addOpenPGP(name string, text []byte) error {
	// A file may have several blocks, one after the other.
	for n := 1; len(text) > 0; n++ {
		block := text
		if at := bytes.Index(text[1:], []byte(beginOpenPGPKey)); at >= 0 {
			block = text[:at+1]
		}
		text = text[len(block):]
		keys, err := openpgp.ReadArmoredKeyRing(bytes.NewReader(block))
		if err != nil || len(keys) == 0 {
			return newRefusal(atoll.ReasonTrustedKeysMissing, "the trusted keys in %s: block %d has no public key of OpenPGP", name, n)
		}
		if slices.ContainsFunc(keys, func(e *openpgp.Entity) bool { return e.PrivateKey != nil }) {
			return newRefusal(atoll.ReasonTrustedKeysMissing, "the trusted keys in %s: block %d has a private key; export the public key alone", name, n)
		}
		if k.openPGP = append(k.openPGP, keys...); len(k.openPGP) > maxKeys {
			return newRefusal(atoll.ReasonTrustedKeysMissing, "there are more than %d trusted keys", maxKeys)
		}
	}
	return nil
}

// acceptedHashes are those of signatures of OpenPGP that count.
var acceptedHashes = []crypto.Hash{crypto.SHA256, crypto.SHA384, crypto.SHA512, crypto.SHA3_256, crypto.SHA3_512}

// readOpenPGP reads the one signature of a text.
func readOpenPGP(text []byte) (*packet.Signature, []byte, error) {
	block, err := armor.Decode(bytes.NewReader(text))
	if err != nil {
		return nil, nil, err
	}
	if block.Type != openpgp.SignatureType {
		return nil, nil, errors.New("the block is none of a signature")
	}
	var raw bytes.Buffer
	if _, err := raw.ReadFrom(block.Body); err != nil {
		return nil, nil, err
	}
	all := bytes.NewReader(raw.Bytes())
	p, err := packet.Read(all)
	if err != nil {
		return nil, nil, err
	}
	s, is := p.(*packet.Signature)
	if !is || all.Len() > 0 {
		return nil, nil, errors.New("the block has not one signature")
	}
	return s, raw.Bytes(), nil
}

// typeOfSignature returns the type of signatures of the object.
func (o signedObject) typeOfSignature() packet.SignatureType {
	if o.isText {
		return packet.SigTypeText
	}
	return packet.SigTypeBinary
}

// typicalSigner returns the program that signs such objects.
func (o signedObject) typicalSigner() string {
	if o.isText {
		return "helm"
	}
	return "git"
}

// verifyOpenPGP verifies a signature of OpenPGP. The key must be valid now: the time in a signature is what its maker states.
func (k *TrustedKeys) verifyOpenPGP(o signedObject, now time.Time) (Signer, error) {
	s, raw, err := readOpenPGP(o.text)
	switch {
	case err != nil || s.IssuerKeyId == nil:
		return "", o.refuseInvalid("is not one signature of OpenPGP")
	case s.SigType != o.typeOfSignature():
		return "", o.refuseInvalid("is of another type than those of " + o.typicalSigner())
	case !slices.Contains(acceptedHashes, s.Hash):
		return "", o.refuseInvalid("uses a broken hash")
	}
	keys := k.openPGP.KeysById(*s.IssuerKeyId)
	if len(keys) == 0 {
		return "", newRefusal(atoll.ReasonSignerUntrusted, "the %s is signed by the OpenPGP key %016X, which is none of the trusted keys", o.noun, *s.IssuerKeyId)
	}
	by, err := checkByKeys(keys, o.payload, raw, allowClockSkew(s.CreationTime, now))
	switch {
	case errors.Is(err, pgperrors.ErrKeyExpired), errors.Is(err, pgperrors.ErrKeyRevoked):
		return "", newRefusal(atoll.ReasonSignerUntrusted, "the %s is signed by the OpenPGP key %016X, which is expired or revoked now", o.noun, *s.IssuerKeyId)
	case errors.Is(err, pgperrors.ErrUnknownIssuer):
		return "", newRefusal(atoll.ReasonSignerUntrusted, "the %s is signed by the OpenPGP key %016X, which may not sign", o.noun, *s.IssuerKeyId)
	case errors.Is(err, pgperrors.ErrSignatureExpired):
		return "", o.refuseInvalid("is expired")
	case err != nil || by == nil:
		return "", o.refuseInvalid(fmt.Sprintf("by the OpenPGP key %016X is wrong: the %s was changed, or the signature is of another one", *s.IssuerKeyId, o.noun))
	}
	return Signer(fmt.Sprintf("OpenPGP %X", by.PrimaryKey.Fingerprint)), nil
}

// maxClockSkew is how far the clock of a signer may be ahead of the hub's. A webhook reports a commit within a second.
const maxClockSkew = 5 * time.Minute

// allowClockSkew returns the time at which a signature is verified: now, or its own where that is a little later.
func allowClockSkew(made, now time.Time) time.Time {
	if made.After(now) && !made.After(now.Add(maxClockSkew)) {
		return made
	}
	return now
}

// checkByKeys verifies a signature by the copies of one key. One copy of them that is revoked revokes all, and one that is
// expired leaves the others: the files may have an extended key and the old one.
func checkByKeys(keys []openpgp.Key, payload, raw []byte, at time.Time) (by *openpgp.Entity, err error) {
	if slices.ContainsFunc(keys, func(key openpgp.Key) bool { return key.Entity.Revoked(at) || key.Revoked(at) }) {
		return nil, pgperrors.ErrKeyRevoked
	}
	config := &packet.Config{Time: func() time.Time { return at }}
	for _, key := range keys {
		by, err = openpgp.CheckDetachedSignature(openpgp.EntityList{key.Entity}, bytes.NewReader(payload), bytes.NewReader(raw), config)
		if err == nil {
			break
		}
	}
	return by, err
}
