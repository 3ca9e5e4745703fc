package sourcesets

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/sources"
	"atoll.dev/atoll/internal/sources/changes"
	"atoll.dev/atoll/internal/sources/fetch"
	"atoll.dev/atoll/internal/sources/generate"
	"atoll.dev/atoll/internal/sources/render"
)

// listingKey is a generator of a SourceSet, by its path in the spec.
type listingKey struct {
	set  types.NamespacedName
	path string
}

// listing is what a generator listed of a Repository last.
type listing struct {
	// identity is a digest of the request that was answered, and asked that of the request that is sent. keys and askedKeys are the trusted
	// keys of the two.
	identity, asked, keys, askedKeys string
	commit, digest                   string
	content                          *render.Listing
	problems                         []render.Problem
	// failure is why the present content is not read; nil: it is.
	failure *fetch.Failure
	// compareFrom is the commit with which the next check compares; empty for none.
	compareFrom string
	// compared are two commits, and descends is true where the second comes after the first.
	compared [2]string
	descends bool
}

// isRead reports whether the listing is the answer to a request.
func (l *listing) isRead(identity string) bool {
	return l != nil && l.identity == identity && (l.content != nil || len(l.problems) > 0 || l.failure != nil)
}

// repositoryFailure is why a Repository cannot be read, and as which object the Repository was then.
type repositoryFailure struct {
	uid        types.UID
	generation int64
	why        fetch.Failure
	count      int
}

// idPrefix begins the IDs of listings. No Source has a slash in its name.
const idPrefix = "source-set/"

// request is one request of a generator, by its identity. The generator may request something else before the answer comes.
type request struct {
	listingKey
	identity string
}

func (q request) formatID() string {
	return idPrefix + q.set.Name + "/" + q.identity + "/" + q.path
}

// parseID returns the request of an ID.
func parseID(namespace, id string) (request, bool) {
	rest, ok := strings.CutPrefix(id, idPrefix)
	parts := strings.SplitN(rest, "/", 3)
	if !ok || len(parts) != 3 {
		return request{}, false
	}
	return request{listingKey{types.NamespacedName{Namespace: namespace, Name: parts[0]}, parts[2]}, parts[1]}, true
}

// identifyRequest returns a digest of all that decides what a generator lists of a Repository, but the commit.
func identifyRequest(repo *v1alpha1.Repository, ref string, reading *generate.Reading) string {
	raw, err := json.Marshal(reading.Want)
	if err != nil {
		panic(fmt.Sprintf("sourcesets: a request cannot be encoded: %v", err))
	}
	return atoll.HashParts([]byte(repo.UID), fmt.Append(nil, repo.Generation), []byte(ref), raw)
}

// IsAwaited reports whether a SourceSet has not considered its spec, and reads the Repository.
func (r *Reconciler) IsAwaited(repository types.NamespacedName) bool {
	for _, set := range r.readersOf(repository) {
		if !isSettled(set) {
			return true
		}
	}
	return false
}

// ListWants returns what the generators of SourceSets list of a Repository.
func (r *Reconciler) ListWants(c sources.ListingCheck) (out []fetch.Want) {
	place := changes.PlaceOf(&c.Repository.Spec)
	for _, set := range r.readersOf(client.ObjectKeyFromObject(c.Repository)) {
		if set.Spec.Suspend || set.DeletionTimestamp != nil {
			continue
		}
		for _, l := range generate.ListLeaves(&set.Spec) {
			reading := l.Reading()
			if reading == nil || reading.Repository != c.Repository.Name {
				continue
			}
			ref, err := place.ResolveRef(reading.Ref, reading.Repository, "spec."+l.Path+".ref")
			if err != nil {
				continue // the reconcile of the SourceSet reports it
			}
			q := request{listingKey{client.ObjectKeyFromObject(set), l.Path}, identifyRequest(c.Repository, ref, reading)}
			w := fetch.Want{ID: q.formatID(), Ref: ref, Listing: &reading.Want}
			r.noteRequest(q, &w, c.TrustedKeys)
			out = append(out, w)
		}
	}
	return out
}

// noteRequest notes the request of a generator. Content that the generator has already is not sent again.
func (r *Reconciler) noteRequest(q request, w *fetch.Want, trustedKeys string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, exists := r.Sets.Get(q.set); !exists {
		return // it is deleted since, and forgotten
	}
	if r.listings[q.set] == nil {
		r.listings[q.set] = map[string]*listing{}
	}
	known := r.listings[q.set][q.path]
	if known == nil {
		known = &listing{}
		r.listings[q.set][q.path] = known
	}
	known.asked, known.askedKeys = q.identity, trustedKeys
	if known.isRead(q.identity) && known.keys == trustedKeys && (known.failure == nil || isOfContent(known.failure.Reason)) {
		w.SeenCommit = known.commit
		if known.content != nil {
			w.SeenDigest = known.digest
		}
	}
}

