// Package ociartifact reads OCI artifacts, and the archives of files in them and elsewhere.
//
// Contract: input is hostile: sizes are checked before anything is read, what unpacks is counted, and no path leads
// out of an archive. An error is ErrTooLarge, ErrMalformed, or one of the registry. Functions are safe for concurrent use,
// and an Unpacker is of one goroutine.
package ociartifact

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
	"path"
	"slices"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/registry/remote"
)

// The classes of errors of an artifact itself, which errors.Is finds.
var (
	ErrTooLarge  = errors.New("the artifact is too large")
	ErrMalformed = errors.New("the artifact is malformed")
)

// artifactError is an error of a class.
type artifactError struct {
	class error
	text  string
}

// Error returns the text.
func (e *artifactError) Error() string { return e.text }

// Unwrap returns the class.
func (e *artifactError) Unwrap() error { return e.class }

func newError(class error, format string, args ...any) error {
	return &artifactError{class, fmt.Sprintf(format, args...)}
}

// Bounds of an artifact.
type Bounds struct {
	// ManifestBytes is the largest manifest, and LayerBytes the most of all layers as they are sent.
	ManifestBytes, LayerBytes int64
	Layers                    int
}

// FetchManifest returns the manifest of a tag or a digest, after a check of the sizes of its layers.
func FetchManifest(ctx context.Context, from *remote.Repository, reference string, b Bounds) (*ocispec.Manifest, error) {
	described, body, err := from.Manifests().FetchReference(ctx, reference)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	if described.Size > b.ManifestBytes {
		return nil, newError(ErrTooLarge, "its manifest has more than %d MiB", b.ManifestBytes>>20)
	}
	text, err := content.ReadAll(body, described)
	if err != nil {
		return nil, fmt.Errorf("its manifest: %w", err)
	}
	return ParseManifest(text, b)
}

// ParseManifest returns a manifest, after a check of the sizes of its layers.
func ParseManifest(text []byte, b Bounds) (*ocispec.Manifest, error) {
	var manifest struct {
		ocispec.Manifest
		Manifests []ocispec.Descriptor `json:"manifests"`
	}
	if err := json.Unmarshal(text, &manifest); err != nil {
		return nil, newError(ErrMalformed, "its manifest: %v", err)
	}
	left := b.LayerBytes
	for _, layer := range manifest.Layers {
		if layer.Size < 0 || layer.Size > left {
			left = -1 // and no further layer has room
			break
		}
		left -= layer.Size
	}
	switch {
	case len(manifest.Manifests) > 0:
		return nil, newError(ErrMalformed, "it is an index of several artifacts: give the digest of one of them")
	case len(manifest.Layers) == 0:
		return nil, newError(ErrMalformed, "it has no layers")
	case len(manifest.Layers) > b.Layers:
		return nil, newError(ErrTooLarge, "it has more than %d layers", b.Layers)
	case left < 0:
		return nil, newError(ErrTooLarge, "its layers have more than %d MiB", b.LayerBytes>>20)
	}
	return &manifest.Manifest, nil
}

// FetchLayer returns a layer, after a check of its digest.
func FetchLayer(ctx context.Context, from *remote.Repository, layer ocispec.Descriptor) ([]byte, error) {
	body, err := from.Blobs().Fetch(ctx, layer)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return content.ReadAll(body, layer)
}

// Entry is an entry of an archive. Its name is clean, relative, and leads nowhere else.
type Entry struct {
	Name string
	Mode fs.FileMode
	Size int64
	// Target of a link.
	Target string
}

// Unpacker reads archives, and bounds what they unpack to.
type Unpacker struct {
	most, left int64
	// files are the bytes of all files, which holes make more than those of the archive.
	files int64
}

// NewUnpacker returns an Unpacker, with the most bytes that all archives may unpack to.
func NewUnpacker(most int64) *Unpacker { return &Unpacker{most: most, left: most} }

// CountBytes returns what the archives unpacked to, with the headers of their entries.
func (u *Unpacker) CountBytes() int64 { return u.most - max(u.left, 0) }

