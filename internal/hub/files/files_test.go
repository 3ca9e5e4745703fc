package files

import (
	"strings"
	"syscall"
	"testing"
)

// A hub that may open too few files says so before the store ends it.
func TestTooFewFilesAreSaid(t *testing.T) {
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
			t.Error(err)
		}
	})
	few := before
	few.Cur = 64
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	err := CheckOpenFileLimit()
	if err == nil || !strings.Contains(err.Error(), "may open 64 files") || !strings.Contains(err.Error(), "ulimit -n") {
		t.Errorf("a hub that may open 64 files says: %v", err)
	}
}
