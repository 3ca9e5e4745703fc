package sources

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/sources/changes"
	"atoll.dev/atoll/internal/sources/fetch"
	"atoll.dev/atoll/internal/sources/render"
	"atoll.dev/atoll/internal/sources/webhook"
)

// checkRepository checks a Repository once, and plans its next check.
func (r *Reconciler) checkRepository(ctx context.Context, key types.NamespacedName) error {
	if !r.beginCheck(key) {
		r.laneOf(key).EnqueueAfter(key, time.Second) // the other lane checks it now, or its namespace has its part of the workers
		return nil
	}
	defer r.endCheck(key)
	sources := r.sourcesOf(key)
	repo, ok := r.Repositories.Get(key)
	if !ok || repo.DeletionTimestamp != nil {
		r.endRows(key)
		return r.setUnread(ctx, sources, fetch.Failure{Reason: atoll.ReasonRepositoryMissing, Message: fmt.Sprintf("the Repository %s does not exist in the namespace", key.Name)})
	}
	if repo.Spec.Suspend {
		r.endRows(key)
		suspended := fetch.Failure{Reason: atoll.ReasonSuspended, Message: "the Repository is suspended"}
		return errors.Join(r.setUnread(ctx, sources, suspended), r.setReachable(ctx, repo, &suspended, readOutcome{}))
	}
	began := time.Now()
	pending, err := r.readSources(ctx, repo, sources)
	r.noteDuration(key, time.Since(began))
	var failure *fetch.Failure
	if err != nil && !errors.As(err, &failure) {
		return err
	}
	failures := r.countFailure(key, failure != nil)
	err = r.setReachable(ctx, repo, failure, pending)
	if failure != nil {
		r.failListings(key, *failure, failures)
		err = errors.Join(err, r.setUnread(ctx, unreadSources(pending.withoutHeld(sources), failures), *failure))
	}
	tries := r.countTry(key, failure != nil || pending.retry)
	r.laneOf(key).EnqueueRecheck(key, nextCheck(intervalOf(repo), tries))
	return err
}

// nextCheck returns the wait until the next check, after a number of checks in a row that left something undone.
func nextCheck(interval time.Duration, tries int) time.Duration {
	wait := interval
	if tries > 0 {
		wait = min(interval, firstRetry<<min(tries-1, 20))
	}
	return wait - rand.N(wait/10)
}

// unreadSources returns the Sources that report a failed check: those that wait for content at once, and the others
// from the second failure in a row on.
func unreadSources(sources []*v1alpha1.Source, failures int) []*v1alpha1.Source {
	if failures > 1 {
		return sources
	}
	return slices.DeleteFunc(slices.Clone(sources), isSettled)
}

// sourcesOf lists the Sources of a Repository.
func (r *Reconciler) sourcesOf(key types.NamespacedName) []*v1alpha1.Source {
	return slices.DeleteFunc(r.Sources.InNamespace(key.Namespace), func(s *v1alpha1.Source) bool {
		return s.Spec.Repository != key.Name || s.DeletionTimestamp != nil
	})
}

// repositoryCheck is a Repository as a check began with it, and the request of its fetches.
type repositoryCheck struct {
	repo    *v1alpha1.Repository
	place   changes.Place
	request fetch.Request
	// trustedKeys is a digest of what must be signed and by which keys.
	trustedKeys string
	// inputs are the values of valuesFrom, by Source.
	inputs map[string]render.Inputs
	// changed are objects on the hub that others changed since they were compared with the content, by Source.
	changed map[string]map[changes.Key]bool
}

// readOutcome is what a check leaves.
type readOutcome struct {
	refs []v1alpha1.RepositoryRef
	// trustedKeys is a digest of the keys by which they were considered.
	trustedKeys string
	// retry is true while content of a Source is not read or not applied.
	retry bool
	// isListed is true once the listings of others are read.
	isListed bool
	// held are the Sources without their values. Their status has the reason already.
	held []*v1alpha1.Source
}

// withoutHeld returns the Sources that are not held.
func (o readOutcome) withoutHeld(sources []*v1alpha1.Source) []*v1alpha1.Source {
	return slices.DeleteFunc(slices.Clone(sources), func(s *v1alpha1.Source) bool { return slices.Contains(o.held, s) })
}

