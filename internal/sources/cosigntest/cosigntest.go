// Package cosigntest signs artifacts in registries as cosign does, for tests.
//
// Contract: signatures have the forms of cosign's public specifications, and are made by keys of the test. Functions fail the test
// that calls them, and are called by its goroutine.
package cosigntest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	_ "crypto/sha256" // what keys sign
	_ "crypto/sha512" // what keys sign
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
)

// Key is a key by which a test signs.
type Key struct {
	private crypto.Signer
	options crypto.SignerOpts
	// Public is the public key in PEM, as cosign.pub.
	Public string
}

// NewKey returns a key of ECDSA on P-256, as cosign generate-key-pair makes it.
func NewKey(t testing.TB) Key {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return KeyOf(t, private, crypto.SHA256)
}

// KeyOf returns the key that a private one makes. The options have the hash of a message that it signs; 0: it signs the message.
func KeyOf(t testing.TB, private crypto.Signer, options crypto.SignerOpts) Key {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(private.Public())
	if err != nil {
		t.Fatal(err)
	}
	return Key{private, options, string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))}
}

// Sign returns the signature of a message.
func (k Key) Sign(t testing.TB, message []byte) []byte {
	t.Helper()
	if h := k.options.HashFunc(); h != 0 {
		w := h.New()
		w.Write(message) // a hash returns no error
		message = w.Sum(nil)
	}
	out, err := k.private.Sign(rand.Reader, message, k.options)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Layer is a layer with a signature.
type Layer struct {
	MediaType   string
	Annotations map[string]string
	Content     []byte
}

// The media types of signatures.
const (
	SimpleType = "application/vnd.dev.cosign.simplesigning.v1+json"
	BundleType = "application/vnd.dev.sigstore.bundle.v0.3+json"
)

// NewPayload returns a payload of simple signing for a digest.
func NewPayload(digest string) []byte {
	return fmt.Appendf(nil, `{"critical":{"identity":{"docker-reference":"registry.example.com/shop"},"image":{"docker-manifest-digest":%q},"type":"cosign container image signature"},"optional":null}`, digest)
}

// SignPayload returns the layer of a signed payload of simple signing.
func (k Key) SignPayload(t testing.TB, payload []byte) Layer {
	t.Helper()
	return Layer{SimpleType, map[string]string{"dev.cosignproject.cosign/signature": base64.StdEncoding.EncodeToString(k.Sign(t, payload))}, payload}
}

// SignPredicate is the type of a statement that signs.
const SignPredicate = "https://sigstore.dev/cosign/sign/v1"

// NewStatement returns a statement of in-toto about a digest such as sha256:HEX.
func NewStatement(digest, predicate string) []byte {
	algorithm, text, _ := strings.Cut(digest, ":")
	return fmt.Appendf(nil, `{"_type":"https://in-toto.io/Statement/v1","subject":[{"digest":{%q:%q}}],"predicateType":%q,"predicate":{}}`, algorithm, text, predicate)
}

// StatementType is the type of the payload of an envelope with a statement.
const StatementType = "application/vnd.in-toto+json"

// SignEnvelope returns the layer of a bundle with a signed envelope of DSSE.
func (k Key) SignEnvelope(t testing.TB, payloadType string, payload []byte) Layer {
	t.Helper()
	message := fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(payloadType), payloadType, len(payload), payload)
	raw, err := json.Marshal(map[string]any{
		"mediaType":            BundleType,
		"verificationMaterial": map[string]any{"publicKey": map[string]any{"hint": "a"}, "tlogEntries": []any{}},
		"dsseEnvelope":         map[string]any{"payload": payload, "payloadType": payloadType, "signatures": []any{map[string]any{"sig": k.Sign(t, message)}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return Layer{BundleType, nil, raw}
}

// Repository is one repository of a registry over TLS.
type Repository struct{ *remote.Repository }

// OpenRepository returns a repository of a registry that needs a user and a password.
func OpenRepository(t testing.TB, server *httptest.Server, path, user, password string) Repository {
	t.Helper()
	r, err := remote.NewRepository(strings.TrimPrefix(server.URL, "https://") + "/" + path)
	if err != nil {
		t.Fatal(err)
	}
	r.SkipReferrersGC = true // the registry deletes nothing
	r.Client = &auth.Client{Client: server.Client(), Credential: auth.StaticCredential(r.Reference.Registry, auth.Credential{Username: user, Password: password})}
	return Repository{r}
}

// ResolveTag returns the digest of a tag.
func (r Repository) ResolveTag(t testing.TB, tag string) string {
	t.Helper()
	found, err := r.Resolve(t.Context(), tag)
	if err != nil {
		t.Fatal(err)
	}
	return found.Digest.String()
}

// PushSignatures replaces the tag of the signatures of a digest.
func (r Repository) PushSignatures(t testing.TB, digest string, layers ...Layer) {
	t.Helper()
	pushed := r.pushLayers(t, layers)
	manifest, err := oras.PackManifest(t.Context(), r, oras.PackManifestVersion1_1, "application/vnd.oci.image.config.v1+json", oras.PackManifestOptions{Layers: pushed})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Tag(t.Context(), manifest, strings.Replace(digest, ":", "-", 1)+".sig"); err != nil {
		t.Fatal(err)
	}
}

// PushReferrer pushes a manifest of a type that refers to a digest and has layers. predicate is what its annotation states.
func (r Repository) PushReferrer(t testing.TB, digest, artifactType, predicate string, layers ...Layer) {
	t.Helper()
	subject, err := r.Resolve(t.Context(), digest)
	if err != nil {
		t.Fatal(err)
	}
	annotations := map[string]string{}
	if predicate != "" {
		annotations["dev.sigstore.bundle.predicateType"] = predicate
	}
	if _, err := oras.PackManifest(t.Context(), r, oras.PackManifestVersion1_1, artifactType, oras.PackManifestOptions{Subject: &subject, Layers: r.pushLayers(t, layers), ManifestAnnotations: annotations}); err != nil {
		t.Fatal(err)
	}
}

// pushLayers pushes layers, and returns their descriptors.
func (r Repository) pushLayers(t testing.TB, layers []Layer) (out []ocispec.Descriptor) {
	t.Helper()
	for _, l := range layers {
		if _, err := oras.PushBytes(t.Context(), r, l.MediaType, l.Content); err != nil {
			t.Fatal(err)
		}
		d := content.NewDescriptorFromBytes(l.MediaType, l.Content)
		d.Annotations = l.Annotations
		out = append(out, d)
	}
	return out
}
