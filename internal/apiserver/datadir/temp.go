package datadir

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// leftoverAge is the age from which on a temporary file without a lock is a killed process's. A younger
// one may be a process's that has not locked it yet.
const leftoverAge = time.Hour

// CreateTempRemovingLeftovers creates a temporary file in a directory, whose name is prefix and a number, and locks it
// while it is open. It first removes the files of such names that killed processes have left: an
// unfinished backup is as large as the hub.
func CreateTempRemovingLeftovers(dir, prefix string, now time.Time) (*os.File, error) {
	left, _ := os.ReadDir(dir) // a directory that cannot be listed may still be written to
	for _, e := range left {
		if number, ours := strings.CutPrefix(e.Name(), prefix); ours && isNumber(number) {
			removeLeftover(filepath.Join(dir, e.Name()), now)
		}
	}
	f, err := os.CreateTemp(dir, prefix+"*")
	if err != nil {
		return nil, err
	}
	_ = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) // without locks the file is removed only by this process
	return f, nil
}

// isNumber reports whether the text is what os.CreateTempRemovingLeftovers puts in place of a star.
func isNumber(text string) bool { return text != "" && strings.Trim(text, "0123456789") == "" }

// removeLeftover removes a temporary file that is old, and that no process has open. A file system
// without locks, or another user's file, keeps it.
func removeLeftover(name string, now time.Time) {
	info, err := os.Lstat(name)
	if err != nil || !info.Mode().IsRegular() || now.Sub(info.ModTime()) < leftoverAge {
		return
	}
	f, err := os.OpenFile(name, os.O_RDWR|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return
	}
	defer f.Close()
	if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
		_ = os.Remove(name) // the next backup tries again
	}
}