// readSources reads and applies the content of all Sources of a Repository.
func (r *Reconciler) readSources(ctx context.Context, repo *v1alpha1.Repository, sources []*v1alpha1.Source) (out readOutcome, err error) {
	request, err := r.newRequest(ctx, repo)
	if err != nil {
		return out, err
	}
	isSuspended := func(s *v1alpha1.Source) bool { return s.Spec.Suspend }
	suspended := slices.DeleteFunc(slices.Clone(sources), func(s *v1alpha1.Source) bool { return !isSuspended(s) })
	if err := r.setUnread(ctx, suspended, fetch.Failure{Reason: atoll.ReasonSuspended, Message: "the Source is suspended"}); err != nil {
		return out, err
	}
	check := repositoryCheck{repo: repo, place: changes.PlaceOf(&repo.Spec), request: request, trustedKeys: digestVerification(request.Verify)}
	return r.readContents(ctx, check, slices.DeleteFunc(slices.Clone(sources), isSuspended))
}

// readContents fetches and applies the contents of Sources, by as many fetches as they need. An error of the hub at one
// Source leaves the others theirs.
func (r *Reconciler) readContents(ctx context.Context, check repositoryCheck, left []*v1alpha1.Source) (out readOutcome, err error) {
	refs, all := consideredRefs{}, left
	check.changed = r.drift.listFoundOf(left)
	left, out.held, err = r.readInputs(ctx, &check, left)
	if ctx.Err() != nil {
		return out, ctx.Err()
	}
	errs := []error{err}
	for _, s := range out.held {
		refs.addCommit(check.refOf(s), "", false)
		out.retry = out.retry || r.mayRetryInputs(s)
	}
	for n := 0; n == 0 || len(left) > 0; n++ {
		if n == maxFetches {
			for _, s := range left {
				refs.addCommit(check.refOf(s), "", false)
			}
			out.retry = true
			break
		}
		asked, later := splitByInputs(check, left)
		contents, err := r.fetchContents(ctx, check, asked, &out)
		if err != nil {
			return out, errors.Join(append(errs, err)...)
		}
		left, err = r.takeContents(ctx, asked, contents, check, func(s *v1alpha1.Source, commit string, considered bool) {
			out.retry = out.retry || !considered
			refs.addCommit(check.refOf(s), commit, considered)
		})
		if errs = append(errs, err); ctx.Err() != nil {
			return out, ctx.Err()
		}
		left = append(left, later...)
	}
	out.refs, out.trustedKeys = refs.listRefs(), check.trustedKeys
	out.retry = out.retry || slices.ContainsFunc(all, r.missedInputs)
	return out, errors.Join(errs...)
}

// consideredRefs are the commits that every Source of a ref has considered, by ref. The commit is empty where one Source
// has not, or where two fetches read two commits: the next check reads the ref again.
type consideredRefs map[string]string

// addCommit adds what a Source of a ref considered.
func (c consideredRefs) addCommit(ref, commit string, considered bool) {
	before, had := c[ref]
	if !considered || had && before != commit {
		commit = ""
	}
	c[ref] = commit
}

// listRefs lists the refs with a commit, by name.
func (c consideredRefs) listRefs() (out []v1alpha1.RepositoryRef) {
	for _, ref := range slices.Sorted(maps.Keys(c)) {
		if c[ref] != "" {
			out = append(out, v1alpha1.RepositoryRef{Ref: ref, Commit: c[ref]})
		}
	}
	return out
}

// takeContents applies the contents of an answer, and calls taken for each. It returns the Sources whose content
// the answer had no room for. An error of one Source leaves the others theirs.
func (r *Reconciler) takeContents(ctx context.Context, asked []*v1alpha1.Source, contents []fetch.Content, check repositoryCheck, taken func(s *v1alpha1.Source, commit string, considered bool)) (postponed []*v1alpha1.Source, err error) {
	if len(contents) != len(asked) {
		return nil, fmt.Errorf("the fetch answers with %d contents for %d Sources", len(contents), len(asked))
	}
	var errs []error
	for i, c := range contents {
		if c.ID != asked[i].Name {
			return nil, errors.New("the fetch answers with the content of another Source")
		}
		if c.Postponed {
			postponed = append(postponed, asked[i])
			continue
		}
		c.Inputs = check.inputs[asked[i].Name].Digest()
		considered, err := r.takeContent(ctx, asked[i], c, check)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("take the content of Source %s: %w", asked[i].Name, err))
		}
		if considered && err == nil {
			r.finishComparison(asked[i], check.changed[asked[i].Name])
		}
		taken(asked[i], c.Commit, considered && err == nil)
	}
	if len(postponed) == len(asked) && len(asked) > 0 {
		errs = append(errs, errors.New("the fetch answers with no content"))
	}
	return postponed, errors.Join(errs...)
}

