package sources

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/sources/changes"
	"atoll.dev/atoll/internal/sources/fetch"
	"atoll.dev/atoll/internal/sources/render"
)

// takeContent applies what a check read for a Source. It returns false while the Source has not considered the commit,
// or something of it is not applied.
func (r *Reconciler) takeContent(ctx context.Context, s *v1alpha1.Source, c fetch.Content, check repositoryCheck) (considered bool, err error) {
	switch {
	case c.Failure != nil && isOfContent(c.Failure.Reason):
		return !maySignLater(c.Failure.Reason, check.request.Verify), r.refuseContent(ctx, s, c, *c.Failure, nil)
	case c.Failure != nil:
		return false, r.setUnread(ctx, []*v1alpha1.Source{s}, *c.Failure)
	case c.Unchanged:
		return true, r.updateSource(ctx, s, func(now *v1alpha1.Source) {
			if now.Generation == s.Generation && !isContentBad(now) {
				now.Status.ValuesDigest = c.Inputs
				setRendered(now, c.Commit)
				setVerified(now, c, check.repo)
			}
		})
	case len(c.Problems) > 0:
		return true, r.refuseContent(ctx, s, c, invalidContent(c.Problems), c.Problems)
	case len(c.Objects) == 0:
		return true, r.refuseContent(ctx, s, c, changes.EmptyContent, nil)
	}
	w, problems := changes.NewTemplates(s, c.Result, c.Commit, r.findKind)
	if len(problems) > 0 {
		return true, r.refuseContent(ctx, s, c, invalidContent(problems), problems)
	}
	return r.applyContent(ctx, s, c, w, check)
}

// refuseContent reports content of which nothing is applied or removed.
func (r *Reconciler) refuseContent(ctx context.Context, s *v1alpha1.Source, c fetch.Content, why fetch.Failure, problems []render.Problem) error {
	return r.updateSource(ctx, s, func(now *v1alpha1.Source) {
		if now.Generation != s.Generation {
			return // the check of the present spec reports
		}
		now.Status.ObservedGeneration, now.Status.SyncRequest = s.Generation, s.Spec.SyncRequest
		now.Status.Errors, now.Status.ValuesDigest = nil, c.Inputs
		if c.Commit != "" {
			now.Status.SeenCommit = c.Commit
		}
		for _, p := range problems {
			now.Status.Errors = append(now.Status.Errors, newSourceError(p, p.Message))
		}
		setSourceCondition(now, v1alpha1.SourceRendered, metav1.ConditionFalse, why.Reason, describeProblem(c.Commit, why.Message)+"; what runs stays")
		if now.Status.Digest == "" {
			setSourceCondition(now, v1alpha1.SourceApplied, metav1.ConditionFalse, atoll.ReasonNotRendered, "nothing is applied yet")
		}
	})
}

// describeProblem returns a problem with the revision that has it. A server can have one before it names a revision.
func describeProblem(revision, message string) string {
	if revision == "" {
		return message
	}
	return changes.DescribeRevision(revision) + ": " + message
}

// invalidContent returns why content with problems is refused.
func invalidContent(problems []render.Problem) fetch.Failure {
	return fetch.Failure{Reason: atoll.ReasonContentInvalid, Message: problems[0].Format() + "; nothing of it is applied or removed"}
}

// newSourceError returns an error of the status. The author of a commit writes the name of the file.
func newSourceError(at render.Problem, message string) v1alpha1.SourceError {
	return v1alpha1.SourceError{File: phrase.TruncateText(phrase.EscapeLine(at.File), 512), Line: int32(at.Line), Message: phrase.TruncateText(phrase.EscapeLine(message), 512)}
}

// findKind returns where the hub's API serves a kind.
func (r *Reconciler) findKind(gvk schema.GroupVersionKind) (changes.ServedKind, bool) {
	m, err := r.Client.RESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return changes.ServedKind{}, false
	}
	return changes.ServedKind{Resource: m.Resource, IsNamespaced: m.Scope.Name() == meta.RESTScopeNameNamespace}, true
}

