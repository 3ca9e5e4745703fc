package signature

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"atoll.dev/atoll/internal/atoll"
)

// Bounds of the signatures of one artifact.
const (
	// MaxSignatures is the most signatures that are read.
	MaxSignatures = 32
	// maxPayloadBytes is the most of a payload of simple signing, and maxBundleBytes of a bundle of Sigstore.
	maxPayloadBytes = 64 << 10
	maxBundleBytes  = 512 << 10
	// maxSignatureText is the longest text of one signature.
	maxSignatureText = 4 << 10
)

// ArtifactSignature is a layer of a registry with a signature of an artifact, as cosign writes it.
type ArtifactSignature struct {
	MediaType   string
	Annotations map[string]string
	Content     []byte
}

// artifactFormat is one form of signatures of artifacts. Media types begin with its name.
type artifactFormat struct {
	mediaType string
	most      int64
	verify    func(k *TrustedKeys, s ArtifactSignature, digest string) (Signer, error)
}

// artifactFormats are all forms of signatures of artifacts that are verified.
var artifactFormats = []artifactFormat{
	{"application/vnd.dev.cosign.simplesigning.v1+json", maxPayloadBytes, (*TrustedKeys).verifySimpleSigning},
	{bundleType, maxBundleBytes, (*TrustedKeys).verifyBundle},
}

// formatOf returns the form of a media type; false for another layer than a signature.
func formatOf(mediaType string) (artifactFormat, bool) {
	for _, f := range artifactFormats {
		if strings.HasPrefix(mediaType, f.mediaType) {
			return f, true
		}
	}
	return artifactFormat{}, false
}

// MaxLayerBytes returns the most bytes of a layer with a signature; 0 for another layer.
func MaxLayerBytes(mediaType string) int64 {
	f, _ := formatOf(mediaType)
	return f.most
}

// referrerTypes are the types of manifests that refer to an artifact and may have signatures of it.
var referrerTypes = []string{bundleType, "application/vnd.dev.cosign.artifact.sig.v1+json"}

// IsReferrerWithSignatures reports whether a manifest that refers to an artifact may have signatures of it. Its annotations are not
// signed, so they can only leave it out.
func IsReferrerWithSignatures(artifactType string, annotations map[string]string) bool {
	if stated := annotations["dev.sigstore.bundle.predicateType"]; stated != "" && stated != signPredicate {
		return false
	}
	for _, known := range referrerTypes {
		if strings.HasPrefix(artifactType, known) {
			return true
		}
	}
	return false
}

// VerifyArtifact returns the signer of an artifact, whose manifest has a digest such as sha256:HEX. The statement of a signature is
// parsed after a trusted key verified it.
func (k *TrustedKeys) VerifyArtifact(s ArtifactSignature, digest string) (Signer, error) {
	f, is := formatOf(s.MediaType)
	if !is {
		return "", refuseArtifact("is of another form than those of cosign")
	}
	if int64(len(s.Content)) > f.most {
		return "", refuseArtifact(fmt.Sprintf("has more than %d bytes", f.most))
	}
	return f.verify(k, s, digest)
}

// refuseArtifact returns the refusal of a signature that is not valid.
func refuseArtifact(why string) *Refusal {
	return newRefusal(atoll.ReasonSignatureInvalid, "a signature of the artifact %s", why)
}

// refuseTrusted returns the refusal of what a trusted key signed.
func refuseTrusted(by Signer, why string) *Refusal {
	r := newRefusal(atoll.ReasonSignatureInvalid, "the signature by the key %s %s", by, why)
	r.byTrusted = true
	return r
}

// refuseSigner returns the refusal of a signature by none of the keys. isKeyless is true for one with a certificate.
func refuseSigner(isKeyless bool) *Refusal {
	if isKeyless {
		return newRefusal(atoll.ReasonSignerUntrusted, "the artifact is signed without a key, by a certificate; the hub verifies signatures by keys alone: sign it by cosign sign --key")
	}
	return newRefusal(atoll.ReasonSignerUntrusted, "the artifact is signed by none of the trusted keys, or its signature was changed")
}

// The annotations of a layer of simple signing.
const (
	signatureAnnotation   = "dev.cosignproject.cosign/signature"
	certificateAnnotation = "dev.sigstore.cosign/certificate"
)

// simpleSigningType is the type of a payload that cosign signs.
const simpleSigningType = "cosign container image signature"

