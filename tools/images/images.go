// Package images makes container images of Atoll's programs as OCI image layouts:
// directories that skopeo, crane, podman and containerd read. It needs no Docker, base
// image or registry.
//
// Contract: equal binary, certificates, BuildInfo and Go version give an equal image, byte
// by byte: times are those of BuildInfo, and files are sorted. An image has its program,
// which it runs as an unprivileged user, the certificates of public CAs, and nothing else.
package images

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// userID is the user and group of the programs, unknown to the machine.
const userID = 65532

// certificatesPath is where programs, Go's too, find the certificates of public CAs.
const certificatesPath = "etc/ssl/certs/ca-certificates.crt"

// Program is a program with an image.
type Program struct {
	// Name is the name of the program, of its package below cmd, and of the image.
	Name string
	// Description describes it for people.
	Description string
	// Tags are its build tags.
	Tags string
}

// Programs are the programs that run in clusters.
var Programs = []Program{
	{Name: "atoll", Description: "The agent of a member of Atoll, and the command line", Tags: "grpcnotrace"},
	{Name: "atoll-hub", Description: "The hub of Atoll, one Kubernetes API for many clusters"},
}

// BuildInfo describes the source of the binaries.
type BuildInfo struct {
	// Version is Atoll's version and the tag. Revision is the revision of the source;
	// empty if unknown.
	Version, Revision string
	// Time is the time of the source.
	Time time.Time
}

// NewImage returns an image of a program for a platform.
func NewImage(p Program, on v1.Platform, binary []byte, about BuildInfo) (v1.Image, error) {
	public, err := encodeFallbackRootCertificates()
	if err != nil {
		return nil, err
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, l := range []struct {
		what  string
		files []layerFile
	}{
		{"certificates of public CAs", []layerFile{{name: certificatesPath, content: public, mode: 0o644}}},
		{p.Name, []layerFile{{name: p.Name, content: binary, mode: 0o755}}},
	} {
		layer, err := layerOf(l.files, about.Time)
		if err != nil {
			return nil, fmt.Errorf("layer of %s: %w", l.what, err)
		}
		img, err = mutate.Append(img, mutate.Addendum{Layer: layer, MediaType: types.OCILayer, History: v1.History{
			Created: v1.Time{Time: about.Time}, CreatedBy: "make images", Comment: l.what,
		}})
		if err != nil {
			return nil, fmt.Errorf("layer of %s: %w", l.what, err)
		}
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Variant = on.OS, on.Architecture, on.Variant
	config.Created = v1.Time{Time: about.Time}
	config.Config = v1.Config{
		User: fmt.Sprintf("%d:%d", userID, userID), Entrypoint: []string{"/" + p.Name}, WorkingDir: "/",
		Env: []string{"PATH=/"}, Labels: imageLabels(p, about),
	}
	return mutate.ConfigFile(img, config)
}

// imageLabels are the labels by which people and scanners identify an image.
func imageLabels(p Program, about BuildInfo) map[string]string {
	const of = "org.opencontainers.image."
	out := map[string]string{
		of + "title": p.Name, of + "description": p.Description, of + "version": about.Version,
		of + "created": about.Time.UTC().Format(time.RFC3339),
	}
	if about.Revision != "" {
		out[of+"revision"] = about.Revision
	}
	return out
}

// WriteImageLayout writes one image, for several platforms, as a layout into the directory, and
// replaces its content.
func WriteImageLayout(dir string, about BuildInfo, images []v1.Image) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, img := range images {
		config, err := img.ConfigFile()
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: config.Platform()}})
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	at, err := layout.Write(dir, empty.Index)
	if err != nil {
		return fmt.Errorf("begin a layout in %s: %w", dir, err)
	}
	named := layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": about.Version})
	if err := at.AppendIndex(index, named); err != nil {
		return fmt.Errorf("write the layout in %s: %w", dir, err)
	}
	if err := makeReadable(dir); err != nil {
		return fmt.Errorf("write the layout in %s: %w", dir, err)
	}
	return nil
}

// makeReadable makes the files of a directory readable for every user, if the process may:
// an image is often pushed by another user. The library makes some files private.
func makeReadable(dir string) error {
	return filepath.WalkDir(dir, func(at string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			return os.Chmod(at, 0o755)
		default:
			return os.Chmod(at, 0o644)
		}
	})
}

// layerFile is a file of a layer.
type layerFile struct {
	name    string
	content []byte
	mode    int64
}

// layerOf returns a layer of files and their directories.
func layerOf(files []layerFile, at time.Time) (v1.Layer, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	made := map[string]bool{}
	for _, f := range files {
		for _, dir := range parentDirs(f.name) {
			if made[dir] {
				continue
			}
			made[dir] = true
			if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755, ModTime: at}); err != nil {
				return nil, err
			}
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.content)), ModTime: at}); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil }, tarball.WithMediaType(types.OCILayer))
}

// parentDirs returns the parents of a file, from the root down.
func parentDirs(name string) (out []string) {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		out = append([]string{dir}, out...)
	}
	return out
}

// encodeFallbackRootCertificates returns the public CAs that Go's own library trusts on a machine without
// any, except CAs with conditions that a file cannot express.
func encodeFallbackRootCertificates() ([]byte, error) {
	var blocks []string
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue
		}
		block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})
		blocks = append(blocks, fmt.Sprintf("# %x\n%s", sha256.Sum256(root.Certificate), block))
	}
	if len(blocks) == 0 {
		return nil, fmt.Errorf("the bundle of public CAs is empty")
	}
	slices.Sort(blocks)
	return []byte(strings.Join(blocks, "")), nil
}
