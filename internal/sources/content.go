package sources

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/sources/changes"
	"atoll.dev/atoll/internal/sources/gitfetch"
	"atoll.dev/atoll/internal/sources/render"
)

// takeContent applies what a check read for a Source. It returns false while the Source has not considered the commit,
// or something of it is not applied.
func (r *Reconciler) takeContent(ctx context.Context, s *v1alpha1.Source, c gitfetch.Content, check repositoryCheck) (considered bool, err error) {
	switch {
	case c.Failure != nil && isOfContent(c.Failure.Reason):
		return true, r.refuseContent(ctx, s, c, *c.Failure, nil)
	case c.Failure != nil:
		return false, r.setUnread(ctx, []*v1alpha1.Source{s}, *c.Failure)
	case c.Unchanged:
		return true, r.updateSource(ctx, s, func(now *v1alpha1.Source) {
			if now.Generation == s.Generation && !isContentBad(now) {
				setRendered(now)
			}
		})
	case len(c.Problems) > 0:
		return true, r.refuseContent(ctx, s, c, invalidContent(c.Problems), c.Problems)
	case len(c.Objects) == 0:
		return true, r.refuseContent(ctx, s, c, gitfetch.Failure{Reason: atoll.ReasonContentEmpty, Message: "it has no object in the paths of the Source, which is not a removal"}, nil)
	}
	w, problems := r.newWanted(s, c.Objects)
	switch {
	case len(problems) > 0:
		return true, r.refuseContent(ctx, s, c, invalidContent(problems), problems)
	case len(w.keys) > render.MaxObjects:
		return true, r.refuseContent(ctx, s, c, tooManyObjects, nil)
	}
	return r.applyContent(ctx, s, c, w, check)
}

// refuseContent reports content of which nothing is applied or removed.
func (r *Reconciler) refuseContent(ctx context.Context, s *v1alpha1.Source, c gitfetch.Content, why gitfetch.Failure, problems []render.Problem) error {
	return r.updateSource(ctx, s, func(now *v1alpha1.Source) {
		if now.Generation != s.Generation {
			return // the check of the present spec reports
		}
		now.Status.ObservedGeneration, now.Status.SyncRequest = s.Generation, s.Spec.SyncRequest
		now.Status.Errors = nil
		for _, p := range problems {
			now.Status.Errors = append(now.Status.Errors, newSourceError(p, p.Message))
		}
		setSourceCondition(now, v1alpha1.SourceRendered, metav1.ConditionFalse, why.Reason, fmt.Sprintf("commit %s: %s; what runs stays", shortCommit(c.Commit), why.Message))
		if now.Status.Digest == "" {
			setSourceCondition(now, v1alpha1.SourceApplied, metav1.ConditionFalse, atoll.ReasonNotRendered, "nothing is applied yet")
		}
	})
}

// tooManyObjects is why content is refused that one Source cannot have.
var tooManyObjects = gitfetch.Failure{Reason: atoll.ReasonContentTooLarge, Message: fmt.Sprintf("it has, with the objects that stay, more than %d objects; divide the Source into several", render.MaxObjects)}

// tooLongNames is why content is refused whose names do not fit into the status of a Source.
var tooLongNames = gitfetch.Failure{Reason: atoll.ReasonContentTooLarge, Message: fmt.Sprintf("the names of its objects have more than %d bytes; divide the Source into several", changes.MaxInventoryBytes)}

// invalidContent returns why content with problems is refused.
func invalidContent(problems []render.Problem) gitfetch.Failure {
	return gitfetch.Failure{Reason: atoll.ReasonContentInvalid, Message: problems[0].Format() + "; nothing of it is applied or removed"}
}

// newSourceError returns an error of the status. The author of a commit writes the name of the file.
func newSourceError(at render.Problem, message string) v1alpha1.SourceError {
	return v1alpha1.SourceError{File: phrase.TruncateText(phrase.EscapeLine(at.File), 512), Line: int32(at.Line), Message: phrase.TruncateText(phrase.EscapeLine(message), 512)}
}

