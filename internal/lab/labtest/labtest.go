// Package labtest gives tests the real binaries.
//
// Contract: Binaries builds what is asked for once and keeps it outside the
// tree, so that all test packages of a run, and later runs, share one build;
// the go command finds out whether anything changed. Concurrent callers wait
// for each other. With lab.BinDirVariable set, nothing is built and that
// directory is taken as it is.
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

	"atoll.dev/atoll/internal/lab"
)

// Binaries returns a directory that holds the named commands, for instance
// "atoll-lab". Environment variable lab.BinDirVariable overrides it.
func Binaries(t testing.TB, names ...string) string {
	t.Helper()
	if dir := os.Getenv(lab.BinDirVariable); dir != "" {
		return dir
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	root := moduleRoot(t)
	// One for each tree: tests of one may not run another's binaries.
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
	args := []string{"build", "-ldflags", versionFlags(t, root), "-o", dir + "/"}
	for _, name := range names {
		args = append(args, "./cmd/"+name)
	}
	build := exec.Command("go", args...)
	build.Dir = root
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return dir
}

// versionFlags tell the linked API servers what to call themselves; without,
// they claim to be a nameless development version.
func versionFlags(t testing.TB, root string) string {
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
