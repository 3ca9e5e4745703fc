package gitfetch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

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
	// building is how long builds took.
	building time.Duration
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
		for i := range c.Variants {
			n += c.Variants[i].CountBytes()
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
	err = f.readFiles(ctx, commit, w, &c)
	if errors.Is(err, errBuildsTooLong) {
		return Content{ID: w.ID, Postponed: true}
	}
	if err != nil {
		c.Result = render.Result{Failure: failureOf(err)}
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

// readFiles reads the files that a Source selects.
func (f *fetched) readFiles(ctx context.Context, commit storedCommit, w Want, c *Content) error {
	t := commitTree{store: commit.store, root: commit.TreeHash.String()}
	selected, err := render.Select(t, w.Want)
	if err != nil {
		return err
	}
	if c.Digest = selected.Digest(); c.Digest == w.SeenDigest {
		c.Unchanged = true
		return nil
	}
	c.Result, err = selected.Render(t, func(j render.Job) (render.Result, error) { return f.runJob(ctx, j) })
	return err
}

// errBuildsTooLong ends the builds of a child that took their time. The next child has what is left.
var errBuildsTooLong = errors.New("the builds of a fetch have taken their time")

// runJob builds a content in a process without network. The first one has all the time of a Job. A later one ends with
// the time of all builds, so that what is built reaches the hub within the timeout of this process.
func (f *fetched) runJob(ctx context.Context, j render.Job) (render.Result, error) {
	if f.building == 0 {
		began := time.Now()
		defer func() { f.building = max(time.Since(began), 1) }()
		return f.server.builds.Run(ctx, j)
	}
	limited, cancel := context.WithTimeout(ctx, buildTime-f.building)
	defer cancel()
	began := time.Now()
	result, err := f.server.builds.Run(limited, j)
	f.building += time.Since(began)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return render.Result{}, errBuildsTooLong
	}
	return result, err
}

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
