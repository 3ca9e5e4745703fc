package sources

import (
	"context"
	"errors"
	"slices"

	"atoll.dev/atoll/internal/sources/changes"
)

var (
	errPolicyRefused = errors.New("it waits for a policy of the variants, which could not be applied: clusters of a variant would get the object as it is without the variant")
	errObjectRefused = errors.New("the policy of the variants waits for its object, which could not be applied")
)

// transitionHash is the hash of a policy that a transition replaced.
const transitionHash = "transition"

// applyObjects applies what has changed. Policies of variants come before their objects. A policy that changes together with its
// object is replaced by a transition first, and by its last form after the object. Nothing comes after a policy that is refused.
func (a *application) applyObjects(ctx context.Context) error {
	var failed []int
	fail := func(i int, err error) {
		a.reportFailure(i, err)
		failed = append(failed, i)
	}
	blocked := false
	last := map[int]int{} // templates, by the policies that are applied after them
	for _, t := range a.wanted.FindTransitions(a.source, a.decision) {
		err := a.applyTransition(ctx, t)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			blocked = true
			fail(t.Template, err)
		} else if t.Policy >= 0 {
			last[t.Policy] = t.Template
		}
	}
	isLast := func(i int) bool { _, ok := last[i]; return ok }
	order := slices.Concat(filterIndexes(a.decision.Apply, func(i int) bool { return !isLast(i) }), filterIndexes(a.decision.Apply, isLast))
	for _, i := range order {
		object, waits := last[i]
		switch {
		case slices.Contains(failed, i):
		case blocked:
			fail(i, errPolicyRefused)
		case waits && slices.Contains(failed, object):
			fail(i, errObjectRefused)
		default:
			err := a.applyObject(ctx, i)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				blocked = a.wanted.IsOverridePolicy(a.source, i)
				fail(i, err)
			}
		}
	}
	// A transition whose last form is not applied is on the hub, and not what the inventory had.
	for _, i := range filterIndexes(failed, isLast) {
		a.wanted.Keys[i].Hash = transitionHash
	}
	a.keepOldHashes(filterIndexes(failed, func(i int) bool { return !isLast(i) }))
	return nil
}

func filterIndexes(all []int, keep func(int) bool) []int {
	return slices.DeleteFunc(slices.Clone(all), func(i int) bool { return !keep(i) })
}

// applyTransition applies a policy that is valid for an object as the hub has it, and as the commit has it.
func (a *application) applyTransition(ctx context.Context, t changes.Transition) error {
	if t.Policy >= 0 {
		return a.applyForm(ctx, t.Policy, t.Object)
	}
	for i, o := range a.decision.Remove {
		if changes.KeyOf(o) == changes.PolicyKey(t.Object) {
			a.decision.Remove[i].Hash = transitionHash
		}
	}
	_, err := a.sendApply(ctx, a.objectsOf(t.Resource, t.Object.GetNamespace()), t.Object)
	return err
}
