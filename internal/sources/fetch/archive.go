package fetch

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"path"
	"strings"

	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/ociartifact"
	"atoll.dev/atoll/internal/sources/render"
)

// archiveTree is the files of an archive, in memory.
type archiveTree struct {
	// texts are those of files, and the targets of links.
	texts map[string][]byte
	// entries of directories; that of the root has an empty name.
	entries map[string][]render.Entry
	modes   map[string]render.Mode
	visited int
}

func newArchiveTree() *archiveTree {
	return &archiveTree{texts: map[string][]byte{}, entries: map[string][]render.Entry{}, modes: map[string]render.Mode{"": render.ModeDirectory}}
}

// Root returns the root of the archive.
func (t *archiveTree) Root() render.Entry { return render.Entry{Mode: render.ModeDirectory} }

// List lists a directory.
func (t *archiveTree) List(dir string, _ render.Entry) ([]render.Entry, error) {
	return t.entries[dir], nil
}

// Read returns a file, or the target of a link.
func (t *archiveTree) Read(name string, _ render.Entry, most int64) ([]byte, error) {
	if int64(len(t.texts[name])) > most {
		return nil, render.ErrTooLarge
	}
	return t.texts[name], nil
}

// addEntry adds an entry with the directories above it. Each path is one entry: of two, one would hide what the other holds.
func (t *archiveTree) addEntry(name string, mode render.Mode, text []byte) error {
	before, had := t.modes[name]
	switch {
	case had && before == render.ModeDirectory && mode == render.ModeDirectory:
		return nil
	case had:
		return newFailure(atoll.ReasonContentInvalid, "the archive has the path %q twice", name)
	case strings.Count(name, "/") >= render.MaxTreeDepth:
		return newFailure(atoll.ReasonContentTooLarge, "directories of the archive are more than %d deep", render.MaxTreeDepth)
	}
	dir, base := "", name
	if i := strings.LastIndexByte(name, '/'); i >= 0 {
		dir, base = name[:i], name[i+1:]
		if err := t.addEntry(dir, render.ModeDirectory, nil); err != nil {
			return err
		}
	}
	if t.visited++; t.visited > maxArchiveEntries {
		return newFailure(atoll.ReasonContentTooLarge, "the archive has more than %d files and directories", maxArchiveEntries)
	}
	sum := sha256.Sum256(text)
	t.entries[dir] = append(t.entries[dir], render.Entry{Name: base, Mode: mode, Hash: hex.EncodeToString(sum[:])})
	t.modes[name] = mode
	if mode != render.ModeDirectory {
		t.texts[name] = text
	}
	return nil
}

// modeOfEntry returns the mode of an entry of an archive.
func modeOfEntry(m fs.FileMode) render.Mode {
	switch {
	case m.IsRegular():
		return render.ModeFile
	case m.IsDir():
		return render.ModeDirectory
	case m&fs.ModeSymlink != 0:
		return render.ModeLink
	}
	return render.ModeOther
}

// readChart returns the files of a chart's archive, and how many bytes it unpacks to. All of them lie in one directory, which is the root of the tree.
func readChart(archive []byte, most int64) (*archiveTree, int64, error) {
	t, unpacker, top := newArchiveTree(), ociartifact.NewUnpacker(most), ""
	err := unpacker.UnpackLayer(archive, "", func(e ociartifact.Entry, from io.Reader) error {
		dir, inside, _ := strings.Cut(e.Name, "/")
		mode := modeOfEntry(e.Mode)
		switch {
		case top != "" && dir != top || inside == "" && mode != render.ModeDirectory:
			return newFailure(atoll.ReasonContentInvalid, "the archive is none of a chart: its files are in several directories, or in none")
		case mode == render.ModeOther:
			return newFailure(atoll.ReasonContentInvalid, "the archive has %q, which is neither a file, a directory nor a link", e.Name)
		}
		if top = dir; inside == "" {
			return nil
		}
		text := []byte(e.Target)
		if mode == render.ModeFile {
			var err error
			if text, err = io.ReadAll(from); err != nil {
				return err
			}
		}
		return t.addEntry(inside, mode, text)
	})
	return t, unpacker.CountBytes(), classifyArchive(err, most)
}

// addLayer adds the files of a layer of an artifact: a tar, or a file with its title as the path.
func (t *archiveTree) addLayer(layer []byte, title string, unpacker *ociartifact.Unpacker) error {
	has := false
	err := unpacker.UnpackLayer(layer, title, func(e ociartifact.Entry, from io.Reader) error {
		has = true
		mode, text := modeOfEntry(e.Mode), []byte(e.Target)
		switch {
		case mode == render.ModeOther:
			return newFailure(atoll.ReasonContentInvalid, "the artifact has %q, which is neither a file, a directory nor a link", e.Name)
		case e.Name == "." && mode == render.ModeDirectory:
			return nil
		case mode == render.ModeFile:
			var err error
			if text, err = io.ReadAll(from); err != nil {
				return err
			}
		}
		return t.addEntry(e.Name, mode, text)
	})
	if err == nil && !has {
		err = newFailure(atoll.ReasonContentInvalid, "the artifact has a layer that is neither an archive of files nor a file with a title")
	}
	return err
}

// classifyArchive returns the failure of an archive that cannot be read.
func classifyArchive(err error, most int64) error {
	var known *Failure
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return known
	case errors.Is(err, ociartifact.ErrTooLarge):
		return newFailure(atoll.ReasonContentTooLarge, "the archive unpacks to more than %d bytes", most)
	}
	return newFailure(atoll.ReasonContentInvalid, "the archive is damaged, or has a path that leads out of it")
}

const chartFileName = "Chart.yaml"

// checkChart returns an error for files that are not those of a version of a chart: a server answered with others.
func (t *archiveTree) checkChart(name, version string) error {
	text, ok := t.texts[chartFileName]
	if !ok || t.modes[chartFileName] != render.ModeFile {
		return newFailure(atoll.ReasonContentInvalid, "the archive has no %s", path.Join(name, chartFileName))
	}
	if len(text) > render.MaxFileBytes {
		return newFailure(atoll.ReasonContentTooLarge, "%s has more than %d bytes", chartFileName, render.MaxFileBytes)
	}
	var is struct {
		Name    string `json:"name"`
		Version string `json:"version"`
	}
	if err := render.CheckAliases(text); err != nil || yaml.Unmarshal(text, &is) != nil {
		return newFailure(atoll.ReasonContentInvalid, "%s of the archive cannot be read", chartFileName)
	}
	if is.Name != name || is.Version != version {
		return newFailure(atoll.ReasonContentInvalid, "the archive is of another chart or another version: its %s does not state %s %s", chartFileName, name, version)
	}
	return nil
}
