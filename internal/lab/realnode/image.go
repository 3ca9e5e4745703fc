package realnode

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
)

// sandbox is the name of the same image for what holds a pod's namespaces.
const sandbox = "lab.atoll.dev/sandbox:1"

// writeImage writes the archive of an image that is busybox and its commands, in the form
// of `docker save`, which containerd reads.
func writeImage(file string) error {
	layer, err := busyboxLayer()
	if err != nil {
		return fmt.Errorf("make the image %s: %w", Image, err)
	}
	config, err := json.Marshal(map[string]any{
		"os": "linux", "architecture": runtime.GOARCH,
		"config": map[string]any{
			"Cmd": []string{"sleep", "2147483647"},
			"Env": []string{"PATH=/bin"},
		},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal([]any{map[string]any{
		"Config": "config.json", "RepoTags": []string{Image, sandbox}, "Layers": []string{"layer.tar"},
	}})
	if err != nil {
		return err
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, f := range []struct {
		name string
		data []byte
	}{{"manifest.json", manifest}, {"config.json", config}, {"layer.tar", layer}} {
		if err := addFile(w, f.name, 0o644, f.data); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	if err := os.WriteFile(file, archive.Bytes(), 0o600); err != nil {
		return fmt.Errorf("write the image %s: %w", Image, err)
	}
	return nil
}

// busyboxLayer is the machine's busybox with a link for each command that it has, and the
// files that programs expect to find.
func busyboxLayer() ([]byte, error) {
	path, err := exec.LookPath("busybox")
	if err != nil {
		return nil, err
	}
	program, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	commands, err := exec.Command(path, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("ask %s for its commands: %w", path, err)
	}
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for _, dir := range []struct {
		name string
		mode int64
	}{{"bin/", 0o755}, {"etc/", 0o755}, {"root/", 0o700}, {"tmp/", 0o1777}} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir.name, Mode: dir.mode}); err != nil {
			return nil, err
		}
	}
	if err := addFile(w, "bin/busybox", 0o755, program); err != nil {
		return nil, err
	}
	for command := range strings.FieldsSeq(string(commands)) {
		if command == "busybox" {
			continue
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + command, Linkname: "busybox", Mode: 0o777}); err != nil {
			return nil, err
		}
	}
	if err := addFile(w, "etc/passwd", 0o644, []byte("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/tmp:/bin/sh\n")); err != nil {
		return nil, err
	}
	if err := addFile(w, "etc/group", 0o644, []byte("root:x:0:\nnogroup:x:65534:\n")); err != nil {
		return nil, err
	}
	return layer.Bytes(), w.Close()
}

// writeLayout writes the files of an image layout into an archive.
func writeLayout(file, dir string) error {
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

func addFile(w *tar.Writer, name string, mode int64, data []byte) error {
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(data))}); err != nil {
		return err
	}
	_, err := w.Write(data)
	return err
}
