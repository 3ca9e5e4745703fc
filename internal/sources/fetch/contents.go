package fetch

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/sources/render"
	"atoll.dev/atoll/internal/sources/renderchild"
)

// repository is content at a place, of one type of Repositories. One goroutine uses it.
type repository interface {
	// readRefs reads what resolves all refs, where there is such a thing. Its error is of all contents.
	readRefs(ctx context.Context) error
	// resolveRef returns the revision that a ref has now. Content of a revision never changes.
	resolveRef(ctx context.Context, ref string) (string, error)
	// openRevision reads a revision.
	openRevision(ctx context.Context, revision string) (snapshot, error)
	// readCheckpoint returns what lets the hub confirm the refs that were resolved; nil where it resolves them itself.
	readCheckpoint() *Checkpoint
	// closeIdle closes the connections that no request uses.
	closeIdle()
}

// place is where a repository is read: in the hub, or in a child.
type place struct {
	// inHub is true in the hub's own process, which parses no index.
	inHub bool
	// maxText is the most bytes of a list of refs.
	maxText int64
	// dir is an empty directory of the child.
	dir string
	// seen is the index that a child read last.
	seen Checkpoint
}

// protocol is one type of Repositories.
type protocol struct {
	open func(Request, place) (repository, error)
	// compare reports whether a revision comes after another one, by their names alone; nil: readHistory does.
	compare     func(Descent) bool
	readHistory func(context.Context, repository, Descent) (bool, error)
}

// The types of Repositories, by the names of their fields in spec.
const (
	TypeGit  = "git"
	TypeHelm = "helm"
	TypeOCI  = "oci"
)

// protocols are all types of Repositories.
var protocols = map[string]protocol{
	TypeGit:  {open: openGit, readHistory: readGitHistory},
	TypeHelm: {open: openCharts, compare: isLaterVersion},
	TypeOCI:  {open: openArtifacts, readHistory: readArtifactHistory},
}

// openRepository prepares the connection to a Repository. Nothing is dialled yet.
func openRepository(r Request, of place) (repository, error) {
	p, known := protocols[r.Type]
	if !known {
		return nil, newFailure(atoll.ReasonInvalidField, "the Repository is of no type that this hub reads")
	}
	return p.open(r, of)
}

// snapshot is the files of a revision.
type snapshot struct {
	tree render.Tree
	// message and author are those of a commit.
	message, author string
	// signer is the key that signed an artifact or a chart, where one must.
	signer string
}

// errLater ends a revision for which others of the same child left no bytes. The next child begins with it.
var errLater = errors.New("other revisions took the bytes of this fetch")

// contentReader reads the contents of one child.
type contentReader struct {
	repository
	builds    renderchild.Runner
	revisions map[string]resolvedRef
	snapshots map[string]openedRevision
	// building is how long builds took.
	building time.Duration
	// mustBeSigned is true where no revision passes without a signer.
	mustBeSigned bool
}

// resolvedRef is what resolveRef returned, and openedRevision what openRevision returned.
type resolvedRef struct {
	revision string
	err      error
}

type openedRevision struct {
	snapshot
	err error
}

// newContentReader returns the reader of a child.
func newContentReader(of repository, builds renderchild.Runner) *contentReader {
	return &contentReader{repository: of, builds: builds, revisions: map[string]resolvedRef{}, snapshots: map[string]openedRevision{}}
}

// readContents reads the content of each Source. Each ref is resolved once, and each revision read once.
func (r *contentReader) readContents(ctx context.Context, wants []Want) ([]Content, error) {
	if err := r.readRefs(ctx); err != nil {
		return nil, err
	}
	out := make([]Content, 0, len(wants))
	size := 0
	for _, w := range wants {
		c := r.readContent(ctx, w)
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
		if c.Listing != nil {
			n += c.Listing.CountBytes()
		}
		if size+n > maxContentsBytes && size > 0 {
			c = Content{ID: w.ID, Postponed: true}
			n = 0
		}
		size += n
		out = append(out, c)
	}
	return out, failureOfServer(out)
}

// failureOfServer returns why the server gives no revision to any Source, as an error; nil where it gives one, or where a
// failure is of one Source.
func failureOfServer(contents []Content) error {
	var first *Failure
	for _, c := range contents {
		if c.Failure == nil || c.Commit != "" || !slices.Contains(serverReasons, c.Failure.Reason) {
			return nil
		}
		first = cmp.Or(first, c.Failure)
	}
	if first == nil {
		return nil
	}
	return first
}

