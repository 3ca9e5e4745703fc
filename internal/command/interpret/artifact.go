package interpret

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/credentials"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"atoll.dev/atoll/internal/kinds/script"
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

// fetchArtifact reads the files of all layers. A file of a later layer replaces one before it.
func (r *treeReader) fetchArtifact(ctx context.Context, repository *remote.Repository) error {
	layers, err := fetchLayers(ctx, repository)
	if err != nil {
		return err
	}
	unpacked := &byteBudget{left: maxUnpacked}
	for _, layer := range layers {
		from, err := repository.Blobs().Fetch(ctx, layer)
		if err != nil {
			return fmt.Errorf("layer %s: %w", layer.Digest, err)
		}
		text, err := content.ReadAll(from, layer)
		from.Close()
		if err != nil {
			return fmt.Errorf("layer %s: %w", layer.Digest, err)
		}
		if err := r.unpackLayer(text, layer.Annotations[ocispec.AnnotationTitle], unpacked); err != nil {
			return fmt.Errorf("layer %s: %w", layer.Digest, err)
		}
	}
	return nil
}

// fetchLayers returns the layers of the manifest, after a check of their sizes.
func fetchLayers(ctx context.Context, repository *remote.Repository) ([]ocispec.Descriptor, error) {
	described, from, err := repository.Manifests().FetchReference(ctx, repository.Reference.Reference)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	if described.Size > maxManifest {
		return nil, fmt.Errorf("its manifest has more than %d MiB", maxManifest>>20)
	}
	text, err := content.ReadAll(from, described)
	if err != nil {
		return nil, fmt.Errorf("its manifest: %w", err)
	}
	var manifest struct {
		ocispec.Manifest
		Manifests []ocispec.Descriptor `json:"manifests"`
	}
	if err := json.Unmarshal(text, &manifest); err != nil {
		return nil, fmt.Errorf("its manifest: %w", err)
	}
	total := int64(0)
	for _, layer := range manifest.Layers {
		if layer.Size < 0 || layer.Size > maxArtifact {
			total = maxArtifact
		}
		total += layer.Size
	}
	switch {
	case len(manifest.Manifests) > 0:
		return nil, errors.New("it is an index of several artifacts: give the digest of one of them")
	case len(manifest.Layers) == 0:
		return nil, errors.New("it has no layers")
	case len(manifest.Layers) > maxLayers:
		return nil, fmt.Errorf("it has more than %d layers", maxLayers)
	case total > maxArtifact:
		return nil, fmt.Errorf("its layers have more than %d MiB", maxArtifact>>20)
	}
	return manifest.Layers, nil
}

// byteBudget bounds what several readers return in all.
type byteBudget struct{ left int64 }

// budgetReader returns an error once its budget is spent.
type budgetReader struct {
	from   io.Reader
	budget *byteBudget
}

// Read implements io.Reader.
func (r *budgetReader) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	if r.budget.left -= int64(n); r.budget.left < 0 {
		return 0, fmt.Errorf("the layers of the artifact unpack to more than %d MiB", maxUnpacked>>20)
	}
	return n, err
}

// The magic number of a tar, with its place, and those of compressed files.
const (
	tarMagicAt = 257
	tarMagic   = "ustar"
	gzipMagic  = "\x1f\x8b"
	zstdMagic  = "\x28\xb5\x2f\xfd"
)

// unpackLayer reads a tar, compressed or not, as flux and oras push directories. Any other layer is a
// file with its title as the path, as oras pushes files.
func (r *treeReader) unpackLayer(text []byte, title string, unpacked *byteBudget) error {
	var from io.Reader = bytes.NewReader(text)
	switch {
	case bytes.HasPrefix(text, []byte(zstdMagic)):
		return errors.New("it is compressed with zstd: push it with gzip")
	case bytes.HasPrefix(text, []byte(gzipMagic)):
		unzipped, err := gzip.NewReader(from)
		if err != nil {
			return err
		}
		defer unzipped.Close()
		from = unzipped
	}
	buffered := bufio.NewReader(&budgetReader{from, unpacked})
	head, err := buffered.Peek(tarMagicAt + len(tarMagic))
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if len(head) > tarMagicAt && string(head[tarMagicAt:]) == tarMagic {
		return r.unpackTar(tar.NewReader(buffered))
	}
	if title == "" {
		return nil // a configuration, or a layer of another type
	}
	return r.addEntry(title, int64(len(text)), buffered)
}

// unpackTar reads the regular files of a tar. Links and devices are ignored.
func (r *treeReader) unpackTar(from *tar.Reader) error {
	for {
		header, err := from.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the tar: %w", err)
		}
		if header.Typeflag == tar.TypeReg {
			err = r.addEntry(header.Name, header.Size, from)
		} else {
			err = r.countVisited()
		}
		if err != nil {
			return err
		}
	}
}

// addEntry adds a file of an artifact under a checked path.
func (r *treeReader) addEntry(name string, size int64, from io.Reader) error {
	if err := r.countVisited(); err != nil {
		return err
	}
	clean := path.Clean(name)
	if slices.Contains(strings.Split(name, "/"), "..") || !fs.ValidPath(clean) || strings.ContainsRune(name, '\\') {
		return fmt.Errorf("the path %q leads out of the artifact, or is no path", name)
	}
	if !script.IsInterpreterFile(clean) {
		return nil
	}
	return r.addFile(clean, size, from)
}