// newRequest returns a request with the credentials of a Repository.
func (r *Reconciler) newRequest(ctx context.Context, repo *v1alpha1.Repository) (fetch.Request, error) {
	place := changes.PlaceOf(&repo.Spec)
	verify, err := r.readVerification(ctx, repo)
	if err != nil {
		return fetch.Request{}, err
	}
	request := fetch.Request{Type: place.Type, URL: place.URL, CABundle: place.CABundle, TokenHost: place.TokenHost, Verify: verify}
	ref := place.SecretRef
	if ref == nil {
		return request, nil
	}
	var secret corev1.Secret
	err = r.Client.Get(ctx, client.ObjectKey{Namespace: repo.Namespace, Name: ref.Name}, &secret)
	if apierrors.IsNotFound(err) {
		return request, &fetch.Failure{Reason: atoll.ReasonCredentialsMissing, Message: fmt.Sprintf("the Secret %s does not exist in the namespace", ref.Name)}
	}
	if err != nil {
		return request, fmt.Errorf("read the credentials of a Repository: %w", err)
	}
	if place.UsesSSH() {
		request.SSH, err = readSSHCredentials(&secret)
		return request, err
	}
	request.Username, request.Password = string(secret.Data[corev1.BasicAuthUsernameKey]), string(secret.Data[corev1.BasicAuthPasswordKey])
	if token := secret.Data["token"]; len(token) > 0 && request.Password == "" {
		request.Password = strings.TrimSpace(string(token))
		if request.Username == "" {
			request.Username = "git"
		}
	}
	if request.Password == "" {
		return request, &fetch.Failure{Reason: atoll.ReasonCredentialsMalformed, Message: fmt.Sprintf("the Secret %s has neither username and password nor token", ref.Name)}
	}
	return request, nil
}

// readSSHCredentials returns the credentials of a repository over SSH. The keys of the Secret have the names that Flux gives them.
func readSSHCredentials(secret *corev1.Secret) (*fetch.SSHCredentials, error) {
	for _, key := range []string{"identity", "known_hosts"} {
		if len(secret.Data[key]) == 0 {
			return nil, &fetch.Failure{Reason: atoll.ReasonCredentialsMalformed, Message: fmt.Sprintf("the Secret %s has no %s: a repository over ssh needs identity, the private key, and known_hosts, the keys of the server", secret.Name, key)}
		}
	}
	return &fetch.SSHCredentials{Identity: string(secret.Data["identity"]), Passphrase: string(secret.Data["password"]), KnownHosts: string(secret.Data["known_hosts"])}, nil
}

// refOf returns what of the Repository a Source reads; empty where it states a ref of another type, so that it is held.
func (c repositoryCheck) refOf(s *v1alpha1.Source) string {
	ref, err := c.place.RefOf(s)
	if err != nil {
		return ""
	}
	return ref
}

// wantsOf returns the content that the Sources read. Content that a settled Source has is not sent again.
func wantsOf(check repositoryCheck, sources []*v1alpha1.Source) []fetch.Want {
	repo, out := check.repo, make([]fetch.Want, 0, len(sources))
	isConsidered := repo.Status.ObservedGeneration == repo.Generation && repo.Status.TrustedKeysDigest == check.trustedKeys
	for _, s := range sources {
		w := fetch.Want{ID: s.Name, Ref: check.refOf(s), Want: changes.NewWant(s)}
		w.Inputs = check.inputs[s.Name]
		if isSettled(s) && len(check.changed[s.Name]) == 0 {
			i := slices.IndexFunc(repo.Status.Refs, func(ref v1alpha1.RepositoryRef) bool { return ref.Ref == w.Ref })
			if i >= 0 && isConsidered && s.Status.ValuesDigest == w.Inputs.Digest() && !waitsForTag(s, w.Ref, check.request.Verify) {
				w.SeenCommit = repo.Status.Refs[i].Commit
			}
			if !isContentBad(s) {
				w.SeenDigest = s.Status.Digest
			}
		}
		out = append(out, w)
	}
	return out
}

// isSettled reports whether a Source has considered its spec and the last commit, so that only another commit
// concerns it.
func isSettled(s *v1alpha1.Source) bool {
	return s.Status.ObservedGeneration == s.Generation && s.Status.SyncRequest.Equal(s.Spec.SyncRequest) &&
		(isContentBad(s) || s.Status.Digest != "" && meta.IsStatusConditionTrue(s.Status.Conditions, v1alpha1.SourceApplied))
}

