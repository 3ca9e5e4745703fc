package interpret

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"atoll.dev/atoll/internal/kinds/script"
	"atoll.dev/atoll/internal/phrase"
)

// The bounds of a directory or an artifact with interpreters.
const (
	maxTreeFiles  = 100_000  // visited
	maxSourceFile = 4 << 20  // bytes of a file that can hold interpreters
	maxSources    = 64 << 20 // bytes of all of them
)

// treeReader collects the files of a directory or an artifact. It keeps the bounds.
type treeReader struct {
	files   map[string][]byte // by path
	visited int
	bytes   int64
	skipped []string // sentences about what was left out
}

// countVisited counts a file or a directory.
func (r *treeReader) countVisited() error {
	if r.visited++; r.visited > maxTreeFiles {
		return fmt.Errorf("it has more than %d files: give the directory of the interpreters alone", maxTreeFiles)
	}
	return nil
}

// addFile reads a file of a given size.
func (r *treeReader) addFile(name string, size int64, from io.Reader) error {
	if size > maxSourceFile {
		return fmt.Errorf("%s has more than %d MiB: an interpreter is smaller; move the file elsewhere", name, maxSourceFile>>20)
	}
	text, err := readBounded(from, maxSourceFile)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if r.bytes += int64(len(text)); r.bytes > maxSources {
		return fmt.Errorf("its YAML, JSON and health.lua files have more than %d MiB: give the directory of the interpreters alone", maxSources>>20)
	}
	r.files[name] = text
	return nil
}

// sourceTree returns what was read.
func (r *treeReader) sourceTree(name, location string) script.SourceTree {
	t := script.SourceTree{Name: name, Location: location}
	for path, text := range r.files {
		t.Files = append(t.Files, script.SourceFile{Path: path, Text: text})
	}
	return t
}

// readBounded reads at most limit bytes. More are an error.
func readBounded(from io.Reader, limit int64) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(from, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = fmt.Errorf("it has more than %d MiB", limit>>20)
	}
	return text, err
}

// convertDirectory converts the interpreters of a directory and of all directories below. A symbolic
// link to a file in the directory is read; other links are not followed.
func convertDirectory(dir string) (*script.ConvertedTree, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	location, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	r := &treeReader{files: map[string][]byte{}}
	if err := r.walkRoot(root); err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	out := script.ConvertTree(r.sourceTree(dir, filepath.ToSlash(location)))
	out.Skipped = append(out.Skipped, r.skipped...)
	return out, nil
}

func (r *treeReader) walkRoot(root *os.Root) error {
	return fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil {
			err = r.countVisited()
		}
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && script.IsSkippedDirectory(path.Base(name)):
			return fs.SkipDir
		case d.IsDir() || !script.IsInterpreterFile(name):
			return nil
		}
		return r.readRootFile(root, name)
	})
}

func (r *treeReader) readRootFile(root *os.Root, name string) error {
	info, err := root.Stat(name)
	switch {
	case err != nil && isSymlink(root, name):
		r.skipped = append(r.skipped, fmt.Sprintf("%s is skipped: it links to no file in %s", path.Join(root.Name(), name), root.Name()))
		return nil
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return nil
	}
	f, err := root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	return r.addFile(name, info.Size(), f)
}

func isSymlink(root *os.Root, name string) bool {
	info, err := root.Lstat(name)
	return err == nil && info.Mode()&fs.ModeSymlink != 0
}

// isDirectory reports whether the name is that of a directory.
func isDirectory(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

// invalidError returns the error that lists all interpreters that are not valid; nil where all are.
func invalidError(t *script.ConvertedTree) error {
	if len(t.Invalid) == 0 {
		return nil
	}
	are := map[bool]string{true: "is", false: "are"}[len(t.Invalid) == 1]
	return fmt.Errorf("%s %s not valid:\n%w", phrase.CountNoun(len(t.Invalid), "interpreter"), are, errors.Join(t.Invalid...))
}
