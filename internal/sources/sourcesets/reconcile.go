package sourcesets

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/sources"
	"atoll.dev/atoll/internal/sources/generate"
)

// reconcileSet makes, changes and deletes the Sources of a SourceSet.
func (r *Reconciler) reconcileSet(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	set, ok := r.Sets.Get(key)
	if !ok || set.DeletionTimestamp != nil {
		r.forgetSet(key)
		return 0, nil
	}
	if set.Spec.Suspend {
		return 0, r.reportProblems(ctx, set, []generate.Problem{{Reason: atoll.ReasonSuspended, Message: "the SourceSet is suspended; its Sources stay and go on"}})
	}
	g := r.gatherFacts(set)
	if len(g.problems) > 0 {
		return 0, r.reportProblems(ctx, set, g.problems)
	}
	if len(g.unread) > 0 {
		for _, repository := range g.unread {
			r.checkRepository(repository)
		}
		return 0, r.updateSet(ctx, set, func(*v1alpha1.SourceSet) {})
	}
	result, problems := generate.Generate(set, g.Facts)
	if len(problems) > 0 {
		return 0, r.reportProblems(ctx, set, problems)
	}
	existing := map[string]*v1alpha1.Source{}
	for _, s := range r.Made.InNamespace(set.Namespace) {
		existing[s.Name] = s
	}
	a := &application{reconciler: r, set: set, gathered: g, result: result, uids: map[string]types.UID{}}
	a.decision = generate.Decide(generate.Input{Set: set, Result: result, Existing: existing, Barred: r.findBarred(set), Histories: g.histories, Now: time.Now()})
	r.noteOwned(set, result, existing)
	if err := a.run(sources.WithAccount(ctx, set.Namespace, accountOf(set))); err != nil {
		return 0, errors.Join(err, r.updateSet(ctx, set, a.recordPart))
	}
	r.requestComparisons(set, a.decision.Wait)
	if err := r.updateSet(ctx, set, a.recordResult); err != nil {
		return 0, err
	}
	return a.nextTry(), nil
}

