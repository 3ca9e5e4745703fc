package gitfetch

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/storer"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"github.com/go-git/go-git/v5/storage/filesystem"
	"github.com/go-git/go-git/v5/storage/memory"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/sources/render"
)

// fetched are the commits that one child has read, by hash.
type fetched struct {
	server  *gitServer
	session transport.UploadPackSession
	refs    *packp.AdvRefs
	dir     string
	commits map[plumbing.Hash]storedCommit
}

// storedCommit is a commit and the store of its objects.
type storedCommit struct {
	*object.Commit
	store storer.EncodedObjectStorer
}

// readContents reads the content of each Source. Each commit is fetched once.
func (s *gitServer) readContents(ctx context.Context, wants []Want, dir string) ([]Content, error) {
	session, refs, err := s.listRefs(ctx)
	if err != nil {
		if len(wants) == 0 && errors.Is(err, transport.ErrEmptyRemoteRepository) {
			return nil, nil
		}
		return nil, err
	}
	f := &fetched{server: s, session: session, refs: refs, dir: dir, commits: map[plumbing.Hash]storedCommit{}}
	out := make([]Content, 0, len(wants))
	size := 0
	for _, w := range wants {
		c := f.readContent(ctx, w)
		n := 0
		for i := range c.Objects {
			raw, err := json.Marshal(c.Objects[i].Fields)
			if err != nil {
				return nil, err
			}
			n += len(raw)
		}
		if size+n > maxContentsBytes && size > 0 {
			c = Content{ID: w.ID, Postponed: true}
			n = 0
		}
		size += n
		out = append(out, c)
	}
	return out, nil
}

// readContent reads the content of one Source.
func (f *fetched) readContent(ctx context.Context, w Want) Content {
	c := Content{ID: w.ID}
	hash, err := resolveRef(f.refs, w.Ref)
	if err != nil {
		c.Failure = failureOf(err)
		return c
	}
	c.Commit = hash.String()
	if w.SeenCommit == c.Commit {
		c.Digest, c.Unchanged = w.SeenDigest, true
		return c
	}
	before := *f.server.packLeft
	commit, err := f.openCommit(ctx, hash)
	if errors.Is(err, errTooLarge) && before < maxPackBytes {
		// Other commits took their part of the bytes, so this one is left to a child that begins with it.
		return Content{ID: w.ID, Postponed: true}
	}
	if err != nil {
		c.Failure = failureOf(err)
		return c
	}
	c.Message, c.Author = firstLine(commit.Message), firstLine(commit.Author.Name)
	if err := readFiles(commit, w, &c); err != nil {
		c.Failure = failureOf(err)
		c.Objects, c.Problems = nil, nil
	}
	return c
}

// openCommit fetches a commit, once.
func (f *fetched) openCommit(ctx context.Context, hash plumbing.Hash) (storedCommit, error) {
	if c, ok := f.commits[hash]; ok {
		return c, nil
	}
	store := filesystem.NewStorage(osfs.New(filepath.Join(f.dir, hash.String())), cache.NewObjectLRU(8*cache.MiByte))
	if err := f.server.fetchCommit(ctx, f.session, f.refs, hash, store); err != nil {
		return storedCommit{}, err
	}
	c, err := object.GetCommit(store, hash)
	if err != nil {
		return storedCommit{}, newFailure(atoll.ReasonRefMissing, "the server does not send the commit %s", hash)
	}
	f.commits[hash] = storedCommit{c, store}
	return f.commits[hash], nil
}

// file is a file of a commit that may hold objects.
type file struct {
	name string
	hash plumbing.Hash
}

