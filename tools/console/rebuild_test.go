// Package console has the test that the committed files of the web console are what its source gives.
//
// Contract: it needs Node and npm, and is skipped without them. It writes to a temporary directory alone.
package console

import (
	"compress/gzip"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const committed = "../../internal/console/assets"

// TestTheCommittedFilesAreBuiltFromTheSource checks types, runs the unit tests of the page, and builds it.
func TestTheCommittedFilesAreBuiltFromTheSource(t *testing.T) {
	if testing.Short() {
		t.Skip("it downloads packages")
	}
	for _, tool := range []string{"node", "npm"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("no %s: apt-get install nodejs npm, from Node 20 on", tool)
		}
	}
	root := t.TempDir()
	web, built := filepath.Join(root, "web"), filepath.Join(root, "built")
	copySource(t, "../../web", web)
	copySource(t, "../../api/crds", filepath.Join(root, "api", "crds"))
	types := readFile(t, filepath.Join(web, "src/api/types.gen.ts"))
	for _, args := range [][]string{{"ci", "--no-audit", "--no-fund"}, {"run", "types"}, {"run", "check"}, {"test"}, {"run", "build", "--", built}} {
		runNPM(t, web, args...)
	}
	if readFile(t, filepath.Join(web, "src/api/types.gen.ts")) != types {
		t.Error("web/src/api/types.gen.ts is not what the CRDs give: run make console")
	}
	want, got := readDirectory(t, built, ""), readDirectory(t, committed, ".gz")
	if len(want) == 0 {
		t.Fatal("nothing was built")
	}
	for name, content := range want {
		if got[name] != content {
			t.Errorf("%s is not committed as it is built: run make console", name)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s is committed and not built: run make console", name)
		}
	}
}

func runNPM(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "npm", args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil && t.Context().Err() != context.Canceled {
		t.Fatalf("npm %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// copySource copies a directory without what npm installs.
func copySource(t *testing.T, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if slices.Contains(strings.Split(rel, string(filepath.Separator)), "node_modules") {
			return filepath.SkipDir
		}
		target := filepath.Join(to, rel)
		if d.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		return os.WriteFile(target, []byte(readFile(t, path)), 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// readDirectory returns the contents of files by name. With the ending .gz, it decompresses them.
func readDirectory(t *testing.T, dir, ending string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, e := range entries {
		content := readFile(t, filepath.Join(dir, e.Name()))
		if ending != "" {
			z, err := gzip.NewReader(strings.NewReader(content))
			if err != nil {
				t.Fatal(e.Name(), err)
			}
			plain, err := io.ReadAll(z)
			if err != nil {
				t.Fatal(e.Name(), err)
			}
			content = string(plain)
		}
		out[strings.TrimSuffix(e.Name(), ending)] = content
	}
	return out
}