func shortCommit(hash string) string { return hash[:min(12, len(hash))] }

// wanted are the objects that a Source writes on the hub; the slices have one entry each.
type wanted struct {
	keys    []v1alpha1.SourceObject
	objects []*unstructured.Unstructured
	places  []render.Problem
	// resources are where the API serves the objects; empty for a kind that the hub does not serve.
	resources []schema.GroupVersionResource
}

// newWanted completes the objects of a commit, and adds the policy that places them.
func (r *Reconciler) newWanted(s *v1alpha1.Source, objects []render.Object) (w wanted, problems []render.Problem) {
	seen := map[changes.Key]render.Problem{}
	for _, o := range objects {
		at := render.Problem{File: o.File, Line: o.Line}
		u := &unstructured.Unstructured{Object: o.Fields}
		gvk := u.GroupVersionKind()
		resource := schema.GroupVersionResource{}
		if m, err := r.Client.RESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version); err == nil {
			resource = m.Resource
			switch {
			case m.Scope.Name() != meta.RESTScopeNameNamespace:
				u.SetNamespace("")
			case u.GetNamespace() == "":
				u.SetNamespace(cmp.Or(s.Spec.TargetNamespace, s.Namespace))
			}
		}
		labels := u.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels[v1alpha1.LabelSource] = s.Name
		u.SetLabels(labels)
		w.add(u, resource, at)
		k := changes.KeyOf(w.keys[len(w.keys)-1])
		if before, twice := seen[k]; twice {
			problems = append(problems, render.Problem{File: o.File, Line: o.Line, Message: fmt.Sprintf("%s %s is in %s:%d, too", k.Kind, k.Name, before.File, before.Line)})
		}
		seen[k] = at
	}
	policy := newPolicy(s, w.keys)
	own := changes.Key{Group: v1alpha1.GroupVersion.Group, Kind: "PropagationPolicy", Namespace: s.Namespace, Name: policyName(s)}
	if at, has := seen[own]; has && policy != nil {
		at.Message = "the Source itself makes PropagationPolicy " + own.Name + " of its placement; give the policy of the file another name"
		problems = append(problems, at)
	}
	if policy != nil && len(problems) == 0 {
		w.add(policy, v1alpha1.GroupVersion.WithResource("propagationpolicies"), render.Problem{})
	}
	return w, problems[:min(len(problems), render.MaxProblems)]
}

// add adds an object. Its hash is of everything that is applied.
func (w *wanted) add(u *unstructured.Unstructured, resource schema.GroupVersionResource, at render.Problem) {
	raw, err := json.Marshal(u.Object)
	if err != nil {
		panic(fmt.Sprintf("sources: an object of decoded JSON cannot be encoded: %v", err))
	}
	sum := sha256.Sum256(raw)
	w.keys = append(w.keys, v1alpha1.SourceObject{
		APIVersion: u.GetAPIVersion(), Kind: u.GetKind(), Namespace: u.GetNamespace(), Name: u.GetName(), Hash: hex.EncodeToString(sum[:8]),
	})
	w.objects, w.places, w.resources = append(w.objects, u), append(w.places, at), append(w.resources, resource)
}

// policyName returns the name of the policy that places the objects of a Source.
func policyName(s *v1alpha1.Source) string { return "source-" + s.Name }

