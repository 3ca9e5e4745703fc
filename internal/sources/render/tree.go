package render

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"atoll.dev/atoll/internal/atoll"
)

// Mode of an entry of a Tree.
type Mode int

// The modes of entries.
const (
	ModeFile Mode = iota
	ModeDirectory
	ModeLink
	ModeSubmodule
	// ModeOther is a socket, a device or another entry that holds nothing.
	ModeOther
)

// Entry is a file, a directory or a link.
type Entry struct {
	// Name in its directory.
	Name string
	Mode Mode
	// Hash of the content where the tree has one.
	Hash string
}

// Tree is the files of a commit, or those of a directory. Paths are relative to its root, which is empty.
type Tree interface {
	// List lists a directory. The entry is the one of an earlier call; its name is left out for the root.
	List(dir string, e Entry) ([]Entry, error)
	// Root is the entry of the root.
	Root() Entry
	// Read returns the content of a file, or the target of a link. The error of a larger one is ErrTooLarge.
	Read(name string, e Entry, most int64) ([]byte, error)
}

// ErrTooLarge is the error of a file that has more bytes than it may.
var ErrTooLarge = errors.New("the file is too large")

// Failure is why content could not be read.
type Failure struct {
	Reason  atoll.Reason `json:"reason"`
	Message string       `json:"message"`
}

// Error returns the message.
func (f *Failure) Error() string { return f.Message }

// NewFailure returns a failure.
func NewFailure(reason atoll.Reason, format string, args ...any) *Failure {
	return &Failure{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Bounds of a tree.
const (
	// MaxTreeEntries is the most entries of directories that are read for one Source.
	MaxTreeEntries = 200_000
	// MaxTreeDepth is how deep directories may be.
	MaxTreeDepth = 64
	// maxLinkBytes is the longest target of a symbolic link.
	maxLinkBytes = 4096
)

// boundedTree reads a tree, and counts the entries.
type boundedTree struct {
	tree Tree
	left int
	// listed are the directories that findEntry listed.
	listed map[string]map[string]Entry
}

func newBoundedTree(t Tree) *boundedTree {
	return &boundedTree{tree: t, left: MaxTreeEntries, listed: map[string]map[string]Entry{}}
}

// listDirectory lists a directory.
func (b *boundedTree) listDirectory(dir string, e Entry) ([]Entry, error) {
	if strings.Count(dir, "/") >= MaxTreeDepth {
		return nil, NewFailure(atoll.ReasonContentTooLarge, "directories are more than %d deep", MaxTreeDepth)
	}
	entries, err := b.tree.List(dir, e)
	if err != nil {
		return nil, err
	}
	if b.left -= len(entries); b.left < 0 {
		return nil, NewFailure(atoll.ReasonContentTooLarge, "the paths of the Source have more than %d files and directories; narrow spec.paths", MaxTreeEntries)
	}
	names := make(map[string]bool, len(entries))
	for _, one := range entries {
		if names[one.Name] {
			return nil, NewFailure(atoll.ReasonFetchFailed, "the commit has two files of one name in a directory, so readers could find other ones")
		}
		names[one.Name] = true
		if one.Name == "" || one.Name == "." || one.Name == ".." || strings.ContainsRune(one.Name, '/') {
			return nil, NewFailure(atoll.ReasonFetchFailed, "the commit has a file with a name that no file can have")
		}
	}
	return entries, nil
}

// findEntry returns the entry of a path, without following links; false when there is none.
func (b *boundedTree) findEntry(name string) (Entry, bool, error) {
	at, dir := b.tree.Root(), ""
	if name == "" {
		return at, true, nil
	}
	for part := range strings.SplitSeq(name, "/") {
		if at.Mode != ModeDirectory {
			return Entry{}, false, nil
		}
		known, ok := b.listed[dir]
		if !ok {
			entries, err := b.listDirectory(dir, at)
			if err != nil {
				return Entry{}, false, err
			}
			known = make(map[string]Entry, len(entries))
			for _, e := range entries {
				known[e.Name] = e
			}
			b.listed[dir] = known
		}
		next, ok := known[part]
		if !ok {
			return Entry{}, false, nil
		}
		at, dir = next, path.Join(dir, part)
	}
	return at, true, nil
}

// findLink returns the first symbolic link on the way to a path; empty when there is none.
func (b *boundedTree) findLink(name string) (string, error) {
	for i := range len(name) + 1 {
		if i < len(name) && name[i] != '/' {
			continue
		}
		if e, ok, err := b.findEntry(name[:i]); err != nil || ok && e.Mode == ModeLink {
			return name[:i], err
		}
	}
	return "", nil
}
