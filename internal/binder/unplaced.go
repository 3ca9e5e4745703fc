package binder

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/kinds"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/reconcile"
)

const (
	// unplacedEventMaxAge is how old a template may be that gets an Event because nothing places it: after
	// a start of the hub, old templates get none.
	unplacedEventMaxAge = time.Minute
	// withdrawAfter is how long a template that is placed keeps the condition of before. In that time its clusters report,
	// or it has the condition of an object that is nowhere, and either status replaces the condition without a write more.
	withdrawAfter = 20 * time.Second
	// unselectedWorkers write statuses of templates that nothing places at a time.
	unselectedWorkers = 4
)

// reportUnplaced records, after a while, an Event for a new template that nothing places, and the kind's own condition
// in its status.
func (b *Binder) reportUnplaced(t *unstructured.Unstructured, sub policymatch.Subject) {
	hasCondition := kinds.HasUnselected(t, string(atoll.ReasonNotSelected))
	isNew := time.Since(t.GetCreationTimestamp().Time) <= unplacedEventMaxAge
	switch {
	case b.ReadOnly || b.Events == nil || !isNew && !hasCondition:
	case !b.IsUnexpectedlyUnplaced(sub): // it stays on the hub on purpose
		b.withdrawUnselected(t, 0)
	default:
		b.unselected.EnqueueAfter(sub.Key, reportWaitAfter)
		if isNew {
			time.AfterFunc(reportWaitAfter, func() { b.recordUnplacedEvent(sub.Key, sub.UID) })
		}
	}
}

// withdrawUnselected removes the condition of a template, after a while.
func (b *Binder) withdrawUnselected(t *unstructured.Unstructured, after time.Duration) {
	if !b.ReadOnly && kinds.HasUnselected(t, string(atoll.ReasonNotSelected)) {
		b.unselected.EnqueueAfter(policymatch.ItemKeyOf(t), after)
	}
}

// unplacedMessage returns what a person can do for an object that nothing places.
func (b *Binder) unplacedMessage(key atoll.ItemKey) string {
	return "nothing places it, so that it stays on the hub. To place it: " + atoll.PlaceEverywhereCommand(b.kubectlResourceName(key), key.Namespace, key.Name)
}

// recordUnplacedEvent records an Event for the template if nothing places it.
func (b *Binder) recordUnplacedEvent(key atoll.ItemKey, uid string) {
	if now, ok := b.Templates.Get(key); ok && string(now.GetUID()) == uid && b.IsUnexpectedlyUnplaced(policymatch.SubjectFromObject(now)) {
		b.Events.RecordRefusal(key, atoll.ReasonNotSelected, b.unplacedMessage(key))
	}
}

// reconcileUnselected writes the condition of a template that nothing places, or removes the condition of one that is
// placed. A status of another writer stays.
func (b *Binder) reconcileUnselected(ctx context.Context, key atoll.ItemKey) (again time.Duration, err error) {
	now, ok := b.Templates.Get(key)
	if !ok || now.GetDeletionTimestamp() != nil {
		return 0, nil
	}
	status, changed := kinds.WithoutUnselected(now, string(atoll.ReasonNotSelected))
	if b.IsUnexpectedlyUnplaced(policymatch.SubjectFromObject(now)) {
		if status, changed = kinds.UnselectedStatus(now, string(atoll.ReasonNotSelected), b.unplacedMessage(key)); changed {
			kinds.FillTimePlaceholders(status, time.Now())
		}
	}
	if !changed {
		return 0, nil
	}
	next := now.DeepCopy()
	next.Object["status"] = status
	if err := b.Client.Status().Patch(ctx, next, client.MergeFromWithOptions(now, client.MergeFromWithOptimisticLock{}), fieldOwner); client.IgnoreNotFound(err) != nil {
		return 0, fmt.Errorf("write the status of %s, which nothing places: %w", key, err)
	}
	return 0, nil
}

// newUnselectedLoop returns the loop that writes the conditions of templates that nothing places.
func newUnselectedLoop(b *Binder) *reconcile.Loop[atoll.ItemKey] {
	return reconcile.New(reconcile.Options[atoll.ItemKey]{
		Name: "unselected", Reconcile: b.reconcileUnselected, Workers: unselectedWorkers,
		Failed: func(key atoll.ItemKey, err error) {
			if !apierrors.IsConflict(err) { // a template that gets placed gets a finalizer, too
				b.Log.Error("could not write a status; trying again", "template", key.String(), "err", err)
			}
		},
	})
}

// kubectlResourceName returns the resource of an object as kubectl takes it.
func (b *Binder) kubectlResourceName(key atoll.ItemKey) string {
	if r, ok := b.Kinds.ResourceOfKey(key); ok {
		return r.GroupResource().String()
	}
	return strings.ToLower(key.Kind)
}

// IsUnexpectedlyUnplaced reports whether nothing places an object of a kind that people place by itself, and
// nothing that is placed needs it.
func (b *Binder) IsUnexpectedlyUnplaced(sub policymatch.Subject) bool {
	if kinds.IsUsefulUnplaced(policymatch.GroupKindOf(sub.Key)) || policymatch.DefaultExclusionReason(sub) != "" || b.isHubOnly(sub.Key, sub.Labels, sub.Annotations) {
		return false
	}
	d, _ := b.decidePlacingSource(sub)
	return d.Winner == nil && !b.isUsedByBundle(sub)
}
