package render

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"atoll.dev/atoll/internal/atoll"
)

// Bounds of one listing.
const (
	// MaxListedEntries is the most directories, or documents of files.
	MaxListedEntries = 1000
	// MaxListedFileBytes is the largest file with parameters.
	MaxListedFileBytes = 64 << 10
	// MaxListedBytes is the most bytes of all parameters in JSON.
	MaxListedBytes = 1 << 20
)

// ListingWant is the directories, or the files with parameters, that a generator lists.
type ListingWant struct {
	// Files is true for files, and false for directories.
	Files   bool     `json:"files,omitempty"`
	Paths   []string `json:"paths"`
	Exclude []string `json:"exclude,omitempty"`
}

// Listing is what a ListingWant finds.
type Listing struct {
	Entries []ListedEntry `json:"entries,omitempty"`
}

// ListedEntry is a directory, or a document of a file with its parameters.
type ListedEntry struct {
	Path string `json:"path"`
	// Line of the document in its file, from 1.
	Line int `json:"line,omitempty"`
	// Values are the parameters of a document, a map in JSON.
	Values json.RawMessage `json:"values,omitempty"`
}

// Digest returns a digest of the listing.
func (l *Listing) Digest() string {
	raw, err := json.Marshal(l)
	if err != nil {
		panic(fmt.Sprintf("render: a listing cannot be encoded: %v", err))
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// CountBytes returns the bytes of the parameters.
func (l *Listing) CountBytes() (n int) {
	for _, e := range l.Entries {
		n += len(e.Path) + len(e.Values)
	}
	return n
}

// List lists a tree. A problem makes the whole listing incomplete. The error is a *Failure, or one of the tree.
func List(t Tree, w ListingWant) (*Listing, []Problem, error) {
	l := &lister{selector: &selector{boundedTree: newBoundedTree(t), want: Want{Exclude: w.Exclude}, Selection: &Selection{files: map[string]Entry{}}}, request: w}
	if err := l.listDirectoryBelow(t.Root(), ""); err != nil {
		return nil, nil, err
	}
	if problems := slices.Concat(l.problems, l.reader.Problems); len(problems) > 0 {
		return nil, problems[:min(len(problems), MaxProblems)], nil
	}
	slices.SortStableFunc(l.out.Entries, func(a, b ListedEntry) int { return strings.Compare(a.Path, b.Path) })
	return &l.out, nil, nil
}

// lister lists a tree.
type lister struct {
	*selector
	request ListingWant
	// reader reports the problems of documents.
	reader Reader
	out    Listing
	bytes  int
}

// listDirectoryBelow lists the entries of a directory, and those below it that a pattern can match.
func (l *lister) listDirectoryBelow(e Entry, dir string) error {
	entries, err := l.listDirectory(dir, e)
	if err != nil {
		return err
	}
	slices.SortFunc(entries, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	for _, one := range entries {
		name := path.Join(dir, one.Name)
		if strings.HasPrefix(one.Name, ".") || l.isExcluded(name) {
			continue
		}
		whole, below := l.matchPaths(name)
		if err := l.addListed(one, name, whole, below); err != nil || len(l.problems)+len(l.reader.Problems) >= MaxProblems {
			return err
		}
	}
	return nil
}

// matchPaths reports whether a pattern matches a path, and whether one can match a path below it.
func (l *lister) matchPaths(name string) (whole, below bool) {
	for _, pattern := range l.request.Paths {
		isWhole, isBelow := MatchWhole(pattern, name)
		whole, below = whole || isWhole, below || isBelow
	}
	return whole, below
}

// addListed adds an entry of a directory, and lists what is below.
func (l *lister) addListed(e Entry, name string, whole, below bool) error {
	switch {
	case !whole && !below:
		return nil
	case e.Mode == ModeLink:
		return l.addListedLink(e, name, whole, below)
	case e.Mode == ModeSubmodule && (below || whole && !l.request.Files):
		l.reportProblem(name, "the directory is a submodule, which is not read; exclude it or commit its files")
	case e.Mode == ModeFile && whole && l.request.Files:
		return l.addDocuments(e, name)
	case e.Mode == ModeDirectory:
		return l.addListedDirectory(e, name, whole, below)
	}
	return nil
}

// addListedDirectory adds a directory that a pattern matches, and lists what is below one that a pattern can lead into.
func (l *lister) addListedDirectory(e Entry, name string, whole, below bool) error {
	if whole && !l.request.Files {
		if err := l.addEntryOf(ListedEntry{Path: name}); err != nil {
			return err
		}
	}
	if !below {
		return nil
	}
	return l.listDirectoryBelow(e, name)
}

// addListedLink reports a symbolic link in the place of what is listed. Without it, what the link hides would look like what a commit
// dropped.
func (l *lister) addListedLink(e Entry, name string, whole, below bool) error {
	if l.request.Files && whole {
		l.reportProblem(name, "the file is a symbolic link, which is not followed; exclude it or commit the file")
		return nil
	}
	isFile, err := l.leadsToFile(e, name)
	if err == nil && !isFile && (below || !l.request.Files) {
		l.reportProblem(name, "the directory is a symbolic link, which is not followed; exclude it or commit the files")
	}
	return err
}

// addEntryOf adds an entry within the bounds.
func (l *lister) addEntryOf(e ListedEntry) error {
	if l.bytes += len(e.Path) + len(e.Values); l.bytes > MaxListedBytes {
		return NewFailure(atoll.ReasonContentTooLarge, "%s: the generator finds more than %d bytes of parameters; narrow its paths", e.Path, MaxListedBytes)
	}
	if len(l.out.Entries) >= MaxListedEntries {
		return NewFailure(atoll.ReasonContentTooLarge, "%s: the generator finds more than %d entries; narrow its paths", e.Path, MaxListedEntries)
	}
	l.out.Entries = append(l.out.Entries, e)
	return nil
}

// addDocuments adds the documents of a file. A document is a map of parameters, or a list of maps.
func (l *lister) addDocuments(e Entry, name string) error {
	text, err := l.tree.Read(name, e, MaxListedFileBytes)
	if errors.Is(err, ErrTooLarge) {
		l.reportProblem(name, "the file has more than %d bytes", MaxListedFileBytes)
		return nil
	}
	if err != nil {
		return err
	}
	before, problems := len(l.out.Entries), len(l.reader.Problems)
	for _, d := range splitDocuments(normalizeText(text)) {
		if err := l.addDocument(name, d); err != nil {
			return err
		}
	}
	if len(l.out.Entries) == before && len(l.reader.Problems) == problems {
		l.reportProblem(name, "the file has no parameters; exclude it, or give it a map")
	}
	return nil
}

// addDocument adds the maps of a document.
func (l *lister) addDocument(name string, d document) error {
	raw, ok := l.reader.decodeDocument(name, d)
	if !ok || len(raw) == 0 {
		return nil
	}
	line := d.firstLine()
	if raw[0] != '[' {
		return l.addMap(name, line, raw)
	}
	var items []json.RawMessage
	if err := json.Unmarshal(raw, &items); err != nil {
		return fmt.Errorf("read a list of parameters: %w", err)
	}
	for _, item := range items {
		if err := l.addMap(name, line, item); err != nil {
			return err
		}
	}
	return nil
}

// addMap adds one map of parameters.
func (l *lister) addMap(name string, line int, raw json.RawMessage) error {
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || raw[0] != '{' {
		l.reader.ReportProblem(name, line, "it is no map of parameters, and no list of such maps")
		return nil
	}
	return l.addEntryOf(ListedEntry{Path: name, Line: line, Values: raw})
}

// MatchWhole reports whether a pattern matches a path to its end, and whether it can match a path below. * stands for any
// characters but /, ? for one, and ** for any directories.
func MatchWhole(pattern, name string) (whole, below bool) {
	parts := strings.Split(strings.Trim(pattern, "/"), "/")
	// reached[i] is true when the first i parts match the names so far.
	reached := make([]bool, len(parts)+1)
	reached[0] = true
	skipDirectories(parts, reached)
	for one := range strings.SplitSeq(name, "/") {
		next := make([]bool, len(parts)+1)
		for i, part := range parts {
			switch {
			case !reached[i]:
			case part == "**":
				next[i] = true
			default:
				matched, err := path.Match(part, one)
				next[i+1] = next[i+1] || matched && err == nil
			}
		}
		skipDirectories(parts, next)
		reached = next
	}
	return reached[len(parts)], slices.Contains(reached[:len(parts)], true)
}