// applyContent applies the objects of a commit, and removes those that it dropped.
func (r *Reconciler) applyContent(ctx context.Context, s *v1alpha1.Source, c fetch.Content, w changes.Templates, check repositoryCheck) (bool, error) {
	settings := changes.DigestSettings(s, check.request.URL, c.Result, c.Inputs)
	d := changes.Decide(changes.Input{
		Source: s, Wanted: w.Keys, Inventory: s.Status.Inventory, Prune: s.Spec.Prune,
		SameSettings: s.Status.Settings == settings, ApplyAll: !s.Status.SyncRequest.Equal(s.Spec.SyncRequest),
	})
	if tooLarge := changes.CheckSize(slices.Concat(w.Keys, d.Keep, d.Remove)); tooLarge != nil {
		return true, r.refuseContent(ctx, s, c, *tooLarge, nil)
	}
	changes.SortForApply(w.Keys, d.Apply)
	a := &application{source: s, check: check, wanted: w, decision: d, reconciler: r, revision: c.Commit}
	a.unedited = s.Status.ObservedGeneration == s.Generation && s.Status.SyncRequest.Equal(s.Spec.SyncRequest)
	a.keepsPlaced = a.unedited && s.Status.Settings != settings
	if err := a.keepWithoutDescent(ctx); err != nil {
		return false, err
	}
	if why, _, err := a.findInterruption(ctx); err != nil || why != "" {
		return false, err // nothing is applied yet; what changed is checked at once
	}
	if err := a.run(r.withAccountOf(ctx, s), c); err != nil {
		return false, err
	}
	settings = a.attemptedSettings(settings)
	err := r.updateSource(ctx, s, func(now *v1alpha1.Source) { a.recordContent(now, c, settings) })
	return a.failed == 0 && len(a.failedRemovals) == 0 && !a.uncompared, err
}

// recordContent sets what a check did with the content of a Source.
func (a *application) recordContent(now *v1alpha1.Source, c fetch.Content, settings string) {
	now.Status.Inventory, now.Status.Settings, now.Status.AttemptedCommit = a.newInventory(), settings, c.Commit
	if now.Generation != a.source.Generation {
		return // the check of the present spec reports
	}
	now.Status.ObservedGeneration, now.Status.SyncRequest, now.Status.Errors = a.source.Generation, a.source.Spec.SyncRequest, a.errors
	now.Status.SeenCommit = c.Commit
	now.Status.Objects = v1alpha1.SourceObjects{Total: int32(a.wanted.CountContent()), Applied: int32(max(0, a.wanted.CountContent()-a.failed)), Kept: int32(len(a.decision.Keep))}
	now.Status.ValuesDigest = c.Inputs
	now.Status.Objects.Omitted, now.Status.Builds = int32(c.Omitted), newBuilt(c.Builds)
	a.setDrift(now)
	setRendered(now, c.Commit)
	setReproducible(now, a.wanted)
	if a.failed == 0 && len(a.failedRemovals) == 0 {
		now.Status.Commit, now.Status.ShortCommit, now.Status.Message, now.Status.Author = c.Commit, changes.ShortenRevision(c.Commit), phrase.EscapeLine(c.Message), phrase.EscapeLine(c.Author)
		now.Status.Digest = c.Digest
		setVerified(now, c, a.check.repo)
		setSourceCondition(now, v1alpha1.SourceApplied, metav1.ConditionTrue, atoll.ReasonApplied, formatApplied(c.Commit, a.wanted.CountContent(), len(a.decision.Keep)))
		return
	}
	setSourceCondition(now, v1alpha1.SourceApplied, metav1.ConditionFalse, a.reason, describeProblem(c.Commit, a.describeFailure()))
}

