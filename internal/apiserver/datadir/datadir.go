// Package datadir guards the data directory of a hub.
//
// Contract: an open Dir holds an exclusive lock that the kernel frees when the
// process ends in whatever way. A directory is never used by two processes and
// never stays locked by a dead one. A directory that a newer version (major
// or minor) has written is refused before anything in it is touched. Dir is not
// safe for concurrent use except for Path.
package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"k8s.io/apimachinery/pkg/util/version"
)

const (
	lockFile    = "LOCK"
	versionFile = "VERSION"
	// unfinishedFile is there while a restore fills the directory.
	unfinishedFile = "RESTORING"
)

// DataDir is an open, locked data directory.
type DataDir struct {
	path    string
	version string
	lock    *os.File
}

// InUseError reports that another process holds the directory.
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

// NewerError reports that something was written by a newer version.
type NewerError struct {
	// The written content, as a noun phrase, its version, and the running version.
	What, Written, Running string
}

func (e *NewerError) Error() string {
	return fmt.Sprintf("%s was written by Atoll %s, and this is Atoll %s; run %s or newer", e.What, e.Written, e.Running, e.Written)
}

// OpenLocked locks path for the given version of Atoll, making it when absent.
func OpenLocked(path, running string) (*DataDir, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("make data directory %s: %w", path, err)
	}
	lock, err := acquireLock(path)
	if err != nil {
		return nil, err
	}
	d := &DataDir{path: path, version: running, lock: lock}
	err = d.checkVersion()
	if _, statErr := os.Stat(d.FilePath(unfinishedFile)); statErr == nil {
		err = fmt.Errorf("a restore into the data directory %s was not finished; empty it and restore again", path)
	}
	if err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// OpenEmpty locks path, which must be absent or empty, and marks it so that no process opens it
// before MarkComplete, also after a crash.
func OpenEmpty(path, running string) (*DataDir, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("make data directory %s: %w", path, err)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, fmt.Errorf("look into %s: %w", path, err)
	}
	entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return e.Name() == lockFile }) // of a process that was killed before it wrote anything
	if len(entries) > 0 {
		return nil, fmt.Errorf("the data directory %s is not empty (it holds %s); restore into an empty one", path, entries[0].Name())
	}
	lock, err := acquireLock(path)
	if err != nil {
		return nil, err
	}
	d := &DataDir{path: path, version: running, lock: lock}
	if err := WriteFileAtomically(d.FilePath(unfinishedFile), nil, 0o600); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// MarkComplete makes a directory from OpenEmpty one that can be opened.
func (d *DataDir) MarkComplete() error {
	if err := d.RecordRunningVersion(); err != nil {
		return err
	}
	if err := os.Remove(d.FilePath(unfinishedFile)); err != nil {
		return fmt.Errorf("finish %s: %w", d.path, err)
	}
	return SyncDirectory(d.path)
}

// RemoveAll removes everything that was put into a directory from OpenEmpty and
// frees it.
func (d *DataDir) RemoveAll() error {
	defer d.Close()
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return fmt.Errorf("look into %s: %w", d.path, err)
	}
	for _, e := range entries {
		if e.Name() == unfinishedFile {
			continue
		}
		if err := os.RemoveAll(d.FilePath(e.Name())); err != nil {
			return fmt.Errorf("empty %s: %w", d.path, err)
		}
	}
	return os.Remove(d.FilePath(unfinishedFile))
}

// FilePath returns the path of a file in the directory.
func (d *DataDir) FilePath(name ...string) string {
	return filepath.Join(append([]string{d.path}, name...)...)
}

// RecordRunningVersion records the running version as the one that has written the
// directory. Call it once the new version has come up.
func (d *DataDir) RecordRunningVersion() error {
	current, err := os.ReadFile(d.FilePath(versionFile))
	if err == nil && strings.TrimSpace(string(current)) == d.version {
		return nil
	}
	return WriteFileAtomically(d.FilePath(versionFile), []byte(d.version+"\n"), 0o600)
}

// Close frees the directory.
func (d *DataDir) Close() {
	d.lock.Close()
}

func (d *DataDir) checkVersion() error {
	content, err := os.ReadFile(d.FilePath(versionFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", d.FilePath(versionFile), err)
	}
	return CheckVersion("the data directory "+d.path, strings.TrimSpace(string(content)), d.version)
}

// CheckVersion refuses, with a *NewerError that names what, what a newer
// version (major or minor) than the running one has written.
func CheckVersion(what, written, running string) error {
	w, err := version.ParseGeneric(written)
	if err != nil {
		return fmt.Errorf("%s was written by %q, which is no version: %w", what, written, err)
	}
	r, err := version.ParseGeneric(running)
	if err != nil {
		return fmt.Errorf("the running version %q is no version: %w", running, err)
	}
	if w.Major() > r.Major() || w.Major() == r.Major() && w.Minor() > r.Minor() {
		return &NewerError{What: what, Written: written, Running: running}
	}
	return nil
}

func acquireLock(path string) (*os.File, error) {
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

// WriteFileAtomically replaces path with content, so that a reader and a crash at any
// moment see the old or the new content whole.
func WriteFileAtomically(path string, content []byte, mode fs.FileMode) error {
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
	if err == nil {
		err = SyncDirectory(filepath.Dir(path))
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// SyncDirectory makes the names in a directory durable.
func SyncDirectory(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return nil
}
