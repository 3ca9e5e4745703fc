package datadir

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func namesIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestLeftoversOfKilledProcessesAreRemoved: neither a young file, nor one that a process has open, nor
// a file with a name that CreateTempRemovingLeftovers does not make, nor a link.
func TestLeftoversOfKilledProcessesAreRemoved(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	put := func(name string, age time.Duration) {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, now.Add(-age), now.Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	put(".backup-1", leftoverAge)
	put(".backup-2", leftoverAge-time.Minute)
	put(".backup-exclude", 2*leftoverAge)
	put(".backup-", 2*leftoverAge)
	put("backup-4", 2*leftoverAge)
	if err := os.Symlink("backup-4", filepath.Join(dir, ".backup-3")); err != nil {
		t.Fatal(err)
	}
	open, err := CreateTempRemovingLeftovers(dir, ".backup-", now)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	if err := os.Chtimes(open.Name(), now.Add(-2*leftoverAge), now.Add(-2*leftoverAge)); err != nil {
		t.Fatal(err)
	}
	next, err := CreateTempRemovingLeftovers(dir, ".backup-", now)
	if err != nil {
		t.Fatal(err)
	}
	next.Close()
	want := []string{".backup-", ".backup-2", ".backup-3", ".backup-exclude", "backup-4", filepath.Base(open.Name()), filepath.Base(next.Name())}
	slices.Sort(want)
	if names := namesIn(t, dir); !slices.Equal(names, want) {
		t.Errorf("there are %q, want %q", names, want)
	}
}

// TestARestoreThatWroteNothingIsRepeated: a process that is killed after it made the lock leaves a
// directory without data.
func TestARestoreThatWroteNothingIsRepeated(t *testing.T) {
	dir := t.TempDir()
	lock, err := acquireLock(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OpenEmpty(dir, "v0.1.0"); err == nil {
		t.Fatal("a directory in use is opened")
	}
	lock.Close()
	d, err := OpenEmpty(dir, "v0.1.0")
	if err != nil {
		t.Fatal(err)
	}
	d.Close()
	if _, err := OpenEmpty(dir, "v0.1.0"); err == nil {
		t.Error("a directory in which a restore has begun is opened")
	}
}
