package scenario

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestADirectoryIsForOneRun: the state of an earlier run would be measured as this run's,
// and the end of a run ends all processes in its directory.
func TestADirectoryIsForOneRun(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	refused := func(resumes bool, why string) {
		t.Helper()
		if lock, err := lockDirectory(dir, resumes); err == nil || !strings.Contains(err.Error(), why) {
			if err == nil {
				lock.Close()
			}
			t.Errorf("claim(resumes=%v): %v, want an error with %q", resumes, err, why)
		}
	}
	held, err := lockDirectory(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	refused(false, "in use by another run")
	refused(true, "in use by another run")
	held.Close()
	for _, resumes := range []bool{false, true} {
		again, err := lockDirectory(dir, resumes)
		if err != nil {
			t.Fatalf("one that nothing is in, resumes=%v: %v", resumes, err)
		}
		again.Close()
	}
	leave := func(name string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	leave("hub.log")
	refused(false, "holds hub.log already")
	refused(true, "no pairs-100k to go on from")
	leave(pairsFile)
	refused(false, "already")
	if again, err := lockDirectory(dir, true); err != nil {
		t.Errorf("restart where pairs-100k ended: %v", err)
	} else {
		again.Close()
	}
}