// setRendered reports that the content of a revision is read, and what of it is left out.
func setRendered(now *v1alpha1.Source, revision string) {
	text := "the content of the " + changes.RevisionNoun(revision) + " is read"
	if n := int(now.Status.Objects.Omitted); n > 0 {
		text += fmt.Sprintf("; %s of Helm left out, as spec.build.helm.hooks states", phrase.CountNoun(n, "hook"))
	}
	setSourceCondition(now, v1alpha1.SourceRendered, metav1.ConditionTrue, atoll.ReasonRendered, text)
}

// setReproducible reports fields that each rendering makes by itself. The condition is there while there are any.
func setReproducible(now *v1alpha1.Source, w changes.Templates) {
	text := w.DescribeGenerated()
	if text == "" {
		meta.RemoveStatusCondition(&now.Status.Conditions, v1alpha1.SourceReproducible)
		return
	}
	setSourceCondition(now, v1alpha1.SourceReproducible, metav1.ConditionFalse, atoll.ReasonGeneratedFieldsKept, text)
}

// newBuilt returns the builds of a content for the status.
func newBuilt(builds []render.Build) (out []v1alpha1.SourceBuilt) {
	for _, b := range builds {
		out = append(out, v1alpha1.SourceBuilt{Path: cmp.Or(b.Dir, "."), Type: v1alpha1.SourceBuildType(b.Type), Chart: phrase.TruncateText(phrase.EscapeLine(b.Chart), 256)})
	}
	return out
}

func formatApplied(revision string, applied, kept int) string {
	text := phrase.CountNoun(applied, "object") + " on the hub as in the " + changes.RevisionNoun(revision)
	if kept > 0 {
		text += fmt.Sprintf("; %s no longer in the content, kept", phrase.CountNoun(kept, "object"))
	}
	return text
}

// newHistory returns the commits that decide whether a commit dropped what it lacks.
func (a *application) newHistory() changes.History {
	return changes.History{Applied: a.source.Status.Commit, Attempted: a.source.Status.AttemptedCommit, Now: a.revision}
}

// keepWithoutDescent keeps every object when the commit does not descend from those of the inventory, because a history
// that was rewritten removes nothing. Removals wait while commits cannot be compared.
func (a *application) keepWithoutDescent(ctx context.Context) error {
	if len(a.decision.Remove) == 0 {
		return nil
	}
	h := a.newHistory()
	if h.IsUnknown() {
		a.decision.KeepAll(atoll.ReasonHistoryRewritten)
		return nil
	}
	for _, ancestor := range h.Ancestors() {
		descends, failure, err := a.readDescent(ctx, ancestor)
		switch {
		case failure != nil && h.MayWait():
			a.failedRemovals, a.decision.Remove = a.decision.Remove, nil
			a.reason = failure.Reason
			a.errors = append(a.errors, v1alpha1.SourceError{Message: fmt.Sprintf("the commit cannot be compared with %s, an applied one: %s", changes.ShortenRevision(ancestor), failure.Message)})
			return nil
		case err != nil:
			return err
		case failure != nil || !descends:
			a.decision.KeepAll(atoll.ReasonHistoryRewritten)
			return nil
		}
	}
	return nil
}

// readDescent reports whether the revision comes after another one. The failure is one of the repository, and the error one of the hub.
func (a *application) readDescent(ctx context.Context, ancestor string) (descends bool, failure *fetch.Failure, err error) {
	descends, err = a.reconciler.readDescent(ctx, a.check.request, ancestor, a.revision)
	if errors.As(err, &failure) {
		return false, failure, nil
	}
	return descends, nil, err
}

// readDescent reports whether a revision comes after another one. The error is a *Failure, or one of the hub.
func (r *Reconciler) readDescent(ctx context.Context, request fetch.Request, old, now string) (bool, error) {
	request.Wants, request.Verify = nil, nil // a history has no content, and verifies nothing
	request.Descends = &fetch.Descent{Old: old, New: now}
	answer, err := r.Fetcher.Fetch(ctx, request)
	if err != nil {
		return false, err
	}
	return answer.Descends, nil
}