// noteOwned notes the names that a SourceSet gives, and those of the Sources that it made, with the metadata of the Sources of these names.
func (r *Reconciler) noteOwned(set *v1alpha1.SourceSet, result generate.Result, existing map[string]*v1alpha1.Source) {
	names := make([]string, 0, len(result.Made))
	for _, m := range result.Made {
		names = append(names, m.Name)
	}
	for _, o := range set.Status.Inventory {
		names = append(names, o.Name)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.setOwnedLocked(client.ObjectKeyFromObject(set), names)
	for _, name := range names {
		if s := existing[name]; s != nil {
			r.metadata[client.ObjectKeyFromObject(s)] = sourceMetadata{s.Labels, s.Annotations}
		}
	}
}

// reportProblems reports why nothing is made, changed or deleted. The Sources that the SourceSet made stay.
func (r *Reconciler) reportProblems(ctx context.Context, set *v1alpha1.SourceSet, problems []generate.Problem) error {
	return r.updateSet(ctx, set, func(now *v1alpha1.SourceSet) {
		if now.Generation != set.Generation {
			return // the reconcile of the present spec reports
		}
		now.Status.ObservedGeneration, now.Status.Errors = set.Generation, nil
		for _, p := range problems[:min(len(problems), generate.MaxProblems)] {
			now.Status.Errors = append(now.Status.Errors, p.SourceError())
		}
		setCondition(now, v1alpha1.SourceSetGenerated, false, problems[0].Reason, problems[0].Format()+"; the Sources that it made stay")
	})
}

// nextTry returns the wait until Sources that were not applied or deleted are tried again; 0 where only a change helps.
func (a *application) nextTry() (wait time.Duration) {
	soonest := func(other time.Duration) {
		if other > 0 && (wait == 0 || other < wait) {
			wait = other
		}
	}
	soonest(a.setBackIn)
	if end := a.decision.PauseEnd(); !end.IsZero() {
		soonest(max(time.Second, time.Until(end)))
	}
	r, key := a.reconciler, client.ObjectKeyFromObject(a.set)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !a.mayRetry {
		delete(r.tries, key)
		return wait
	}
	r.tries[key]++
	soonest(min(maxRetry, firstRetry<<min(r.tries[key]-1, 10)))
	return wait
}

// recordPart sets what a reconcile did before an error of the hub ended it, so that the Sources that it created are in the inventory.
func (a *application) recordPart(now *v1alpha1.SourceSet) {
	done := map[string]bool{}
	for _, m := range a.applied {
		done[m.Name] = true
	}
	left := slices.DeleteFunc(slices.Clone(now.Status.Inventory), func(o v1alpha1.GeneratedSource) bool { return done[o.Name] || slices.Contains(a.removed, o.Name) })
	now.Status.Inventory = generate.NewInventory(a.applied, a.uids, left)
}

// recordResult sets what a reconcile did with the Sources.
func (a *application) recordResult(now *v1alpha1.SourceSet) {
	d := &a.decision
	now.Status.Inventory = generate.NewInventory(a.applied, a.uids, a.stay, d.Wait, d.Paused, d.Keep)
	settings := generate.DigestSettings(&a.set.Spec)
	a.hasChanged = a.hasChanged || now.Status.Settings != settings
	now.Status.Settings, now.Status.Revisions = settings, a.newRevisions(now)
	if now.Generation != a.set.Generation {
		return // the reconcile of the present spec reports
	}
	now.Status.ObservedGeneration, now.Status.Errors = a.set.Generation, a.errors
	now.Status.Sources = v1alpha1.SourceSetCounts{Generated: int32(len(a.result.Made)), Applied: int32(len(a.result.Made) - a.failed), Kept: int32(len(d.Keep))}
	setCondition(now, v1alpha1.SourceSetGenerated, true, atoll.ReasonGenerated, phrase.CountNoun(len(a.result.Made), "Source")+" by the generators")
	if len(a.result.Empty) > 0 {
		setCondition(now, v1alpha1.SourceSetGenerated, false, atoll.ReasonGeneratorEmpty,
			fmt.Sprintf("spec.generators[%d] finds no entry, or a part of it does; the Sources that it made stay", a.result.Empty[0]))
	}
	a.setApplied(now)
}

// setApplied sets whether the generated Sources are on the hub, and those that are no longer generated are not.
func (a *application) setApplied(now *v1alpha1.SourceSet) {
	text := phrase.CountNoun(len(a.result.Made), "Source") + " on the hub as the template states"
	if n := len(a.decision.Keep); n > 0 {
		text += fmt.Sprintf("; %s no longer generated, kept", phrase.CountNoun(n, "Source"))
	}
	switch {
	case a.failed > 0:
		setCondition(now, v1alpha1.SourceSetApplied, false, a.reason, fmt.Sprintf("%s of %d not applied, and nothing deleted: %s", phrase.CountNoun(a.failed, "Source"), len(a.result.Made), a.errors[0].Message))
	case a.reason != "":
		setCondition(now, v1alpha1.SourceSetApplied, false, a.reason, a.errors[0].Message)
	case len(a.decision.Wait) > 0:
		setCondition(now, v1alpha1.SourceSetApplied, false, atoll.ReasonCommitsUncompared, text+"; "+phrase.CountNoun(len(a.decision.Wait), "removal")+" until the commits are compared")
	case len(a.decision.Paused) > 0:
		setCondition(now, v1alpha1.SourceSetApplied, false, atoll.ReasonRemovalPaused, fmt.Sprintf("%s; %s by Clusters paused, the first until %s", text, phrase.CountNoun(len(a.decision.Paused), "removal"), a.decision.PauseEnd().UTC().Format(time.RFC3339)))
	default:
		setCondition(now, v1alpha1.SourceSetApplied, true, atoll.ReasonApplied, text)
	}
}

// newRevisions returns the commits that the Sources come from. A commit that changes nothing is not noted, and neither is one for which a
// removal waits: it would be forgotten with what it must be compared with.
func (a *application) newRevisions(now *v1alpha1.SourceSet) (out []v1alpha1.GeneratorRevision) {
	waits := map[int]bool{}
	for _, o := range slices.Concat(a.decision.Wait, a.decision.Paused) {
		waits[int(o.Generator)] = true
	}
	leaves := generate.ListLeaves(&a.set.Spec)
	for i := range leaves {
		path := leaves[i].Path
		commit, reads := a.gathered.commits[path]
		if !reads {
			continue
		}
		if before := commitOf(now, path); before != "" && (waits[leaves[i].Generator] || !a.hasChanged) {
			commit = before
		}
		out = append(out, v1alpha1.GeneratorRevision{Generator: path, Commit: commit})
	}
	return out
}