// serverReasons are the reasons of a server, and not of what a Source reads of it.
var serverReasons = []atoll.Reason{
	atoll.ReasonRepositoryUnreachable, atoll.ReasonAddressRefused, atoll.ReasonRedirectRefused, atoll.ReasonCredentialsRefused, atoll.ReasonServerNotVerified, atoll.ReasonFetchTimedOut,
}

// readContent reads the content of one Source.
func (r *contentReader) readContent(ctx context.Context, w Want) Content {
	c := Content{ID: w.ID}
	revision, err := r.resolveOnce(ctx, w.Ref)
	if errors.Is(err, errLater) {
		return Content{ID: w.ID, Postponed: true}
	}
	if err != nil {
		c.Failure = failureOf(err)
		return c
	}
	c.Commit = revision
	if w.SeenCommit == revision {
		c.Digest, c.Unchanged = w.SeenDigest, true
		return c
	}
	opened, err := r.openOnce(ctx, revision)
	if errors.Is(err, errLater) {
		return Content{ID: w.ID, Postponed: true}
	}
	if err != nil {
		c.Failure = failureOf(err)
		return c
	}
	if c.Signer, err = r.verifyContent(w, revision, opened); err != nil {
		c.Failure = failureOf(err)
		return c
	}
	c.Message, c.Author = firstLine(opened.message), firstLine(opened.author)
	err = r.readFiles(ctx, opened.tree, w, &c)
	if errors.Is(err, errBuildsTooLong) {
		return Content{ID: w.ID, Postponed: true}
	}
	if err != nil {
		c.Result = render.Result{Failure: failureOf(err)}
	}
	return c
}

// resolveOnce resolves a ref, once.
func (r *contentReader) resolveOnce(ctx context.Context, ref string) (string, error) {
	known, ok := r.revisions[ref]
	if !ok {
		known.revision, known.err = r.resolveRef(ctx, ref)
		r.revisions[ref] = known
	}
	return known.revision, known.err
}

// openOnce reads a revision, once.
func (r *contentReader) openOnce(ctx context.Context, revision string) (snapshot, error) {
	known, ok := r.snapshots[revision]
	if !ok {
		known.snapshot, known.err = r.openRevision(ctx, revision)
		r.snapshots[revision] = known
	}
	return known.snapshot, known.err
}

// readFiles reads the files that a Source selects.
func (r *contentReader) readFiles(ctx context.Context, t render.Tree, w Want, c *Content) error {
	if w.Listing != nil {
		return readListing(t, w, c)
	}
	selected, err := render.Select(t, w.Want)
	if err != nil {
		return err
	}
	if c.Digest = selected.Digest(); c.Digest == w.SeenDigest {
		c.Unchanged = true
		return nil
	}
	c.Result, err = selected.Render(t, func(j render.Job) (render.Result, error) { return r.runJob(ctx, j) })
	return err
}

// readListing lists what a generator lists.
func readListing(t render.Tree, w Want, c *Content) (err error) {
	if c.Listing, c.Problems, err = render.List(t, *w.Listing); err != nil || c.Listing == nil {
		return err
	}
	if c.Digest = c.Listing.Digest(); c.Digest == w.SeenDigest {
		c.Listing, c.Unchanged = nil, true
	}
	return nil
}

// errBuildsTooLong ends the builds of a child that took their time. The next child has what is left.
var errBuildsTooLong = errors.New("the builds of a fetch have taken their time")

// runJob builds a content in a process without network. The first one has all the time of a Job. A later one ends with
// the time of all builds, so that what is built reaches the hub within the timeout of this process.
func (r *contentReader) runJob(ctx context.Context, j render.Job) (render.Result, error) {
	if r.building == 0 {
		began := time.Now()
		defer func() { r.building = max(time.Since(began), 1) }()
		return r.builds.Run(ctx, j)
	}
	limited, cancel := context.WithTimeout(ctx, buildTime-r.building)
	defer cancel()
	began := time.Now()
	result, err := r.builds.Run(limited, j)
	r.building += time.Since(began)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return render.Result{}, errBuildsTooLong
	}
	return result, err
}

// firstLine returns the first line of a text, bounded.
func firstLine(text string) string {
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	text = strings.Map(func(r rune) rune {
		if phrase.IsControl(r) {
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
