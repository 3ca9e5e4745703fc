package images

import (
	"archive/tar"
	"bytes"
	"crypto/x509"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/match"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

var testBuildInfo = BuildInfo{Version: "v9.9.9", Revision: "abc", Time: time.Unix(1_700_000_000, 0).UTC()}

// writeLayout returns the index of a layout with an image of the program for two platforms.
func writeLayout(t *testing.T, p Program, dir string, binary []byte) v1.ImageIndex {
	t.Helper()
	var built []v1.Image
	for _, arch := range []string{runtime.GOARCH, "riscv64"} {
		img, err := NewImage(p, v1.Platform{OS: "linux", Architecture: arch}, binary, testBuildInfo)
		if err != nil {
			t.Fatal(err)
		}
		built = append(built, img)
	}
	if err := WriteImageLayout(dir, testBuildInfo, built); err != nil {
		t.Fatal(err)
	}
	whole, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	m, err := whole.IndexManifest()
	if err != nil || len(m.Manifests) != 1 || m.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != testBuildInfo.Version {
		t.Fatalf("the layout has %+v, %v", m, err)
	}
	index, err := whole.ImageIndex(m.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	return index
}

// ofHere returns the image of this platform.
func ofHere(t *testing.T, index v1.ImageIndex) v1.Image {
	t.Helper()
	at, err := layout.Write(t.TempDir(), index)
	if err != nil {
		t.Fatal(err)
	}
	root, err := at.ImageIndex()
	if err != nil {
		t.Fatal(err)
	}
	m, err := root.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range m.Manifests {
		if match.Platforms(v1.Platform{OS: "linux", Architecture: runtime.GOARCH})(d) {
			img, err := root.Image(d.Digest)
			if err != nil {
				t.Fatal(err)
			}
			return img
		}
	}
	t.Fatalf("nothing for this platform in %+v", m)
	return nil
}

// imageFiles returns the files of an image.
func imageFiles(t *testing.T, img v1.Image) map[string]*tar.Header {
	t.Helper()
	out := map[string]*tar.Header{}
	walkFiles(t, img, func(h *tar.Header, _ io.Reader) { out[h.Name] = h })
	return out
}

func walkFiles(t *testing.T, img v1.Image, visit func(*tar.Header, io.Reader)) {
	t.Helper()
	all := mutate.Extract(img)
	defer all.Close()
	for r := tar.NewReader(all); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		visit(h, r)
	}
}

func TestTheLayoutIsValidAndLabelled(t *testing.T) {
	for _, p := range Programs {
		index := writeLayout(t, p, filepath.Join(t.TempDir(), p.Name), []byte("program"))
		if err := validate.Index(index); err != nil {
			t.Error(err)
		}
		if kind, err := index.MediaType(); err != nil || kind != types.OCIImageIndex {
			t.Errorf("%s, %v", kind, err)
		}
		img := ofHere(t, index)
		config, err := img.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		c := config.Config
		if c.User != "65532:65532" || len(c.Entrypoint) != 1 || c.Entrypoint[0] != "/"+p.Name || config.Architecture != runtime.GOARCH || !config.Created.Equal(testBuildInfo.Time) {
			t.Errorf("%+v", config)
		}
		for label, want := range map[string]string{"title": p.Name, "version": "v9.9.9", "revision": "abc", "description": p.Description, "created": "2023-11-14T22:13:20Z"} {
			if got := c.Labels["org.opencontainers.image."+label]; got != want {
				t.Errorf("label %s: %q, wanted %q", label, got, want)
			}
		}
		found := imageFiles(t, img)
		if len(found) != 5 || found[p.Name] == nil || found[p.Name].Mode != 0o755 || found[certificatesPath] == nil {
			t.Errorf("the image has %v", found)
		}
		for name, h := range found {
			if !h.ModTime.Equal(testBuildInfo.Time) || h.Uid != 0 {
				t.Errorf("%s is of %s and user %d", name, h.ModTime, h.Uid)
			}
		}
	}
}

// TestOthersMayReadTheLayout: an image is often pushed by another user.
func TestOthersMayReadTheLayout(t *testing.T) {
	dir, found := t.TempDir(), 0
	writeLayout(t, Programs[0], dir, []byte("program"))
	err := filepath.WalkDir(dir, func(at string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		found++
		info, err := d.Info()
		if err == nil && info.Mode() != 0o644 {
			t.Errorf("%s is %v", at, info.Mode())
		}
		return err
	})
	if err != nil || found < 5 {
		t.Errorf("%d files, %v", found, err)
	}
}

func TestTheSameGivesTheSame(t *testing.T) {
	digest := func() v1.Hash {
		h, err := writeLayout(t, Programs[0], t.TempDir(), []byte("program")).Digest()
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	if a, b := digest(), digest(); a != b {
		t.Errorf("%s and %s", a, b)
	}
}

func TestPublicCAsAreTrusted(t *testing.T) {
	text, err := encodeFallbackRootCertificates()
	if err != nil {
		t.Fatal(err)
	}
	if pool := x509.NewCertPool(); !pool.AppendCertsFromPEM(text) || bytes.Count(text, []byte("BEGIN CERTIFICATE")) < 50 {
		t.Errorf("%d bytes are no certificates of CAs", len(text))
	}
}

// TestTheProgramOfAnImageRuns: with the binaries of `make build`.
func TestTheProgramOfAnImageRuns(t *testing.T) {
	bin := os.Getenv("ATOLL_BIN_DIR")
	if bin == "" || testing.Short() {
		t.Skip("ATOLL_BIN_DIR does not say where the built binaries are")
	}
	for _, p := range Programs {
		binary, err := os.ReadFile(filepath.Join(bin, p.Name))
		if err != nil {
			t.Fatal(err)
		}
		out := filepath.Join(t.TempDir(), p.Name)
		walkFiles(t, ofHere(t, writeLayout(t, p, t.TempDir(), binary)), func(h *tar.Header, r io.Reader) {
			if h.Name != p.Name {
				return
			}
			content, err := io.ReadAll(r)
			if err == nil {
				err = os.WriteFile(out, content, os.FileMode(h.Mode))
			}
			if err != nil {
				t.Fatal(err)
			}
		})
		if said, err := exec.CommandContext(t.Context(), out, "version").CombinedOutput(); err != nil || !strings.Contains(string(said), "v0.") {
			t.Errorf("%s version: %s, %v", p.Name, said, err)
		}
	}
}
