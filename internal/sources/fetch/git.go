package fetch

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/sideband"
	"github.com/go-git/go-git/v5/plumbing/storer"
	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"
	"github.com/go-git/go-git/v5/storage/filesystem"
	"github.com/go-git/go-git/v5/storage/memory"

	"atoll.dev/atoll/internal/atoll"
)

// gitRepository is a git repository on a server. Its revisions are the hashes of commits.
type gitRepository struct {
	// connect begins a session. It dials nothing.
	connect func() (packSession, error)
	// packLeft is what the server may still send as packs, of all commits together.
	packLeft *int64
	// dir is where commits are stored.
	dir     string
	close   func()
	session packSession
	refs    *packp.AdvRefs
	// verifier verifies what is signed; nil: nothing must be.
	verifier *gitVerifier
}

// packSession is what a server offers to one reader. The list of refs is read once, before the packs.
type packSession interface {
	AdvertisedReferencesContext(context.Context) (*packp.AdvRefs, error)
	UploadPack(context.Context, *packp.UploadPackRequest) (*packp.UploadPackResponse, error)
}

// sshScheme is the scheme of repositories over SSH.
const sshScheme = "ssh"

// openGit prepares the connection. Nothing is dialled yet.
func openGit(r Request, of place) (repository, error) {
	verifier, err := newGitVerifier(r, of)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(r.URL)
	if err == nil && u.Scheme == sshScheme {
		return openSSH(r, of, verifier)
	}
	if err != nil || !isServerURL(u) {
		return nil, newFailure(atoll.ReasonInvalidField, "the URL is not https://HOST/PATH or http://HOST/PATH without credentials")
	}
	through, err := newTransport(u, r)
	if err != nil {
		return nil, err
	}
	at, err := transport.NewEndpoint(r.URL)
	if err != nil {
		return nil, newFailure(atoll.ReasonInvalidField, "the URL is not one of a git repository")
	}
	g := &gitRepository{packLeft: new(int64), dir: of.dir, verifier: verifier, close: through.CloseIdleConnections}
	*g.packLeft = maxPackBytes
	client := githttp.NewClientWithOptions(&http.Client{
		Transport: gitTransport{through, g.packLeft, of.maxText},
		CheckRedirect: func(to *http.Request, _ []*http.Request) error {
			if to.URL.Scheme != u.Scheme || to.URL.Host != u.Host {
				return errMoved
			}
			return nil
		},
	}, &githttp.ClientOptions{RedirectPolicy: githttp.FollowInitialRedirects})
	var auth transport.AuthMethod
	if r.Password != "" || r.Username != "" {
		auth = &githttp.BasicAuth{Username: r.Username, Password: r.Password}
	}
	g.connect = func() (packSession, error) { return client.NewUploadPackSession(at, auth) }
	return g, nil
}

// gitTransport bounds the bodies of answers.
type gitTransport struct {
	next     http.RoundTripper
	packLeft *int64
	maxText  int64
}

// RoundTrip bounds the body by the request. The text of an error is not read.
func (t gitTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	text := t.maxText
	body := &boundedBody{ReadCloser: resp.Body, left: &text, full: errTextTooLarge}
	switch {
	case resp.StatusCode >= http.StatusMultipleChoices:
		resp.Body.Close()
		resp.Body = http.NoBody
		return resp, nil
	case r.Method == http.MethodPost:
		body.left, body.full = t.packLeft, errTooLarge
	}
	resp.Body = body
	return resp, nil
}

func (g *gitRepository) closeIdle() { g.close() }

// readCheckpoint returns nothing: a list of refs is read each time.
func (g *gitRepository) readCheckpoint() *Checkpoint { return nil }

// readRefs reads the refs that the server offers, and what it can do. An empty repository has none.
func (g *gitRepository) readRefs(ctx context.Context) error {
	session, err := g.connect()
	if err != nil {
		return err
	}
	g.session = session
	g.refs, err = session.AdvertisedReferencesContext(ctx)
	if errors.Is(err, transport.ErrEmptyRemoteRepository) {
		g.refs, err = nil, nil
	}
	return err
}

// resolveRef returns the commit of a ref. A tag object stands for its commit.
func (g *gitRepository) resolveRef(_ context.Context, ref string) (string, error) {
	if g.refs == nil {
		return "", transport.ErrEmptyRemoteRepository
	}
	if isCommitHash(ref) {
		return ref, nil
	}
	if h, ok := g.refs.Peeled[ref]; ok {
		return h.String(), nil
	}
	if h, ok := g.refs.References[ref]; ok {
		return h.String(), nil
	}
	return "", newFailure(atoll.ReasonRefMissing, "the repository has no %s", describeRef(ref))
}

