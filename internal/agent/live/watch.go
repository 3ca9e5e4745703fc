package live

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// placedObjectWatch is one watch.
type placedObjectWatch struct {
	s    *PlacedObjectServer
	a    liveRequest
	who  *ownershipResolver
	send func(watch.EventType, runtime.Object) error
	// sent holds the existing objects, and whether the client has received them.
	shownUIDs map[types.UID]bool
	// waiting are those whose owner's record is not complete.
	waiting map[types.UID]pendingObject
	// share is the memory of all this, waitingBytes that of waiting, and listed the number of objects that
	// are being listed.
	share                *watchMemoryShare
	waitingBytes, listed int
}

// pendingObject is an object that may turn out to be placed.
type pendingObject struct {
	obj   runtime.Object
	until time.Time
	bytes int
}

// countMemory counts the memory of the watch. The error is errWatchMemory when the watch is to end.
func (v *placedObjectWatch) countMemory() error {
	return v.share.resizeShare(identityBytes*(len(v.who.above)+v.listed) + shownBytes*len(v.shownUIDs) + v.waitingBytes)
}

// keepUntilOwnerRecorded keeps an object until its owner's record is complete.
func (v *placedObjectWatch) keepUntilOwnerRecorded(uid types.UID, l pendingObject) {
	l.bytes = estimateObjectBytes(l.obj)
	v.waitingBytes += l.bytes
	v.waiting[uid] = l
}

// dropPendingObject drops an object that waits, if it does.
func (v *placedObjectWatch) dropPendingObject(uid types.UID) {
	v.waitingBytes -= v.waiting[uid].bytes
	delete(v.waiting, uid)
}

// serveWatch watches what is placed from a version on.
func (s *PlacedObjectServer) serveWatch(w http.ResponseWriter, r *http.Request, a liveRequest) error {
	ctx, end := context.WithCancelCause(r.Context())
	defer end(nil)
	if a.options.ResourceVersion == "" || a.options.ResourceVersion == "0" {
		return apierrors.NewBadRequest("a watch begins at a version, which a list has")
	}
	v := &placedObjectWatch{s: s, a: a, who: newOwnershipResolver(s.o.Client, s.o.Records), shownUIDs: map[types.UID]bool{}, waiting: map[types.UID]pendingObject{}, share: s.watches.beginShare(end)}
	defer v.share.release()
	v.who.grown = v.countMemory
	select {
	case s.slots <- struct{}{}:
	case <-ctx.Done():
		return nil
	}
	err := v.recordInitialOwnership(ctx)
	<-s.slots
	if err != nil {
		return watchEndError(ctx, err)
	}
	options := metav1.ListOptions{
		Watch: true, AllowWatchBookmarks: true, ResourceVersion: a.options.ResourceVersion, TimeoutSeconds: a.options.TimeoutSeconds,
		LabelSelector: a.options.LabelSelector, FieldSelector: a.options.FieldSelector,
	}
	source, err := a.client.Get().NamespaceIfScoped(a.namespace, a.namespace != "").Resource(a.resource).VersionedParams(&options, params).Watch(ctx)
	if err != nil {
		return watchEndError(ctx, err)
	}
	defer source.Stop()
	v.send = newEventWriter(w, a.GroupVersion())
	if err := watchEndError(ctx, v.run(ctx, source)); !errors.Is(err, errEnded) && r.Context().Err() == nil {
		s.o.Log.Debug("a watch of what is placed, for the hub, ended early", "resource", a.resource, "namespace", a.namespace, "err", err)
		_ = v.send(watch.Error, statusOf(err)) // the only error is that the asker has gone
	}
	return nil
}

// watchEndError returns why a watch ends: errWatchMemory where its memory did, otherwise err.
func watchEndError(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errWatchMemory) {
		return errWatchMemory
	}
	return err
}

// recordInitialOwnership starts by recording the owner of every object that is there.
func (v *placedObjectWatch) recordInitialOwnership(ctx context.Context) error {
	res, ok := v.s.o.Client.APIs().LookupKind(v.a.GroupVersionKind)
	if !ok {
		return fmt.Errorf("the member does not serve %s", v.a.resource)
	}
	if v.a.resource == "events" {
		return nil // metadata does not name what an Event is about, and the end of an Event has no meaning
	}
	var there []metav1.Object
	err := v.who.forEachMetadata(ctx, res, v.a.namespace, metav1.ListOptions{LabelSelector: v.a.options.LabelSelector}, func(m *metav1.PartialObjectMetadata) {
		v.listed++
		there = append(there, &metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, UID: m.UID, OwnerReferences: m.OwnerReferences})
	})
	if err != nil {
		return err
	}
	if err := v.who.prefetchOwners(ctx, v.a.GroupVersionKind, there); err != nil {
		return err
	}
	for _, m := range there {
		w, err := v.who.ownershipOf(ctx, v.a.GroupVersionKind, m)
		if err != nil {
			return err
		}
		v.shownUIDs[m.GetUID()] = w == placed
	}
	clear(v.who.whole) // what comes later was not among them
	v.listed = 0
	return v.countMemory()
}

