package binder

import (
	"context"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/kinds"
	"atoll.dev/atoll/internal/policymatch"
)

const (
	// unplacedEventMaxAge is how old a template may be that gets an Event because nothing places it: after
	// a start of the hub, old templates get none.
	unplacedEventMaxAge = time.Minute
	// unselectedStatusRetry is how long a status waits after a conflict. A template that gets placed gets a finalizer, too.
	unselectedStatusRetry = time.Second
	// unselectedWriters write such statuses at a time.
	unselectedWriters = 4
	// unselectedStatusTimeout bounds one of their writes.
	unselectedStatusTimeout = 30 * time.Second
)

// reportUnplaced records, after a while, an Event for a new template that nothing places, and the kind's own condition
// in its status.
func (b *Binder) reportUnplaced(t *unstructured.Unstructured, sub policymatch.Subject) {
	_, hasCondition := kinds.WithoutUnselected(t, string(atoll.ReasonNotSelected))
	isNew := time.Since(t.GetCreationTimestamp().Time) <= unplacedEventMaxAge
	switch {
	case b.ReadOnly || b.Events == nil || !isNew && !hasCondition:
	case !b.IsUnexpectedlyUnplaced(sub):
		b.withdrawUnselected(t)
	default:
		time.AfterFunc(reportWaitAfter, func() {
			if isNew {
				b.recordUnplacedEvent(sub.Key, sub.UID)
			}
			b.writeUnselectedStatus(sub.Key, sub.UID)
		})
	}
}

// withdrawUnselected removes the condition of a template that something places by now, or that stays on the hub on purpose.
func (b *Binder) withdrawUnselected(t *unstructured.Unstructured) {
	if _, has := kinds.WithoutUnselected(t, string(atoll.ReasonNotSelected)); has && !b.ReadOnly {
		go b.writeUnselectedStatus(policymatch.ItemKeyOf(t), string(t.GetUID()))
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

// writeUnselectedStatus writes the condition of a template that nothing places, or removes the condition of one that is
// placed. A status of another writer stays.
func (b *Binder) writeUnselectedStatus(key atoll.ItemKey, uid string) {
	now, ok := b.Templates.Get(key)
	if !ok || string(now.GetUID()) != uid || now.GetDeletionTimestamp() != nil {
		return
	}
	status, changed := kinds.WithoutUnselected(now, string(atoll.ReasonNotSelected))
	if b.IsUnexpectedlyUnplaced(policymatch.SubjectFromObject(now)) {
		if status, changed = kinds.UnselectedStatus(now, string(atoll.ReasonNotSelected), b.unplacedMessage(key)); changed {
			kinds.FillTimePlaceholders(status, time.Now())
		}
	}
	if !changed {
		return
	}
	b.unselectedWrites <- struct{}{}
	defer func() { <-b.unselectedWrites }()
	ctx, cancel := context.WithTimeout(context.Background(), unselectedStatusTimeout)
	defer cancel()
	next := now.DeepCopy()
	next.Object["status"] = status
	err := b.Client.Status().Patch(ctx, next, client.MergeFromWithOptions(now, client.MergeFromWithOptimisticLock{}), fieldOwner)
	switch {
	case apierrors.IsConflict(err):
		time.AfterFunc(unselectedStatusRetry, func() { b.writeUnselectedStatus(key, uid) })
	case client.IgnoreNotFound(err) != nil:
		b.Log.Warn("the status of an object that nothing places is not written", "template", key.String(), "err", err)
	}
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
