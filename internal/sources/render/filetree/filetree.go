// Package filetree reads a directory as a commit of its files would be read.
//
// Contract: a Tree reads its file system and nothing outside of it, follows no symbolic link, and changes nothing. The
// directory .git is left out. Entries have no hashes. A Tree is safe for concurrent use when its file
// system is.
package filetree

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"

	"atoll.dev/atoll/internal/sources/render"
)

// Tree is the files of a file system.
type Tree struct{ FS fs.FS }

// Root returns the root.
func (t Tree) Root() render.Entry { return render.Entry{Mode: render.ModeDirectory} }

// List lists a directory.
func (t Tree) List(dir string, _ render.Entry) ([]render.Entry, error) {
	found, err := fs.ReadDir(t.FS, path.Join(".", dir))
	if err != nil {
		return nil, fmt.Errorf("read a directory: %w", err)
	}
	out := make([]render.Entry, 0, len(found))
	for _, one := range found {
		if one.Name() != ".git" {
			out = append(out, render.Entry{Name: one.Name(), Mode: modeOf(one.Type())})
		}
	}
	return out, nil
}

// modeOf returns the mode of an entry.
func modeOf(m fs.FileMode) render.Mode {
	switch {
	case m.IsDir():
		return render.ModeDirectory
	case m.IsRegular():
		return render.ModeFile
	case m&fs.ModeSymlink != 0:
		return render.ModeLink
	}
	return render.ModeOther
}

// Read returns the content of a file, or the target of a link.
func (t Tree) Read(name string, e render.Entry, most int64) ([]byte, error) {
	if e.Mode == render.ModeLink {
		target, err := fs.ReadLink(t.FS, name)
		if err != nil {
			return nil, fmt.Errorf("read a link: %w", err)
		}
		return []byte(target), nil
	}
	f, err := t.FS.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read a file: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	switch err = errors.Join(err, f.Close()); {
	case err != nil:
		return nil, fmt.Errorf("read a file: %w", err)
	case int64(len(text)) > most:
		return nil, render.ErrTooLarge
	}
	return text, nil
}