// newPolicy returns the policy that places the objects of a Source in its namespace; nil when the Source states no
// placement.
func newPolicy(s *v1alpha1.Source, keys []v1alpha1.SourceObject) *unstructured.Unstructured {
	if s.Spec.Placement == nil && s.Spec.PlacementRef == nil {
		return nil
	}
	p := &v1alpha1.PropagationPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "PropagationPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: policyName(s), Namespace: s.Namespace, Labels: map[string]string{v1alpha1.LabelSource: s.Name}},
	}
	if s.Spec.Placement != nil {
		p.Spec.Placement = *s.Spec.Placement
	}
	p.Spec.PlacementRef = s.Spec.PlacementRef
	var kinds []schema.GroupVersionKind
	for _, o := range slices.Concat(keys, s.Status.Inventory) {
		gvk := schema.FromAPIVersionAndKind(o.APIVersion, o.Kind)
		if o.Namespace == s.Namespace && !atoll.IsHubOwnedKind(gvk.GroupKind()) && !slices.ContainsFunc(kinds, func(k schema.GroupVersionKind) bool { return k.GroupKind() == gvk.GroupKind() }) {
			kinds = append(kinds, gvk)
		}
	}
	if len(kinds) == 0 {
		return nil
	}
	slices.SortFunc(kinds, func(a, b schema.GroupVersionKind) int { return cmp.Compare(a.String(), b.String()) })
	for _, k := range kinds {
		p.Spec.ResourceSelectors = append(p.Spec.ResourceSelectors, v1alpha1.ResourceSelector{
			APIVersion: k.GroupVersion().String(), Kind: k.Kind, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{v1alpha1.LabelSource: s.Name}},
		})
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p)
	if err != nil {
		panic(fmt.Sprintf("sources: a policy cannot be converted: %v", err))
	}
	delete(fields, "status")
	unstructured.RemoveNestedField(fields, "metadata", "creationTimestamp")
	for _, empty := range []string{"groupBy", "removal"} {
		unstructured.RemoveNestedField(fields, "spec", empty)
	}
	return &unstructured.Unstructured{Object: fields}
}

// digestSettings returns a digest of what of a Source decides which objects there are. The types of its paths are of it, and
// so is the program that rendered them, so that another type and a new version of the hub remove nothing.
func digestSettings(s *v1alpha1.Source, request gitfetch.Request, c gitfetch.Content) string {
	settings := []any{request.URL, s.Spec.Ref, s.Spec.Paths, s.Spec.Exclude, s.Spec.TargetNamespace, s.Spec.Placement == nil && s.Spec.PlacementRef == nil}
	if s.Spec.Build != nil || len(c.Builds) > 0 {
		settings = append(settings, s.Spec.Build, c.Program)
	}
	for _, b := range c.Builds {
		settings = append(settings, b.Dir, b.Type)
	}
	raw, err := json.Marshal(settings)
	if err != nil {
		panic(fmt.Sprintf("sources: settings cannot be encoded: %v", err))
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:8])
}

// applyContent applies the objects of a commit, and removes those that it dropped.
func (r *Reconciler) applyContent(ctx context.Context, s *v1alpha1.Source, c gitfetch.Content, w wanted, check repositoryCheck) (bool, error) {
	settings := digestSettings(s, check.request, c)
	d := changes.Decide(changes.Input{
		Wanted: w.keys, Inventory: s.Status.Inventory, Prune: s.Spec.Prune,
		SameSettings: s.Status.Settings == settings, ApplyAll: !s.Status.SyncRequest.Equal(s.Spec.SyncRequest),
	})
	switch most := slices.Concat(w.keys, d.Keep, d.Remove); {
	case len(most) > render.MaxObjects:
		return true, r.refuseContent(ctx, s, c, tooManyObjects, nil)
	case changes.InventoryBytes(most) > changes.MaxInventoryBytes:
		return true, r.refuseContent(ctx, s, c, tooLongNames, nil)
	}
	changes.SortForApply(w.keys, d.Apply)
	a := &application{source: s, check: check, wanted: w, decision: d, reconciler: r}
	if err := a.keepWithoutDescent(ctx, c, check.request); err != nil {
		return false, err
	}
	if why, _, err := a.findInterruption(ctx); err != nil || why != "" {
		return false, err // nothing is applied yet; what changed is checked at once
	}
	if err := a.run(r.withAccountOf(ctx, s), c); err != nil {
		return false, err
	}
	err := r.updateSource(ctx, s, func(now *v1alpha1.Source) {
		now.Status.Inventory, now.Status.Settings, now.Status.AttemptedCommit = a.newInventory(), settings, c.Commit
		if now.Generation != s.Generation {
			return // the check of the present spec reports
		}
		now.Status.ObservedGeneration, now.Status.SyncRequest, now.Status.Errors = s.Generation, s.Spec.SyncRequest, a.errors
		now.Status.Objects = v1alpha1.SourceObjects{Total: int32(len(c.Objects)), Applied: int32(max(0, len(c.Objects)-a.failed)), Kept: int32(len(a.decision.Keep))}
		now.Status.Objects.Omitted, now.Status.Builds = int32(c.Omitted), newBuilt(c.Builds)
		setRendered(now)
		if a.failed == 0 && len(a.failedRemovals) == 0 {
			now.Status.Commit, now.Status.ShortCommit, now.Status.Message, now.Status.Author = c.Commit, shortCommit(c.Commit), phrase.EscapeLine(c.Message), phrase.EscapeLine(c.Author)
			now.Status.Digest = c.Digest
			setSourceCondition(now, v1alpha1.SourceApplied, metav1.ConditionTrue, atoll.ReasonApplied, formatApplied(len(c.Objects), len(a.decision.Keep)))
			return
		}
		setSourceCondition(now, v1alpha1.SourceApplied, metav1.ConditionFalse, a.reason, fmt.Sprintf("commit %s: %s", shortCommit(c.Commit), a.describeFailure()))
	})
	return a.failed == 0 && len(a.failedRemovals) == 0, err
}