// run works until the member's watch ends, or the client has gone.
func (v *placedObjectWatch) run(ctx context.Context, source watch.Interface) error {
	retry := time.NewTicker(retryEvery)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return errEnded
		case now := <-retry.C:
			if err := v.retryPending(ctx, now); err != nil {
				return err
			}
			if err := v.countMemory(); err != nil {
				return err
			}
		case e, ok := <-source.ResultChan():
			if !ok {
				return errEnded
			}
			if err := v.handleEvent(ctx, e); err != nil {
				return err
			}
			if err := v.countMemory(); err != nil {
				return err
			}
		}
	}
}

// handleEvent takes an event of the member's.
func (v *placedObjectWatch) handleEvent(ctx context.Context, e watch.Event) error {
	switch e.Type {
	case watch.Bookmark:
		return v.send(e.Type, e.Object)
	case watch.Error:
		return apierrors.FromObject(e.Object)
	}
	m, err := meta.Accessor(e.Object)
	if err != nil {
		return fmt.Errorf("a watch of %s gave a %T: %w", v.a.resource, e.Object, err)
	}
	v.dropPendingObject(m.GetUID())
	if e.Type == watch.Deleted {
		return v.handleDeleted(ctx, e.Object, m)
	}
	return v.sendPresentObject(ctx, e.Object, m, time.Now().Add(retryFor))
}

// sendPresentObject sends an object that is there, by the object's own owner.
func (v *placedObjectWatch) sendPresentObject(ctx context.Context, obj runtime.Object, m metav1.Object, until time.Time) error {
	w, err := v.who.ownershipOf(ctx, v.a.GroupVersionKind, m)
	if err != nil {
		return err
	}
	told, known := v.shownUIDs[m.GetUID()]
	if w == lost && !known {
		return nil // when it goes too, it is not known of what
	}
	// An object that was placed and is terminating is visible until it is gone.
	if w == placed || told && m.GetDeletionTimestamp() != nil {
		v.shownUIDs[m.GetUID()] = true
		if told {
			return v.send(watch.Modified, obj)
		}
		return v.send(watch.Added, obj)
	}
	if w == pending {
		v.keepUntilOwnerRecorded(m.GetUID(), pendingObject{obj: obj, until: until})
		return nil
	}
	v.shownUIDs[m.GetUID()] = false
	if told {
		return v.send(watch.Deleted, obj)
	}
	return nil
}

// handleDeleted forwards the deletion of an object to the hub if the watch has shown the object or
// the object was placed.
func (v *placedObjectWatch) handleDeleted(ctx context.Context, obj runtime.Object, m metav1.Object) error {
	told, known := v.shownUIDs[m.GetUID()]
	delete(v.shownUIDs, m.GetUID())
	if !known {
		w, err := v.who.ownershipOf(ctx, v.a.GroupVersionKind, m)
		if err != nil {
			return err
		}
		if w == lost && v.a.resource != "events" {
			return apierrors.NewResourceExpired("a deleted object cannot be distinguished from one that was never placed; list again")
		}
		told = w == placed
	}
	if at, known := ownerChainStart(v.a.GroupVersionKind, m); known {
		delete(v.who.above, at.toIdentity())
	}
	if told {
		return v.send(watch.Deleted, obj)
	}
	return nil
}

// retryPending repeats the objects that wait for the record of their owner. The owner may be
// deleted, and its objects may have a new owner of the same name: the controllers are read again.
func (v *placedObjectWatch) retryPending(ctx context.Context, now time.Time) error {
	metas := make(map[types.UID]metav1.Object, len(v.waiting))
	for uid, l := range v.waiting {
		m, err := meta.Accessor(l.obj)
		if err != nil {
			return fmt.Errorf("a watch of %s gave a %T: %w", v.a.resource, l.obj, err)
		}
		metas[uid] = m
		v.who.dropControllerChain(v.a.GroupVersionKind, m)
	}
	for uid, l := range v.waiting {
		v.dropPendingObject(uid)
		if !now.After(l.until) {
			if err := v.sendPresentObject(ctx, l.obj, metas[uid], l.until); err != nil {
				return err
			}
			continue
		}
		if v.shownUIDs[uid] { // as in lists, it is placed no more
			v.shownUIDs[uid] = false
			if err := v.send(watch.Deleted, l.obj); err != nil {
				return err
			}
		}
	}
	return nil
}
