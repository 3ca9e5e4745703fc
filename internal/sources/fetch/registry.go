package fetch

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"strings"

	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/registry"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/ociartifact"
	"atoll.dev/atoll/internal/sources/signature"
)

const ociScheme = "oci"

var artifactBounds = ociartifact.Bounds{ManifestBytes: 1 << 20, LayerBytes: maxChartBytes, Layers: 64}

// maxTagPages is how many pages of tags one repository of a registry may have.
const maxTagPages = 100

// ociRegistry is a path of an OCI registry.
type ociRegistry struct {
	through  *originTransport
	base     registry.Reference
	client   *auth.Client
	unpacked unpackedBytes
	// verifier verifies what is signed; nil: nothing must be.
	verifier *contentVerifier
	// tags that were listed, by repository.
	tags map[string][]string
}

// knownTokenHosts are the hosts of the tokens of public registries, by the hosts of the registries. Both are of one operator.
var knownTokenHosts = map[string]string{
	"registry-1.docker.io": "auth.docker.io",
	"registry.gitlab.com":  "gitlab.com",
}

// openRegistry prepares the connection. u is the URL with the scheme https. hasMode is what can be signed there.
func openRegistry(u *url.URL, r Request, of place, hasMode func(signature.Mode) bool) (*ociRegistry, error) {
	verifier, err := newVerifier(r, of, hasMode)
	if err != nil {
		return nil, err
	}
	base := registry.Reference{Registry: u.Host, Repository: strings.Trim(u.Path, "/")}
	if base.ValidateRegistry() != nil {
		return nil, newFailure(atoll.ReasonInvalidField, "the URL names no host of a registry")
	}
	u.Host = base.Host()
	most, full := of.maxText, errTextTooLarge
	if !of.inHub {
		most, full = most+maxSentCharts, errTooLarge
	}
	through, err := newOriginTransport(u, r, most, full)
	if err != nil {
		return nil, err
	}
	through.tokens = tokenGrant{host: cmp.Or(r.TokenHost, knownTokenHosts[u.Host]), repository: base.Repository}
	isBlob := func(r *http.Request) bool { return strings.Contains(r.URL.Path, "/blobs/") }
	client := &auth.Client{Client: through.newClient(isBlob), Cache: auth.NewCache()}
	client.BlockedRealmPrefixes = []netip.Prefix{} // none by its name: each address is checked when it is dialled
	client.Credential = func(_ context.Context, host string) (auth.Credential, error) {
		if host != u.Host {
			return auth.EmptyCredential, nil
		}
		return auth.Credential{Username: r.Username, Password: r.Password}, nil
	}
	return &ociRegistry{through: through, base: base, client: client, verifier: verifier, tags: map[string][]string{}}, nil
}

func (g *ociRegistry) closeIdle() { g.through.closeIdle() }

// readCheckpoint returns nothing: the hub reads the tag itself.
func (g *ociRegistry) readCheckpoint() *Checkpoint { return nil }

// readRefs reads nothing: a registry has tags for each repository alone.
func (g *ociRegistry) readRefs(context.Context) error { return nil }

// repositoryOf returns the repository of a name below the path; that of the path itself for an empty one.
func (g *ociRegistry) repositoryOf(name string) (*remote.Repository, error) {
	reference := registry.Reference{Registry: g.base.Registry, Repository: path.Join(g.base.Repository, name)}
	if reference.ValidateRepository() != nil {
		return nil, newFailure(atoll.ReasonInvalidField, "%q is no name of a repository that a registry can have", reference.Repository)
	}
	return &remote.Repository{Client: g.client, Reference: reference, TagListMaxPages: maxTagPages, MaxMetadataBytes: maxTextBytes}, nil
}

// listTags lists the versions of a repository, once. A tag has an underscore in the place of a plus.
func (g *ociRegistry) listTags(ctx context.Context, of *remote.Repository) ([]string, error) {
	if known, ok := g.tags[of.Reference.Repository]; ok {
		return known, nil
	}
	var out []string
	err := of.Tags(ctx, "", func(tags []string) error {
		for _, tag := range tags {
			out = append(out, versionText(tag))
		}
		if len(out) > maxVersions {
			return newFailure(atoll.ReasonContentTooLarge, "the registry has more than %d tags of %s", maxVersions, of.Reference.Repository)
		}
		return nil
	})
	if err == nil {
		g.tags[of.Reference.Repository] = out
	}
	return out, err
}

// versionText returns the text of the version that a tag stands for.
func versionText(tag string) string { return strings.ReplaceAll(tag, "_", "+") }

// tagOf returns the tag of a version.
func tagOf(version string) string { return strings.ReplaceAll(version, "+", "_") }

// classifyError returns the failure of an artifact itself, or the error of its registry. An artifact for which others left no bytes
// is of the next child.
func (g *ociRegistry) classifyError(err error) error {
	switch {
	case errors.Is(err, errTooLarge) && g.unpacked.size > 0:
		return errLater
	case errors.Is(err, ociartifact.ErrTooLarge):
		return newFailure(atoll.ReasonContentTooLarge, "the artifact has more than %d bytes, or %d layers", artifactBounds.LayerBytes, artifactBounds.Layers)
	case errors.Is(err, ociartifact.ErrMalformed):
		return newFailure(atoll.ReasonContentInvalid, "the manifest of the artifact is none with layers")
	case errors.Is(err, content.ErrMismatchedDigest), errors.Is(err, content.ErrTrailingData), errors.Is(err, content.ErrInvalidDescriptorSize):
		return newFailure(atoll.ReasonDigestMismatch, "the registry sends other content than its digest states")
	case isNotFound(err):
		return newFailure(atoll.ReasonVersionMissing, "the registry has the content of the version no more")
	}
	return err
}