// boundedReader returns an error once the bytes of an Unpacker are spent.
type boundedReader struct {
	from io.Reader
	u    *Unpacker
}

// Read implements io.Reader.
func (r *boundedReader) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	if r.u.left -= int64(n); r.u.left < 0 {
		return 0, r.u.newTooLarge()
	}
	return n, err
}

func (u *Unpacker) newTooLarge() error {
	return newError(ErrTooLarge, "the layers of the artifact unpack to more than %d MiB", u.most>>20)
}

// The magic number of a tar, with its place, and those of compressed files.
const (
	tarMagicAt = 257
	tarMagic   = "ustar"
	gzipMagic  = "\x1f\x8b"
	zstdMagic  = "\x28\xb5\x2f\xfd"
)

// UnpackLayer calls visit for each entry of a tar, compressed or not, as Flux and ORAS push directories. Any other layer is
// a file with its title as the path, as ORAS pushes files. A layer without a title is then left out.
func (u *Unpacker) UnpackLayer(text []byte, title string, visit func(Entry, io.Reader) error) error {
	var from io.Reader = bytes.NewReader(text)
	switch {
	case bytes.HasPrefix(text, []byte(zstdMagic)):
		return newError(ErrMalformed, "it is compressed with zstd: push it with gzip")
	case bytes.HasPrefix(text, []byte(gzipMagic)):
		unzipped, err := gzip.NewReader(from)
		if err != nil {
			return newError(ErrMalformed, "%v", err)
		}
		defer unzipped.Close()
		from = unzipped
	}
	buffered := bufio.NewReader(&boundedReader{from, u})
	head, err := buffered.Peek(tarMagicAt + len(tarMagic))
	if err != nil && !errors.Is(err, io.EOF) {
		return classifyError(err)
	}
	if len(head) > tarMagicAt && string(head[tarMagicAt:]) == tarMagic {
		return u.unpackTar(tar.NewReader(buffered), visit)
	}
	if title == "" {
		return nil // a configuration, or a layer of another type
	}
	name, err := cleanPath(title)
	if err != nil {
		return err
	}
	return visit(Entry{Name: name, Size: int64(len(text))}, buffered)
}

// classifyError returns an error of a decoder as one of the artifact.
func classifyError(err error) error {
	if errors.Is(err, ErrTooLarge) || errors.Is(err, ErrMalformed) {
		return err
	}
	return newError(ErrMalformed, "%v", err)
}

// unpackTar visits the entries of a tar.
func (u *Unpacker) unpackTar(from *tar.Reader, visit func(Entry, io.Reader) error) error {
	for {
		header, err := from.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the tar: %w", classifyError(err))
		}
		if header.Typeflag == tar.TypeXGlobalHeader {
			continue
		}
		name, err := cleanPath(header.Name)
		if err != nil {
			return err
		}
		if header.Size > u.most-u.files {
			return u.newTooLarge()
		}
		u.files += header.Size
		if err := visit(Entry{Name: name, Mode: modeOf(header.Typeflag), Size: header.Size, Target: header.Linkname}, from); err != nil {
			return err
		}
	}
}

// modeOf returns the mode of an entry: a file, a directory, a link, or what is none of these.
func modeOf(kind byte) fs.FileMode {
	switch kind {
	case tar.TypeReg:
		return 0
	case tar.TypeDir:
		return fs.ModeDir
	case tar.TypeSymlink, tar.TypeLink:
		return fs.ModeSymlink
	}
	return fs.ModeIrregular
}

// cleanPath returns a path without ./, which leads nowhere else.
func cleanPath(name string) (string, error) {
	clean := path.Clean(name)
	if slices.Contains(strings.Split(name, "/"), "..") || !fs.ValidPath(clean) || strings.ContainsRune(name, '\\') {
		return "", newError(ErrMalformed, "the path %q leads out of the artifact, or is no path", name)
	}
	return clean, nil
}