// isContentBad reports whether the content of the last commit cannot be applied, so that only another commit helps.
func isContentBad(s *v1alpha1.Source) bool {
	c := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.SourceRendered)
	return c != nil && c.Status == metav1.ConditionFalse && c.ObservedGeneration == s.Generation &&
		isOfContent(atoll.Reason(c.Reason))
}

// isOfContent reports whether a reason is of the content, so that only another commit helps.
func isOfContent(why atoll.Reason) bool {
	return isOfSignature(why) || slices.Contains([]atoll.Reason{
		atoll.ReasonContentInvalid, atoll.ReasonContentEmpty, atoll.ReasonContentTooLarge, atoll.ReasonHooksUnsupported, atoll.ReasonNotReproducible,
	}, why)
}

// setReachable writes the status of a Repository when it has changed.
func (r *Reconciler) setReachable(ctx context.Context, repo *v1alpha1.Repository, failure *fetch.Failure, read readOutcome) error {
	now := repo.DeepCopy()
	now.Status.ObservedGeneration = repo.Generation
	c := metav1.Condition{
		Type: v1alpha1.RepositoryReachable, Status: metav1.ConditionTrue, Reason: string(atoll.ReasonFetched), ObservedGeneration: repo.Generation,
		Message: "the last check succeeded",
	}
	if failure != nil {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, string(failure.Reason), failure.Message
		if repo.Status.ObservedGeneration != repo.Generation {
			now.Status.Refs = nil // no commit is considered by the present spec yet
		}
	} else {
		now.Status.Refs, now.Status.TrustedKeysDigest = read.refs, read.trustedKeys
	}
	meta.SetStatusCondition(&now.Status.Conditions, c)
	if err := r.setWebhookReady(ctx, now); err != nil {
		return err
	}
	if apiequality.Semantic.DeepEqual(now.Status, repo.Status) {
		return nil
	}
	err := r.Client.Status().Patch(ctx, now, client.MergeFromWithOptions(repo, client.MergeFromWithOptimisticLock{}), client.FieldOwner(atoll.HubFieldManager))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // the next check writes it
	}
	if err != nil {
		return fmt.Errorf("write the status of a Repository: %w", err)
	}
	r.Repositories.Put(now)
	return nil
}

// setWebhookReady sets whether requests of the git server can be verified, where the Repository states a webhook.
func (r *Reconciler) setWebhookReady(ctx context.Context, now *v1alpha1.Repository) error {
	if now.Spec.Webhook == nil {
		meta.RemoveStatusCondition(&now.Status.Conditions, v1alpha1.RepositoryWebhookReady)
		return nil
	}
	c := metav1.Condition{
		Type: v1alpha1.RepositoryWebhookReady, Status: metav1.ConditionTrue, Reason: string(atoll.ReasonWebhookReady), ObservedGeneration: now.Generation,
		Message: "requests of the git server can be verified",
	}
	if _, err := webhook.ReadToken(ctx, r.Client, now); errors.Is(err, webhook.ErrNoToken) {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, string(atoll.ReasonWebhookTokenMissing), err.Error()
	} else if err != nil {
		return err
	}
	meta.SetStatusCondition(&now.Status.Conditions, c)
	return nil
}

// setUnread reports that the content of Sources is not read. Nothing is removed.
func (r *Reconciler) setUnread(ctx context.Context, sources []*v1alpha1.Source, why fetch.Failure) error {
	var errs []error
	for _, s := range sources {
		errs = append(errs, r.updateSource(ctx, s, func(now *v1alpha1.Source) {
			if now.Generation != s.Generation || isContentBad(now) && why.Reason != atoll.ReasonSuspended && why.Reason != atoll.ReasonRefUnsupported && !isOfInputs(why.Reason) {
				return // the check of the present spec reports, or the state of the content is still what must change
			}
			if isContentBad(now) && isOfInputs(why.Reason) {
				now.Status.ValuesDigest = "" // so that the commit, whose reason is lost here, is read again
			}
			setSourceCondition(now, v1alpha1.SourceRendered, metav1.ConditionFalse, why.Reason, why.Message+"; what runs stays")
			if now.Status.Digest == "" {
				setSourceCondition(now, v1alpha1.SourceApplied, metav1.ConditionFalse, atoll.ReasonNotRendered, "nothing is applied yet")
			}
		}))
	}
	return errors.Join(errs...)
}
