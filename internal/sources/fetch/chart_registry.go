package fetch

import (
	"context"
	"errors"
	"net/url"

	"github.com/Masterminds/semver/v3"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/ociartifact"
)

// The media types of a chart in a registry.
const (
	chartConfigType      = "application/vnd.cncf.helm.config.v1+json"
	chartLayerType       = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
	legacyChartLayerType = "application/tar+gzip"
)

// chartRegistry is charts in an OCI registry, each in a repository of its own below one path. Its revisions are the version
// and the digest of a manifest.
type chartRegistry struct {
	*ociRegistry
}

// openChartRegistry prepares the connection. u is the URL with the scheme https.
func openChartRegistry(u *url.URL, r Request, of place) (repository, error) {
	g, err := openRegistry(u, r, of)
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

// openRevision reads the archive of a manifest.
func (g *chartRegistry) openRevision(ctx context.Context, revision string) (snapshot, error) {
	chart, version, digest := cutRevision(revision)
	of, err := g.repositoryOf(chart)
	if err != nil {
		return snapshot{}, err
	}
	archive, err := fetchChart(ctx, of, digest)
	if err != nil {
		return snapshot{}, g.classifyError(err)
	}
	return g.unpacked.readChart(archive, chart, version)
}

// fetchChart returns the archive of a chart. Its digest is that of the manifest, whose digest is the one of the revision.
func fetchChart(ctx context.Context, of *remote.Repository, digest string) ([]byte, error) {
	manifest, err := ociartifact.FetchManifest(ctx, of, digest, artifactBounds)
	if err != nil {
		return nil, err
	}
	if manifest.Config.MediaType != chartConfigType {
		return nil, newFailure(atoll.ReasonContentInvalid, "the artifact is none of a Helm chart")
	}
	var layers []ocispec.Descriptor
	for _, l := range manifest.Layers {
		if l.MediaType == chartLayerType || l.MediaType == legacyChartLayerType {
			layers = append(layers, l)
		}
	}
	if len(layers) != 1 {
		return nil, newFailure(atoll.ReasonContentInvalid, "the artifact has %d archives, and a Helm chart has one", len(layers))
	}
	return ociartifact.FetchLayer(ctx, of, layers[0])
}