// setRendered reports that the content is read, and what of it is left out.
func setRendered(now *v1alpha1.Source) {
	text := "the content of the commit is read"
	if n := int(now.Status.Objects.Omitted); n > 0 {
		text += fmt.Sprintf("; %s of Helm left out, as spec.build.helm.hooks states", phrase.CountNoun(n, "hook"))
	}
	setSourceCondition(now, v1alpha1.SourceRendered, metav1.ConditionTrue, atoll.ReasonRendered, text)
}

// newBuilt returns the builds of a content for the status.
func newBuilt(builds []render.Build) (out []v1alpha1.SourceBuilt) {
	for _, b := range builds {
		out = append(out, v1alpha1.SourceBuilt{Path: cmp.Or(b.Dir, "."), Type: v1alpha1.SourceBuildType(b.Type), Chart: phrase.TruncateText(phrase.EscapeLine(b.Chart), 256)})
	}
	return out
}

func formatApplied(applied, kept int) string {
	text := phrase.CountNoun(applied, "object") + " on the hub as in the commit"
	if kept > 0 {
		text += fmt.Sprintf("; %s no longer in the content, kept", phrase.CountNoun(kept, "object"))
	}
	return text
}

// keepWithoutDescent keeps every object when the commit does not descend from those of the inventory, because a history
// that was rewritten removes nothing. Removals wait while commits cannot be compared.
func (a *application) keepWithoutDescent(ctx context.Context, c gitfetch.Content, request gitfetch.Request) error {
	if len(a.decision.Remove) == 0 {
		return nil
	}
	h := changes.History{Applied: a.source.Status.Commit, Attempted: a.source.Status.AttemptedCommit, Now: c.Commit}
	if h.IsUnknown() {
		a.decision.KeepAll(atoll.ReasonHistoryRewritten)
		return nil
	}
	request.Wants = nil
	for _, ancestor := range h.Ancestors() {
		request.Descends = &gitfetch.Descent{Old: ancestor, New: c.Commit}
		answer, err := a.reconciler.Fetcher.Fetch(ctx, request)
		var failure *gitfetch.Failure
		switch {
		case errors.As(err, &failure) && h.MayWait():
			a.failedRemovals, a.decision.Remove = a.decision.Remove, nil
			a.reason = failure.Reason
			a.errors = append(a.errors, v1alpha1.SourceError{Message: fmt.Sprintf("the commit cannot be compared with %s, an applied one: %s", shortCommit(ancestor), failure.Message)})
			return nil
		case err != nil && failure == nil:
			return err
		case failure != nil || !answer.Descends:
			a.decision.KeepAll(atoll.ReasonHistoryRewritten)
			return nil
		}
	}
	return nil
}
