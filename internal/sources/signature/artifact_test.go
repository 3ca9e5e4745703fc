package signature

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/sources/cosigntest"
)

// digestOfTest is the digest of the artifact of these tests, and otherDigest that of another one.
var (
	digestOfTest = "sha256:" + strings.Repeat("a", 64)
	otherDigest  = "sha256:" + strings.Repeat("b", 64)
)

// convertLayer returns a signature as the registry has it.
func convertLayer(l cosigntest.Layer) ArtifactSignature {
	return ArtifactSignature{MediaType: l.MediaType, Annotations: l.Annotations, Content: l.Content}
}

func newRSAKey(t testing.TB, bits int) *rsa.PrivateKey {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newCurveKey(t testing.TB, curve elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// Each type of keys signs in both forms of cosign, and the signer is the hash of the key as openssl shows it.
func TestSignaturesOfArtifacts(t *testing.T) {
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	curveKey := func(curve elliptic.Curve, h crypto.Hash) cosigntest.Key {
		return cosigntest.KeyOf(t, newCurveKey(t, curve), h)
	}
	other := cosigntest.NewKey(t)
	for name, key := range map[string]cosigntest.Key{
		"ECDSA": cosigntest.NewKey(t), "ECDSA on P-384": curveKey(elliptic.P384(), crypto.SHA384), "ECDSA on P-521": curveKey(elliptic.P521(), crypto.SHA512),
		"ECDSA on P-384 by SHA-256": curveKey(elliptic.P384(), crypto.SHA256), "RSA": cosigntest.KeyOf(t, newRSAKey(t, minRSABits), crypto.SHA256),
		"Ed25519": cosigntest.KeyOf(t, edwards, crypto.Hash(0)), "Ed25519 of a hash": cosigntest.KeyOf(t, edwards, &ed25519.Options{Hash: crypto.SHA512}),
	} {
		block, _ := pem.Decode([]byte(key.Public))
		kind, _, _ := strings.Cut(name, " ")
		want := fmt.Sprintf("%s sha256:%x", kind, sha256.Sum256(block.Bytes))
		k := mustParse(t, other.Public+key.Public)
		for form, layer := range map[string]cosigntest.Layer{
			"simple signing": key.SignPayload(t, cosigntest.NewPayload(digestOfTest)),
			"a bundle":       key.SignEnvelope(t, cosigntest.StatementType, cosigntest.NewStatement(digestOfTest, cosigntest.SignPredicate)),
		} {
			signer, err := k.VerifyArtifact(convertLayer(layer), digestOfTest)
			if got := reasonOf(t, signer, err); got != want {
				t.Errorf("%s by %s: %s (%v), want %s", form, name, got, err, want)
			}
			signer, err = mustParse(t, other.Public).VerifyArtifact(convertLayer(layer), digestOfTest)
			if got := reasonOf(t, signer, err); got != "SignerUntrusted" {
				t.Errorf("%s by %s, which is not trusted: %s", form, name, got)
			}
		}
	}
}

// Nothing but a signature of a trusted key over this very artifact passes.
func TestSignaturesOfArtifactsThatAreRefused(t *testing.T) {
	key := cosigntest.NewKey(t)
	k := mustParse(t, key.Public)
	simple := func(change func(*cosigntest.Layer)) cosigntest.Layer {
		l := key.SignPayload(t, cosigntest.NewPayload(digestOfTest))
		change(&l)
		return l
	}
	bundled := func(payloadType string, payload []byte, change func(map[string]any)) cosigntest.Layer {
		l := key.SignEnvelope(t, payloadType, payload)
		var fields map[string]any
		if err := json.Unmarshal(l.Content, &fields); err != nil {
			t.Fatal(err)
		}
		change(fields)
		l.Content, _ = json.Marshal(fields)
		return l
	}
	statement := cosigntest.NewStatement(digestOfTest, cosigntest.SignPredicate)
	same := func(map[string]any) {}
	envelope := func(fields map[string]any) map[string]any { return fields["dsseEnvelope"].(map[string]any) }
	const missing, invalid, untrusted = "SignatureMissing", "SignatureInvalid", "SignerUntrusted"
	for name, c := range map[string]struct {
		layer cosigntest.Layer
		want  string
	}{
		"another digest":    {key.SignPayload(t, cosigntest.NewPayload(otherDigest)), invalid},
		"no digest":         {key.SignPayload(t, []byte(`{"critical":{"type":"cosign container image signature"}}`)), invalid},
		"another kind":      {key.SignPayload(t, bytes.Replace(cosigntest.NewPayload(digestOfTest), []byte("cosign container"), []byte("hush"), 1)), invalid},
		"no JSON":           {key.SignPayload(t, []byte("hush")), invalid},
		"a changed payload": {simple(func(l *cosigntest.Layer) { l.Content = cosigntest.NewPayload(otherDigest) }), untrusted},
		"no signature":      {simple(func(l *cosigntest.Layer) { l.Annotations = nil }), invalid},
		"no base64":         {simple(func(l *cosigntest.Layer) { l.Annotations["dev.cosignproject.cosign/signature"] = "hush!" }), invalid},
		"a long signature": {simple(func(l *cosigntest.Layer) {
			l.Annotations["dev.cosignproject.cosign/signature"] = strings.Repeat("a", maxSignatureText+1)
		}), invalid},
		"a large payload": {simple(func(l *cosigntest.Layer) { l.Content = make([]byte, maxPayloadBytes+1) }), invalid},
		"an unknown form": {simple(func(l *cosigntest.Layer) { l.MediaType = "application/hush" }), invalid},
		"keyless": {simple(func(l *cosigntest.Layer) {
			l.Annotations["dev.sigstore.cosign/certificate"], l.Content = "hush", []byte("hush")
		}), untrusted},
		"a bundle of another":  {bundled(cosigntest.StatementType, cosigntest.NewStatement(otherDigest, cosigntest.SignPredicate), same), invalid},
		"of another algorithm": {bundled(cosigntest.StatementType, cosigntest.NewStatement("sha512:"+strings.Repeat("a", 64), cosigntest.SignPredicate), same), invalid},
		"a scan":               {bundled(cosigntest.StatementType, cosigntest.NewStatement(digestOfTest, "https://cosign.sigstore.dev/attestation/vuln/v1"), same), missing},
		"no statement":         {bundled("text/plain", statement, same), invalid},
		"another statement":    {bundled(cosigntest.StatementType, bytes.Replace(statement, []byte("in-toto.io"), []byte("hush"), 1), same), invalid},
		"another type":         {bundled(cosigntest.StatementType, statement, func(f map[string]any) { envelope(f)["payloadType"] = "text/plain" }), untrusted},
		"a changed envelope":   {bundled(cosigntest.StatementType, statement, func(f map[string]any) { envelope(f)["payload"] = []byte("hush") }), untrusted},
		"no envelope":          {bundled(cosigntest.StatementType, statement, func(f map[string]any) { delete(f, "dsseEnvelope") }), invalid},
		"two signatures":       {bundled(cosigntest.StatementType, statement, func(f map[string]any) { envelope(f)["signatures"] = []any{map[string]any{}, map[string]any{}} }), invalid},
		"none in the envelope": {bundled(cosigntest.StatementType, statement, func(f map[string]any) { envelope(f)["signatures"] = []any{} }), invalid},
		"no bundle":            {cosigntest.Layer{MediaType: cosigntest.BundleType, Content: []byte("hush")}, invalid},
		"a large bundle":       {cosigntest.Layer{MediaType: cosigntest.BundleType, Content: make([]byte, maxBundleBytes+1)}, invalid},
		"a keyless bundle": {bundled(cosigntest.StatementType, statement, func(f map[string]any) {
			f["verificationMaterial"], envelope(f)["payload"] = map[string]any{"certificate": map[string]any{"rawBytes": "aGVsbG8="}}, []byte("hush")
		}), untrusted},
	} {
		signer, err := k.VerifyArtifact(convertLayer(c.layer), digestOfTest)
		if got := reasonOf(t, signer, err); got != c.want {
			t.Errorf("%s: %s (%v), want %s", name, got, err, c.want)
		}
		if isKeyless := strings.Contains(name, "keyless"); isKeyless != strings.Contains(fmt.Sprint(err), "by a certificate") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The refusal of an artifact is that of the signature that is nearest to a valid one.
func TestThePickedRefusal(t *testing.T) {
	untrusted, malformed, attested, other := refuseSigner(false), refuseArtifact("is damaged"), newRefusal(atoll.ReasonSignatureMissing, "attests"), refuseTrusted("key", "is of another artifact")
	for _, c := range []struct {
		of   []*Refusal
		want string
	}{
		{nil, "SignatureMissing: the artifact has no signature of cosign in its registry"},
		{[]*Refusal{malformed}, "SignatureInvalid: a signature of the artifact is damaged"},
		{[]*Refusal{malformed, untrusted}, "SignerUntrusted: " + untrusted.Message + "; none of 2 signatures is valid"},
		{[]*Refusal{other, untrusted, malformed}, "SignatureInvalid: " + other.Message + "; none of 3 signatures is valid"},
		{[]*Refusal{attested, malformed}, "SignatureInvalid: " + malformed.Message + "; none of 2 signatures is valid"},
	} {
		for range 2 {
			r := PickRefusal(c.of)
			if got := string(r.Reason) + ": " + r.Message; got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
			slices.Reverse(c.of)
		}
	}
}

// Manifests that refer to an artifact are chosen by their types, and their annotations only leave some out.
func TestReferrersWithSignatures(t *testing.T) {
	for kind, want := range map[string]bool{
		cosigntest.BundleType: true, "application/vnd.dev.sigstore.bundle+json;version=0.2": true, "application/vnd.dev.cosign.artifact.sig.v1+json": true, "application/spdx+json": false, "": false,
	} {
		if got := IsReferrerWithSignatures(kind, nil); got != want {
			t.Errorf("%s: %v", kind, got)
		}
		for stated, want := range map[string]bool{cosigntest.SignPredicate: want, "https://slsa.dev/provenance/v1": false} {
			if got := IsReferrerWithSignatures(kind, map[string]string{"dev.sigstore.bundle.predicateType": stated}); got != want {
				t.Errorf("%s of %s: %v", kind, stated, got)
			}
		}
	}
	if MaxLayerBytes(cosigntest.SimpleType) != maxPayloadBytes || MaxLayerBytes(cosigntest.BundleType) != maxBundleBytes || MaxLayerBytes("application/tar+gzip") != 0 {
		t.Error("the bounds of layers are of other forms")
	}
}

func TestKeysInPEM(t *testing.T) {
	good := cosigntest.NewKey(t)
	of := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	classic := newRSAKey(t, minRSABits)
	small := newRSAKey(t, 1024)
	for name, c := range map[string]struct{ text, want string }{
		"one":               {good.Public, ""},
		"two":               {good.Public + "\n" + cosigntest.NewKey(t).Public, ""},
		"PKCS 1":            {of("RSA PUBLIC KEY", x509.MarshalPKCS1PublicKey(&classic.PublicKey)), ""},
		"another curve":     {cosigntest.KeyOf(t, newCurveKey(t, elliptic.P224()), crypto.SHA256).Public, "another curve than P-256"},
		"a small key":       {cosigntest.KeyOf(t, small, crypto.SHA256).Public, "1024 bits"},
		"a private key":     {of("PRIVATE KEY", []byte("hush")), "private key"},
		"one of cosign":     {of("ENCRYPTED SIGSTORE PRIVATE KEY", []byte("hush")), "private key"},
		"a certificate":     {of("CERTIFICATE", []byte("hush")), "block 1 is no public key"},
		"no DER":            {of("PUBLIC KEY", []byte("hush")), "has no public key that can be read"},
		"a damaged block":   {"-----BEGIN PUBLIC KEY-----\nhush!\n-----END PUBLIC KEY-----\n" + good.Public, "block 1 is none of PEM"},
		"a cut block":       {good.Public + good.Public[:40], "block 2 is none of PEM"},
		"text after it":     {good.Public + "hush", "block 2 is none of PEM"},
		"many keys":         {strings.Repeat(good.Public, maxKeys+1), "more than 200"},
		"more than a limit": {strings.Repeat(good.Public, 2000), "bytes"},
	} {
		k, err := ParseKeys(map[string][]byte{"keys": []byte(c.text)})
		var refused *Refusal
		switch {
		case c.want == "" && (err != nil || len(k.pem) == 0):
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (!errors.As(err, &refused) || refused.Reason != atoll.ReasonTrustedKeysMissing || !strings.Contains(refused.Message, c.want) || strings.Contains(refused.Message, "hush")):
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// Keys of another program than the one that signs are none.
func TestKeysOfModes(t *testing.T) {
	keys := map[string]*TrustedKeys{"ssh": mustParse(t, newTestKey(t).line), "pem": mustParse(t, cosigntest.NewKey(t).Public), "openpgp": mustParse(t, armorEntity(t, newEntity(t, now, 0), false))}
	for mode, fit := range map[Mode][]string{
		ModeCommit: {"openpgp", "ssh"}, ModeTag: {"openpgp", "ssh"}, ModeTagAndCommit: {"openpgp", "ssh"}, ModeArtifact: {"pem"}, ModeProvenance: {"openpgp"},
	} {
		for kind, k := range keys {
			err := k.CheckMode(mode)
			if slices.Contains(fit, kind) != (err == nil) || err != nil && reasonOf(t, "", err) != "TrustedKeysMissing" {
				t.Errorf("%s by keys of %s: %v", mode, kind, err)
			}
		}
		if mode.IsOfGit() == mode.CanFollow() {
			t.Errorf("%s is of git: %v", mode, mode.IsOfGit())
		}
	}
}

func FuzzBundle(f *testing.F) {
	key := cosigntest.NewKey(f)
	f.Add(key.SignEnvelope(f, cosigntest.StatementType, cosigntest.NewStatement(otherDigest, cosigntest.SignPredicate)).Content)
	f.Add([]byte(`{"dsseEnvelope":{"payload":"","signatures":[{"sig":""}]}}`))
	k := mustParse(f, key.Public)
	f.Fuzz(func(t *testing.T, text []byte) {
		signer, err := k.VerifyArtifact(ArtifactSignature{MediaType: cosigntest.BundleType, Content: text}, digestOfTest)
		var refused *Refusal
		if signer != "" || !errors.As(err, &refused) {
			t.Errorf("verified by %q: %v", signer, err)
		}
	})
}
