package fetch

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"strings"

	"github.com/Masterminds/semver/v3"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/ociartifact"
)

const ociScheme = "oci"

// The media types of a chart in a registry.
const (
	chartConfigType      = "application/vnd.cncf.helm.config.v1+json"
	chartLayerType       = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
	legacyChartLayerType = "application/tar+gzip"
)

var chartBounds = ociartifact.Bounds{ManifestBytes: 1 << 20, LayerBytes: maxChartBytes, Layers: 16}

// maxTagPages is how many pages of tags one chart may have.
const maxTagPages = 100

// chartRegistry is charts in an OCI registry, each in a repository of its own below one path. Its revisions are the version
// and the digest of a manifest.
type chartRegistry struct {
	through  *chartTransport
	base     registry.Reference
	client   *auth.Client
	unpacked unpackedCharts
	// tags of charts that were listed.
	tags map[string][]string
}

// openChartRegistry prepares the connection. u is the URL with the scheme https.
func openChartRegistry(u *url.URL, r Request, of place) (repository, error) {
	base := registry.Reference{Registry: u.Host, Repository: strings.Trim(u.Path, "/")}
	if base.ValidateRegistry() != nil {
		return nil, newFailure(atoll.ReasonInvalidField, "the URL names no host of a registry")
	}
	u.Host = base.Host()
	most, full := of.maxText, errTextTooLarge
	if !of.inHub {
		most, full = most+maxSentCharts, errTooLarge
	}
	through, err := newChartTransport(u, r, most, full)
	if err != nil {
		return nil, err
	}
	isBlob := func(r *http.Request) bool { return strings.Contains(r.URL.Path, "/blobs/") }
	client := &auth.Client{Client: through.newClient(isBlob), Cache: auth.NewCache()}
	client.BlockedRealmPrefixes = []netip.Prefix{} // none by its name: each address is checked when it is dialled
	client.Credential = func(_ context.Context, host string) (auth.Credential, error) {
		if host != u.Host {
			return auth.EmptyCredential, nil
		}
		return auth.Credential{Username: r.Username, Password: r.Password}, nil
	}
	return &chartRegistry{through: through, base: base, client: client, tags: map[string][]string{}}, nil
}

func (g *chartRegistry) closeIdle() { g.through.closeIdle() }

// readCheckpoint returns nothing: the hub reads the tag itself.
func (g *chartRegistry) readCheckpoint() *Checkpoint { return nil }

// readRefs reads nothing: a registry has tags for each chart alone.
func (g *chartRegistry) readRefs(context.Context) error { return nil }

// repositoryOf returns the repository of a chart.
func (g *chartRegistry) repositoryOf(chart string) (*remote.Repository, error) {
	reference := registry.Reference{Registry: g.base.Registry, Repository: path.Join(g.base.Repository, chart)}
	if reference.ValidateRepository() != nil {
		return nil, newFailure(atoll.ReasonInvalidField, "the URL with the chart %s is no name of a repository that a registry can have", chart)
	}
	return &remote.Repository{Client: g.client, Reference: reference, TagListMaxPages: maxTagPages, MaxMetadataBytes: maxTextBytes}, nil
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
	available, ok := g.tags[chart]
	if !ok {
		err := of.Tags(ctx, "", func(tags []string) error {
			for _, tag := range tags {
				available = append(available, strings.ReplaceAll(tag, "_", "+"))
			}
			if len(available) > maxVersions {
				return newFailure(atoll.ReasonContentTooLarge, "the registry has more than %d versions of the chart %s", maxVersions, chart)
			}
			return nil
		})
		if isNotFound(err) {
			return "", newFailure(atoll.ReasonChartMissing, "the registry has no chart %s, or hides it without credentials", chart)
		}
		if err != nil {
			return "", err
		}
		g.tags[chart] = available
	}
	return chooseVersion(chart, versions, available)
}

// tagOf returns the tag of a version: a tag has no plus.
func tagOf(version string) string { return strings.ReplaceAll(version, "+", "_") }

// openRevision reads the archive of a manifest.
func (g *chartRegistry) openRevision(ctx context.Context, revision string) (snapshot, error) {
	chart, version, digest := cutRevision(revision)
	of, err := g.repositoryOf(chart)
	if err != nil {
		return snapshot{}, err
	}
	archive, err := fetchChart(ctx, of, digest)
	if errors.Is(err, errTooLarge) && g.unpacked.size > 0 {
		return snapshot{}, errLater
	}
	if err != nil {
		return snapshot{}, classifyArtifact(err)
	}
	return g.unpacked.open(archive, chart, version)
}

// fetchChart returns the archive of a chart. Its digest is that of the manifest, whose digest is the one of the revision.
func fetchChart(ctx context.Context, of *remote.Repository, digest string) ([]byte, error) {
	manifest, err := ociartifact.FetchManifest(ctx, of, digest, chartBounds)
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

// classifyArtifact returns the failure of an artifact itself, or the error of its registry.
func classifyArtifact(err error) error {
	switch {
	case errors.Is(err, ociartifact.ErrTooLarge):
		return newFailure(atoll.ReasonContentTooLarge, "the artifact has more than %d bytes, or %d layers", chartBounds.LayerBytes, chartBounds.Layers)
	case errors.Is(err, ociartifact.ErrMalformed):
		return newFailure(atoll.ReasonContentInvalid, "the manifest of the artifact is none with layers")
	case errors.Is(err, content.ErrMismatchedDigest), errors.Is(err, content.ErrTrailingData), errors.Is(err, content.ErrInvalidDescriptorSize):
		return newFailure(atoll.ReasonDigestMismatch, "the registry sends other content than its digest states")
	case isNotFound(err):
		return newFailure(atoll.ReasonVersionMissing, "the registry has the content of the version no more")
	}
	return err
}
