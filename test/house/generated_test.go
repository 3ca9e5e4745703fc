package house

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestGeneratedFilesAreFresh generates everything again beside the tree and compares.
func TestGeneratedFilesAreFresh(t *testing.T) {
	t.Run("crds", func(t *testing.T) {
		fresh := t.TempDir()
		goCommand(t, "tool", "controller-gen", "crd:crdVersions=v1", "paths={./api/v1alpha1,./api/engine/...,./api/karmada/...,./api/multicluster/...}", "output:crd:artifacts:config="+fresh)
		compareDirs(t, "api/crds", fresh, ".yaml")
	})
	t.Run("crds of members", func(t *testing.T) {
		fresh := t.TempDir()
		goCommand(t, "tool", "controller-gen", "crd:crdVersions=v1", "paths=./api/agent/...", "output:crd:artifacts:config="+fresh)
		compareDirs(t, "deploy/charts/atoll-agent/files", fresh, ".yaml")
	})
	for _, dir := range []string{"api/v1alpha1", "api/agent/v1alpha1", "api/engine/v1alpha1", "api/karmada/config/v1alpha1", "api/multicluster/v1alpha1", "api/multicluster/v1alpha2"} {
		t.Run(dir, func(t *testing.T) {
			fresh := t.TempDir()
			goCommand(t, "tool", "controller-gen", "object", "paths=./"+dir, "output:object:dir="+fresh)
			compareDirs(t, dir, fresh, "zz_generated.deepcopy.go")
		})
	}
}

// compareDirs compares the files with the suffix, both ways.
func compareDirs(t *testing.T, dir, fresh, suffix string) {
	t.Helper()
	have, want := filesOf(t, filepath.Join(root(), dir), suffix), filesOf(t, fresh, suffix)
	for name, text := range want {
		switch old, ok := have[name]; {
		case !ok:
			t.Errorf("%s/%s is missing: run `make generate`", dir, name)
		case old != text:
			t.Errorf("%s/%s is stale: run `make generate`", dir, name)
		}
	}
	for name := range have {
		if _, ok := want[name]; !ok {
			t.Errorf("%s/%s is not generated any more: delete it", dir, name)
		}
	}
}

func filesOf(t *testing.T, dir, suffix string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), suffix) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files[e.Name()] = string(text)
	}
	return files
}

// TestGeneratedProtocolIsFresh runs the generator over a copy of each protocol in
// a directory that has our go.mod, since the plugins are tools of this module.
func TestGeneratedProtocolIsFresh(t *testing.T) {
	generator := filepath.Join(t.TempDir(), "generate")
	goCommand(t, "build", "-o", generator, "./internal/session/sessionpb/generate")
	for dir, file := range map[string]string{"internal/session/sessionpb": "session.proto", "internal/peer/peerpb": "peer.proto"} {
		protocolIsFresh(t, generator, dir, file)
	}
}

func protocolIsFresh(t *testing.T, generator, dir, file string) {
	fresh := t.TempDir()
	// go.mod replaces the module of the API by its directory.
	for from, to := range map[string]string{"go.mod": "go.mod", "go.sum": "go.sum", "api/go.mod": "api/go.mod", filepath.Join(dir, file): file} {
		text, err := os.ReadFile(filepath.Join(root(), from))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(fresh, to)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(fresh, to), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), generator, file)
	cmd.Dir = fresh
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", generator, err, out)
	}
	compareDirs(t, dir, fresh, ".pb.go")
}
