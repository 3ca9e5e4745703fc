package sources

import (
	"cmp"
	"context"
	"errors"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/sources/changes"
	"atoll.dev/atoll/internal/sources/fetch"
)

var (
	errPolicyRefused = errors.New("it waits for a policy of the variants, which could not be applied: clusters of a variant would get the object as it is without the variant")
	errObjectRefused = errors.New("the policy of the variants waits for its object, which could not be applied")
)

// errExcludesMore is why a policy is not applied that would take its object out of clusters.
var errExcludesMore = errors.New("a new version of the hub, another type of a path, another address of the Repository, other values of valuesFrom or a version that is not later would take its object out of clusters that have it; " +
	"state what the clusters get in spec, or run `atoll source sync` to take it out")

// transitionHash is the hash of a policy that a transition replaced.
const transitionHash = "transition"

// applyObjects applies what has changed. Policies of variants come before their objects. A policy that changes together with its
// object is replaced by a transition first, and by its last form after the object. Nothing comes after a policy that is refused,
// and no policy comes whose object the hub would refuse: it would change an object of another owner.
func (a *application) applyObjects(ctx context.Context) error {
	o := orderedApply{application: a, last: map[int]int{}}
	for _, t := range a.wanted.FindTransitions(a.source, a.decision) {
		if err := o.startTransition(ctx, t); err != nil {
			return err
		}
	}
	if err := o.holdNewGenerated(ctx); err != nil {
		return err
	}
	order := slices.Concat(filterIndexes(a.decision.Apply, func(i int) bool { return !o.isLast(i) }), filterIndexes(a.decision.Apply, o.isLast))
	for _, i := range order {
		if slices.Contains(o.failed, i) {
			continue
		}
		if err := o.applyInTurn(ctx, i); ctx.Err() != nil {
			return ctx.Err()
		} else if err != nil {
			o.failObject(i, err)
		}
	}
	// A transition whose last form is not applied is on the hub, and not what the inventory had.
	for _, i := range filterIndexes(o.failed, o.isLast) {
		a.wanted.Keys[i].Hash = transitionHash
	}
	a.keepOldHashes(filterIndexes(o.failed, func(i int) bool { return !o.isLast(i) }))
	return nil
}

// orderedApply is how far the objects are applied.
type orderedApply struct {
	*application
	failed []int
	// blocked is true from a policy on that is refused.
	blocked bool
	// last are the policies that are applied after their templates, with these.
	last map[int]int
}

func (o *orderedApply) isLast(i int) bool { _, ok := o.last[i]; return ok }

func (o *orderedApply) failObject(i int, err error) {
	o.reportFailure(i, err)
	o.failed = append(o.failed, i)
}

// startTransition applies a transition whose object the hub would take. The error is that of the context.
func (o *orderedApply) startTransition(ctx context.Context, t changes.Transition) error {
	refused := o.tryObject(ctx, t.Template)
	err := refused
	if err == nil {
		err = o.checkExclusions(ctx, t.Template, t.Object)
	}
	if err == nil {
		err = o.applyTransition(ctx, t)
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err == nil && t.Policy >= 0:
		o.last[t.Policy] = t.Template
	case err != nil:
		o.failObject(t.Template, err)
		if o.blocked = o.blocked || refused == nil; t.Policy >= 0 {
			o.failObject(t.Policy, errObjectRefused)
		}
	}
	return nil
}

// applyInTurn applies an object, unless one before it failed that it needs.
func (o *orderedApply) applyInTurn(ctx context.Context, i int) error {
	if o.blocked {
		return errPolicyRefused
	}
	object, waits := o.last[i]
	if waits && slices.Contains(o.failed, object) {
		return errObjectRefused
	}
	var err error
	if object, has := o.wanted.FindObject(i); has && !waits {
		if slices.Contains(o.decision.Apply, object) && !slices.Contains(o.failed, object) {
			if err := o.tryObject(ctx, object); err != nil {
				o.failObject(object, err)
				return errObjectRefused
			}
		}
		err = o.checkExclusions(ctx, object, o.wanted.Objects[i])
	}
	if err == nil {
		err = o.applyObject(ctx, i)
	}
	o.blocked = err != nil && o.wanted.IsOverridePolicy(o.source, i)
	return err
}

// tryObject returns why the hub would refuse an object, by a dry run.
func (a *application) tryObject(ctx context.Context, i int) error {
	form := a.wanted.Objects[i]
	if a.wanted.Resources[i].Empty() {
		return &meta.NoKindMatchError{GroupKind: form.GroupVersionKind().GroupKind()}
	}
	live, err := a.readLive(ctx, i)
	if err != nil {
		return err
	}
	_, _, err = a.applyOver(ctx, i, live, a.keepGenerated(i, form, live), metav1.DryRunAll)
	return err
}

// errGeneratedTogether is why an object is not created while another one is refused.
var errGeneratedTogether = errors.New("another new object of which the chart makes values by itself is refused, and their values can belong together")

