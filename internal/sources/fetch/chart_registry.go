package fetch

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"slices"
	"time"

	"github.com/Masterminds/semver/v3"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/ociartifact"
	"atoll.dev/atoll/internal/sources/signature"
)

// The media types of a chart in a registry.
const (
	chartConfigType      = "application/vnd.cncf.helm.config.v1+json"
	chartLayerType       = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
	legacyChartLayerType = "application/tar+gzip"
	provenanceLayerType  = "application/vnd.cncf.helm.chart.provenance.v1.prov"
)

// chartRegistry is charts in an OCI registry, each in a repository of its own below one path. Its revisions are the version
// and the digest of a manifest.
type chartRegistry struct {
	*ociRegistry
}

// openChartRegistry prepares the connection. u is the URL with the scheme https.
func openChartRegistry(u *url.URL, r Request, of place) (repository, error) {
	g, err := openRegistry(u, r, of, func(m signature.Mode) bool { return m == signature.ModeArtifact || m == signature.ModeProvenance })
	if err != nil {
		return nil, err
	}
	return &chartRegistry{g}, nil
}

// resolveRef returns the version of a chart that a ref takes, with the digest of its manifest.
func (g *chartRegistry) resolveRef(ctx context.Context, ref string) (string, error) {
	chart, versions := cutRef(ref)
	of, err := g.repositoryOf(chart)
	if err != nil {
		return "", err
	}
	version := versions
	if _, err := semver.StrictNewVersion(versions); err != nil {
		if version, err = g.chooseTag(ctx, of, chart, versions); err != nil {
			return "", err
		}
	}
	found, err := of.Manifests().Resolve(ctx, tagOf(version))
	if errors.Is(err, errdef.ErrNotFound) {
		return "", newFailure(atoll.ReasonVersionMissing, "the registry has no version %s of the chart %s, or hides it without credentials", version, chart)
	}
	if err != nil {
		return "", err
	}
	return revisionOf(chart, version, found.Digest.String()), nil
}

// chooseTag returns the version of a chart that is allowed.
func (g *chartRegistry) chooseTag(ctx context.Context, of *remote.Repository, chart, versions string) (string, error) {
	available, err := g.listTags(ctx, of)
	if isNotFound(err) {
		return "", newFailure(atoll.ReasonChartMissing, "the registry has no chart %s, or hides it without credentials", chart)
	}
	if err != nil {
		return "", err
	}
	return chooseVersion("the chart "+chart, versions, available)
}

// openRevision reads the archive of a manifest, after its signature.
func (g *chartRegistry) openRevision(ctx context.Context, revision string) (snapshot, error) {
	chart, version, digest := cutRevision(revision)
	of, err := g.repositoryOf(chart)
	if err != nil {
		return snapshot{}, err
	}
	signer, err := g.verifyManifest(ctx, of, digest)
	if err != nil {
		return snapshot{}, err
	}
	archive, by, err := g.fetchChart(ctx, of, digest)
	if err != nil {
		return snapshot{}, g.classifyError(err)
	}
	opened, err := g.unpacked.readChart(archive, chart, version)
	opened.signer = cmp.Or(signer, by)
	return opened, err
}

// fetchChart returns the archive of a chart, and the signer of its provenance where it must have one. The digest is that of the
// manifest, which has the digests of both.
func (g *chartRegistry) fetchChart(ctx context.Context, of *remote.Repository, digest string) (archive []byte, signer string, err error) {
	manifest, err := ociartifact.FetchManifest(ctx, of, digest, artifactBounds)
	if err != nil {
		return nil, "", err
	}
	if manifest.Config.MediaType != chartConfigType {
		return nil, "", newFailure(atoll.ReasonContentInvalid, "the artifact is none of a Helm chart")
	}
	layers := selectLayers(manifest, chartLayerType, legacyChartLayerType)
	if len(layers) != 1 {
		return nil, "", newFailure(atoll.ReasonContentInvalid, "the artifact has %d archives, and a Helm chart has one", len(layers))
	}
	if g.verifier.requiresMode(signature.ModeProvenance) {
		if signer, err = g.verifyLayer(ctx, of, manifest, layers[0]); err != nil {
			return nil, "", err
		}
	}
	archive, err = ociartifact.FetchLayer(ctx, of, layers[0])
	return archive, signer, err
}

// selectLayers returns the layers of a manifest of some media types.
func selectLayers(manifest *ocispec.Manifest, types ...string) (out []ocispec.Descriptor) {
	for _, l := range manifest.Layers {
		if slices.Contains(types, l.MediaType) {
			out = append(out, l)
		}
	}
	return out
}

// verifyLayer returns the signer of the provenance in a manifest, which must be that of an archive.
func (g *chartRegistry) verifyLayer(ctx context.Context, of *remote.Repository, manifest *ocispec.Manifest, archive ocispec.Descriptor) (string, error) {
	layers := selectLayers(manifest, provenanceLayerType)
	switch {
	case len(layers) == 0:
		return "", newFailure(atoll.ReasonSignatureMissing, "the artifact of the chart has no provenance; see verify of the Repository")
	case len(layers) > 1 || layers[0].Size > signature.MaxProvenanceBytes:
		return "", newFailure(atoll.ReasonSignatureInvalid, "the artifact of the chart has several provenances, or one of more than %d bytes", signature.MaxProvenanceBytes)
	}
	text, err := ociartifact.FetchLayer(ctx, of, layers[0])
	if err != nil {
		return "", err
	}
	signer, err := g.verifier.keys.VerifyProvenance(text, archive.Digest.String(), time.Now())
	return string(signer), refusalOf(err)
}