// isCommitHash reports whether a ref is the hash of a commit.
func isCommitHash(ref string) bool {
	return len(ref) == 40 && strings.Trim(ref, "0123456789abcdef") == ""
}

func describeRef(ref string) string {
	for prefix, kind := range map[string]string{"refs/heads/": "branch ", tagPrefix: "tag "} {
		if name, ok := strings.CutPrefix(ref, prefix); ok {
			return kind + name
		}
	}
	return "commit " + ref
}

// openRevision fetches a commit, without its history.
func (g *gitRepository) openRevision(ctx context.Context, revision string) (snapshot, error) {
	hash := plumbing.NewHash(revision)
	store := filesystem.NewStorage(osfs.New(filepath.Join(g.dir, revision)), cache.NewObjectLRU(8*cache.MiByte))
	before := *g.packLeft
	if err := g.fetchCommit(ctx, hash, store); err != nil {
		if errors.Is(err, errTooLarge) && before < maxPackBytes {
			return snapshot{}, errLater
		}
		return snapshot{}, err
	}
	c, err := object.GetCommit(store, hash)
	if err != nil {
		return snapshot{}, newFailure(atoll.ReasonRefMissing, "the server does not send the commit %s", hash)
	}
	return snapshot{tree: commitTree{store: store, root: c.TreeHash.String()}, message: c.Message, author: c.Author.Name}, nil
}

// fetchCommit writes the objects of one commit.
func (g *gitRepository) fetchCommit(ctx context.Context, commit plumbing.Hash, into storer.Storer) error {
	req := newPackRequest(g.refs, commit)
	for _, tag := range g.listTagObjects(commit) {
		if !slices.Contains(req.Wants, tag) {
			req.Wants = append(req.Wants, tag)
		}
	}
	if g.refs.Capabilities.Supports(capability.Shallow) {
		req.Depth = packp.DepthCommits(1)
		if err := req.Capabilities.Set(capability.Shallow); err != nil {
			return err
		}
	}
	return readPack(ctx, g.session, req, into)
}

func newPackRequest(refs *packp.AdvRefs, commit plumbing.Hash) *packp.UploadPackRequest {
	req := packp.NewUploadPackRequestFromCapabilities(refs.Capabilities)
	// A thin pack leaves out objects that this side does not have.
	req.Capabilities.Delete(capability.ThinPack)
	req.Wants = append(req.Wants, findTip(refs, commit))
	return req
}

// findTip returns what of the refs leads to a commit: the commit itself, or a tag of it where no ref has the commit. A server
// over SSH gives nothing else, unless it is configured to.
func findTip(refs *packp.AdvRefs, commit plumbing.Hash) plumbing.Hash {
	if hasRefTo(refs, commit) {
		return commit
	}
	for _, ref := range slices.Sorted(maps.Keys(refs.Peeled)) {
		if tag, has := refs.References[ref]; has && refs.Peeled[ref] == commit {
			return tag
		}
	}
	return commit
}

// hasRefTo reports whether a ref names a hash.
func hasRefTo(refs *packp.AdvRefs, hash plumbing.Hash) bool {
	for _, named := range refs.References {
		if named == hash {
			return true
		}
	}
	return false
}

// readPack requests a pack, and writes its objects.
func readPack(ctx context.Context, session packSession, req *packp.UploadPackRequest, into storer.Storer) error {
	resp, err := session.UploadPack(ctx, req)
	if err != nil {
		return err
	}
	defer resp.Close()
	var pack io.Reader = resp
	switch {
	case req.Capabilities.Supports(capability.Sideband64k):
		pack = sideband.NewDemuxer(sideband.Sideband64k, resp)
	case req.Capabilities.Supports(capability.Sideband):
		pack = sideband.NewDemuxer(sideband.Sideband, resp)
	}
	return packfile.UpdateObjectStorage(into, pack)
}

// maxHistory is how many commits may be between two commits of a Source.
const maxHistory = 10_000

// readGitHistory reports whether a commit descends from another one. A server that has not got the old commit
// any more sends the whole history, which does not have it.
func readGitHistory(ctx context.Context, of repository, d Descent) (bool, error) {
	g := of.(*gitRepository)
	if err := g.readRefs(ctx); err != nil {
		return false, err
	}
	if g.refs == nil {
		return false, transport.ErrEmptyRemoteRepository
	}
	old, now := plumbing.NewHash(d.Old), plumbing.NewHash(d.New)
	req := newPackRequest(g.refs, now)
	req.Haves = append(req.Haves, old)
	if g.refs.Capabilities.Supports(capability.Filter) {
		if err := req.Capabilities.Set(capability.Filter); err != nil {
			return false, err
		}
		req.Filter = packp.FilterTreeDepth(0)
	}
	store := memory.NewStorage()
	if err := readPack(ctx, g.session, req, store); err != nil {
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