// readFiles reads the files that a Source selects.
func readFiles(commit storedCommit, w Want, c *Content) error {
	root, err := commit.Tree()
	if err != nil {
		return fmt.Errorf("read the directory of the commit: %w", err)
	}
	l := &lister{store: commit.store, root: root, want: w, left: maxTreeEntries}
	if err := l.listTree(root, "", 0); err != nil {
		return err
	}
	slices.SortFunc(l.files, func(a, b file) int { return cmp.Compare(a.name, b.name) })
	c.Digest = digestFiles(l.files, l.problems)
	if c.Digest == w.SeenDigest {
		c.Unchanged = true
		return nil
	}
	r := &render.Reader{Problems: l.problems}
	for _, one := range l.files {
		if r.IsFull() {
			break
		}
		if err := readFile(commit.store, one, r); err != nil {
			return err
		}
	}
	c.Objects, c.Problems = r.Objects, r.Problems
	if len(c.Problems) > 0 {
		c.Objects = nil
	}
	return nil
}

// readFile reads one file. Its size is checked first.
func readFile(store storer.EncodedObjectStorer, one file, r *render.Reader) error {
	blob, err := object.GetBlob(store, one.hash)
	if err != nil {
		return fmt.Errorf("read a file of the commit: %w", err)
	}
	if blob.Size > render.MaxFileBytes {
		r.ReportProblem(one.name, 0, "the file has more than %d bytes", render.MaxFileBytes)
		return nil
	}
	from, err := blob.Reader()
	if err != nil {
		return fmt.Errorf("read a file of the commit: %w", err)
	}
	defer from.Close()
	text, err := io.ReadAll(io.LimitReader(from, render.MaxFileBytes+1))
	if err != nil {
		return fmt.Errorf("read a file of the commit: %w", err)
	}
	r.ReadFile(one.name, text)
	return nil
}

// lister lists the files of a tree that a Source selects.
type lister struct {
	store    storer.EncodedObjectStorer
	root     *object.Tree
	want     Want
	left     int
	files    []file
	problems []render.Problem
}

// listTree lists the files below a directory, without following links.
func (l *lister) listTree(t *object.Tree, dir string, depth int) error {
	if depth > maxTreeDepth {
		return newFailure(atoll.ReasonContentTooLarge, "directories are more than %d deep", maxTreeDepth)
	}
	for _, e := range t.Entries {
		if l.left--; l.left < 0 {
			return newFailure(atoll.ReasonContentTooLarge, "the paths of the Source have more than %d files and directories; narrow spec.paths", maxTreeEntries)
		}
		if err := l.addEntry(e, strings.TrimPrefix(dir+"/"+e.Name, "/"), depth); err != nil || len(l.problems) >= render.MaxProblems {
			return err
		}
	}
	return nil
}

// addEntry adds a file that the Source selects, or the files below a directory.
func (l *lister) addEntry(e object.TreeEntry, name string, depth int) error {
	if !isEntryName(e.Name) {
		return newFailure(atoll.ReasonFetchFailed, "the commit has a file with a name that no file can have")
	}
	isContent := render.IsContentFile(name) && render.IsSelected(name, l.want.Paths, l.want.Exclude)
	switch {
	case e.Mode == filemode.Symlink:
		l.addLink(e, name, isContent)
	case e.Mode.IsFile() && isContent:
		l.files = append(l.files, file{name, e.Hash})
	case e.Mode.IsFile() || !l.mayContain(name):
	case e.Mode == filemode.Submodule:
		l.reportSkipped(name, "the directory is a submodule, which is not read; exclude it or commit its files")
	case e.Mode == filemode.Dir:
		below, err := object.GetTree(l.store, e.Hash)
		if err != nil {
			return fmt.Errorf("read a directory of the commit: %w", err)
		}
		return l.listTree(below, name, depth+1)
	}
	if len(l.files) > render.MaxFiles {
		return newFailure(atoll.ReasonContentTooLarge, "the Source has more than %d files; divide it into several", render.MaxFiles)
	}
	return nil
}

// isEntryName reports whether a file or a directory can have a name.
func isEntryName(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsRune(name, '/')
}

// addLink reports a symbolic link that is in the place of a file of content, or of a directory.
func (l *lister) addLink(e object.TreeEntry, name string, isContent bool) {
	switch {
	case isContent:
		l.reportSkipped(name, "the file is a symbolic link, which is not followed; exclude it or commit the file")
	case !render.IsContentFile(name) && l.mayContain(name) && !l.leadsToFile(e, name):
		l.reportSkipped(name, "the directory is a symbolic link, which is not followed; exclude it or commit the files")
	}
}

