package fetch

import (
	"context"
	"net/url"
	"strings"
	"time"

	"github.com/Masterminds/semver/v3"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/ociartifact"
	"atoll.dev/atoll/internal/sources/signature"
)

// artifactRegistry is artifacts of files in one repository of an OCI registry. Its revisions are the tag and the digest of a
// manifest, or a digest alone.
type artifactRegistry struct {
	*ociRegistry
}

// openArtifacts prepares the connection.
func openArtifacts(r Request, of place) (repository, error) {
	u, err := url.Parse(r.URL)
	if err != nil || u.Scheme != ociScheme {
		return nil, newFailure(atoll.ReasonInvalidField, "the URL is not oci://HOST/PATH without credentials")
	}
	if u.Scheme = "https"; !isServerURL(u) {
		return nil, newFailure(atoll.ReasonInvalidField, "the URL is not oci://HOST/PATH without credentials")
	}
	g, err := openRegistry(u, r, of, func(m signature.Mode) bool { return m == signature.ModeArtifact })
	if err != nil {
		return nil, err
	}
	return &artifactRegistry{g}, nil
}

// resolveRef returns the tag of a ref with its digest. A ref is digest@DIGEST, tag@NAME or version@RANGE.
func (g *artifactRegistry) resolveRef(ctx context.Context, ref string) (string, error) {
	of, err := g.repositoryOf("")
	if err != nil {
		return "", err
	}
	kind, tag, _ := strings.Cut(ref, "@")
	switch kind {
	case "digest":
		return tag, nil
	case "version":
		available, err := g.listTags(ctx, of)
		if isNotFound(err) {
			return "", newFailure(atoll.ReasonRepositoryMissing, "the registry has no such repository, or hides it without credentials")
		}
		if err != nil {
			return "", err
		}
		version, err := chooseVersion("the artifact", tag, available)
		if err != nil {
			return "", err
		}
		tag = tagOf(version)
	}
	found, err := of.Manifests().Resolve(ctx, tag)
	if isNotFound(err) {
		return "", newFailure(atoll.ReasonRefMissing, "the registry has no tag %s, or hides it without credentials", tag)
	}
	if err != nil {
		return "", err
	}
	return tag + "@" + found.Digest.String(), nil
}

// cutArtifact returns the tag and the digest of a revision.
func cutArtifact(revision string) (tag, digest string) {
	if tag, digest, ok := strings.Cut(revision, "@"); ok {
		return tag, digest
	}
	return "", revision
}

// openRevision reads the files of all layers of a manifest, after its signature.
func (g *artifactRegistry) openRevision(ctx context.Context, revision string) (snapshot, error) {
	_, digest := cutArtifact(revision)
	of, err := g.repositoryOf("")
	if err != nil {
		return snapshot{}, err
	}
	signer, err := g.verifyManifest(ctx, of, digest)
	if err != nil {
		return snapshot{}, err
	}
	manifest, err := ociartifact.FetchManifest(ctx, of, digest, artifactBounds)
	if err != nil {
		return snapshot{}, g.classifyError(err)
	}
	layers := make([][]byte, 0, len(manifest.Layers))
	for _, l := range manifest.Layers {
		text, err := ociartifact.FetchLayer(ctx, of, l)
		if err != nil {
			return snapshot{}, g.classifyError(err)
		}
		layers = append(layers, text)
	}
	t, err := g.unpacked.readTree(func(most int64) (*archiveTree, int64, error) {
		t, unpacker := newArchiveTree(), ociartifact.NewUnpacker(most)
		for i, text := range layers {
			if err := t.addLayer(text, manifest.Layers[i].Annotations[ocispec.AnnotationTitle], unpacker); err != nil {
				return nil, 0, classifyArchive(err, most)
			}
		}
		return t, unpacker.CountBytes(), nil
	})
	if err != nil {
		return snapshot{}, err
	}
	return snapshot{tree: t, signer: signer}, nil
}

// readArtifactHistory reports whether an artifact is later than another one: by the versions that both tags are, or by the time
// at which both state that they were made. One that is gone, or states none, is earlier than no other.
func readArtifactHistory(ctx context.Context, of repository, d Descent) (bool, error) {
	g := of.(*artifactRegistry)
	before, oldDigest := cutArtifact(d.Old)
	after, newDigest := cutArtifact(d.New)
	old, is := versionOfTag(before), versionOfTag(after)
	// A tag such as 1.2 moves, so it is no version of its own content.
	if _, err := semver.StrictNewVersion(versionText(after)); old != nil && is != nil && (before != after || err == nil) {
		return is.GreaterThan(old), nil
	}
	from, known, err := g.readCreated(ctx, oldDigest)
	if err != nil || !known {
		return false, err
	}
	to, known, err := g.readCreated(ctx, newDigest)
	return err == nil && known && to.After(from), err
}

// versionOfTag returns the version that a tag is, by the rules of a range; nil for another tag.
func versionOfTag(tag string) *semver.Version {
	if v, err := semver.NewVersion(versionText(tag)); err == nil {
		return v
	}
	return nil
}

// readCreated returns when a manifest states that it was made; false when it is gone or states no time.
func (g *artifactRegistry) readCreated(ctx context.Context, digest string) (time.Time, bool, error) {
	of, err := g.repositoryOf("")
	if err != nil {
		return time.Time{}, false, err
	}
	manifest, err := ociartifact.FetchManifest(ctx, of, digest, artifactBounds)
	if isNotFound(err) {
		return time.Time{}, false, nil
	}
	if err != nil {
		return time.Time{}, false, g.classifyError(err)
	}
	at, err := time.Parse(time.RFC3339, manifest.Annotations[ocispec.AnnotationCreated])
	return at, err == nil, nil
}
