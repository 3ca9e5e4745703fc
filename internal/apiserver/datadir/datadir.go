// Package datadir guards the data directory of a hub.
//
// Contract: an open Dir holds an exclusive lock that the kernel frees when the
// process ends in whatever way, so a directory is never used by two processes
// and never stays locked by a dead one. A directory that a newer version (major
// or minor) has written is refused before anything in it is touched. Dir is not
// safe for concurrent use except for Path.
package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"k8s.io/apimachinery/pkg/util/version"
)

const (
	lockFile    = "LOCK"
	versionFile = "VERSION"
)

// Dir is an open, locked data directory.
type Dir struct {
	path    string
	version string
	lock    *os.File
}

// InUseError tells that another process holds the directory.
type InUseError struct {
	// Path is the data directory, PID the holder as it wrote it itself; 0 when
	// it cannot be read.
	Path string
	PID  int
}

func (e *InUseError) Error() string {
	holder := "another process"
	if e.PID > 0 {
		holder = fmt.Sprintf("the process with id %d", e.PID)
	}
	return fmt.Sprintf("the data directory %s is in use by %s; stop that one first or choose another directory", e.Path, holder)
}

// NewerError tells that the directory was written by a newer version.
type NewerError struct {
	Path, Written, Running string
}

func (e *NewerError) Error() string {
	return fmt.Sprintf("the data directory %s was written by Atoll %s and this is %s; run %s or newer, or restore a backup that this version made into another directory",
		e.Path, e.Written, e.Running, e.Written)
}

// Open locks path for the given version of Atoll, making it when absent.
func Open(path, running string) (*Dir, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("make data directory %s: %w", path, err)
	}
	lock, err := acquire(path)
	if err != nil {
		return nil, err
	}
	d := &Dir{path: path, version: running, lock: lock}
	if err := d.checkVersion(); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// Path returns the path of a file in the directory.
func (d *Dir) Path(name ...string) string {
	return filepath.Join(append([]string{d.path}, name...)...)
}

// Commit records the running version as the one that has written the
// directory. Call it once the new version has come up.
func (d *Dir) Commit() error {
	current, err := os.ReadFile(d.Path(versionFile))
	if err == nil && strings.TrimSpace(string(current)) == d.version {
		return nil
	}
	return WriteFile(d.Path(versionFile), []byte(d.version+"\n"), 0o600)
}

// Close frees the directory.
func (d *Dir) Close() {
	d.lock.Close()
}

func (d *Dir) checkVersion() error {
	content, err := os.ReadFile(d.Path(versionFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", d.Path(versionFile), err)
	}
	text := strings.TrimSpace(string(content))
	written, err := version.ParseGeneric(text)
	if err != nil {
		return fmt.Errorf("%s says %q, which is no version: %w", d.Path(versionFile), text, err)
	}
	running, err := version.ParseGeneric(d.version)
	if err != nil {
		return fmt.Errorf("the running version %q is no version: %w", d.version, err)
	}
	if written.Major() > running.Major() || written.Major() == running.Major() && written.Minor() > running.Minor() {
		return &NewerError{Path: d.path, Written: text, Running: d.version}
	}
	return nil
}

func acquire(path string) (*os.File, error) {
	name := filepath.Join(path, lockFile)
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock file: %w", err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		defer f.Close()
		content, _ := os.ReadFile(name)
		pid, _ := strconv.Atoi(strings.TrimSpace(string(content)))
		return nil, &InUseError{Path: path, PID: pid}
	}
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock data directory %s: %w", path, err)
	}
	return f, nil
}

// WriteFile replaces path with content, so that a reader and a crash at any
// moment see the old or the new content whole.
func WriteFile(path string, content []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer os.Remove(f.Name())
	_, err = f.Write(content)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
