package interpret

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/credentials"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"atoll.dev/atoll/internal/kinds/script"
	"atoll.dev/atoll/internal/ociartifact"
)

// artifactScheme precedes the address of an OCI artifact.
const artifactScheme = "oci://"

// The bounds of an artifact, and the longest time to fetch it.
const (
	maxManifest     = 1 << 20   // bytes
	maxLayers       = 64        // of an artifact
	maxArtifact     = 32 << 20  // bytes of all layers as they are sent
	maxUnpacked     = 128 << 20 // bytes of all layers
	artifactTimeout = 2 * time.Minute
)

var artifactBounds = ociartifact.Bounds{ManifestBytes: maxManifest, LayerBytes: maxArtifact, Layers: maxLayers}

// convertArtifact fetches an OCI artifact and converts the interpreters in it. The address is
// oci://REGISTRY/REPOSITORY with a tag or a digest. Credentials are those of docker login.
func convertArtifact(ctx context.Context, address string) (*script.ConvertedTree, error) {
	ctx, cancel := context.WithTimeout(ctx, artifactTimeout)
	defer cancel()
	repository, err := openRepository(address)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", address, err)
	}
	r := &treeReader{files: map[string][]byte{}}
	if err := r.fetchArtifact(ctx, repository); err != nil {
		return nil, fmt.Errorf("%s: %w%s", address, err, loginHint(err, repository.Reference.Registry))
	}
	return script.ConvertTree(r.sourceTree(address, "")), nil
}

func openRepository(address string) (*remote.Repository, error) {
	repository, err := remote.NewRepository(strings.TrimPrefix(address, artifactScheme))
	if err != nil {
		return nil, fmt.Errorf("the address is oci://REGISTRY/REPOSITORY:TAG: %w", err)
	}
	if repository.Reference.Reference == "" {
		return nil, errors.New("name a tag or a digest: oci://REGISTRY/REPOSITORY:TAG")
	}
	store, err := credentials.NewStoreFromDocker(credentials.StoreOptions{})
	if err != nil {
		return nil, fmt.Errorf("read the credentials of docker login: %w", err)
	}
	repository.PlainHTTP = isLoopback(repository.Reference.Registry)
	repository.MaxMetadataBytes = maxManifest
	repository.Client = &auth.Client{
		Client:     &http.Client{Transport: schemeGuard{plainHTTP: repository.PlainHTTP}},
		Credential: credentials.Credential(store),
		Cache:      auth.NewCache(),
	}
	return repository, nil
}

// isLoopback reports whether a host, with or without a port, is this machine.
func isLoopback(hostPort string) bool {
	host, _, err := net.SplitHostPort(hostPort)
	if err != nil {
		host = strings.Trim(hostPort, "[]")
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// schemeGuard refuses plain HTTP, to which a registry can redirect.
type schemeGuard struct{ plainHTTP bool }

// RoundTrip implements http.RoundTripper.
func (g schemeGuard) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme != "https" && (!g.plainHTTP || !isLoopback(req.URL.Host)) {
		return nil, fmt.Errorf("the registry redirects to %s://%s: plain HTTP is for localhost alone", req.URL.Scheme, req.URL.Host)
	}
	return http.DefaultTransport.RoundTrip(req)
}

func loginHint(err error, registry string) string {
	var refused *errcode.ErrorResponse
	denied := errors.As(err, &refused) && (refused.StatusCode == http.StatusUnauthorized || refused.StatusCode == http.StatusForbidden)
	if denied || errors.Is(err, auth.ErrBasicCredentialNotFound) {
		return "; log in with docker login " + registry
	}
	return ""
}

// fetchArtifact reads the files of all layers. A file of a later layer replaces one before it. Links and devices are ignored.
func (r *treeReader) fetchArtifact(ctx context.Context, repository *remote.Repository) error {
	manifest, err := ociartifact.FetchManifest(ctx, repository, repository.Reference.Reference, artifactBounds)
	if err != nil {
		return err
	}
	unpacker := ociartifact.NewUnpacker(maxUnpacked)
	for _, layer := range manifest.Layers {
		text, err := ociartifact.FetchLayer(ctx, repository, layer)
		if err != nil {
			return fmt.Errorf("layer %s: %w", layer.Digest, err)
		}
		if err := unpacker.UnpackLayer(text, layer.Annotations[ocispec.AnnotationTitle], r.addEntry); err != nil {
			return fmt.Errorf("layer %s: %w", layer.Digest, err)
		}
	}
	return nil
}

// addEntry adds a file of an artifact that can hold interpreters.
func (r *treeReader) addEntry(e ociartifact.Entry, from io.Reader) error {
	if err := r.countVisited(); err != nil {
		return err
	}
	if !e.Mode.IsRegular() || !script.IsInterpreterFile(e.Name) {
		return nil
	}
	return r.addFile(e.Name, e.Size, from)
}