// isOfContent reports whether only another commit helps.
func isOfContent(why atoll.Reason) bool { return why == atoll.ReasonContentTooLarge }

// TakeListings takes what was listed of a Repository, and compares the commits for which removals wait.
func (r *Reconciler) TakeListings(ctx context.Context, c sources.ListingCheck, contents []fetch.Content) (retry bool) {
	repository := client.ObjectKeyFromObject(c.Repository)
	r.mu.Lock()
	_, failed := r.failures[repository]
	delete(r.failures, repository)
	r.mu.Unlock()
	if failed {
		r.enqueueReaders(repository)
	}
	for _, content := range contents {
		q, ok := parseID(c.Repository.Namespace, content.ID)
		if !ok {
			continue
		}
		changed, again := r.takeListing(q, content)
		compared, unread := r.compareCommits(ctx, c, q)
		if retry = retry || again || unread; changed || compared {
			r.loop.EnqueueNow(q.set)
		}
	}
	return retry
}

// findListing returns the listing whose request is this one; nil where the generator has requested something else since, perhaps of another
// Repository. The caller holds the lock.
func (r *Reconciler) findListing(q request) *listing {
	if known := r.listings[q.set][q.path]; known != nil && known.asked == q.identity {
		return known
	}
	return nil
}

// takeListing notes one listing. It reports whether it is another one than before, and whether the next check must come soon.
func (r *Reconciler) takeListing(q request, c fetch.Content) (changed, retry bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.findListing(q)
	if known == nil || c.Postponed {
		return false, known != nil
	}
	if c.Failure != nil {
		changed, retry = known.noteFailure(c.Failure)
	} else {
		changed = known.noteContent(c)
	}
	known.identity, known.keys = known.asked, known.askedKeys
	if c.Commit != "" {
		known.commit = c.Commit
	}
	return changed, retry
}

// noteFailure notes why the present content is not read. A failure of the content itself is one until another commit.
func (l *listing) noteFailure(why *fetch.Failure) (changed, retry bool) {
	changed = !l.isRead(l.asked) || l.failure == nil || *l.failure != *why
	l.failure = why
	if isOfContent(why.Reason) {
		l.content, l.problems, l.digest = nil, nil, ""
		return changed, false
	}
	return changed, true
}

// noteContent notes what was listed, and reports whether it is anything else than before.
func (l *listing) noteContent(c fetch.Content) (changed bool) {
	if c.Unchanged {
		// A commit with a problem is unchanged with it, as is one that is too large.
		if l.failure != nil && !isOfContent(l.failure.Reason) {
			l.failure = nil
			return true
		}
		return false
	}
	l.failure, l.content, l.problems, l.digest = nil, nil, c.Problems, ""
	if len(c.Problems) == 0 {
		l.content, l.digest = cmp.Or(c.Listing, &render.Listing{}), c.Digest
	}
	return true
}

// compareCommits compares the commit of a listing with the one for which a removal waits. It reports whether it could, and whether the next
// check must try again.
func (r *Reconciler) compareCommits(ctx context.Context, c sources.ListingCheck, q request) (compared, retry bool) {
	r.mu.Lock()
	known := r.findListing(q)
	if known == nil || known.compareFrom == "" || known.failure != nil {
		r.mu.Unlock()
		return false, false
	}
	from, to := known.compareFrom, known.commit
	r.mu.Unlock()
	descends, err := c.Descends(ctx, from, to)
	var failure *fetch.Failure
	if err != nil {
		if !errors.As(err, &failure) && ctx.Err() == nil {
			r.Log.Warn("commits could not be compared, trying again", "namespace", q.set.Namespace, "sourceSet", q.set.Name, "err", err)
		}
		return false, true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	known.compared, known.descends, known.compareFrom = [2]string{from, to}, descends, ""
	return true, false
}

// FailListings notes that a Repository cannot be read. Listings of before stay in use, until a second check in a row fails.
func (r *Reconciler) FailListings(repository types.NamespacedName, why fetch.Failure, failures int) {
	r.mu.Lock()
	repo, ok := r.Repositories.Get(repository)
	if ok { // otherwise the reconcile of a SourceSet finds it out by itself
		r.failures[repository] = repositoryFailure{repo.UID, repo.Generation, why, failures}
	}
	r.mu.Unlock()
	if ok {
		r.enqueueReaders(repository)
	}
}