// reportSkipped reports an entry that may hold objects and is not read. Without it, what the entry held would look
// like what a commit dropped.
func (l *lister) reportSkipped(name, why string) {
	l.problems = append(l.problems, render.Problem{File: name, Message: why})
}

// leadsToFile reports whether a symbolic link leads to a file of the commit, which is then no file of content.
func (l *lister) leadsToFile(e object.TreeEntry, name string) bool {
	blob, err := object.GetBlob(l.store, e.Hash)
	if err != nil || blob.Size > maxLinkBytes {
		return false
	}
	from, err := blob.Reader()
	if err != nil {
		return false
	}
	defer from.Close()
	target, err := io.ReadAll(io.LimitReader(from, maxLinkBytes))
	if err != nil || path.IsAbs(string(target)) {
		return false
	}
	at := path.Join(path.Dir(name), string(target))
	if at == ".." || strings.HasPrefix(at, "../") {
		return false
	}
	found, err := l.root.FindEntry(at)
	return err == nil && found.Mode.IsFile() && found.Mode != filemode.Symlink
}

// mayContain reports whether a directory can contain files of the Source.
func (l *lister) mayContain(dir string) bool {
	if strings.HasPrefix(filepath.Base(dir), ".") || slices.ContainsFunc(l.want.Exclude, func(p string) bool { return render.MatchPattern(p, dir) }) {
		return false
	}
	return len(l.want.Paths) == 0 || slices.ContainsFunc(l.want.Paths, func(p string) bool {
		p = render.CleanPath(p)
		return p == "" || p == dir || strings.HasPrefix(p, dir+"/") || strings.HasPrefix(dir, p+"/")
	})
}

// digestFiles returns a digest of the names and contents of files.
func digestFiles(files []file, problems []render.Problem) string {
	h := sha256.New()
	for _, f := range files {
		fmt.Fprintf(h, "%s %s\n", f.hash, f.name)
	}
	for _, p := range problems {
		fmt.Fprintf(h, "problem %s\n", p.File)
	}
	return hex.EncodeToString(h.Sum(nil))[:32]
}

// firstLine returns the first line of a text, bounded.
func firstLine(text string) string {
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, ""))
	const most = 200
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "")
	}
	return text
}

// maxHistory is how many commits may be between two commits of a Source.
const maxHistory = 10_000

// isDescendant reports whether a commit descends from another one. A server that has not got the old commit
// any more sends the whole history, which does not have it.
func (s *gitServer) isDescendant(ctx context.Context, d Descent) (bool, error) {
	session, refs, err := s.listRefs(ctx)
	if err != nil {
		return false, err
	}
	old, now := plumbing.NewHash(d.Old), plumbing.NewHash(d.New)
	req := newPackRequest(refs, now)
	req.Haves = append(req.Haves, old)
	if refs.Capabilities.Supports(capability.Filter) {
		if err := req.Capabilities.Set(capability.Filter); err != nil {
			return false, err
		}
		req.Filter = packp.FilterTreeDepth(0)
	}
	store := memory.NewStorage()
	if err := readPack(ctx, session, req, store); err != nil {
		return false, err
	}
	return reachesCommit(store, now, old), nil
}

// reachesCommit reports whether commits of a store lead from one commit to another.
func reachesCommit(store storer.EncodedObjectStorer, from, to plumbing.Hash) bool {
	seen := map[plumbing.Hash]bool{}
	next := []plumbing.Hash{from}
	for len(next) > 0 && len(seen) < maxHistory {
		hash := next[0]
		next = next[1:]
		if hash == to {
			return true
		}
		if seen[hash] {
			continue
		}
		seen[hash] = true
		if c, err := object.GetCommit(store, hash); err == nil {
			next = append(next, c.ParentHashes...)
		}
	}
	return false
}
