package scenario

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

const (
	// lockFile is held by the run that uses the directory.
	lockFile = "bench.lock"
	// pairsFile is the record that pairs-100k writes for restart.
	pairsFile = "pairs.json"
)

// lockDirectory locks the directory until the process ends or the file is closed. A run
// that resumes continues from the state of pairs-100k. Any other run would take foreign
// state for its own, so the directory must be empty.
func lockDirectory(dir string, resumes bool) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make a directory for the scenario: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("directory of the scenario: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("%s is in use by another run: give --dir another one", dir)
		}
		return nil, fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	if err := checkDirectory(dir, resumes); err != nil {
		lock.Close()
		return nil, err
	}
	return lock, nil
}

// checkDirectory checks whether a run can begin with the directory's content.
func checkDirectory(dir string, resumes bool) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("directory of the scenario: %w", err)
	}
	left, pairs := "", false
	for _, e := range entries {
		switch e.Name() {
		case lockFile:
		case pairsFile:
			pairs = true
			fallthrough
		default:
			left = e.Name()
		}
	}
	switch {
	case left == "" || resumes && pairs:
		return nil
	case resumes:
		return fmt.Errorf("%s holds %s, and no pairs-100k to go on from: give --dir an empty directory, or one that `bench pairs-100k --dir` ended in", dir, left)
	}
	return fmt.Errorf("%s holds %s already, and what is there would be measured too: give --dir an empty directory", dir, left)
}
