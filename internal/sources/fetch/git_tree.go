package fetch

import (
	"fmt"
	"io"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"

	"atoll.dev/atoll/internal/sources/render"
)

// commitTree is the files of a commit.
type commitTree struct {
	store storer.EncodedObjectStorer
	root  string
}

// Root returns the root of the commit.
func (t commitTree) Root() render.Entry {
	return render.Entry{Mode: render.ModeDirectory, Hash: t.root}
}

// List lists a directory.
func (t commitTree) List(_ string, e render.Entry) ([]render.Entry, error) {
	tree, err := object.GetTree(t.store, plumbing.NewHash(e.Hash))
	if err != nil {
		return nil, fmt.Errorf("read a directory of the commit: %w", err)
	}
	out := make([]render.Entry, 0, len(tree.Entries))
	for _, one := range tree.Entries {
		out = append(out, render.Entry{Name: one.Name, Mode: modeOf(one.Mode), Hash: one.Hash.String()})
	}
	return out, nil
}

// modeOf returns the mode of an entry.
func modeOf(m filemode.FileMode) render.Mode {
	switch {
	case m == filemode.Symlink:
		return render.ModeLink
	case m == filemode.Submodule:
		return render.ModeSubmodule
	case m == filemode.Dir:
		return render.ModeDirectory
	case m.IsFile():
		return render.ModeFile
	}
	return render.ModeOther
}

// Read reads one file. Its size is checked first.
func (t commitTree) Read(_ string, e render.Entry, most int64) ([]byte, error) {
	blob, err := object.GetBlob(t.store, plumbing.NewHash(e.Hash))
	if err != nil {
		return nil, fmt.Errorf("read a file of the commit: %w", err)
	}
	if blob.Size > most {
		return nil, render.ErrTooLarge
	}
	from, err := blob.Reader()
	if err != nil {
		return nil, fmt.Errorf("read a file of the commit: %w", err)
	}
	defer from.Close()
	text, err := io.ReadAll(io.LimitReader(from, most))
	if err != nil {
		return nil, fmt.Errorf("read a file of the commit: %w", err)
	}
	return text, nil
}
