// Package images makes container images of Atoll's programs as OCI image layouts: directories
// that skopeo, crane, podman and containerd read. No Docker, no base image, no registry.
//
// Contract: the same binary, certificates, About and Go version give the same image, byte by
// byte: times are those of About, files are sorted. An image has its program, which it runs as
// a user that is not root, the certificates of public CAs, and nothing else.
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

// user and group that programs run as: nobody that a machine knows.
const user = 65532

// certificates is where programs, Go's too, look for those of public CAs.
const certificates = "etc/ssl/certs/ca-certificates.crt"

// Program of which there is an image.
type Program struct {
	// Name of the program, its package below cmd, and the image.
	Name string
	// Description for people.
	Description string
	// Tags that it is built with.
	Tags string
}

// Programs that run in clusters.
var Programs = []Program{
	{Name: "atoll", Description: "The agent of a member of Atoll, and the command line", Tags: "grpcnotrace"},
	{Name: "atoll-hub", Description: "The hub of Atoll, one Kubernetes API for many clusters"},
}

// About what the binaries were built of.
type About struct {
	// Version of Atoll, also the tag. Revision of its source; empty: not known.
	Version, Revision string
	// Time of the source.
	Time time.Time
}

// Image of a program for a platform.
func Image(p Program, on v1.Platform, binary []byte, about About) (v1.Image, error) {
	public, err := roots()
	if err != nil {
		return nil, err
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, l := range []struct {
		what  string
		files []file
	}{
		{"certificates of public CAs", []file{{name: certificates, content: public, mode: 0o644}}},
		{p.Name, []file{{name: p.Name, content: binary, mode: 0o755}}},
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
		User: fmt.Sprintf("%d:%d", user, user), Entrypoint: []string{"/" + p.Name}, WorkingDir: "/",
		Env: []string{"PATH=/"}, Labels: labels(p, about),
	}
	return mutate.ConfigFile(img, config)
}

// labels by which people and scanners know an image.
func labels(p Program, about About) map[string]string {
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

// Write one image, for several platforms, as a layout into the directory, in place of
// what is there.
func Write(dir string, about About, images []v1.Image) error {
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
	if err := readable(dir); err != nil {
		return fmt.Errorf("write the layout in %s: %w", dir, err)
	}
	return nil
}

// readable makes what is in a directory so for everybody, as far as he comes there: who pushes
// images is often not who made them. The library leaves some files to one user alone.
func readable(dir string) error {
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

// file of a layer.
type file struct {
	name    string
	content []byte
	mode    int64
}

// layerOf files and the directories that they lie in.
func layerOf(files []file, at time.Time) (v1.Layer, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	made := map[string]bool{}
	for _, f := range files {
		for _, dir := range parents(f.name) {
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

// parents of a file, from the root down.
func parents(name string) (out []string) {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		out = append([]string{dir}, out...)
	}
	return out
}

// roots are the certificates of public CAs that Go's own library trusts where a machine has
// none, without those whose trust has conditions that a file cannot say.
func roots() ([]byte, error) {
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