// holdNewGenerated holds new objects with values that the chart makes by itself, while one of them is refused. Values that belong together,
// such as a certificate and the CA of a webhook, are then of one rendering. The error is that of the context.
func (o *orderedApply) holdNewGenerated(ctx context.Context) error {
	isNew := func(i int) bool {
		return len(o.wanted.Generated[i]) > 0 && o.oldEntry(i).Hash == "" && !slices.Contains(o.failed, i)
	}
	created := filterIndexes(o.decision.Apply, isNew)
	if len(created) < 2 {
		return nil
	}
	refused := map[int]error{}
	for _, i := range created {
		if err := o.tryObject(ctx, i); ctx.Err() != nil {
			return ctx.Err()
		} else if err != nil && !(apierrors.IsNotFound(err) && o.bringsNamespaceOf(i)) {
			refused[i] = err
		}
	}
	if len(refused) == 0 {
		return nil
	}
	for _, i := range created {
		o.failObject(i, cmp.Or(refused[i], errGeneratedTogether))
	}
	return nil
}

// bringsNamespaceOf reports whether the namespace of an object is applied with it, so that no dry run takes the object before.
func (o *orderedApply) bringsNamespaceOf(i int) bool {
	return slices.ContainsFunc(o.decision.Apply, func(n int) bool {
		key := o.wanted.Keys[n]
		return key.APIVersion == "v1" && key.Kind == "Namespace" && key.Name == o.wanted.Keys[i].Namespace && !slices.Contains(o.failed, n)
	})
}

func filterIndexes(all []int, keep func(int) bool) []int {
	return slices.DeleteFunc(slices.Clone(all), func(i int) bool { return !keep(i) })
}

// applyTransition applies a policy that is valid for an object as the hub has it, and as the commit has it.
func (a *application) applyTransition(ctx context.Context, t changes.Transition) error {
	live, err := a.readLive(ctx, t.Template)
	if err != nil {
		return err
	}
	if live != nil {
		t.FitObjects(live, a.wanted.Objects[t.Template], changes.FieldManagerOf(a.source))
	}
	if t.Policy >= 0 {
		return a.applyForm(ctx, t.Policy, t.Object)
	}
	for i, o := range a.decision.Remove {
		if changes.KeyOf(o) == changes.PolicyKey(t.Object) {
			a.decision.Remove[i].Hash = transitionHash
		}
	}
	_, err = a.sendApply(ctx, a.objectsOf(t.Resource, t.Object.GetNamespace()), t.Object)
	return err
}

// checkExclusions returns why a policy is not applied: it would exclude an object from clusters that have it, and neither the spec nor
// a commit states that.
func (a *application) checkExclusions(ctx context.Context, object int, policy *unstructured.Unstructured) error {
	mayBeWithdrawn := a.unedited && a.check.place.Type != fetch.TypeGit
	if !a.keepsPlaced && !mayBeWithdrawn || a.oldEntry(object).Hash == "" {
		return nil
	}
	resource := v1alpha1.GroupVersion.WithResource("overridepolicies")
	if policy.GetNamespace() == "" {
		resource = v1alpha1.GroupVersion.WithResource("clusteroverridepolicies")
	}
	existing, err := a.objectsOf(resource, policy.GetNamespace()).Get(ctx, policy.GetName(), metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if !changes.ExcludesMore(existing, policy) {
		return nil
	}
	if !a.keepsPlaced {
		if is, err := a.isLaterOnce(ctx); is || err != nil {
			return err
		}
	}
	a.holdsExclusion = true
	return errExcludesMore
}

// isLaterOnce returns what isLater reports, which is found out once for all objects.
func (a *application) isLaterOnce(ctx context.Context) (bool, error) {
	if a.later != nil {
		return *a.later, nil
	}
	is, err := a.isLater(ctx)
	if err == nil {
		a.later = &is
	}
	return is, err
}

// isLater reports whether the revision comes after those that were applied or attempted. A repository that lost a version, or has another
// archive of it, gives a revision that no person stated, and that comes after none. The error is one of the hub.
func (a *application) isLater(ctx context.Context) (bool, error) {
	for _, ancestor := range a.newHistory().Ancestors() {
		descends, failure, err := a.readDescent(ctx, ancestor)
		if err != nil {
			return false, err
		}
		if failure != nil || !descends {
			return false, nil
		}
	}
	return true, nil
}

// attemptedSettings returns the settings of this attempt. They are those before while a policy waits for an edit or a sync.
func (a *application) attemptedSettings(settings string) string {
	if a.holdsExclusion {
		return a.source.Status.Settings
	}
	return settings
}

// stayingPolicies are the names of policies whose objects stay, with the reason. It is empty where a removal failed.
type stayingPolicies map[string]string

// keepPolicy keeps an object that is the policy of one that stays. It reports whether it did.
func (s stayingPolicies) keepPolicy(a *application, o v1alpha1.SourceObject) bool {
	why, stays := s[o.Name]
	if !stays || !changes.IsOverridePolicy(a.source.Name, o) {
		return false
	}
	if why == "" {
		a.failedRemovals = append(a.failedRemovals, o)
		return true
	}
	o.Kept = why
	a.decision.Keep = append(a.decision.Keep, o)
	return true
}
