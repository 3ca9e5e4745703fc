package fetch

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/ociartifact"
	"atoll.dev/atoll/internal/sources/signature"
)

// Bounds of the signatures that a registry has of one artifact.
const (
	// maxReferrersBytes is the most of one page of manifests that refer to the artifact, and maxReferrerPages their number.
	maxReferrersBytes = 1 << 20
	maxReferrerPages  = 4
)

// signatureBounds are those of a manifest with signatures.
var signatureBounds = ociartifact.Bounds{ManifestBytes: 1 << 20, LayerBytes: 4 << 20, Layers: 256}

// contentVerifier is by which keys content must be signed, and how; nil: nothing must be.
type contentVerifier struct {
	keys *signature.TrustedKeys
	mode signature.Mode
}

// newVerifier reads the trusted keys of a request, which must state one of the modes of its place; nil without any to verify. The hub
// itself reads none: content comes from a child.
func newVerifier(r Request, of place, hasMode func(signature.Mode) bool) (*contentVerifier, error) {
	if r.Verify == nil {
		return nil, nil
	}
	if !hasMode(r.Verify.Mode) {
		return nil, newFailure(atoll.ReasonInvalidField, "spec.verify.mode is none of a Repository at such a URL")
	}
	if of.inHub {
		return nil, nil
	}
	keys, err := signature.ParseKeys(r.Verify.Keys)
	if err == nil {
		err = keys.CheckMode(r.Verify.Mode)
	}
	if err != nil {
		return nil, refusalOf(err)
	}
	return &contentVerifier{keys, r.Verify.Mode}, nil
}

// requiresMode reports whether content must be signed in a way.
func (v *contentVerifier) requiresMode(mode signature.Mode) bool { return v != nil && v.mode == mode }

// verifyManifest returns the signer of a manifest by its digest, before anything of it is read; empty where cosign need not have
// signed it. The digest is what is read afterwards, so no tag is resolved again.
func (g *ociRegistry) verifyManifest(ctx context.Context, of *remote.Repository, manifest string) (string, error) {
	if !g.verifier.requiresMode(signature.ModeArtifact) {
		return "", nil
	}
	s := signatureSearch{registry: g, digest: manifest, of: &remote.Repository{
		Client: g.client, Reference: of.Reference, MaxMetadataBytes: maxReferrersBytes, ReferrerListMaxPages: maxReferrerPages,
	}}
	signer, err := s.findSigner(ctx)
	return string(signer), err
}

// signatureSearch reads the signatures of one artifact until one is valid.
type signatureSearch struct {
	registry *ociRegistry
	of       *remote.Repository
	digest   string
	read     int
	refusals []*signature.Refusal
}

// findSigner reads both places at which cosign writes signatures: the tag of the digest, and the manifests that refer to the artifact.
func (s *signatureSearch) findSigner(ctx context.Context) (signature.Signer, error) {
	signer, err := s.readManifest(ctx, strings.Replace(s.digest, ":", "-", 1)+".sig")
	if signer != "" || err != nil {
		return signer, err
	}
	referrers, err := s.listReferrers(ctx)
	if err != nil {
		return "", err
	}
	for _, d := range referrers {
		if signer, err := s.readManifest(ctx, d.Digest.String()); signer != "" || err != nil {
			return signer, err
		}
	}
	return "", refusalOf(signature.PickRefusal(s.refusals))
}

// listReferrers lists the manifests that refer to the artifact and may have signatures. A list beyond its bounds has those at its
// beginning.
func (s *signatureSearch) listReferrers(ctx context.Context) (out []ocispec.Descriptor, err error) {
	subject := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: digest.Digest(s.digest)}
	take := func(page []ocispec.Descriptor) error {
		for _, d := range page {
			if signature.IsReferrerWithSignatures(d.ArtifactType, d.Annotations) && len(out) < signature.MaxSignatures {
				out = append(out, d)
			}
		}
		return nil
	}
	err = s.of.Referrers(ctx, subject, "", take)
	if hasNoReferrersAPI(err) {
		if err = s.of.SetReferrersCapability(false); err == nil {
			err = s.of.Referrers(ctx, subject, "", take)
		}
	}
	switch {
	case isNotFound(err):
		return out, nil
	case errors.Is(err, errdef.ErrTooManyPages), errors.Is(err, errdef.ErrSizeExceedsLimit):
		s.noteInvalid("is not found: the registry lists more manifests that refer to it than are read")
		return out, nil
	}
	return out, err
}

// hasNoReferrersAPI reports whether a registry answers as one without the API of referrers other than by 404: by a status, or by a redirect
// to a page of another host, as ghcr.io does. Such a registry has the list under a tag.
func hasNoReferrersAPI(err error) bool {
	return errors.Is(err, errMoved) || slices.Contains([]int{http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusNotAcceptable, http.StatusNotImplemented}, registryStatus(err))
}

// noteInvalid notes a signature that cannot be read.
func (s *signatureSearch) noteInvalid(why string) {
	s.refusals = append(s.refusals, &signature.Refusal{Reason: atoll.ReasonSignatureInvalid, Message: "a signature of the artifact " + why})
}

// readManifest returns the signer by one of the signatures of a manifest; empty where none is valid. The error is of the registry:
// what is wrong with one signature leaves the others theirs.
func (s *signatureSearch) readManifest(ctx context.Context, reference string) (signature.Signer, error) {
	manifest, err := ociartifact.FetchManifest(ctx, s.of, reference, signatureBounds)
	if isNotFound(err) || errors.Is(err, errMoved) { // as ghcr.io answers for what it does not have
		return "", nil
	}
	if err != nil {
		return "", s.noteBroken(err)
	}
	for _, layer := range manifest.Layers {
		most := signature.MaxLayerBytes(layer.MediaType)
		if most == 0 {
			continue
		}
		if s.read++; s.read > signature.MaxSignatures {
			s.noteInvalid("is not read: the registry has too many of them")
			return "", nil
		}
		if layer.Size > most {
			s.noteInvalid("is larger than one may be")
			continue
		}
		text, err := ociartifact.FetchLayer(ctx, s.of, layer)
		if err != nil {
			if err := s.noteBroken(err); err != nil {
				return "", err
			}
			continue
		}
		signer, err := s.registry.verifier.keys.VerifyArtifact(signature.ArtifactSignature{MediaType: layer.MediaType, Annotations: layer.Annotations, Content: text}, s.digest)
		var refused *signature.Refusal
		if !errors.As(err, &refused) {
			return signer, err
		}
		s.refusals = append(s.refusals, refused)
	}
	return "", nil
}

// noteBroken notes a signature that its registry does not have as it states. It returns any other error.
func (s *signatureSearch) noteBroken(err error) error {
	err = s.registry.classifyError(err)
	var broken *Failure
	if errors.As(err, &broken) {
		s.noteInvalid("is not one, or its registry does not have it as it states")
		return nil
	}
	return err
}
