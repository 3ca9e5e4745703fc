package realnode

import (
	"archive/tar"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// sandboxImage is the name of the busybox image for the container that holds a pod's
// namespaces.
const sandboxImage = "lab.atoll.dev/sandbox:1"

// ociImage is an image of containers.
type ociImage struct {
	names []string
	// config is the image configuration.
	config map[string]any
	// files writes the files of its only layer.
	files func(*tar.Writer) error
}

// busyboxImage returns an image of the machine's busybox and its commands.
func busyboxImage() ociImage {
	return ociImage{
		names:  []string{BusyboxImage, sandboxImage},
		config: map[string]any{"Cmd": []string{"sleep", "2147483647"}, "Env": []string{"PATH=/bin"}},
		files:  writeBusyboxFiles,
	}
}

// metricsServerImage returns an image of metrics-server under upstream's name.
func metricsServerImage(programs string) (ociImage, error) {
	program := filepath.Join(programs, metricsServerProgram)
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return ociImage{}, fmt.Errorf("read the version of %s: %w", program, err)
	}
	if info.Main.Path != "sigs.k8s.io/metrics-server" {
		return ociImage{}, fmt.Errorf("%s is not what `make nodes` builds, but of %s", program, info.Main.Path)
	}
	return ociImage{
		names:  []string{"registry.k8s.io/metrics-server/metrics-server:" + info.Main.Version},
		config: map[string]any{"Entrypoint": []string{"/metrics-server"}, "User": "65534"},
		files:  func(w *tar.Writer) error { return addProgram(w, "metrics-server", program) },
	}, nil
}

// metricsServerProgram is the file of metrics-server among the programs.
const metricsServerProgram = "metrics-server"

// write writes the image in the form of `docker save`, which containerd reads.
func (i ociImage) write(file string) error {
	if err := i.writeArchive(file); err != nil {
		return fmt.Errorf("make the image %s: %w", i.names[0], err)
	}
	return nil
}

func (i ociImage) writeArchive(file string) error {
	layer, err := os.Create(file + ".layer")
	if err != nil {
		return err
	}
	defer os.Remove(layer.Name())
	defer layer.Close()
	digest := sha256.New()
	if err := i.writeLayer(io.MultiWriter(layer, digest)); err != nil {
		return err
	}
	config, err := json.Marshal(map[string]any{
		"os": "linux", "architecture": runtime.GOARCH, "config": i.config,
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", digest.Sum(nil))}},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal([]any{map[string]any{
		"Config": "config.json", "RepoTags": i.names, "Layers": []string{"layer.tar"},
	}})
	if err != nil {
		return err
	}
	archive, err := os.OpenFile(file, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer archive.Close()
	w := tar.NewWriter(archive)
	for _, f := range []struct {
		name string
		data []byte
	}{{"manifest.json", manifest}, {"config.json", config}} {
		if err := addFile(w, f.name, 0o644, f.data); err != nil {
			return err
		}
	}
	if err := addProgram(w, "layer.tar", layer.Name()); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return archive.Close()
}

// writeLayer writes the image's files.
func (i ociImage) writeLayer(to io.Writer) error {
	w := tar.NewWriter(to)
	if err := i.files(w); err != nil {
		return err
	}
	return w.Close()
}

// writeBusyboxFiles writes the machine's busybox with a link for each of its commands, and the
// files that programs expect.
func writeBusyboxFiles(w *tar.Writer) error {
	path, err := exec.LookPath("busybox")
	if err != nil {
		return err
	}
	commands, err := exec.Command(path, "--list").Output()
	if err != nil {
		return fmt.Errorf("list the commands of %s: %w", path, err)
	}
	for _, dir := range []struct {
		name string
		mode int64
	}{{"bin/", 0o755}, {"etc/", 0o755}, {"root/", 0o700}, {"tmp/", 0o1777}} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir.name, Mode: dir.mode}); err != nil {
			return err
		}
	}
	if err := addProgram(w, "bin/busybox", path); err != nil {
		return err
	}
	for command := range strings.FieldsSeq(string(commands)) {
		if command == "busybox" {
			continue
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + command, Linkname: "busybox", Mode: 0o777}); err != nil {
			return err
		}
	}
	if err := addFile(w, "etc/passwd", 0o644, []byte("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/tmp:/bin/sh\n")); err != nil {
		return err
	}
	return addFile(w, "etc/group", 0o644, []byte("root:x:0:\nnogroup:x:65534:\n"))
}

// writeArchiveOfDir writes the files of an image layout into an archive.
func writeArchiveOfDir(file, dir string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	w := tar.NewWriter(f)
	if err := w.AddFS(os.DirFS(dir)); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return f.Close()
}

// addProgram adds a file of the machine of any size, executable for every user.
func addProgram(w *tar.Writer, name, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	about, err := f.Stat()
	if err != nil {
		return err
	}
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755, Size: about.Size()}); err != nil {
		return err
	}
	_, err = io.Copy(w, f)
	return err
}

func addFile(w *tar.Writer, name string, mode int64, data []byte) error {
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(data))}); err != nil {
		return err
	}
	_, err := w.Write(data)
	return err
}
