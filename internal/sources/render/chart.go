package render

import (
	"errors"
	"io/fs"
	"path"
	"strings"
	"time"

	"helm.sh/helm/v4/pkg/ignore"
)

// maxIgnoreBytes is the largest .helmignore. Each of its patterns is compared with each file.
const maxIgnoreBytes = 8 << 10

// selectChart selects the files of a chart but those that its .helmignore leaves out.
func (s *selector) selectChart(b *Build) error {
	e, _, err := s.findEntry(b.Dir)
	if err != nil {
		return err
	}
	rules := ignore.Empty()
	at := path.Join(b.Dir, ignore.HelmIgnore)
	if file, ok, err := s.findIncluded(at); err != nil {
		return err
	} else if ok && file.Mode == ModeFile {
		text, err := s.tree.Read(at, file, maxIgnoreBytes)
		if errors.Is(err, ErrTooLarge) {
			s.reportProblem(at, "the file has more than %d bytes", maxIgnoreBytes)
			return nil
		}
		if err != nil {
			return err
		}
		if rules, err = ignore.Parse(strings.NewReader(string(text))); err != nil {
			s.reportProblem(at, "it cannot be read: %s", oneLine(err.Error()))
			return nil
		}
	}
	rules.AddDefaults()
	return s.listChart(e, b.Dir, b, rules)
}

// listChart lists the files of a chart below a directory.
func (s *selector) listChart(e Entry, dir string, b *Build, rules *ignore.Rules) error {
	entries, err := s.listDirectory(dir, e)
	if err != nil {
		return err
	}
	for _, one := range entries {
		name := path.Join(dir, one.Name)
		inside := strings.TrimPrefix(strings.TrimPrefix(name, b.Dir), "/")
		if s.isExcluded(name) || rules.Ignore(inside, entryInfo{one}) {
			continue
		}
		switch one.Mode {
		case ModeLink:
			s.reportProblem(name, "it is a symbolic link, which is not followed; commit the file, or leave it out by %s or spec.exclude", ignore.HelmIgnore)
		case ModeSubmodule:
			s.reportProblem(name, "the directory is a submodule, which is not read; commit its files, or leave it out by %s or spec.exclude", ignore.HelmIgnore)
		case ModeFile:
			s.files[name] = one
			b.Files = append(b.Files, name)
		case ModeDirectory:
			if err := s.listChart(one, name, b, rules); err != nil {
				return err
			}
		}
		if len(s.files) > MaxFiles {
			return errTooManyFiles
		}
	}
	return nil
}

// entryInfo is an entry as the rules of .helmignore see it.
type entryInfo struct{ e Entry }

// Name returns the name.
func (i entryInfo) Name() string { return i.e.Name }

// Size returns nothing, which the rules do not read.
func (i entryInfo) Size() int64 { return 0 }

// Mode returns whether it is a directory.
func (i entryInfo) Mode() fs.FileMode {
	if i.IsDir() {
		return fs.ModeDir
	}
	return 0
}

// ModTime returns nothing, which the rules do not read.
func (i entryInfo) ModTime() time.Time { return time.Time{} }

// IsDir reports whether it is a directory.
func (i entryInfo) IsDir() bool { return i.e.Mode == ModeDirectory }

// Sys returns nothing.
func (i entryInfo) Sys() any { return nil }
