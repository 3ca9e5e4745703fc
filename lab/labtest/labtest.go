// Package labtest gives tests the real binaries.
//
// Contract: Binaries builds the named commands once and keeps them outside the tree, so
// that all test packages of a run, and later runs, share one build. The go command detects
// changes. Concurrent callers wait for each other. If lab.BinDirVariable is set, nothing is
// built and that directory is used unchanged.
package labtest

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"atoll.dev/atoll/lab"
)

// BuildBinaries returns a directory with the named commands, for instance "atoll-lab". The
// environment variable lab.BinDirVariable overrides it.
func BuildBinaries(t testing.TB, names ...string) string {
	t.Helper()
	if dir := os.Getenv(lab.BinDirVariable); dir != "" {
		return dir
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	root := moduleRoot(t)
	// One directory for each tree: tests of one tree may not run another's binaries.
	dir := filepath.Join(cache, "atoll-test-binaries", fmt.Sprintf("%x", sha256.Sum256([]byte(root)))[:12])
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatalf("directory for test binaries: %v", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatalf("lock of test binaries: %v", err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatalf("lock of test binaries: %v", err)
	}
	for _, name := range names {
		args := []string{"build", "-ldflags", versionLinkFlags(t, root), "-o", dir + "/", "./cmd/" + name}
		build := exec.Command("go", args...)
		build.Dir = root
		if name != "atoll-lab" {
			build.Dir = filepath.Dir(root) // the module of the product
		}
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	return dir
}

// versionLinkFlags set the version of the linked API servers, which otherwise report a nameless
// development version.
func versionLinkFlags(t testing.TB, root string) string {
	t.Helper()
	list := exec.Command("go", "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
	list.Dir = root
	out, err := list.Output()
	version := strings.TrimSpace(string(out))
	parts := strings.Split(version, ".")
	if err != nil || len(parts) < 3 {
		t.Fatalf("version of k8s.io/kubernetes: %q, %v", version, err)
	}
	const pkg = "k8s.io/component-base/version"
	return "-X " + pkg + ".gitVersion=" + version + " -X " + pkg + ".gitMajor=1 -X " + pkg + ".gitMinor=" + parts[1]
}

// moduleRoot walks up from the test's directory to go.mod.
func moduleRoot(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			t.Fatal("the tests run outside the module: there is no go.mod above the working directory")
		}
		dir = parent
	}
}