// verifySimpleSigning verifies a payload, whose signature is an annotation of its layer.
func (k *TrustedKeys) verifySimpleSigning(s ArtifactSignature, digest string) (Signer, error) {
	text := s.Annotations[signatureAnnotation]
	if text == "" || len(text) > maxSignatureText {
		return "", refuseArtifact(fmt.Sprintf("has none in its annotation, or one of more than %d bytes", maxSignatureText))
	}
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return "", refuseArtifact("is not in base64")
	}
	by := k.findSigner(s.Content, raw)
	if by == "" {
		return "", refuseSigner(s.Annotations[certificateAnnotation] != "")
	}
	var payload struct {
		Critical struct {
			Image struct {
				Digest string `json:"docker-manifest-digest"`
			} `json:"image"`
			Type string `json:"type"`
		} `json:"critical"`
	}
	if err := json.Unmarshal(s.Content, &payload); err != nil || payload.Critical.Type != simpleSigningType {
		return "", refuseTrusted(by, "is of something else than an artifact")
	}
	if payload.Critical.Image.Digest != digest {
		return "", refuseTrusted(by, "is of another artifact")
	}
	return by, nil
}

// A bundle of Sigstore signs an artifact by a statement of in-toto in an envelope of DSSE.
const (
	bundleType    = "application/vnd.dev.sigstore.bundle"
	statementType = "application/vnd.in-toto+json"
	signPredicate = "https://sigstore.dev/cosign/sign/v1"
)

// bundle is what of a bundle is read. Its log entries and timestamps are not.
type bundle struct {
	Material struct {
		Certificate json.RawMessage `json:"certificate"`
		Chain       json.RawMessage `json:"x509CertificateChain"`
	} `json:"verificationMaterial"`
	Envelope *envelope `json:"dsseEnvelope"`
}

// envelope is what DSSE signs, with its signatures.
type envelope struct {
	Payload     []byte `json:"payload"`
	PayloadType string `json:"payloadType"`
	Signatures  []struct {
		Signature []byte `json:"sig"`
	} `json:"signatures"`
}

// signedBytes returns what the signature of an envelope is of.
func (e *envelope) signedBytes() []byte {
	return fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(e.PayloadType), e.PayloadType, len(e.Payload), e.Payload)
}

// verifyBundle verifies a bundle of Sigstore. A statement about the artifact that is no signature, such as the result of a scan,
// does not count.
func (k *TrustedKeys) verifyBundle(s ArtifactSignature, digest string) (Signer, error) {
	var b bundle
	if err := json.Unmarshal(s.Content, &b); err != nil {
		return "", refuseArtifact("is no bundle of Sigstore that can be read")
	}
	if b.Envelope == nil || len(b.Envelope.Signatures) != 1 {
		return "", refuseArtifact("is a bundle without an envelope of DSSE that has one signature")
	}
	by := k.findSigner(b.Envelope.signedBytes(), b.Envelope.Signatures[0].Signature)
	if by == "" {
		return "", refuseSigner(len(b.Material.Certificate)+len(b.Material.Chain) > 0)
	}
	var statement struct {
		Type      string `json:"_type"`
		Predicate string `json:"predicateType"`
		Subject   []struct {
			Digest map[string]string `json:"digest"`
		} `json:"subject"`
	}
	err := json.Unmarshal(b.Envelope.Payload, &statement)
	switch {
	case err != nil || b.Envelope.PayloadType != statementType || !strings.HasPrefix(statement.Type, "https://in-toto.io/Statement/"):
		return "", refuseTrusted(by, "is of something else than an artifact")
	case statement.Predicate != signPredicate:
		return "", newRefusal(atoll.ReasonSignatureMissing, "the key %s states something about the artifact, and does not sign it", by)
	}
	algorithm, want, _ := strings.Cut(digest, ":")
	for _, subject := range statement.Subject {
		if is := subject.Digest[algorithm]; is != "" && is == want {
			return by, nil
		}
	}
	return "", refuseTrusted(by, "is of another artifact")
}

// PickRefusal returns the refusal of an artifact by those of its signatures: the one that is nearest to a valid signature.
func PickRefusal(refusals []*Refusal) *Refusal {
	best := newRefusal(atoll.ReasonSignatureMissing, "the artifact has no signature of cosign in its registry")
	for _, r := range refusals {
		if r.rankRefusal() > best.rankRefusal() {
			best = r
		}
	}
	if len(refusals) > 1 {
		return newRefusal(best.Reason, "%s; none of %d signatures is valid", best.Message, len(refusals))
	}
	return best
}

// rankRefusal orders refusals: a larger number is nearer to a valid signature.
func (r *Refusal) rankRefusal() int {
	switch {
	case r.byTrusted:
		return 3
	case r.Reason == atoll.ReasonSignerUntrusted:
		return 2
	case r.Reason == atoll.ReasonSignatureInvalid:
		return 1
	}
	return 0
}
